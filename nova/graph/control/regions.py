"""Regions: the sub-graphs of branches and loops, and how functions are traced into them.

A region has parameters (placeholders) and results. Tensors of the enclosing graph that a traced
function uses are *captured*: they become operands of the op and further parameters of its regions,
so a region refers to nothing outside itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nova.core.dtypes import TensorType
from nova.core.pytree import TreeDef, flatten
from nova.core.records import record
from nova.graph.build import copy_node, settled
from nova.graph.capture import tracing_region
from nova.graph.order import topological
from nova.graph.tensor import Tensor, next_serial, tensor
from nova.ops import F
from nova.ops.loops.control import RESULT, control_types
from nova.ops.table import Op


@record
class Region:
    """A function of tensors: `results` computed from `params`, which are placeholders."""

    params: tuple[Tensor, ...]
    results: tuple[Tensor, ...]

    @property
    def type(self) -> tuple[tuple[TensorType, ...], tuple[TensorType, ...]]:
        return tuple(p.type for p in self.params), tuple(r.type for r in self.results)


@record
class Traced:
    """One traced function: its region without captured tensors, and the structure it returned."""

    region: Region
    structure: TreeDef
    begin: int
    """The serial number of the first tensor of the trace."""


def trace(
    function: Callable[..., Any],
    types: Sequence[TensorType],
    call: Any,
    construct: str = "loop",
    *,
    weak: Sequence[bool] = (),
) -> Traced:
    """Trace `call(function, params)` over placeholders of `types`, for a loop or a branch.

    The first parameters may be `weak`: in the function they are Python numbers.
    """
    begin = next_serial()
    params = tuple(Tensor(t) for t in types)
    for param, flag in zip(params, weak, strict=False):
        param.weak = flag
    with tracing_region(construct):
        leaves, structure = flatten(call(function, list(params)), sort_keys=True)
    results = tuple(map(as_tensor, leaves))
    for param in params:
        param.weak = False
    return Traced(Region(params, results), structure, begin)


def as_tensor(leaf: Any) -> Tensor:
    """A leaf of a pytree as a tensor; a Python number has its default dtype, and is a literal."""
    if isinstance(leaf, Tensor):
        return settled(leaf)
    value = tensor(leaf)
    value.fixed = value.fixed or isinstance(leaf, bool | int | float)
    return value


def close(traced: Sequence[Traced]) -> tuple[list[Tensor], list[list[Tensor]], list[Region]]:
    """The captured tensors of several regions, the parameters of each for them, and the regions.

    The regions have their original parameters; the caller puts the new ones in front.
    """
    captures: dict[int, Tensor] = {}
    for one in traced:
        for captured in older_tensors(one.region.results, one.begin, one.region.params):
            captures.setdefault(id(captured), captured)
    outer = list(captures.values())
    params: list[list[Tensor]] = []
    regions: list[Region] = []
    for one in traced:
        inner = [Tensor(t.type, name=t.name) for t in outer]
        mapping = dict(zip(captures, inner, strict=True))
        results = substitute(one.region.results, mapping)
        params.append(inner)
        regions.append(Region(one.region.params, results))
    return outer, params, regions


def older_tensors(
    results: Sequence[Tensor], begin: int, stop: Sequence[Tensor] = ()
) -> list[Tensor]:
    """Tensors from outside that a trace uses: older nodes, and leaves that are not literals.

    `begin` is the serial number of the first tensor of the trace; those in `stop` are its own.
    """
    captured: dict[int, Tensor] = {}
    visited: set[int] = {id(t) for t in stop}
    stack = list(reversed(results))
    while stack:
        node = stack.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if node.op is None:
            if not (node.fixed and node.data is not None):
                captured[id(node)] = node
        elif node.serial < begin:
            captured[id(node)] = node
        else:
            stack.extend(reversed(node.inputs))
    return list(captured.values())


def substitute(results: Sequence[Tensor], mapping: Mapping[int, Tensor]) -> tuple[Tensor, ...]:
    """The graph of `results` with the tensors of `mapping` (by id) replaced."""
    new: dict[int, Tensor] = dict(mapping)
    pending = list(results)
    while pending:
        # Nodes that are replaced are not entered: their inputs may be outside of the region.
        node = pending[-1]
        if id(node) in new:
            pending.pop()
            continue
        missing = [i for i in node.inputs if id(i) not in new]
        if missing:
            pending.extend(reversed(missing))
            continue
        pending.pop()
        inputs = tuple(new[id(i)] for i in node.inputs)
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        new[id(node)] = node if same else copy_node(node, inputs)
    return tuple(new[id(r)] for r in results)


def hoist(
    region: Region, params: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[Region, list[Tensor], list[Tensor]]:
    """Move computations of a loop's body that depend only on constant operands out of the loop.

    `params` are the parameters of the constant operands `inputs`. Returns the body without its
    other parameters changed, and the parameters and operands that replace them. Values that are
    larger than the operands they are computed from stay: broadcasts are fused into their readers.
    """
    invariant = {id(p) for p in params}
    order = topological(region.results, stop=[*region.params, *params])
    for node in order:
        sources = [i for i in node.inputs if not (i.op is None and i.fixed)]
        if node.op is not None and sources and all(id(s) in invariant for s in sources):
            invariant.add(id(node))
    readers = [i for n in order if id(n) not in invariant for i in n.inputs] + list(region.results)
    hoisted: dict[int, Tensor] = {
        id(n): n for n in readers if id(n) in invariant and _is_worth_hoisting(n)
    }
    if not hoisted:
        return region, list(params), list(inputs)
    values = list(hoisted.values())
    outside = dict(zip(map(id, params), inputs, strict=True))
    moved = substitute(values, outside)
    inner = [Tensor(v.type) for v in values]
    results = substitute(region.results, dict(zip(hoisted, inner, strict=True)))
    used = {id(n) for n in topological(results)}
    pairs = [(p, i) for p, i in zip(params, inputs, strict=True) if id(p) in used]
    new_params = [*(p for p, _ in pairs), *inner]
    return Region(region.params, results), new_params, [*(i for _, i in pairs), *moved]


def _is_worth_hoisting(node: Tensor) -> bool:
    if node.op is None or node.regions or node.op is RESULT or not node.type.is_static:
        return False
    return node.size > 1 and node.size <= sum(i.size for i in node.inputs)


def control_node(
    op: Op, inputs: Sequence[Tensor], regions: Sequence[Region], attrs: dict[str, Any]
) -> list[Tensor]:
    """The results of a new op with regions. Complex values are pairs of real ones in it."""
    if any(t.dtype.is_complex for t in (*inputs, *(v for r in regions for v in r.results))):
        return _with_pairs(op, inputs, regions, attrs)
    types = control_types(op.name, tuple(i.type for i in inputs), attrs, [r.type for r in regions])
    node = Tensor(types[0], op=op, inputs=tuple(inputs), attrs=attrs)
    node.regions, node.result_types = tuple(regions), types
    node.requires_grad = not node.stopped and any(i.requires_grad for i in inputs)
    return [result(node, index) for index in range(len(types))]


def _with_pairs(
    op: Op, inputs: Sequence[Tensor], regions: Sequence[Region], attrs: dict[str, Any]
) -> list[Tensor]:
    """The op with its complex operands, parameters and results as pairs of real ones."""
    split_inputs = [part for x in inputs for part in _parts(x)]
    counts = {"consts": 0, "carries": attrs.get("consts", 0)}
    begins = {name: counts[name] for name in counts if name in attrs}
    split_attrs = {
        **attrs,
        **{
            name: sum(len(_parts(x)) for x in inputs[begin : begin + attrs[name]])
            for name, begin in begins.items()
        },
    }
    split_regions = []
    for region in regions:
        params = [tuple(Tensor(t.type) for t in _parts(p)) for p in region.params]
        values = {
            id(p): F.complex(*pair) if len(pair) == 2 else pair[0]
            for p, pair in zip(region.params, params, strict=True)
        }
        results = substitute(region.results, values)
        split_regions.append(
            Region(
                tuple(t for pair in params for t in pair),
                tuple(part for r in results for part in _parts(r)),
            )
        )
    parts = iter(control_node(op, split_inputs, split_regions, split_attrs))
    types = control_types(op.name, tuple(i.type for i in inputs), attrs, [r.type for r in regions])
    return [
        F.complex(next(parts), next(parts)) if t.dtype.is_complex else next(parts) for t in types
    ]


def _parts(x: Tensor) -> tuple[Tensor, ...]:
    return (F.real(x), F.imag(x)) if x.dtype.is_complex else (x,)


def result(node: Tensor, index: int) -> Tensor:
    """Result `index` of an op with regions."""
    selected = Tensor(node.result_types[index], op=RESULT, inputs=(node,), attrs={"index": index})
    selected.requires_grad = selected.dtype.is_differentiable and node.requires_grad
    selected.region = node.region
    return selected


def add_results(node: Tensor, values: Sequence[Tensor]) -> list[Tensor]:
    """Let a scan also return `values` of its body, stacked; its other results stay the same.

    Only for gradients, which save values of the forward pass: a node without readers of these
    results computes what it did before.
    """
    [body] = node.regions
    regions = (Region(body.params, (*body.results, *values)),)
    types = control_types(
        "scan", tuple(i.type for i in node.inputs), node.attrs, [r.type for r in regions]
    )
    first = len(node.result_types)
    node.regions, node.result_types = regions, types
    return [result(node, index) for index in range(first, len(types))]
