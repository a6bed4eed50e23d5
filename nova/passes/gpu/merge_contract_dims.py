"""`merge-contract-dims`: loops of a matmul whose result is reshaped become one loop."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir, tensor
from nova.ir.linalg.generic import GenericOp
from nova.ir.linalg.ops import contract
from nova.ir.mathlib.f8_formats import NARROW_TYPES
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass
from nova.passes.tensor.fold_unit_contract_dims import Accesses, read_loops
from nova.passes.tensor.raise_to_contract import is_contraction

Groups = list[list[int]]
"""The dims of a tensor that become one dim each."""


@record
class MergeContractDims(Pass):
    """Merge the loops of a contraction that a `tensor.collapse_shape` of its result merges.

    Fusion gives a matmul the dims of its neighbours: the gradient of the weight of three
    projections has the heads of the attention that it comes from. The reshape to the weight's own
    shape would separate it from the update of the weight, which could not become its epilogue. The
    loops must be adjacent dims, in this order, of each operand that has them.
    """

    name: ClassVar[str] = "merge-contract-dims"
    only_with: ClassVar[tuple[str, ...]] = ("tensor.collapse_shape",)

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.contract", "linalg.generic"):
            reshapes = [use.owner.operation for result in op.results for use in result.uses]
            if not reshapes or any(user.name != "tensor.collapse_shape" for user in reshapes):
                continue
            if op.name == "linalg.generic" and not _is_matmul(op):
                continue
            loops = read_loops(op)
            if loops is not None and len({str(_reassociation(user)) for user in reshapes}) == 1:
                _merge(op, reshapes, *loops)


def _is_matmul(op: Any) -> bool:
    """Whether a generic is a contraction of f32 or f64 with rows and columns, as fusion leaves it.

    The product of two rows is one with neither, and a part of a norm.
    """
    if isinstance(op.results[0].type.element_type, NARROW_TYPES):
        return False
    if not is_contraction(GenericOp(op)):
        return False
    a, b = (set(map(str, m.value.results)) for m in list(op.attributes["indexing_maps"])[:2])
    return bool(a - b and b - a)


def _reassociation(reshape: Any) -> Groups:
    return [[int(i) for i in group] for group in reshape.attributes["reassociation"]]


def _merge(op: Any, reshapes: list[Any], accesses: Accesses, sizes: dict[int, int]) -> None:
    """Rewrite a contraction and the reshapes of its result, if its operands can be reshaped."""
    merged = [tuple(accesses[2][dim] for dim in group) for group in _reassociation(reshapes[0])]
    groups = [_operand_groups(access, merged) for access in accesses]
    if any(group is None for group in groups):
        return
    followers = {loop for loops in merged for loop in loops[1:]}
    numbers = {loop: i for i, loop in enumerate(d for d in sorted(sizes) if d not in followers)}
    maps, operands = [], []
    with ir.InsertionPoint(op), op.location:
        for value, access, dims in zip(op.operands, accesses, groups, strict=True):
            firsts = [ir.AffineDimExpr.get(numbers[access[group[0]]]) for group in dims or []]
            maps.append(ir.AffineMap.get(len(numbers), 0, firsts))
            operands.append(_collapsed(value, dims or []))
        a, b, total = operands
        result = contract(a, b, total, maps)
    for reshape in reshapes:
        reshape.results[0].replace_all_uses_with(result)
        reshape.erase()
    op.erase()


def _operand_groups(access: list[int], merged: list[tuple[int, ...]]) -> Groups | None:
    """The dims of an operand by merged loop; None if one has not all loops, in this order."""
    group_of = {loop: loops for loops in merged for loop in loops}
    groups: Groups = []
    position = 0
    while position < len(access):
        loops = group_of.get(access[position], (access[position],))
        if tuple(access[position : position + len(loops)]) != loops:
            return None
        groups.append(list(range(position, position + len(loops))))
        position += len(loops)
    return groups


def _collapsed(value: Any, groups: Groups) -> Any:
    if len(groups) == value.type.rank:
        return value
    shape = [prod(value.type.shape[dim] for dim in group) for group in groups]
    type_ = ir.RankedTensorType.get(shape, value.type.element_type)
    return tensor.collapse_shape(type_, value, groups)
