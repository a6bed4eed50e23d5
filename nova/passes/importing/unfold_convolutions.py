"""`unfold-convolutions`: convolutions become matmuls with a tensor of windows (im2col)."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.codegen.common.match_contraction import is_integer_contraction, is_multiply_add
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.linalg.generic import GenericOp
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass
from nova.passes.importing.convert_tensor_to_linalg import generic
from nova.passes.importing.trim_windows import WINDOWED

# Below this in either dimension a matmul is not packed, and im2col does not pay.
_FEWEST = 4


@record
class UnfoldConvolutions(Pass):
    """Copy the windows of a convolution into a matrix (im2col), and multiply it by the filter.

    `c[i, o] += x[i + k] * w[k, o]` becomes `u[i, k] = x[i + k]` and `c[i, o] += u[i, k] * w[k, o]`,
    for any number of axes, strides and groups: a matmul, which is packed and much faster than the
    loops. A convolution with few filters, or with more than `max-elements` elements in all windows,
    stays as it is. Named ops must have been generalized.
    """

    name: ClassVar[str] = "unfold-convolutions"
    only_with: ClassVar[tuple[str, ...]] = WINDOWED
    max_elements: int = 1 << 26

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            convolution = GenericOp(op)
            moving = _moving_input(convolution)
            if moving is not None:
                self._unfold(convolution, moving)

    def _unfold(self, convolution: GenericOp, moving: int) -> None:
        sizes, accesses = convolution.sizes, convolution.accesses
        used = {
            loop
            for row in accesses[moving].coefficients
            for loop, factor in enumerate(row)
            if factor
        }
        filter_loops = _loops(convolution, 1 - moving)
        summed = [d for d in filter_loops if convolution.iterators[d] == "reduction"]
        if any(kind == "reduction" and d not in summed for d, kind in _numbered(convolution)):
            return
        others = [d for d in filter_loops if d not in used]
        # The windows in the order of the output, each in the order of the filter: both are then
        # matrices in memory.
        order = [d for d in _loops(convolution, 2) if d in used] + summed
        few = min(prod(sizes[d] for d in others), prod(sizes[d] for d in summed)) < _FEWEST
        shape = [sizes[d] for d in order]
        if few or not used <= set(order) or prod(shape) > self.max_elements:
            return
        op = convolution.op
        source = op.operands[moving]
        place = {loop: i for i, loop in enumerate(order)}
        rows = []
        for row, constant in zip(
            accesses[moving].coefficients, accesses[moving].constants, strict=True
        ):
            expr: Any = ir.AffineConstantExpr.get(constant)
            for loop, factor in enumerate(row):
                if factor:
                    expr = expr + ir.AffineDimExpr.get(place[loop]) * factor
            rows.append(expr)
        with ir.InsertionPoint(op), op.location:
            type_ = ir.RankedTensorType.get(shape, source.type.element_type)
            access = ir.AffineMap.get(len(order), 0, rows)
            windows = generic(type_, [(source, access)], lambda values: values[0])
        maps = list(op.attributes["indexing_maps"])
        dims = [ir.AffineDimExpr.get(d) for d in order]
        maps[moving] = ir.AffineMapAttr.get(ir.AffineMap.get(len(sizes), 0, dims))
        op.operands[moving] = windows
        op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)


def _moving_input(op: GenericOp) -> int | None:
    """The input that is read at sums of loops, where the other and the output are not."""
    if op.num_inputs != 2 or op.num_outputs != 1 or len(op.op.results) != 1:
        return None
    if any(not isinstance(v.type, ir.RankedTensorType) for v in op.op.operands):
        return None
    plain = [None not in _loops(op, i) for i in range(3)]
    if not plain[2] or plain[0] == plain[1]:
        return None
    if not is_multiply_add(op) and not is_integer_contraction(op):
        return None
    return 1 if plain[0] else 0


def _loops(op: GenericOp, operand: int) -> list[Any]:
    access = op.accesses[operand]
    return [access.row_dim(i) for i in range(len(access.coefficients))]


def _numbered(op: GenericOp) -> list[tuple[int, str]]:
    return list(enumerate(op.iterators))
