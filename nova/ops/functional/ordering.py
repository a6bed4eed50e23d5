"""Functions of ordered elements: sort, topk, quantiles, running products and extremes, counts.

Positions come from the rows in `nova/ops/loops/`; values are gathered at them, so that gradients
go to the elements that were chosen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import accumulator, bool_, f32, i32, i64
from nova.core.sizes import is_static
from nova.errors import AttributeValueError, AxisError, ShapeError, SymbolicSizeError
from nova.ops.functional.common import (
    as_floats,
    as_inexact,
    as_integers,
    as_tensor,
    choice,
    function,
    is_tensor,
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
    levels = _levels(F, q)
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
    low, high, weight = _neighbors(F, levels, n, interpolation, x.dtype)
    count = low.shape[0]
    weight = F.reshape(weight, (count, *(1,) * (len(ordered.shape) - 1)))
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
        result = F.reshape(result, (count, *kept))
    return result if len(levels.shape) else F.squeeze(result, 0)


def _levels(F: Any, q: Any) -> Any:
    """Levels of quantiles: an array of numbers that are checked, or a tensor."""
    if is_tensor(q):
        if len(q.shape) > 1:
            raise ShapeError(f"quantile: q {q.shape} is neither a number nor a vector")
        return q
    try:
        levels = np.asarray(q, np.float64)
    except (TypeError, ValueError) as error:
        raise AttributeValueError(f"quantile: q must be numbers, not {q!r}") from error
    if levels.ndim > 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise AttributeValueError(f"quantile: q is a number or a list of numbers in 0..1, not {q}")
    return levels


def _neighbors(F: Any, levels: Any, n: int, interpolation: str, type_: Any) -> tuple[Any, Any, Any]:
    """The positions of the sorted elements below and above each level, and the second's weight."""
    if not isinstance(levels, np.ndarray):
        at = F.reshape(levels, (levels.size,)) * float(n - 1)
        places = [F.cast(f(at), dtype=i64) for f in (F.floor, F.ceil, F.round)]
        low, high = _chosen(places, interpolation)
        share = F.full((), 0.5, at.dtype) if interpolation == "midpoint" else at - F.floor(at)
        return low, high, to_dtype(F, F.where(F.eq(low, high), 0.5, share), type_)
    at = np.atleast_1d(levels) * (n - 1)
    low, high = _chosen(
        [f(at).astype(np.int64) for f in (np.floor, np.ceil, np.round)], interpolation
    )
    # One element is the mean of itself, infinities too.
    weights = np.where((low == high) | (interpolation == "midpoint"), 0.5, at - low)
    return low, high, F.detach(weights.astype(type_.numpy))


def _chosen(places: list[Any], interpolation: str) -> tuple[Any, Any]:
    low, high, nearest = places
    single = {"lower": low, "higher": high, "nearest": nearest}.get(interpolation)
    return (low, high) if single is None else (single, single)


def _msort(F: Any, x: Any) -> Any:
    return _sort(F, x, 0)[0]


def _cumprod(F: Any, x: Any, axis: int) -> Any:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    if not x.dtype.is_float:
        x = x if x.dtype.is_complex else to_dtype(F, x, i64)
        return _doubling_scan(F, x, axis, F.mul, 1)
    wide = to_dtype(F, x, accumulator(x.dtype))
    if not x.shape[axis]:
        return x
    # h[i] = x[i] * h[i - 1] from h[0] = x[0]: right where elements are 0 too.
    head = F.narrow(wide, axis, 0, 1)
    pads = [[0] * len(x.shape) for _ in range(2)]
    pads[1][axis] = x.shape[axis] - 1
    terms = F.pad(head, *pads)
    return to_dtype(F, F.linear_recurrence(wide, terms, axis=axis), x.dtype)


def _doubling_scan(F: Any, x: Any, axis: int, combine: Any, identity: Any) -> Any:
    """A running combination in log2(n) steps (Hillis and Steele 1986)."""
    n = x.shape[axis]
    if not is_static(n):
        raise SymbolicSizeError(
            f"a scan of {x.type} along an axis of symbolic size",
            hint="compile it for a static size, or cast it to a float type",
        )
    distance = 1
    while distance < n:
        shape = tuple(distance if i == axis else m for i, m in enumerate(x.shape))
        start = F.full(shape, identity, dtype=x.dtype)
        before = F.concat([start, F.narrow(x, axis, 0, n - distance)], axis=axis)
        x, distance = combine(x, before), 2 * distance
    return x


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
        first, second = F.narrow(x, axis, 0, size), F.narrow(x, axis, min(1, x.shape[axis]), size)
        x = F.ne(second, first) if x.dtype is bool_ else second - first
    return x


def _trapezoid(F: Any, y: Any, dx: Any = 1.0, axis: int = -1, x: Any = None) -> Any:
    if x is None and hasattr(dx, "shape"):  # torch's and numpy's second argument
        x = dx
    (y,) = as_inexact(F, y)
    axis = resolve_axis(axis, len(y.shape))
    size = max(y.shape[axis] - 1, 0)
    pairs = F.narrow(y, axis, min(1, y.shape[axis]), size) + F.narrow(y, axis, 0, size)
    if x is None:
        return F.sum(pairs, axis=axis) * (0.5 * number("trapezoid", "dx", dx))
    (x,) = as_inexact(F, x)
    if len(x.shape) == 1:
        x = F.reshape(x, tuple(x.shape[0] if i == axis else 1 for i in range(len(y.shape))))
    if x.shape[axis - len(y.shape)] != y.shape[axis]:
        raise ShapeError(f"trapezoid: positions {x.shape} for y {y.shape} along axis {axis}")
    return F.sum(pairs * _diff(F, x, 1, axis - len(y.shape)), axis=axis) * 0.5


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
    if not low <= high or count < 1:
        raise AttributeValueError(f"histc: {count} bins from {low} to {high}")
    flat = F.reshape(x, (x.size,))
    if low == high:
        low, high = data_bounds(F, flat, low, 1.0)
    return to_dtype(F, count_in_bins(F, flat, count, low, high), x.dtype)


def data_bounds(F: Any, x: Any, value: float, margin: float) -> tuple[Any, Any]:
    """The smallest and the largest element; with a margin around one that is both.

    Without elements, the margin is around `value`.
    """
    if not x.size:
        return value - margin, value + margin
    low, high = F.detach(F.min(x)), F.detach(F.max(x))
    is_single = F.eq(low, high)
    return F.where(is_single, low - margin, low), F.where(is_single, high + margin, high)


def count_in_bins(F: Any, flat: Any, count: int, low: Any, high: Any, weights: Any = None) -> Any:
    """How many elements, or the sum of their weights, each of `count` equal bins has."""
    place = F.cast(F.floor((flat - low) * (count / (high - low))), dtype=i64)
    # The upper end belongs to the last bin; what is outside is not counted.
    inside = (flat >= low) & (flat <= high)
    at = F.where(inside, F.clamp(place, min=0, max=count - 1), -1)
    return _bincount(F, at, count, weights)


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
    function(
        "cumprod",
        "The running product along an axis; integers and bools multiply as i64.",
        _cumprod,
        method=True,
    ),
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
        "The integral along an axis by the trapezoid rule: samples at positions x, or dx between.",
        _trapezoid,
        operands=("y",),
    ),
    function(
        "bincount",
        "How often each of 0..length-1 occurs in a vector, or the sum of its weights; other "
        "values are not counted.",
        _bincount,
    ),
    function(
        "histc",
        "A histogram with `bins` equal bins from min to max; from those of x if both are equal.",
        _histc,
        tags=NOGRAD,
    ),
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
