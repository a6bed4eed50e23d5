"""`lower-sort`: `stablehlo.sort` becomes a bottom-up merge sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.linalg.merge_sort import MergeSort
from nova.ir.linalg.scalarize import emit_scalars
from nova.ir.walk import find_ops
from nova.passes.base import Pass


@record
class LowerSort(Pass):
    """Rewrite `stablehlo.sort` as loops that merge runs of 1, 2, 4, ... elements.

    All operands move together. The sort is always stable. The comparator must have been lowered
    (`stablehlo-legalize-to-linalg`).
    """

    name: ClassVar[str] = "lower-sort"

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, "stablehlo.sort"):
            with ir.InsertionPoint(op), op.location:
                values = _merge_sort(op).emit()
            for old, value in zip(op.results, values, strict=True):
                old.replace_all_uses_with(value)
            op.erase()


def _merge_sort(op: Any) -> MergeSort:
    def smaller(second: Sequence[Any], first: Sequence[Any]) -> Any:
        pairs = [v for pair in zip(second, first, strict=True) for v in pair]
        [result] = emit_scalars(op.regions[0].blocks[0], pairs)
        return result

    axis = int(op.attributes["dimension"].value)
    return MergeSort(op.operands, op.operands[0].type.shape, axis, smaller)
