"""`fuse-windows`: poolings read windows in place instead of a copy of all windows."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir, tensor
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.ops import generic_op
from nova.ir.walk import find_ops
from nova.passes.base import Pass

# Windows with more taps are not unrolled (codegen/cpu/window_loops.py): a copy is faster then.
_MOST_TAPS = 64


@record
class FuseWindows(Pass):
    """Fuse the copy of windows into the reduction over their taps, as in a pooling.

    `w[k, i] = x[i + k]`, `y[i] = max over k of w[k, i]` becomes `y[i] = max over k of x[i + k]`.
    No operand of the fused op has the taps as a dimension, so that upstream's fusion refuses it.
    As in upstream's named poolings, an operand without values gives their number. Windows of
    symbolic size, and those that others read too, stay.
    """

    name: ClassVar[str] = "fuse-windows"

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, "linalg.generic"):
            copy = _window_copy(op)
            if copy is not None:
                _fuse(op, copy)

    def concerns(self, text: str) -> bool:
        return "reduction" in text


def _window_copy(op: Any) -> Any | None:
    """The op that copies the windows which are the only input of a reduction; None for others."""
    reduction = GenericOp(op)
    if reduction.num_inputs != 1 or len(op.results) != 1 or "reduction" not in reduction.iterators:
        return None
    windows = op.operands[0]
    copy = windows.owner.operation if isinstance(windows, ir.OpResult) else None
    if copy is None or not is_generic_op(copy) or len(list(windows.uses)) != 1:
        return None
    if not isinstance(op.results[0].type, ir.RankedTensorType):
        return None
    shapes = [v.type.shape for v in (windows, op.results[0])]
    if any(n < 0 for shape in shapes for n in shape) or prod(shapes[0]) == 0:
        return None
    taps = [
        n
        for n, loop in zip(shapes[0], _loops(reduction, 0), strict=True)
        if loop is not None and reduction.iterators[loop] == "reduction"
    ]
    return copy if prod(taps) <= _MOST_TAPS and copies_windows(copy) else None


def copies_windows(op: Any) -> bool:
    """Whether an op only copies its input, at sums of loops, to all of its output in order."""
    copy = GenericOp(op)
    if copy.num_inputs != 1 or copy.num_outputs != 1 or "reduction" in copy.iterators:
        return False
    (last, *others) = reversed(list(copy.block.operations))
    moves = not others and last.operands[0] == copy.block.arguments[0]
    in_order = _loops(copy, 1) == list(range(len(copy.iterators)))
    sums = any(sum(1 for c in row if c) > 1 for row in copy.accesses[0].coefficients)
    return moves and in_order and sums


def _loops(op: GenericOp, operand: int) -> list[int | None]:
    access = op.accesses[operand]
    return [access.row_dim(i) for i in range(len(access.coefficients))]


def _fuse(op: Any, copy: Any) -> None:
    reduction = GenericOp(op)
    read = op.attributes["indexing_maps"][0].value
    written = op.attributes["indexing_maps"][1].value
    rank = len(reduction.iterators)
    taps = [d for d, iterator in enumerate(reduction.iterators) if iterator == "reduction"]
    source = copy.attributes["indexing_maps"][0].value
    maps = [
        ir.AffineMap.get(rank, 0, [expr.compose(read) for expr in source.results]),
        ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(d) for d in taps]),
        written,
    ]
    element = op.results[0].type.element_type
    with ir.InsertionPoint(op), op.location:
        window = tensor.empty([reduction.sizes[d] for d in taps], element)
        fused = generic_op(
            [op.results[0].type],
            [copy.operands[0], window],
            [op.operands[1]],
            maps,
            reduction.iterators,
        )
    body = op.regions[0].blocks[0]
    total = body.arguments[1]
    # The argument of the taps takes the place of the total, which is the last one.
    total.replace_all_uses_with(body.add_argument(element, op.location))
    body.append_to(fused.regions[0])
    op.results[0].replace_all_uses_with(fused.results[0])
    op.erase()
    copy.erase()
