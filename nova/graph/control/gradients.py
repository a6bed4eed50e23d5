"""Gradients of ops with regions, as ops with regions.

In: a node, the gradients of its results, and its operands. Out: the gradients of its operands.
`autodiff.py` calls this and passes its own `vjp_graph`, which differentiates a region's graph.

- `cond` becomes a `cond` whose branches are the vjps of the branches: they compute the forward
  values that they need again, in the one branch that runs.
- `scan` becomes a `scan` in the other direction. Values of the forward body that its vjp reads are
  saved: the forward scan returns them as further stacked results. A body under `nova.checkpoint`
  reads only its inputs there, so that no more than the carries are saved. The gradient of a
  constant operand is summed in a carry; if it is a matmul over the body's rows, the factors are
  stacked instead and multiplied once after the loop.
- `call` becomes the vjp of the graph that the file was compiled from.
- `while` has none: the number of iterations, and so the memory, is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nova.core.dtypes import TensorType
from nova.core.sizes import known_equal, same_shape
from nova.errors import GradientError
from nova.graph.build import constant
from nova.graph.control.call import call_vjp
from nova.graph.control.regions import Region, add_results, control_node, hoist, substitute
from nova.graph.order import topological
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.ops.loops.control import CALL, COND, RESULT, SCAN

Gradients = Sequence[Tensor | None]
VjpGraph = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], list[Tensor | None]]
"""(outputs, their gradients, sources) -> the gradient of each source; None where it is zero."""


def control_vjp(
    node: Tensor, inputs: Sequence[Tensor], grads: Mapping[int, Tensor], vjp_graph: VjpGraph
) -> Gradients:
    """The gradients of the operands of a node; `grads` are those of its results, by index."""
    assert node.op is not None
    if node.op is COND:
        return _cond(node, inputs, grads, vjp_graph)
    if node.op is CALL:
        return call_vjp(node, inputs, grads, vjp_graph)
    if node.op is SCAN:
        return _Scan(node, inputs, grads, vjp_graph).gradients()
    raise GradientError(
        "while_loop has no gradient, nor a fori_loop with a tensor as bound: the number of its "
        "iterations is not known before it runs",
        where=str(node.location),
        hint="use nova.scan or a fori_loop with ints as bounds, which an argument of nova.jit is "
        "with static_argnums=, or stop the gradient with .detach()",
    )


def zeros(type_: TensorType) -> Tensor:
    """A tensor of zeros."""
    zero = constant(0, type_.dtype)
    return F.expand(zero, type_.shape) if type_.shape else zero


# --- cond -----------------------------------------------------------------------------------------


def _cond(
    node: Tensor, inputs: Sequence[Tensor], grads: Mapping[int, Tensor], vjp_graph: VjpGraph
) -> Gradients:
    operands = inputs[1:]
    wanted = [i for i, o in enumerate(operands) if o.dtype.is_differentiable]
    positions = sorted(grads)
    regions = []
    for branch in node.regions:
        params = [Tensor(grads[i].type) for i in positions]
        sources = [branch.params[i] for i in wanted]
        pieces = vjp_graph([branch.results[i] for i in positions], params, sources)
        results = [
            p if p is not None else zeros(s.type) for p, s in zip(pieces, sources, strict=True)
        ]
        old = [Tensor(p.type) for p in branch.params]
        mapping = {id(p): new for p, new in zip(branch.params, old, strict=True)}
        regions.append(Region((*old, *params), substitute(results, mapping)))
    values = control_node(COND, [*inputs, *(grads[i] for i in positions)], regions, {})
    pieces_of: list[Tensor | None] = [None] * len(inputs)
    for i, value in zip(wanted, values, strict=True):
        pieces_of[1 + i] = value
    return pieces_of


# --- scan -----------------------------------------------------------------------------------------


class _Scan:
    """The vjp of one scan."""

    def __init__(
        self,
        node: Tensor,
        inputs: Sequence[Tensor],
        grads: Mapping[int, Tensor],
        vjp_graph: VjpGraph,
    ):
        self.node, self.inputs, self.grads = node, inputs, grads
        attrs = node.attrs
        [body] = node.regions
        consts, carries = attrs["consts"], attrs["carries"]
        self.index, *params = body.params
        self.consts = params[:consts]
        self.carries = params[consts : consts + carries]
        self.xs = params[consts + carries :]
        self.body = body
        # The gradients that the backward body takes: of the float carries, and of the used ys.
        self.carried = [i for i, c in enumerate(self.carries) if c.dtype.is_differentiable]
        self.stacked = [i for i in sorted(grads) if i >= carries]
        self.carry_grads = [Tensor(self.carries[i].type) for i in self.carried]
        self.row_grads = [Tensor(body.results[i].type) for i in self.stacked]
        outputs = [body.results[i] for i in (*self.carried, *self.stacked)]
        forward = {id(n) for n in topological(body.results)} | {id(p) for p in body.params}
        floats = [s for s in (*self.consts, *self.carries, *self.xs) if s.dtype.is_differentiable]
        pieces = vjp_graph(outputs, [*self.carry_grads, *self.row_grads], floats)
        self.pieces = {id(s): p for s, p in zip(floats, pieces, strict=True)}
        self.forward = forward

    def gradients(self) -> Gradients:
        attrs, node = self.node.attrs, self.node
        next_carries = [self._piece(self.carries[i]) for i in self.carried]
        sums, factors = self._constant_gradients()
        pieces = [self.pieces.get(id(x)) for x in self.xs]
        x_pieces = [(i, piece) for i, piece in enumerate(pieces) if piece is not None]
        # In the order of the results of the backward body.
        sum_params = [Tensor(self.consts[i].type) for i, _ in sums]
        totals = [F.add(param, piece) for param, (_, piece) in zip(sum_params, sums, strict=True)]
        rows = [piece for _, piece in x_pieces]
        rows += [factor for _, pair in factors for factor in pair]
        results = [*next_carries, *totals, *rows]

        saved = self._saved(results)
        region, constants = self._region(results, sum_params, saved)
        stacked_saved = add_results(node, saved)
        first_x = attrs["consts"] + attrs["carries"]
        operands = [
            *constants,
            *(self._grad(i, self.carries[i].type) for i in self.carried),
            *(zeros(p.type) for p in sum_params),
            *self.inputs[first_x:],
            *stacked_saved,
            *(self.grads[i] for i in self.stacked),
        ]
        backward = {
            "consts": len(constants),
            "carries": len(self.carried) + len(sums),
            "length": attrs["length"],
            "reverse": not attrs["reverse"],
        }
        values = iter(control_node(SCAN, operands, [region], backward))
        gradients: list[Tensor | None] = [None] * len(self.inputs)
        for i in self.carried:
            gradients[attrs["consts"] + i] = next(values)
        for i, _ in sums:
            gradients[i] = next(values)
        for i, _ in x_pieces:
            gradients[first_x + i] = next(values)
        for i, _ in factors:
            left, right = next(values), next(values)
            gradients[i] = F.matmul(_merge_rows(left).transpose(), _merge_rows(right))
        return gradients

    def _piece(self, source: Tensor) -> Tensor:
        piece = self.pieces.get(id(source))
        return zeros(source.type) if piece is None else piece

    def _grad(self, index: int, type_: TensorType) -> Tensor:
        return self.grads[index] if index in self.grads else zeros(type_)

    def _constant_gradients(
        self,
    ) -> tuple[list[tuple[int, Tensor]], list[tuple[int, tuple[Tensor, Tensor]]]]:
        """The gradients of constant operands: those to sum, and those that are one matmul."""
        sums: list[tuple[int, Tensor]] = []
        factors: list[tuple[int, tuple[Tensor, Tensor]]] = []
        for i, const in enumerate(self.consts):
            piece = self.pieces.get(id(const))
            if piece is None:
                continue
            pair = _row_factors(piece)
            if pair is not None and not known_equal(self.node.attrs["length"], 1):
                factors.append((i, pair))
            else:
                sums.append((i, piece))
        return sums, factors

    def _saved(self, results: Sequence[Tensor]) -> list[Tensor]:
        """The values of the forward body that the backward body reads; cheap ones are not saved."""
        variable = {id(p) for p in (*self.carries, *self.xs, self.index)}
        moving: set[int] = set(variable)
        for n in topological(self.body.results):
            if any(id(i) in moving for i in n.inputs):
                moving.add(id(n))
        available = {id(p) for p in (*self.xs, *self.consts, self.index)}
        saved: dict[int, Tensor] = {}
        stack, visited = list(results), set()
        while stack:
            n = stack.pop()
            if id(n) in visited or id(n) in available:
                continue
            visited.add(id(n))
            if self._is_forward(n) and id(n) in moving | {id(c) for c in self.carries}:
                saved[id(n)] = n
                continue
            if self._is_new_result(n):
                saved[id(n)] = n
                continue
            stack.extend(n.inputs)
        return list(saved.values())

    def _is_forward(self, n: Tensor) -> bool:
        return id(n) in self.forward and not n.regions

    def _is_new_result(self, n: Tensor) -> bool:
        """Whether a value is one that an inner scan of the forward body returns for its vjp."""
        return n.op is RESULT and id(n.inputs[0]) in self.forward

    def _region(
        self, results: Sequence[Tensor], sum_params: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> tuple[Region, list[Tensor]]:
        """The backward body, and the constant operands that it takes."""
        ids = {id(c): i for i, c in enumerate(self.consts)}
        stop = [*saved, *self.consts, *self.xs, self.index]
        used = {id(n) for n in topological(results, stop=stop)}
        consts = sorted(i for key, i in ids.items() if key in used)
        index = Tensor(self.index.type)
        inner_consts = [Tensor(self.consts[i].type) for i in consts]
        inner_xs = [Tensor(x.type) for x in self.xs]
        inner_saved = [Tensor(s.type) for s in saved]
        mapping = {id(self.index): index}
        mapping |= {id(self.consts[i]): p for i, p in zip(consts, inner_consts, strict=True)}
        mapping |= {id(x): p for x, p in zip(self.xs, inner_xs, strict=True)}
        mapping |= {id(s): p for s, p in zip(saved, inner_saved, strict=True)}
        moving = (index, *self.carry_grads, *sum_params, *inner_xs, *inner_saved, *self.row_grads)
        body = Region(moving, substitute(results, mapping))
        # Transposes of weights, for instance, are the same in every iteration.
        body, params, constants = hoist(body, inner_consts, [self.inputs[i] for i in consts])
        return Region((index, *params, *moving[1:]), body.results), constants


def _row_factors(piece: Tensor) -> tuple[Tensor, Tensor] | None:
    """The factors `(a, b)` of a gradient `a.T @ b`, with rows as first axis; None for others."""
    while _is_same_shape(piece):
        piece = piece.inputs[0]
    if piece.op is None or piece.op.name != "matmul" or piece.ndim != 2:
        return None
    left, right = piece.inputs
    if left.ndim != 2 or right.ndim != 2 or left.op is None:
        return None
    is_transpose = left.op.name == "permute" and tuple(left.attrs["axes"]) == (1, 0)
    return (left.inputs[0], right) if is_transpose else None


def _is_same_shape(value: Tensor) -> bool:
    """Whether a value is a reshape to the shape of its operand."""
    is_reshape = value.op is not None and value.op.name == "reshape"
    return is_reshape and same_shape(value.shape, value.inputs[0].shape)


def _merge_rows(stacked: Tensor) -> Tensor:
    """A stack of matrices as one matrix with all of their rows."""
    return F.reshape(stacked, (stacked.shape[0] * stacked.shape[1], stacked.shape[2]))
