"""Functions of ordered elements: sort, topk, quantiles, running products and extremes, counts.

Positions come from the rows in `nova/ops/loops/`; values are gathered at them, so that gradients
go to the elements that were chosen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import accumulator, f32, i32, i64
from nova.errors import AttributeValueError, AxisError, ShapeError
from nova.ops.functional.common import (
    as_floats,
    as_integers,
    as_tensor,
    choice,
    function,
    number,
    to_dtype,
)
from nova.ops.loops.sorting import is_selected
from nova.ops.rules import int_tuple, int_value, resolve_axis
from nova.ops.table import Op, register


def _sort(F: Any, x: Any, axis: int = -1, descending: bool = False) -> tuple[Any, Any]:
    x = as_tensor(F, x)
    order = F.argsort(x, axis=axis, descending=descending)
    return F.gather(x, order, axis=axis), order


def _topk(F: Any, x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    count = int_value(k, "topk: k")
    if not 0 <= count <= x.shape[axis]:
        raise ShapeError(f"topk: {count} of an axis of {x.shape[axis]}")
    if is_selected(count, x.shape[axis]):
        order = F.argtopk(x, k=count, axis=axis, largest=largest)
    else:
        order = F.narrow(F.argsort(x, axis=axis, descending=largest), axis, 0, count)
    return F.gather(x, order, axis=axis), order


def _kthvalue(F: Any, x: Any, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Any, Any]:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    place = int_value(k, "kthvalue: k")
    if not 1 <= place <= x.shape[axis]:
        raise ShapeError(f"kthvalue: element {place} of an axis of {x.shape[axis]}")
    at = F.narrow(F.argsort(x, axis=axis), axis, place - 1, 1)
    values = F.gather(x, at, axis=axis)
    return (values, at) if keepdims else (F.squeeze(values, axis), F.squeeze(at, axis))


def _median(F: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x = as_tensor(F, x)
    if axis is None:
        if not x.size:
            raise ShapeError("median: no elements")
        flat = F.reshape(x, (x.size,))
        return _median(F, flat, 0)[0]
    axis = resolve_axis(axis, len(x.shape))
    values, at = _kthvalue(F, x, (x.shape[axis] - 1) // 2 + 1, axis, keepdims=True)
    if x.dtype.is_float:
        # A NaN is the median of its row, at the first NaN.
        missing = F.isnan(x)
        first = F.argmax(F.cast(missing, dtype=i32), axis=axis, keepdims=True)
        at = F.where(F.any(missing, axis=axis, keepdims=True), F.cast(first, dtype=i64), at)
        values = F.gather(x, at, axis=axis)
    return (values, at) if keepdims else (F.squeeze(values, axis), F.squeeze(at, axis))


_INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


def _quantile(
    F: Any,
    x: Any,
    q: Any,
    axis: Any = None,
    keepdims: bool = False,
    interpolation: str = "linear",
) -> Any:
    (x,) = as_floats(F, x)
    choice("quantile", "interpolation", interpolation, _INTERPOLATIONS)
    try:
        levels = np.asarray(q, np.float64)
    except (TypeError, ValueError) as error:
        raise AttributeValueError(f"quantile: q must be numbers, not {q!r}") from error
    if levels.ndim > 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise AttributeValueError(f"quantile: q is a number or a list of numbers in 0..1, not {q}")
    rank = len(x.shape)
    kept = (1,) * rank
    if axis is None:
        x, place = F.reshape(x, (x.size,)), 0
    else:
        place = resolve_axis(axis, rank)
        kept = tuple(1 if i == place else n for i, n in enumerate(x.shape))
    n = x.shape[place]
    if not n:
        raise ShapeError("quantile: no elements")
    ordered = F.movedim(_sort(F, x, place)[0], place, 0)
    at = np.atleast_1d(levels) * (n - 1)
    low, high = np.floor(at).astype(np.int64), np.ceil(at).astype(np.int64)
    if interpolation in ("lower", "higher", "nearest"):
        chosen = {"lower": low, "higher": high, "nearest": np.round(at).astype(np.int64)}
        low = high = chosen[interpolation]
    # One element is the mean of itself, infinities too.
    weights = np.where((low == high) | (interpolation == "midpoint"), 0.5, at - low)
    shape = (len(at), *(1,) * (len(ordered.shape) - 1))
    weight = weights.reshape(shape).astype(x.dtype.numpy)
    first, second = F.take(ordered, low, axis=0), F.take(ordered, high, axis=0)
    # A NaN in the row, which is sorted to the end, makes the quantile NaN.
    last = F.take(ordered, np.array([n - 1]), axis=0)
    # An infinite difference plus -inf would be NaN.
    difference = second - first
    result = F.where(
        F.isfinite(difference),
        first + difference * weight,
        first * (1 - weight) + second * weight,
    )
    result = F.where(F.isnan(last), last, result)
    if keepdims:
        result = F.reshape(result, (len(at), *kept))
    return result if levels.ndim else F.squeeze(result, 0)


def _msort(F: Any, x: Any) -> Any:
    return _sort(F, x, 0)[0]


def _cumprod(F: Any, x: Any, axis: int) -> Any:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    if not x.dtype.is_float:
        raise AttributeValueError(f"cumprod: x is {x.dtype}", hint="cast it to a float type first")
    wide = to_dtype(F, x, accumulator(x.dtype))
    if not x.shape[axis]:
        return x
    # h[i] = x[i] * h[i - 1] from h[0] = x[0]: right where elements are 0 too.
    head = F.narrow(wide, axis, 0, 1)
    pads = [[0] * len(x.shape) for _ in range(2)]
    pads[1][axis] = x.shape[axis] - 1
    terms = F.pad(head, *pads)
    return to_dtype(F, F.linear_recurrence(wide, terms, axis=axis), x.dtype)


def _running(name: str) -> Any:
    def build(F: Any, x: Any, axis: int) -> tuple[Any, Any]:
        x = as_tensor(F, x)
        at = getattr(F, f"arg{name}")(x, axis=axis)
        return F.gather(x, at, axis=axis), at

    return build


def _diff(F: Any, x: Any, n: int = 1, axis: int = -1) -> Any:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    times = int_value(n, "diff: n")
    if times < 0:
        raise AttributeValueError(f"diff: n must be at least 0, not {times}")
    for _ in range(times):
        size = max(x.shape[axis] - 1, 0)
        x = F.narrow(x, axis, min(1, x.shape[axis]), size) - F.narrow(x, axis, 0, size)
    return x


def _trapezoid(F: Any, y: Any, dx: float = 1.0, axis: int = -1) -> Any:
    (y,) = as_floats(F, y)
    axis = resolve_axis(axis, len(y.shape))
    size = max(y.shape[axis] - 1, 0)
    pairs = F.narrow(y, axis, min(1, y.shape[axis]), size) + F.narrow(y, axis, 0, size)
    return F.sum(pairs, axis=axis) * (0.5 * number("trapezoid", "dx", dx))


# --- counts and segments --------------------------------------------------------------------------


def _bincount(F: Any, x: Any, length: int, weights: Any = None) -> Any:
    # i64: the length may not fit a small type.
    x = to_dtype(F, as_integers(F, "bincount", x, "x"), i64)
    count = int_value(length, "bincount: length")
    if count < 1 or len(x.shape) != 1:
        raise ShapeError(f"bincount: x {x.shape} with {count} bins: a vector, and one bin or more")
    inside = (x >= 0) & (x < count)
    if weights is None:
        each = F.cast(inside, dtype=i64)
    else:
        weights = as_tensor(F, weights)
        if weights.shape != x.shape:
            raise ShapeError(f"bincount: weights {weights.shape} for x {x.shape}")
        each = F.where(inside, weights, 0)
    return F.index_add(F.zeros((count,), dtype=each.dtype), x, each)


def _histc(F: Any, x: Any, bins: int = 100, min: float = 0.0, max: float = 1.0) -> Any:
    (x,) = as_floats(F, x)
    low, high = number("histc", "min", min), number("histc", "max", max)
    count = int_value(bins, "histc: bins")
    if not low < high or count < 1:
        raise AttributeValueError(f"histc: {count} bins from {low} to {high}")
    flat = F.reshape(x, (x.size,))
    place = F.cast(F.floor((flat - low) * (count / (high - low))), dtype=i64)
    # The upper end belongs to the last bin; what is outside is not counted.
    inside = (flat >= low) & (flat <= high)
    at = F.where(inside, F.clamp(place, min=0, max=count - 1), -1)
    return to_dtype(F, _bincount(F, at, count), x.dtype)


def _segments(name: str, x: Any, ids: Any, count: Any) -> int:
    total = int_value(count, f"{name}: num_segments")
    if not x.shape or ids.shape != x.shape[:1] or total < 0:
        raise ShapeError(f"{name}: ids {ids.shape} for {x.shape} in {total} segments")
    return total


def _segment_sum(F: Any, x: Any, segment_ids: Any, num_segments: int) -> Any:
    x, ids = as_tensor(F, x), as_integers(F, "segment_sum", segment_ids, "segment_ids")
    total = _segments("segment_sum", x, ids, num_segments)
    ids = to_dtype(F, ids, i64)
    # Slices with ids outside the segments are not counted.
    inside = F.reshape((ids >= 0) & (ids < total), (*ids.shape, *(1,) * (len(x.shape) - 1)))
    each = F.where(inside, x, F.zeros_like(x))
    return F.index_add(F.zeros((total, *x.shape[1:]), dtype=x.dtype), ids, each)


def _segment_mean(F: Any, x: Any, segment_ids: Any, num_segments: int) -> Any:
    (x,) = as_floats(F, x)
    total = _segment_sum(F, x, segment_ids, num_segments)
    ones = F.ones(x.shape[:1], dtype=f32)
    counts = _segment_sum(F, ones, segment_ids, num_segments)
    shape = (num_segments, *(1,) * (len(x.shape) - 1))
    divisor = F.cast(F.reshape(F.maximum(counts, 1.0), shape), dtype=x.dtype)
    return total / divisor


def _bucketize(F: Any, values: Any, boundaries: Any, right: bool = False) -> Any:
    return F.searchsorted(boundaries, values, right=right)


def _isin(F: Any, x: Any, values: Any) -> Any:
    x, values = as_tensor(F, x), as_tensor(F, values)
    flat = F.reshape(values, (*(1,) * len(x.shape), values.size))
    return F.any(F.eq(F.unsqueeze(x, -1), flat), axis=-1)


def _unravel_index(F: Any, x: Any, shape: Any) -> tuple[Any, ...]:
    x = to_dtype(F, as_integers(F, "unravel_index", x, "x"), i64)
    sizes = int_tuple(shape, "unravel_index: shape")
    if not sizes or min(sizes) < 1:
        raise AxisError(f"unravel_index: no element has a position in {sizes}")
    result = []
    for n in reversed(sizes):
        result.append(F.mod(x, n))
        x = F.floor_div(x, n)
    return tuple(reversed(result))


NOGRAD = frozenset({"nograd"})
ROWS: tuple[Op, ...] = (
    function(
        "sort", "The sorted values along an axis and their positions; stable.", _sort, method=True
    ),
    function("msort", "The values sorted along the first axis.", _msort),
    function(
        "topk",
        "The k largest (or smallest) values along an axis, sorted, and their positions.",
        _topk,
        method=True,
    ),
    function(
        "kthvalue",
        "The k-th smallest value along an axis, from 1, and its position.",
        _kthvalue,
        method=True,
    ),
    function(
        "median",
        "The lower median: of all elements, or along an axis with its position (torch).",
        _median,
        method=True,
    ),
    function(
        "quantile",
        "Quantiles of all elements or along an axis, interpolated as in torch.",
        _quantile,
        method=True,
    ),
    function("cumprod", "The running product along an axis.", _cumprod, method=True),
    function(
        "cummax",
        "The largest value so far along an axis, and its position.",
        _running("cummax"),
        method=True,
    ),
    function(
        "cummin",
        "The smallest value so far along an axis, and its position.",
        _running("cummin"),
        method=True,
    ),
    function(
        "diff", "The differences of adjacent elements along an axis, n times.", _diff, method=True
    ),
    function(
        "trapezoid",
        "The integral along an axis by the trapezoid rule.",
        _trapezoid,
        operands=("y",),
    ),
    function(
        "bincount",
        "How often each of 0..length-1 occurs in a vector, or the sum of its weights; other "
        "values are not counted.",
        _bincount,
    ),
    function("histc", "A histogram with `bins` equal bins from min to max.", _histc, tags=NOGRAD),
    function(
        "segment_sum",
        "The sums of slices of x by the segment that each is in; other ids are not counted.",
        _segment_sum,
        operands=("x", "segment_ids"),
    ),
    function(
        "segment_mean",
        "The means of slices of x by segment, 0 where there are none.",
        _segment_mean,
        operands=("x", "segment_ids"),
    ),
    function(
        "bucketize",
        "The position of each value among sorted boundaries.",
        _bucketize,
        operands=("values", "boundaries"),
        tags=NOGRAD,
    ),
    function(
        "isin",
        "Whether each element is one of the values.",
        _isin,
        operands=("x", "values"),
        tags=NOGRAD,
    ),
    function(
        "unravel_index",
        "Flat positions as positions along each axis of a shape.",
        _unravel_index,
        tags=NOGRAD,
    ),
)


def register_rows() -> None:
    register(*ROWS)
