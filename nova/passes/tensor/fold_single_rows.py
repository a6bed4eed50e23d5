"""`fold-single-rows`: the product of one row with a matrix is a matrix-vector product."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir, tensor
from nova.ir.linalg.ops import contract
from nova.ir.walk import find_ops
from nova.passes.base import Pass

_SHORTEST = 128
"""Rows and columns from which the device streams a matrix (nova/codegen/gpu/gemv.py)."""


@record
class FoldSingleRows(Pass):
    """Drop the row loop of a `linalg.contract` whose left operand has one row, for devices.

    The right operand is a large matrix, contiguous along the sum. Without the row, ops after it
    have the loops of its result, and become its epilogue: upstream folds unit dims of elementwise
    ops, but not of named ones.
    """

    name: ClassVar[str] = "fold-single-rows"

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, "linalg.contract"):
            _fold(op)


def _fold(op: Any) -> None:
    maps = [m.value for m in op.attributes["indexing_maps"]]
    accesses = [[ir.AffineDimExpr(e).position for e in m.results] for m in maps]
    sizes: dict[int, int] = {}
    for value, access in zip(op.operands, accesses, strict=True):
        if not value.type.has_static_shape:
            return
        sizes.update(zip(access, value.type.shape, strict=True))
    dropped = _single_rows(accesses, sizes)
    if not dropped:
        return
    numbers = {dim: i for i, dim in enumerate(d for d in sorted(sizes) if d not in dropped)}
    new_maps = [
        ir.AffineMap.get(
            len(numbers), 0, [ir.AffineDimExpr.get(numbers[d]) for d in access if d in numbers]
        )
        for access in accesses
    ]
    with ir.InsertionPoint(op), op.location:
        operands = [
            _collapsed(value, [d in dropped for d in access])
            for value, access in zip(op.operands, accesses, strict=True)
        ]
        result = contract(*operands, new_maps)
        type_ = op.results[0].type
        groups = _groups([d in dropped for d in accesses[2]])
        result = tensor.expand_shape(type_, result, groups, [], list(type_.shape))
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _single_rows(accesses: list[list[int]], sizes: dict[int, int]) -> set[int]:
    """The loops over rows, if all have one iteration and the matrix is large; else none."""
    left, right, out = accesses
    rows = {d for d in out if d in left and d not in right}
    columns = [d for d in out if d in right and d not in left]
    sums = [d for d in left if d in right and d not in out]
    is_batch = any(d in left and d in right for d in out)
    if is_batch or len(columns) != 1 or len(sums) != 1 or right[-1] != sums[0]:
        return set()
    is_large = min(sizes[columns[0]], sizes[sums[0]]) >= _SHORTEST
    return rows if is_large and all(sizes[d] == 1 for d in rows) else set()


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
    groups[-1].extend(range(start, len(dropped)))
    return groups
