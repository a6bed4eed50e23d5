"""`fold-unit-contract-dims`: a batch of one matrix is a matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir, tensor
from nova.ir.linalg.ops import contract
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass


@record
class FoldUnitContractDims(Pass):
    """Drop loops of one iteration from `linalg.contract`, if others of their role remain.

    Upstream folds unit dims of elementwise ops, but not of named ops: the result of a GEMM with a
    batch of one would be reshaped before its bias and activation, which could then not become its
    epilogue. A loop of one iteration that is the only one over rows or columns stays: schedules
    match a matrix with one row.
    """

    name: ClassVar[str] = "fold-unit-contract-dims"

    def run(self, module: ir.Module) -> None:
        fold_contractions(module, _dropped)


Accesses = list[list[int]]
"""The loops of the dims of each operand."""


def fold_contractions(
    module: ir.Module, choose: Callable[[Accesses, dict[int, int]], set[int]]
) -> None:
    """Drop the loops of one iteration that `choose` finds, from every `linalg.contract`.

    It gets the loops of the operands, and the sizes of all loops.
    """
    for op in find_tensor_ops(module, "linalg.contract"):
        if (loops := read_loops(op)) is not None and (dropped := choose(*loops)):
            _drop_loops(op, *loops, dropped)


def read_loops(op: Any) -> tuple[Accesses, dict[int, int]] | None:
    """The loops of the dims of each operand, and the sizes of all; None if one is dynamic."""
    accesses = [[e.position for e in _dims(m.value)] for m in op.attributes["indexing_maps"]]
    sizes: dict[int, int] = {}
    for value, access in zip(op.operands, accesses, strict=True):
        if not value.type.has_static_shape:
            return None
        sizes.update(zip(access, value.type.shape, strict=True))
    return accesses, sizes


def _drop_loops(op: Any, accesses: Accesses, sizes: dict[int, int], dropped: set[int]) -> None:
    """Rewrite a contraction without some loops of one iteration, with reshapes around it."""
    numbers = {dim: i for i, dim in enumerate(d for d in sorted(sizes) if d not in dropped)}
    maps = [
        ir.AffineMap.get(
            len(numbers), 0, [ir.AffineDimExpr.get(numbers[d]) for d in access if d in numbers]
        )
        for access in accesses
    ]
    with ir.InsertionPoint(op), op.location:
        a, b, total = (
            _collapsed(value, [d in dropped for d in access])
            for value, access in zip(op.operands, accesses, strict=True)
        )
        result = contract(a, b, total, maps)
        type_ = op.results[0].type
        if result.type != type_:
            groups = _groups([d in dropped for d in accesses[2]])
            result = tensor.expand_shape(type_, result, groups, [], list(type_.shape))
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _dims(map_: Any) -> list[Any]:
    return [ir.AffineDimExpr(expression) for expression in map_.results]


def _dropped(accesses: Accesses, sizes: dict[int, int]) -> set[int]:
    """The loops of one iteration that are of a batch, or have another loop of their role."""
    roles = {dim: tuple(dim in access for access in accesses) for dim in sizes}
    large = {roles[dim] for dim, size in sizes.items() if size != 1}
    return {
        dim for dim, size in sizes.items() if size == 1 and (all(roles[dim]) or roles[dim] in large)
    }


def _collapsed(value: Any, dropped: list[bool]) -> Any:
    """The tensor without the dims that are dropped, all of which have one element."""
    if not any(dropped):
        return value
    shape = [n for n, drop in zip(value.type.shape, dropped, strict=True) if not drop]
    type_ = ir.RankedTensorType.get(shape, value.type.element_type)
    return tensor.collapse_shape(type_, value, _groups(dropped))


def _groups(dropped: list[bool]) -> list[list[int]]:
    """The dims of each remaining dim: dropped ones belong to the next, or to the last."""
    groups: list[list[int]] = []
    start = 0
    for dim, drop in enumerate(dropped):
        if not drop:
            groups.append(list(range(start, dim + 1)))
            start = dim + 1
    if groups:
        groups[-1].extend(range(start, len(dropped)))
    return groups
