"""Reverse-mode automatic differentiation, graph to graph: gradients differentiate again.

Each op's contribution comes from the vjp column of its row; a composite without one is
differentiated through its expansion. Nodes of a checkpoint region are recomputed for the backward
pass instead of being kept (see `checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from nova import knobs
from nova.core.location import at
from nova.core.records import record
from nova.core.sizes import known_equal
from nova.core.user_facing import user_facing
from nova.errors import GradientError
from nova.graph.accumulate import add_gradients
from nova.graph.build import constant, require_float
from nova.graph.checkpoint import Recompute
from nova.graph.control.gradients import control_vjp, zeros
from nova.graph.order import dependents, topological
from nova.graph.tensor import Tensor, on_device
from nova.ops import F
from nova.ops.loops.control import RESULT


@record
class Application:
    """One application of a vjp column: it gave the gradient of operand `operand` of `node`."""

    node: Tensor
    operand: int


@user_facing
def backward(loss: Tensor) -> None:
    """Set `.grad` of every leaf that requires gradients; adds to an existing `.grad`."""
    _require_scalar(loss)
    leaves = [t for t in topological([loss]) if t.is_leaf and t.requires_grad]
    if not leaves:
        raise GradientError(
            "nothing to differentiate: no leaf of this graph requires gradients",
            where=str(loss.location),
            hint="make parameters with nova.tensor(..., requires_grad=True)",
        )
    for leaf, grad in zip(leaves, gradients(loss, leaves), strict=True):
        leaf.grad = grad if leaf.grad is None else F.add(leaf.grad, grad)


def gradients(
    output: Tensor,
    sources: Sequence[Tensor],
    seed: Tensor | None = None,
    *,
    partial: bool = False,
) -> list[Tensor]:
    """d output / d source for each source, times `seed` (1 for a scalar output).

    A source that the output does not depend on gets zeros. With `partial` the sources are treated
    as independent: no gradient flows from one through another.
    """
    require_float(output, "the differentiated output")
    for source in sources:
        require_float(source, "a tensor differentiated against")
    if seed is None:
        _require_scalar(output)
        seed = constant(1.0, output.dtype)
        if output.shape:
            seed = F.expand(seed, output.shape)
    pieces = _propagate([output], [seed], sources, partial)
    return [
        piece if piece is not None else zeros(s.type)
        for piece, s in zip(pieces, sources, strict=True)
    ]


def _propagate(
    outputs: Sequence[Tensor],
    seeds: Sequence[Tensor],
    sources: Sequence[Tensor],
    partial: bool = False,
) -> list[Tensor | None]:
    """The gradient of each source, for gradients `seeds` of the outputs; None where it is zero."""
    order = topological(outputs, stop=sources if partial else ())
    active = dependents(order, sources)
    boundary = {id(s) for s in sources} if partial else set()
    adjoint: dict[int, Tensor] = {}
    for output, seed in zip(outputs, seeds, strict=True):
        if id(output) in active:
            before = adjoint.get(id(output))
            adjoint[id(output)] = seed if before is None else add_gradients(before, seed)
    # The gradients of the results of ops with regions, by their index.
    of_results: dict[int, dict[int, Tensor]] = {}
    recompute = Recompute()
    remember = knobs.get("check") == "1"
    for node in reversed(order):
        if node.result_types:
            grad = next(iter(of_results.get(id(node), {}).values()), None)
        else:
            grad = adjoint.get(id(node))
        if grad is None or node.op is None or id(node) in boundary:
            continue
        if node.op is RESULT:
            results = of_results.setdefault(id(node.inputs[0]), {})
            index = node.attrs["index"]
            before = results.get(index)
            results[index] = grad if before is None else add_gradients(before, grad)
            continue
        with at(node.location), on_device(node.device):
            if node.result_types:
                copy, operands = recompute.values(node, grad)
                contributions = control_vjp(copy, operands, of_results[id(node)], _propagate)
            else:
                contributions = _vjp(node, grad, recompute)
            for i, (operand, piece) in enumerate(zip(node.inputs, contributions, strict=True)):
                if id(operand) not in active:
                    continue
                if remember and node.op.vjp is not None:
                    # None is checked too; it is recorded on the gradient it came from.
                    tagged = grad if piece is None else piece
                    tagged.origin = (*tagged.origin, Application(node, i))
                if piece is None:
                    continue
                if piece.type != operand.type:
                    raise GradientError(
                        f"the vjp of {node.op.name} gave {piece.type} for an operand of type "
                        f"{operand.type}",
                        where=str(node.location),
                    )
                before = adjoint.get(id(operand))
                if before is not None:
                    # A piece whose derivation is checked stays a value of the graph.
                    piece = F.add(before, piece) if remember else add_gradients(before, piece)
                adjoint[id(operand)] = piece
    return [adjoint.get(id(s)) for s in sources]


def _vjp(node: Tensor, grad: Tensor, recompute: Recompute) -> Sequence[Tensor | None]:
    value, operands = recompute.values(node, grad)
    return vjp_of(node, grad, value, operands)


def vjp_of(
    node: Tensor, grad: Tensor, value: Tensor, operands: Sequence[Tensor]
) -> Sequence[Tensor | None]:
    """The gradients of the operands of a node with this `value`, given the gradient of it."""
    op = node.op
    assert op is not None
    if op.vjp is not None:
        try:
            result = op.vjp(F, grad, value, *operands, **node.attrs)
        except GradientError as error:
            raise error.located(str(node.location)) from None
        if result is not NotImplemented:
            return result if isinstance(result, tuple | list) else (result,)
    if op.compose is not None:
        return _vjp_of_expansion(node, operands, grad)
    if "nograd" in op.tags:
        return (None,) * len(operands)
    raise GradientError(
        f"op {op.name!r} has no gradient",
        where=str(node.location),
        hint="give its row a vjp column, or stop the gradient with .detach()",
    )


def _vjp_of_expansion(
    node: Tensor, operands: Sequence[Tensor], grad: Tensor
) -> list[Tensor | None]:
    expanded = expand_composite(node, operands)
    unique = {id(o): o for o in operands if o.dtype.is_differentiable}
    pieces = gradients(expanded, list(unique.values()), grad, partial=True)
    by_id = dict(zip(unique, pieces, strict=True))
    # An operand that appears twice gets its whole gradient once.
    return [by_id.pop(id(o), None) for o in operands]


def expand_composite(node: Tensor, operands: Sequence[Tensor]) -> Tensor:
    """The expansion of a composite node into other rows, over `operands`."""
    op = node.op
    assert op is not None and op.compose is not None
    padded = list(operands)
    if op.max_operands is not None:
        padded += [None] * (op.max_operands - len(padded))  # type: ignore[list-item]
    expanded = op.compose(F, *padded, **node.attrs)
    if expanded.type != node.type:
        raise GradientError(
            f"the expansion of {op.name} has type {expanded.type}, its row says {node.type}"
        )
    return expanded


def _require_scalar(output: Tensor) -> None:
    if output.dtype.is_complex:
        raise GradientError(
            f"gradients start from one real number, and this is {output.type}",
            where=str(output.location),
            hint="take its real part or its magnitude first: nova.real(x), nova.abs(x)",
        )
    if not known_equal(output.size, 1):
        raise GradientError(
            f"gradients start from one number, and this has shape {output.shape}",
            where=str(output.location),
            hint="reduce it first, e.g. with .sum() or .mean()",
        )
