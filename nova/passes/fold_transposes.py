"""`fold-transposes`: contractions read transposed operands where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nova.mlir.bindings import ir
from nova.mlir.structured import Structured, is_structured
from nova.mlir.walk import functions
from nova.passes.base import Pass


@dataclass(frozen=True)
class FoldTransposes(Pass):
    """Fold pure permutations of operands into the indexing maps of `linalg.contract`.

    No transpose is copied: the packing of the contraction reads its operands with any strides.
    """

    name: ClassVar[str] = "fold-transposes"

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if function.is_external:
                continue
            for op in function.entry_block.operations:
                if op.operation.name == "linalg.contract":
                    for operand in (0, 1):
                        _fold(op.operation, operand)
            _erase_unused(function)


def _fold(contract: Any, operand: int) -> None:
    while True:
        value = contract.operands[operand]
        axes = _permutation(value)
        if axes is None:
            return
        maps = [m.value for m in contract.attributes["indexing_maps"]]
        before = list(maps[operand].results)
        # value[i0, i1, ...] is source[j0, j1, ...] with j[axes[r]] = i[r].
        after = [None] * len(axes)
        for r, axis in enumerate(axes):
            after[axis] = before[r]
        maps[operand] = ir.AffineMap.get(maps[operand].n_dims, 0, after)
        contract.attributes["indexing_maps"] = ir.ArrayAttr.get(
            [ir.AffineMapAttr.get(m) for m in maps]
        )
        contract.operands[operand] = value.owner.operation.operands[0]


def _permutation(value: Any) -> list[int] | None:
    """The source axis of each axis of `value`, if it is nothing but a permuted copy."""
    if not isinstance(value, ir.OpResult) or not is_structured(value.owner.operation):
        return None
    generic = Structured(value.owner.operation)
    if generic.num_inputs != 1 or generic.num_outputs != 1:
        return None
    body = [op.operation for op in generic.block.operations]
    if len(body) != 1 or body[0].operands[0] != generic.block.arguments[0]:
        return None
    if not isinstance(generic.inputs[0].type, ir.RankedTensorType):
        return None
    source = generic.accesses[0]
    rank = len(generic.iterators)
    if len(source.coefficients) != rank or len(generic.out_dims) != rank:
        return None
    position = {source.row_dim(axis): axis for axis in range(rank)}
    if None in position or len(position) != rank:
        return None
    if generic.inputs[0].type.shape != [
        value.type.shape[generic.out_dims.index(loop)]
        for loop in (source.row_dim(axis) for axis in range(rank))
    ]:
        return None
    return [position[loop] for loop in generic.out_dims]


def _erase_unused(function: Any) -> None:
    for op in reversed(list(function.entry_block.operations)):
        op = op.operation
        if is_structured(op) and not any(True for r in op.results for _ in r.uses):
            op.erase()
