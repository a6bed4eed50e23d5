"""`fold-transposes`: contractions read and write transposed matrices in place."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir, tensor
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.ops import contract, fill, generic_op, yield_op
from nova.ir.walk import functions
from nova.passes.base import Pass


@record
class FoldTransposes(Pass):
    """Fold pure permutations around `linalg.contract` into its indexing maps.

    No transpose is copied: packing reads the operands of the contraction with any strides. A matrix
    of which only the transpose is used, perhaps after rounding to another float type, is computed
    transposed: the gradient of a weight has the weight's layout, and its update is an elementwise
    epilogue of the GEMM.
    """

    name: ClassVar[str] = "fold-transposes"

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if function.is_external:
                continue
            for op in list(function.entry_block.operations):
                if op.operation.name == "linalg.contract":
                    for operand in (0, 1):
                        fold_permutation(op.operation, operand)
                    _fold_result(op.operation)
            _erase_unused(function)


def fold_permutation(contraction: Any, operand: int) -> None:
    """Read an operand that is only a permuted copy where its source is."""
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
    """Compute a matrix transposed where its only use, or that of its rounding, is a transpose."""
    result = contraction.results[0]
    init = contraction.operands[2]
    if result.type.rank != 2 or not isinstance(init, ir.OpResult):
        return
    filled = init.owner.operation
    user = _only_user(result)
    if filled.name != "linalg.fill" or user is None:
        return
    rounding = user if _is_rounding(user) else None
    transpose = user if rounding is None else _only_user(rounding.results[0])
    if transpose is None or _permutation(transpose.results[0]) != [1, 0]:
        return
    maps = [m.value for m in contraction.attributes["indexing_maps"]]
    maps[2] = ir.AffineMap.get(maps[2].n_dims, 0, list(maps[2].results)[::-1])
    shape = transpose.results[0].type.shape
    with ir.InsertionPoint(transpose), contraction.location:
        empty = tensor.EmptyOp(shape, result.type.element_type).result
        zeros = fill(filled.operands[0], empty)
        a, b, _ = contraction.operands
        folded = contract(a, b, zeros, maps)
    if rounding is not None:
        folded = _rounded(folded, rounding)
    transpose.results[0].replace_all_uses_with(folded)
    for op in (transpose, rounding, contraction):
        if op is not None:
            op.erase()


def _only_user(value: Any) -> Any | None:
    """The generic op that uses `value`, if it is the only use."""
    users = [use.owner.operation for use in value.uses]
    return users[0] if len(users) == 1 and is_generic_op(users[0]) else None


def _is_rounding(op: Any) -> bool:
    """Whether an op only converts the elements of a matrix."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    body = [inner.operation.name for inner in GenericOp(op).block.operations]
    identity = ir.AffineMap.get_identity(2)
    maps = [m.value for m in op.attributes["indexing_maps"]]
    return body == ["arith.truncf", "linalg.yield"] and maps == [identity, identity]


def _rounded(value: Any, rounding: Any) -> Any:
    """`value` with its elements converted as `rounding` does."""
    element = rounding.results[0].type.element_type
    maps = [m.value for m in rounding.attributes["indexing_maps"]]
    with ir.InsertionPoint.after(value.owner), rounding.location:
        empty = tensor.EmptyOp(value.type.shape, element).result
        op = generic_op([empty.type], [value], [empty], maps, ["parallel", "parallel"])
        block = op.regions[0].blocks.append(value.type.element_type, element)
        with ir.InsertionPoint(block):
            yield_op([arith.truncf(element, block.arguments[0])])
    return op.results[0]


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
