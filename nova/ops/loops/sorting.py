"""The stable order of elements along an axis, and binary search.

`sort`, `topk`, `median` and others are written with these rows in
`nova/ops/functional/ordering.py`; their gradients are those of the gathers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, bool_, i64
from nova.core.sizes import bounds, is_static, same_shape
from nova.errors import AttributeValueError, ShapeError
from nova.ops.rules import Types, int_value, is_zero, resolve_axis, static_axis, widen
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]

# A sort moves all elements once for each doubling; a heap of most of them costs as much.
_LARGEST_SHARE = 4


def is_selected(count: int, size: int) -> bool:
    """Whether the first `count` of `size` elements are selected, and not taken from a sort."""
    return count > 0 and count * _LARGEST_SHARE <= size


def _flag(attrs: Attrs, name: str) -> bool:
    if not isinstance(attrs[name], bool | np.bool_):
        raise AttributeValueError(f"{name} is True or False, not {attrs[name]!r}")
    return bool(attrs[name])


def _argsort_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {
        "axis": resolve_axis(attrs["axis"], ins[0].rank),
        "descending": _flag(attrs, "descending"),
    }


def _argsort_numpy(x: np.ndarray, *, axis: int, descending: bool) -> np.ndarray:
    keys = widen(x)
    if not descending:
        return np.argsort(keys, axis, kind="stable")
    # Equal elements keep their order: sort the reversed axis, and reverse the result.
    order = np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
    return keys.shape[axis] - 1 - order


def _argsort_type(ins: Types, attrs: Attrs) -> TensorType:
    static_axis(ins[0], attrs["axis"], "a merge sort runs along")
    return ins[0].with_dtype(i64)


def _comparison(descending: bool) -> Any:
    def less(s: Any, second: Any, first: Any) -> Any:
        """Whether `second` goes before `first`; NaN counts as the largest."""
        low, high = (first, second) if descending else (second, first)
        before = low < high
        if low.dtype.is_float:
            before = before | (s.is_nan(high) & s.logical_not(s.is_nan(low)))
        return before

    return less


def _argsort_lower(b: Any, out: TensorType, x: Any, *, axis: int, descending: bool) -> Any:
    return b.merge_argsort(x, axis, _comparison(descending))


def _argtopk_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {
        "axis": resolve_axis(attrs["axis"], ins[0].rank),
        "k": int_value(attrs["k"], "k"),
        "largest": _flag(attrs, "largest"),
    }


def _argtopk_type(ins: Types, attrs: Attrs) -> TensorType:
    (x,), axis, count = ins, attrs["axis"], attrs["k"]
    static_axis(x, axis, "a selection runs along")
    if not 0 <= count <= x.shape[axis]:
        raise ShapeError(f"the first {count} of an axis of {x.shape[axis]}")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return TensorType(shape, i64)


def _argtopk_numpy(x: np.ndarray, *, axis: int, k: int, largest: bool) -> np.ndarray:
    order = _argsort_numpy(x, axis=axis, descending=largest)
    return np.take(order, np.arange(k), axis=axis)


def _argtopk_lower(b: Any, out: TensorType, x: Any, *, axis: int, k: int, largest: bool) -> Any:
    if out.is_empty:
        return b.empty(out)
    return b.select_top_k(x, axis, k, _comparison(largest))


def _search_type(ins: Types, attrs: Attrs) -> TensorType:
    edges, values = ins
    if edges.rank < 1 or (edges.rank > 1 and not same_shape(edges.shape[:-1], values.shape[:-1])):
        raise ShapeError(
            f"sorted {edges.shape} for values {values.shape}",
            hint="it is a vector, or has the values' shape but for the last axis",
        )
    return values.with_dtype(i64)


def _search_numpy(edges: np.ndarray, values: np.ndarray, *, right: bool) -> np.ndarray:
    side: Any = "right" if right else "left"
    edges, values = widen(edges), widen(values)
    if edges.ndim == 1:
        return np.asarray(np.searchsorted(edges, values, side)).astype(np.int64)
    result = np.empty(values.shape, np.int64)
    for row in np.ndindex(values.shape[:-1]):
        result[row] = np.searchsorted(edges[row], values[row], side)
    return result


def last_position(s: Any, position: Any, size: Any) -> Any:
    """A position of 0 or more, limited to the last one of an axis."""
    limited = s.minimum(position, size - 1)
    return limited if is_static(size) else s.maximum(limited, 0)


def _search_lower(b: Any, out: TensorType, edges: Any, values: Any, *, right: bool) -> Any:
    n = edges.shape[-1]
    if out.is_empty or is_zero(n):
        return b.empty(out) if out.is_empty else b.fill(out, 0)
    rows = edges.type.rank - 1

    def body(s: Any, value: Any) -> Any:
        lead = [s.index(i) for i in range(rows)]
        low, high = s.const(0, i64), s.const(n, i64)
        # The answer is in low..high, whose length halves: as many steps as n has bits find it.
        for _ in range(bounds(n)[1].bit_length()):
            middle = s.binary("shr_u", low + high, s.const(1, i64))
            edge = s.load(edges.value, [*lead, last_position(s, middle, n)], edges.dtype)
            before = edge <= value if right else edge < value
            if edge.dtype.is_float:
                # NaN is the largest.
                numbers = s.logical_not(s.is_nan(edge))
                before = s.select(
                    s.is_nan(value), numbers if not right else s.const(1, bool_), before
                )
            before = before & (middle < high)
            keep = low < high
            low = s.select(before & keep, middle + 1, low)
            high = s.select(keep & s.logical_not(before), middle, high)
        return low

    return b.pointwise(out, [values], body)


ROWS: tuple[Op, ...] = (
    Op(
        "argsort",
        "The positions that sort an axis; equal elements keep their order, NaN is the largest.",
        attrs={"axis": -1, "descending": False},
        canon=_argsort_canon,
        infer=_argsort_type,
        numpy=_argsort_numpy,
        lower=_argsort_lower,
        methods=("argsort",),
        tags=frozenset({"nograd"}),
    ),
    Op(
        "argtopk",
        "The positions of the k largest (or smallest) elements along an axis, in the order of "
        "`argsort`, selected by a heap.",
        attrs={"k": REQUIRED, "axis": -1, "largest": True},
        canon=_argtopk_canon,
        infer=_argtopk_type,
        numpy=_argtopk_numpy,
        lower=_argtopk_lower,
        tags=frozenset({"nograd"}),
    ),
    Op(
        "searchsorted",
        "Where each value would go in a sorted vector, or in the rows of a sorted tensor: before "
        "equal elements, or after them if `right`.",
        operands=("sorted", "values"),
        attrs={"right": False},
        cast="same",
        canon=lambda ins, attrs: {"right": _flag(attrs, "right")},
        infer=_search_type,
        numpy=_search_numpy,
        lower=_search_lower,
        tags=frozenset({"nograd"}),
        domain=("sorted", "real"),
    ),
)


def register_rows() -> None:
    register(*ROWS)
