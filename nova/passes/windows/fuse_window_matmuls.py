"""`fuse-window-matmuls`: matmuls of convolutions read images instead of a copy of all windows."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.codegen.common.match_contraction import WINDOW_STEPS, is_multiply_add
from nova.codegen.common.zero_fill import fills_with_zero
from nova.core.records import record
from nova.ir.bindings import arith, ir, tensor
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.ops import fill, generic_op
from nova.ir.walk import defining_op, find_tensor_ops
from nova.passes.base import Pass
from nova.passes.windows.fuse_windows import copies_windows

_LEAST_ROWS, _LEAST_POSITIONS, _LEAST_DEPTH, _LEAST_ROW = 16, 32, 64, 7
"""Output channels, positions, channels times taps, and positions in a row from which the matmul has
packed panels, and a vector of them reads few rows of the image."""

_MOST_TAP_LOOPS, _MOST_POSITION_LOOPS = 3, 2
"""Loops over channels and taps, and over positions, of a convolution with two spatial axes."""

Groups = list[list[int]]


@record
class FuseWindowMatmuls(Pass):
    """Fuse the copy of windows (im2col) into the matmul that alone reads it (implicit GEMM).

    `w[c, k, i] = x[c, i + k]`, `y[o, i] = sum over c, k of a[o, c, k] * w[c, k, i]` becomes a sum
    over `a[o, c, k] * x[c, i + k]`. The packed GEMM then packs its panels from x
    (codegen/cpu/gemm/window_operand.py). A reshape of the windows before the matmul becomes a
    reshape of its other operands. Positions must have a stride of 1 or 2 in x: larger strides
    stay, and so do symbolic sizes, types other than f32, and convolutions over three axes.
    """

    name: ClassVar[str] = "fuse-window-matmuls"

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            matmul = _match(op)
            if matmul is not None:
                _fuse(matmul)

    def concerns(self, text: str) -> bool:
        return "reduction" in text


@record
class _WindowMatmul:
    """A matmul, the copy of windows that it reads, and the loops of the fused op.

    `loops` has for each loop of the matmul those of the fused op; `of_copy` has for each loop of
    the copy the one of the fused op.
    """

    op: Any
    copy: Any
    loops: Groups
    of_copy: list[int]
    sizes: list[int]


def _match(op: Any) -> _WindowMatmul | None:
    generic = GenericOp(op)
    if generic.num_inputs != 2 or len(op.results) != 1 or "reduction" not in generic.iterators:
        return None
    if not all(_is_static_f32(v) for v in op.operands) or not is_multiply_add(generic):
        return None
    if any(None in access.row_dims for access in generic.accesses):
        return None
    windows, groups = op.operands[1], None
    reshape = defining_op(windows, "tensor.collapse_shape")
    if reshape is not None and len(list(windows.uses)) == 1:
        windows = reshape.operands[0]
        groups = [[int(i) for i in group] for group in reshape.attributes["reassociation"]]
    copy = windows.owner.operation if isinstance(windows, ir.OpResult) else None
    if copy is None or not is_generic_op(copy) or len(list(windows.uses)) != 1:
        return None
    zeros = op.operands[2].owner if isinstance(op.operands[2], ir.OpResult) else None
    if zeros is None or not is_generic_op(zeros.operation) or not fills_with_zero(zeros.operation):
        return None
    if not copies_windows(copy) or any(GenericOp(copy).accesses[0].constants):
        return None
    matmul = _expand(op, copy, groups or [[i] for i in range(len(windows.type.shape))])
    return matmul if _is_worth_fusing(matmul) else None


def _is_static_f32(value: Any) -> bool:
    type_ = value.type
    if not isinstance(type_, ir.RankedTensorType) or not isinstance(type_.element_type, ir.F32Type):
        return False
    return all(n > 0 for n in type_.shape)


def _expand(op: Any, copy: Any, groups: Groups) -> _WindowMatmul:
    """The loops of the fused op: a loop over reshaped axes of the windows becomes one for each."""
    matmul, shape = GenericOp(op), copy.results[0].type.shape
    group_of = dict(zip(matmul.accesses[1].row_dims, groups, strict=True))
    loops: Groups = []
    sizes: list[int] = []
    of_copy = [0] * len(shape)
    for loop, size in enumerate(matmul.sizes):
        axes = group_of.get(loop)
        parts = [size] if axes is None else [shape[axis] for axis in axes]
        first = len(sizes)
        loops.append(list(range(first, first + len(parts))))
        sizes += parts
        for number, axis in enumerate(axes or ()):
            of_copy[axis] = first + number
    return _WindowMatmul(op, copy, loops, of_copy, sizes)


def _is_worth_fusing(matmul: _WindowMatmul) -> bool:
    generic = GenericOp(matmul.op)
    left, right = ({i or 0 for i in access.row_dims} for access in generic.accesses[:2])
    rows = [i for i in left - right if generic.iterators[i] == "parallel"]
    if not rows:
        return False
    # Images of a batch come before the rows in the output, positions after them.
    order = generic.out_dims
    columns = [
        i for i in right - left if i in order and order.index(i) > max(map(order.index, rows))
    ]
    depth = [i for i in left & right if generic.iterators[i] == "reduction"]
    positions, taps = (
        sorted(new for i in loops for new in matmul.loops[i]) for loops in (columns, depth)
    )
    if not 0 < len(positions) <= _MOST_POSITION_LOOPS or len(taps) > _MOST_TAP_LOOPS:
        return False
    # The last loop over positions moves in the last axis of the image only.
    access = GenericOp(matmul.copy).accesses[0].coefficients
    last = matmul.of_copy.index(positions[-1])
    *outer, inner = (row[last] for row in access)
    number, terms = (prod(matmul.sizes[i] for i in loops) for loops in (positions, taps))
    return (
        inner in WINDOW_STEPS
        and not any(outer)
        and prod(generic.sizes[i] for i in rows) >= _LEAST_ROWS
        and number >= _LEAST_POSITIONS
        and terms >= _LEAST_DEPTH
        and matmul.sizes[positions[-1]] >= _LEAST_ROW
    )


def _fuse(matmul: _WindowMatmul) -> None:
    op, copy = matmul.op, matmul.copy
    generic, rank = GenericOp(op), len(matmul.sizes)
    dims = [ir.AffineDimExpr.get(i) for i in range(rank)]
    read = copy.attributes["indexing_maps"][0].value
    moved = ir.AffineMap.get(rank, 0, [dims[i] for i in matmul.of_copy])
    maps = [
        _expanded_map(matmul, 0, dims),
        ir.AffineMap.get(rank, 0, [expr.compose(moved) for expr in read.results]),
        _expanded_map(matmul, 2, dims),
    ]
    iterators = [
        iterator
        for iterator, parts in zip(generic.iterators, matmul.loops, strict=True)
        for _ in parts
    ]
    result = op.results[0]
    with ir.InsertionPoint(op), op.location:
        left = _expanded(matmul, 0)
        shape = [matmul.sizes[i] for group in _groups(matmul, 2)[1] for i in group]
        zero = arith.constant(result.type.element_type, 0.0)
        total = fill(zero, tensor.empty(shape, result.type.element_type))
        fused = generic_op([total.type], [left, copy.operands[0]], [total], maps, iterators)
        op.regions[0].blocks[0].append_to(fused.regions[0])
        value = fused.results[0]
        if value.type != result.type:
            value = tensor.collapse_shape(result.type, value, _groups(matmul, 2)[0])
    result.replace_all_uses_with(value)
    windows = op.operands[1].owner.operation
    op.erase()
    if windows != copy:
        windows.erase()
    copy.erase()


def _groups(matmul: _WindowMatmul, operand: int) -> tuple[Groups, Groups]:
    """The axes of an expanded operand for each of its axes, and their loops."""
    rows = GenericOp(matmul.op).accesses[operand].row_dims
    loops = [matmul.loops[row] for row in rows if row is not None]
    starts = [sum(map(len, loops[:i])) for i in range(len(loops))]
    axes = [
        list(range(start, start + len(part))) for start, part in zip(starts, loops, strict=True)
    ]
    return axes, loops


def _expanded_map(matmul: _WindowMatmul, operand: int, dims: list[Any]) -> Any:
    _, loops = _groups(matmul, operand)
    return ir.AffineMap.get(len(dims), 0, [dims[i] for part in loops for i in part])


def _expanded(matmul: _WindowMatmul, operand: int) -> Any:
    """An operand with an axis for each loop of the fused op."""
    value = matmul.op.operands[operand]
    axes, loops = _groups(matmul, operand)
    if all(len(part) == 1 for part in loops):
        return value
    shape = [matmul.sizes[i] for part in loops for i in part]
    type_ = ir.RankedTensorType.get(shape, value.type.element_type)
    return tensor.expand_shape(type_, value, axes, [], shape)
