"""`lower-sort`: `stablehlo.sort` becomes a bottom-up merge sort, or a selection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.linalg.merge_sort import MergeSort
from nova.ir.linalg.scalarize import emit_scalars
from nova.ir.linalg.top_k import TopK
from nova.ir.walk import find_ops
from nova.ops.loops.sorting import is_selected
from nova.passes.base import Pass


@record
class LowerSort(Pass):
    """Rewrite `stablehlo.sort` as loops that merge runs of 1, 2, 4, ... elements.

    A sort of which only few first elements are used becomes a selection by a heap. All operands
    move together. The sort is always stable. The comparator must have been lowered
    (`stablehlo-legalize-to-linalg`).
    """

    name: ClassVar[str] = "lower-sort"
    only_with: ClassVar[tuple[str, ...]] = ("stablehlo.sort", "top_k", "ApproxTopK")

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, "stablehlo.sort"):
            count = _selected_count(op)
            with ir.InsertionPoint(op), op.location:
                if count is None:
                    values = MergeSort(*_operands(op), _comparison(op)).emit()
                else:
                    values = TopK(*_operands(op), count, _comparison(op)).emit()[:-1]
            for old, value in zip(op.results, values, strict=True):
                if count is None:
                    old.replace_all_uses_with(value)
                else:
                    _replace_slices(old, value)
            op.erase()


def _operands(op: Any) -> tuple[Any, Any, int]:
    return op.operands, op.operands[0].type.shape, int(op.attributes["dimension"].value)


def _comparison(op: Any) -> Any:
    def smaller(second: Sequence[Any], first: Sequence[Any]) -> Any:
        pairs = [v for pair in zip(second, first, strict=True) for v in pair]
        [result] = emit_scalars(op.regions[0].blocks[0], pairs)
        return result

    return smaller


def _selected_count(op: Any) -> int | None:
    """How many of the first elements are used, if they are few (`chlo.top_k`); None for a sort."""
    _, shape, axis = _operands(op)
    counts = [_front_count(use.owner, shape, axis) for r in op.results for use in r.uses]
    if not counts or ir.ShapedType.get_dynamic_size() in shape or None in counts:
        return None
    count = max(c for c in counts if c is not None)
    return count if is_selected(count, shape[axis]) else None


def _front_count(user: Any, shape: Sequence[int], axis: int) -> int | None:
    """The size along the axis of a slice that begins at 0 and has all of the other axes."""
    user = user.operation
    if user.name != "tensor.extract_slice" or len(user.operands) != 1:
        return None
    offsets, sizes, strides = (
        list(user.attributes[f"static_{name}"]) for name in ("offsets", "sizes", "strides")
    )
    others = [n for d, n in enumerate(sizes) if d != axis]
    expected = [n for d, n in enumerate(shape) if d != axis]
    is_front = not any(offsets) and set(strides) == {1} and others == expected
    return int(sizes[axis]) if is_front else None


def _replace_slices(old: Any, selected: Any) -> None:
    """Let slices of the sorted values read the selected ones; those with all of them are gone."""
    for use in list(old.uses):
        user = use.owner.operation
        if user.results[0].type == selected.type:
            user.results[0].replace_all_uses_with(selected)
            user.erase()
        else:
            user.operands[0] = selected
