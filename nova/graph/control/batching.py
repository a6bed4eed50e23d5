"""`vmap` of ops with regions: ops with regions over batches.

In: a node of one example, its operands with a leading batch axis where the examples differ, and
`batched_graph`, which rebuilds a graph for a batch. Out: the results, each with a leading batch
axis. The rules are those of jax: a branch or a condition that differs between examples computes all
branches, or iterates until the last example ends, and selects per example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nova.core.dtypes import TensorType, bool_, i64
from nova.graph.control.call import call_node
from nova.graph.control.regions import Region, control_node, substitute
from nova.graph.order import topological
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.ops.loops.control import CALL, COND, SCAN, WHILE

BatchedGraph = Callable[[Sequence[Tensor], dict[int, Tensor], int], list[Tensor]]
"""(outputs, replacements of tensors of one example by id, size) -> outputs of the batch."""


def batch_control(
    node: Tensor,
    operands: Sequence[Tensor],
    flags: Sequence[bool],
    size: int,
    batched_graph: BatchedGraph,
) -> list[Tensor]:
    """The results of a node for a batch; `flags` say which operands have a batch axis."""
    rule = _Batch(node, operands, flags, size, batched_graph)
    if node.op is COND:
        return rule.select() if flags[0] else rule.branch()
    if node.op is SCAN:
        return rule.scan()
    if node.op is CALL:
        return rule.call()
    return rule.loop()


class _Batch:
    """The rules of one node."""

    def __init__(
        self,
        node: Tensor,
        operands: Sequence[Tensor],
        flags: Sequence[bool],
        size: int,
        batched_graph: BatchedGraph,
    ):
        self.node, self.operands, self.flags = node, list(operands), list(flags)
        self.size, self.batched_graph = size, batched_graph

    # --- branches -----------------------------------------------------------------------------

    def branch(self) -> list[Tensor]:
        """One branch runs for all examples."""
        regions = [
            self._region(r, self.flags[1:], [True] * len(r.results)) for r in self.node.regions
        ]
        return control_node(COND, self.operands, regions, self.node.attrs)

    def select(self) -> list[Tensor]:
        """All branches run, and each example selects its results."""
        index = self.operands[0]
        index = F.cast(index, dtype=i64) if index.dtype is bool_ else index
        index = F.clamp(index, min=0, max=len(self.node.regions) - 1)
        results: list[Tensor] = []
        for number, region in enumerate(self.node.regions):
            values = self._inlined(region)
            if not number:
                results = values
                continue
            is_chosen = F.eq(index, number)
            results = [
                _select(is_chosen, new, old) for new, old in zip(values, results, strict=True)
            ]
        return results

    def _inlined(self, region: Region) -> list[Tensor]:
        pairs = list(zip(region.params, self.operands[1:], self.flags[1:], strict=True))
        fresh = {id(p): Tensor(p.type) if f else o for p, o, f in pairs}
        results = substitute(region.results, fresh)
        batch = {id(fresh[id(p)]): o for p, o, f in pairs if f}
        return self.batched_graph(results, batch, self.size)

    # --- calls --------------------------------------------------------------------------------

    def call(self) -> list[Tensor]:
        """A scan over the examples: the code of a file is for one of them."""
        file = self.node.inputs[0].data
        assert file is not None
        params = [Tensor(i.type) for i in self.node.inputs[1:]]
        results = call_node(file, params, self.node.result_types, self.node.attrs["memory"])
        triples = list(zip(params, self.operands[1:], self.flags[1:], strict=True))
        ordered = sorted(triples, key=lambda triple: triple[2])  # the slices come last
        body = Region((Tensor(TensorType((), i64)), *(p for p, _, _ in ordered)), tuple(results))
        attrs = {
            "consts": sum(not flag for _, _, flag in triples),
            "carries": 0,
            "length": self.size,
            "reverse": False,
        }
        return control_node(SCAN, [operand for _, operand, _ in ordered], [body], attrs)

    # --- loops --------------------------------------------------------------------------------

    def scan(self) -> list[Tensor]:
        attrs = self.node.attrs
        consts, carries = attrs["consts"], attrs["carries"]
        [body] = self.node.regions
        flags = self._settled(body, self.flags, consts, carries, first=1)
        operands = self._with_batch_axes(flags, consts, consts + carries)
        # A scan reads slices along the first axis: the examples are the second.
        first_x = consts + carries
        operands[first_x:] = [
            F.moveaxis(x, 0, 1) if f else x
            for x, f in zip(operands[first_x:], flags[first_x:], strict=True)
        ]
        results = [*flags[consts:first_x], *_dependent(body, [False, *flags])[carries:]]
        region = self._region(body, [False, *flags], results)
        values = control_node(SCAN, operands, [region], attrs)
        stacked = [
            F.moveaxis(v, 1, 0) if f else v
            for v, f in zip(values[carries:], results[carries:], strict=True)
        ]
        return self._all_batched([*values[:carries], *stacked], results)

    def loop(self) -> list[Tensor]:
        consts = self.node.attrs["consts"]
        condition, body = self.node.regions
        carries = len(self.operands) - consts
        flags = self._settled(body, self.flags, consts, carries, first=0)
        [differs] = _dependent(condition, flags)
        if differs:
            flags = [*flags[:consts], *[True] * carries]
        operands = self._with_batch_axes(flags, consts, len(self.operands))
        again = self._region(condition, flags, [differs])
        step = self._region(body, flags, flags[consts:])
        if differs:
            again, step = self._until_the_last(again, step, consts)
        values = control_node(WHILE, operands, [again, step], self.node.attrs)
        return self._all_batched(values, flags[consts:])

    def _until_the_last(self, again: Region, step: Region, consts: int) -> tuple[Region, Region]:
        """The loop runs while any example does; the carries of the others stay."""
        mapping = {id(p): q for p, q in zip(again.params, step.params, strict=True)}
        (is_active,) = substitute(again.results, mapping)
        carries = step.params[consts:]
        results = tuple(
            _select(is_active, new, old) for new, old in zip(step.results, carries, strict=True)
        )
        return Region(again.params, (F.any(again.results[0]),)), Region(step.params, results)

    def _settled(
        self, body: Region, flags: Sequence[bool], consts: int, carries: int, first: int
    ) -> list[bool]:
        """The flags of the operands; a carry has a batch axis if the body gives it one."""
        settled = list(flags)
        while True:
            results = _dependent(body, [*[False] * first, *settled])[:carries]
            new = [a or b for a, b in zip(settled[consts : consts + carries], results, strict=True)]
            if new == settled[consts : consts + carries]:
                return settled
            settled[consts : consts + carries] = new

    def _with_batch_axes(self, flags: Sequence[bool], start: int, stop: int) -> list[Tensor]:
        """The operands; carries that get a batch axis in the loop have one from the beginning."""
        return [
            self._repeated(o) if start <= i < stop and f and not has else o
            for i, (o, f, has) in enumerate(zip(self.operands, flags, self.flags, strict=True))
        ]

    # --- regions ------------------------------------------------------------------------------

    def _region(self, region: Region, flags: Sequence[bool], results: Sequence[bool]) -> Region:
        """The region of a batch: parameters and results with a batch axis where flagged."""
        fresh = [Tensor(p.type) for p in region.params]
        mapping = {id(p): new for p, new in zip(region.params, fresh, strict=True)}
        single = substitute(region.results, mapping)
        params = [
            Tensor(TensorType((self.size, *p.shape), p.dtype)) if f else p
            for p, f in zip(fresh, flags, strict=True)
        ]
        batch = {id(p): q for p, q, f in zip(fresh, params, flags, strict=True) if f}
        flagged = [r for r, f in zip(single, results, strict=True) if f]
        batched = iter(self.batched_graph(flagged, batch, self.size))
        values = [next(batched) if f else r for r, f in zip(single, results, strict=True)]
        return Region(tuple(params), tuple(values))

    def _repeated(self, x: Tensor) -> Tensor:
        return F.expand(F.unsqueeze(x, 0), (self.size, *x.shape))

    def _all_batched(self, values: Sequence[Tensor], flags: Sequence[bool]) -> list[Tensor]:
        return [v if f else self._repeated(v) for v, f in zip(values, flags, strict=True)]


def _dependent(region: Region, flags: Sequence[bool]) -> list[bool]:
    """Which results of a region depend on the flagged parameters."""
    marked = {id(p) for p, f in zip(region.params, flags, strict=True) if f}
    for node in topological(region.results, stop=list(region.params)):
        if any(id(i) in marked for i in node.inputs):
            marked.add(id(node))
    return [id(r) in marked for r in region.results]


def _select(flags: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Values per example."""
    shape = (flags.shape[0], *(1,) * (new.ndim - 1))
    return F.where(F.reshape(flags, shape), new, old)
