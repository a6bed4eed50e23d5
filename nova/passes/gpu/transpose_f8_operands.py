"""`transpose-f8-operands`: operands of large matmuls of 8-bit floats run along k in memory."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.common.match_contraction import is_multiply_add
from nova.core.records import record
from nova.ir.bindings import ir, tensor
from nova.ir.linalg.generic import GenericOp
from nova.ir.linalg.ops import generic_op, yield_op
from nova.ir.mathlib.f8_formats import F8_TYPES
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass


@record
class TransposeF8Operands(Pass):
    """Copy an operand of a matmul of 8-bit floats, transposed, if it does not run along k.

    The tensor cores of Hopper read bytes along k only, and without them the matmul takes several
    times as long as the copy, which moves each byte once. Matmuls with fewer rows, columns or
    steps of k than `least`, or with rows of k that are not whole chunks of 16 bytes, stay.
    """

    name: ClassVar[str] = "transpose-f8-operands"
    least: int = 128

    def concerns(self, text: str) -> bool:
        return "f8E" in text

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            if self._is_large_matmul(GenericOp(op)):
                for operand in (0, 1):
                    _align(op, operand)

    def _is_large_matmul(self, generic: GenericOp) -> bool:
        types = [value.type for value in generic.op.operands]
        if len(types) != 3 or len(generic.op.results) != 1 or not is_multiply_add(generic):
            return False
        if not all(isinstance(t.element_type, F8_TYPES) for t in types[:2]):
            return False
        if not all(t.has_static_shape for t in types):
            return False
        maps = [attribute.value for attribute in generic.op.attributes["indexing_maps"]]
        if not all(m.is_projected_permutation for m in maps):
            return False  # a convolution
        sizes = dict(enumerate(generic.sizes))
        depths = [n for i, n in sizes.items() if generic.iterators[i] == "reduction"]
        a, b = (set(_dims(generic.op, number)) for number in (0, 1))
        rows = [sizes[i] for i in a - b]
        columns = [sizes[i] for i in b - a]
        return (
            len(depths) == 1
            and depths[0] % 16 == 0
            and all(max(extents, default=0) >= self.least for extents in (depths, rows, columns))
        )


def _dims(op: Any, number: int) -> list[int]:
    """The loops that index an operand, from the outermost axis to the innermost."""
    results = op.attributes["indexing_maps"][number].value.results
    return [ir.AffineDimExpr(result).position for result in results]


def _align(op: Any, number: int) -> None:
    """Let an operand run along the loop that is reduced, by a transposed copy."""
    dims = _dims(op, number)
    iterators = GenericOp(op).iterators
    at = next(i for i, dim in enumerate(dims) if iterators[dim] == "reduction")
    if at == len(dims) - 1:
        return
    order = [i for i in range(len(dims)) if i != at] + [at]
    source = op.operands[number]
    shape = [source.type.shape[i] for i in order]
    element = source.type.element_type
    rank = len(dims)
    # Loops are those of the copy: axis order[j] of the source is axis j of the copy.
    read = [ir.AffineDimExpr.get(order.index(i)) for i in range(rank)]
    maps = [ir.AffineMap.get(rank, 0, read), ir.AffineMap.get_identity(rank)]
    with ir.InsertionPoint(op), op.location:
        type_ = ir.RankedTensorType.get(shape, element)
        empty = tensor.empty(shape, element)
        copy = generic_op([type_], [source], [empty], maps, ["parallel"] * rank)
        block = copy.regions[0].blocks.append(element, element)
        with ir.InsertionPoint(block):
            yield_op([block.arguments[0]])
    op.operands[number] = copy.results[0]
    every = [attribute.value for attribute in op.attributes["indexing_maps"]]
    loops = every[number].n_dims
    every[number] = ir.AffineMap.get(loops, 0, [ir.AffineDimExpr.get(dims[i]) for i in order])
    op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in every])
