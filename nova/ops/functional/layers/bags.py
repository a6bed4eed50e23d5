"""`embedding_bag`: sums, means and maxima of the rows of a weight that bags of indices select."""

from __future__ import annotations

from math import inf
from typing import Any

from nova.core.dtypes import i64
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import (
    as_integers,
    as_tensor,
    choice,
    function,
    require_rank,
    to_dtype,
)
from nova.ops.rules import int_value
from nova.ops.table import Op, register

MODES = ("sum", "mean", "max")


def _embedding_bag(
    F: Any,
    index: Any,
    weight: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    index = to_dtype(F, as_integers(F, "embedding_bag", index), i64)
    weight = as_tensor(F, weight)
    require_rank("embedding_bag", weight, 2, 2)
    choice("embedding_bag", "mode", mode, MODES)
    scales = _scales(F, index, mode, per_sample_weights)
    used = _used(F, index, padding_idx, weight.shape[0])
    rows = F.embedding(weight, index)
    if scales is not None:
        rows = rows * F.unsqueeze(to_dtype(F, scales, rows.dtype), -1)
    if len(index.shape) == 2:
        if offsets is not None:
            raise ShapeError(
                f"embedding_bag: offsets for an index of {index.shape}",
                hint="offsets divide a vector of indices; each row of a matrix is a bag",
            )
        return _reduce_rows(F, rows, used, mode)
    require_rank("embedding_bag", index, 1, 1)
    if offsets is None:
        raise ShapeError(
            f"embedding_bag: an index of {index.shape} without offsets",
            hint="give the start of each bag as offsets, or an index of (bags, size)",
        )
    starts = _starts(F, offsets)
    if include_last_offset:
        if not starts.shape[0]:
            raise ShapeError("embedding_bag: include_last_offset without offsets")
        bags = starts.shape[0] - 1
        used = used & (F.arange(index.shape[0]) < F.narrow(starts, 0, bags, 1))
        starts = F.narrow(starts, 0, 0, bags)
    return _reduce_bags(F, rows, used, mode, starts)


def _scales(F: Any, index: Any, mode: str, scales: Any) -> Any:
    if scales is None:
        return None
    if mode != "sum":
        raise AttributeValueError(
            f"embedding_bag: per_sample_weights with mode {mode!r}", hint="write mode='sum'"
        )
    scales = as_tensor(F, scales)
    if tuple(scales.shape) != tuple(index.shape):
        raise ShapeError(
            f"embedding_bag: per_sample_weights {scales.shape} for an index of {index.shape}"
        )
    return scales


def _used(F: Any, index: Any, padding_idx: Any, count: Any) -> Any:
    if padding_idx is None:
        return F.ne(index, -count - 1)  # all of them
    place = int_value(padding_idx, "embedding_bag: padding_idx")
    return F.ne(index, place + count if place < 0 else place)


def _starts(F: Any, offsets: Any) -> Any:
    starts = to_dtype(F, as_integers(F, "embedding_bag", offsets, "offsets"), i64)
    require_rank("embedding_bag", starts, 1, 1)
    return starts


def _reduce_rows(F: Any, rows: Any, used: Any, mode: str) -> Any:
    """Bags of one size: (bags, size, features)."""
    is_used = F.unsqueeze(used, -1)
    count = F.sum(F.cast(is_used, dtype=rows.dtype), axis=1)
    if mode == "max":
        return F.where(count > 0, F.max(F.where(is_used, rows, -inf), axis=1), 0.0)
    total = F.sum(F.where(is_used, rows, 0.0), axis=1)
    return total if mode == "sum" else total / F.maximum(count, 1.0)


def _reduce_bags(F: Any, rows: Any, used: Any, mode: str, starts: Any) -> Any:
    """Bags of any size: the last start at or before a position is that of its bag."""
    bags = starts.shape[0]
    ids = F.searchsorted(starts, F.arange(rows.shape[0]), right=True) - 1
    is_used = F.unsqueeze(used, -1)
    count = F.segment_sum(F.cast(is_used, dtype=rows.dtype), ids, bags)
    if mode == "max":
        empty = F.full((bags, rows.shape[1]), -inf, rows.dtype)
        index = F.expand(F.unsqueeze(ids, -1), rows.shape)
        largest = F.scatter_max(empty, index, F.where(is_used, rows, -inf), axis=0)
        return F.where(count > 0, largest, 0.0)
    total = F.segment_sum(F.where(is_used, rows, 0.0), ids, bags)
    return total if mode == "sum" else total / F.maximum(count, 1.0)


ROWS: tuple[Op, ...] = (
    function(
        "embedding_bag",
        "The sum, mean or maximum of the rows of a weight for each row of an index (bags, size), "
        "or for each part of a vector of indices that starts at an offset.",
        _embedding_bag,
        operands=("index", "weight"),
    ),
)


def register_rows() -> None:
    register(*ROWS)
