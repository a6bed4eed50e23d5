"""`fold-single-rows`: the product of one row with a matrix is a matrix-vector product."""

from __future__ import annotations

from typing import ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.passes.base import Pass
from nova.passes.tensor.fold_unit_contract_dims import Accesses, fold_contractions

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
        fold_contractions(module, _single_rows)


def _single_rows(accesses: Accesses, sizes: dict[int, int]) -> set[int]:
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
