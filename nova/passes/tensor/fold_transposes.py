"""`fold-transposes`: contractions read and write transposed matrices in place."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir, tensor
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.ops import contract, fill
from nova.ir.walk import functions
from nova.passes.base import Pass


@record
class FoldTransposes(Pass):
    """Fold pure permutations around `linalg.contract` into its indexing maps.

    No transpose is copied: packing reads the operands of the contraction with any strides. A matrix
    of which only the transpose is used is computed transposed: the gradient of a weight has the
    weight's layout, and its update is an elementwise epilogue of the GEMM.
    """

    name: ClassVar[str] = "fold-transposes"

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if function.is_external:
                continue
            for op in list(function.entry_block.operations):
                if op.operation.name == "linalg.contract":
                    for operand in (0, 1):
                        _fold(op.operation, operand)
                    _fold_result(op.operation)
            _erase_unused(function)


def _fold(contraction: Any, operand: int) -> None:
    while True:
        value = contraction.operands[operand]
        axes = _permutation(value)
        if axes is None:
            return
        maps = [m.value for m in contraction.attributes["indexing_maps"]]
        before = list(maps[operand].results)
        # value[i0, i1, ...] is source[j0, j1, ...] with j[axes[r]] = i[r].
        after = [None] * len(axes)
        for r, axis in enumerate(axes):
            after[axis] = before[r]
        maps[operand] = ir.AffineMap.get(maps[operand].n_dims, 0, after)
        contraction.attributes["indexing_maps"] = ir.ArrayAttr.get(
            [ir.AffineMapAttr.get(m) for m in maps]
        )
        contraction.operands[operand] = value.owner.operation.operands[0]


def _fold_result(contraction: Any) -> None:
    """Compute a matrix transposed where its only use is a transpose."""
    result = contraction.results[0]
    users = [use.owner.operation for use in result.uses]
    init = contraction.operands[2]
    if result.type.rank != 2 or len(users) != 1 or not isinstance(init, ir.OpResult):
        return
    filled = init.owner.operation
    if filled.name != "linalg.fill" or not is_generic_op(users[0]):
        return
    transposed = users[0].results[0]
    if _permutation(transposed) != [1, 0]:
        return
    maps = [m.value for m in contraction.attributes["indexing_maps"]]
    maps[2] = ir.AffineMap.get(maps[2].n_dims, 0, list(maps[2].results)[::-1])
    with ir.InsertionPoint(contraction), contraction.location:
        empty = tensor.EmptyOp(transposed.type.shape, transposed.type.element_type).result
        zeros = fill(filled.operands[0], empty)
        a, b, _ = contraction.operands
        folded = contract(a, b, zeros, maps)
    transposed.replace_all_uses_with(folded)
    users[0].erase()
    contraction.erase()


def _permutation(value: Any) -> list[int] | None:
    """The source axis of each axis of `value`, if it is only a permuted copy."""
    if not isinstance(value, ir.OpResult) or not is_generic_op(value.owner.operation):
        return None
    generic = GenericOp(value.owner.operation)
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
        if is_generic_op(op) and not any(True for r in op.results for _ in r.uses):
            op.erase()
