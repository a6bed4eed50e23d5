"""Statistics that skip NaN, the mode, weighted averages and percentiles."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from nova.core.dtypes import bool_, i64
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import as_floats, as_inexact, as_tensor, function, is_tensor
from nova.ops.rules import resolve_axis
from nova.ops.table import Op, register


def _skipped(F: Any, x: Any, value: float) -> tuple[Any, Any]:
    """x with a value in place of NaN, and where it was NaN."""
    missing = F.isnan(x)
    return F.where(missing, value, x), missing


def _nan_reduction(name: str, value: float) -> Any:
    """A reduction for which `value` stands for NaN."""

    def build(F: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x = as_tensor(F, x)
        reduce = getattr(F, name)
        if not x.dtype.is_float and not x.dtype.is_complex:
            return reduce(x, axis=axis, keepdims=keepdims)
        result = reduce(_skipped(F, x, value)[0], axis=axis, keepdims=keepdims)
        if value not in (inf, -inf):
            return result
        # The extreme of no number is NaN.
        return F.where(F.all(F.isnan(x), axis=axis, keepdims=keepdims), float("nan"), result)

    return build


def _present(F: Any, missing: Any, axis: Any, keepdims: bool, type_: Any) -> Any:
    return F.sum(F.cast(F.logical_not(missing), dtype=type_), axis=axis, keepdims=keepdims)


def _nanmean(F: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    (x,) = as_inexact(F, x)
    values, missing = _skipped(F, x, 0.0)
    total = F.sum(values, axis=axis, keepdims=keepdims)
    real = F.real(x).dtype if x.dtype.is_complex else x.dtype
    return total / _present(F, missing, axis, keepdims, real)


def _nanvar(F: Any, x: Any, axis: Any = None, correction: float = 0, keepdims: bool = False) -> Any:
    (x,) = as_floats(F, x)
    values, missing = _skipped(F, x, 0.0)
    mean = _nanmean(F, x, axis, True)
    squares = F.square(F.where(missing, 0.0, values - mean))
    count = _present(F, missing, axis, keepdims, x.dtype)
    return F.sum(squares, axis=axis, keepdims=keepdims) / (count - correction)


def _nanstd(F: Any, x: Any, axis: Any = None, correction: float = 0, keepdims: bool = False) -> Any:
    return F.sqrt(_nanvar(F, x, axis, correction, keepdims))


def _nanmedian(F: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x = as_tensor(F, x)
    if not x.dtype.is_float:
        return F.median(x, axis=axis, keepdims=keepdims)
    if axis is None:
        if not x.size:
            raise ShapeError("nanmedian: no elements")
        return _nanmedian(F, F.reshape(x, (-1,)), 0)[0]
    axis = resolve_axis(axis, len(x.shape))
    if not x.shape[axis]:
        raise ShapeError(f"nanmedian: no elements along axis {axis} of {x.shape}")
    order = F.argsort(x, axis=axis)  # NaN comes last
    count = F.sum(F.cast(F.logical_not(F.isnan(x)), dtype=i64), axis=axis, keepdims=True)
    at = F.gather(order, F.maximum(F.floor_div(count - 1, 2), 0), axis=axis)
    values = F.gather(x, at, axis=axis)
    return (values, at) if keepdims else (F.squeeze(values, axis), F.squeeze(at, axis))


def _nanquantile(
    F: Any, x: Any, q: Any, axis: Any = None, keepdims: bool = False, interpolation: str = "linear"
) -> Any:
    """Each row has its own number of elements, so its quantile has its own positions."""
    (x,) = as_floats(F, x)
    rank = len(x.shape)
    kept = (1,) * rank
    if axis is None:
        x, place = F.reshape(x, (-1,)), 0
    else:
        place = resolve_axis(axis, rank)
        kept = tuple(1 if i == place else n for i, n in enumerate(x.shape))
    if not x.shape[place]:
        raise ShapeError("nanquantile: no elements")
    levels = _levels(F, q, x.dtype)
    ordered = F.movedim(F.sort(x, axis=place)[0], place, -1)
    count = F.sum(F.cast(F.logical_not(F.isnan(ordered)), dtype=x.dtype), axis=-1, keepdims=True)
    at = F.maximum(count - 1.0, 0.0) * F.reshape(levels, (-1,))
    low, high, share = _between(F, at, interpolation)
    first, second = (F.gather(ordered, F.cast(p, dtype=i64), axis=-1) for p in (low, high))
    result = F.movedim(first + share * (second - first), -1, 0)
    if keepdims:
        result = F.reshape(result, (result.shape[0], *kept))
    return result if len(levels.shape) else F.squeeze(result, 0)


def _levels(F: Any, q: Any, type_: Any) -> Any:
    if is_tensor(q):
        return F.cast(q, dtype=type_)
    levels = np.asarray(q, np.float64)
    if levels.ndim > 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise AttributeValueError(f"nanquantile: q is numbers in 0..1, not {q!r}")
    return F.detach(levels.astype(type_.numpy))


def _between(F: Any, at: Any, interpolation: str) -> tuple[Any, Any, Any]:
    """The positions below and above `at`, and the share of the second."""
    low, high = F.floor(at), F.ceil(at)
    options = {
        "linear": (low, high, at - low),
        "lower": (low, low, F.zeros_like(at)),
        "higher": (high, high, F.zeros_like(at)),
        "nearest": (F.round(at), F.round(at), F.zeros_like(at)),
        "midpoint": (low, high, F.full_like(at, 0.5)),
    }
    if interpolation not in options:
        raise AttributeValueError(
            f"nanquantile: interpolation {interpolation!r}",
            hint=f"it is one of {', '.join(options)}",
        )
    return options[interpolation]


def _mode(F: Any, x: Any, axis: int = -1, keepdims: bool = False) -> tuple[Any, Any]:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    n = x.shape[axis]
    if not n:
        raise ShapeError(f"mode: no elements along axis {axis} of {x.shape}")
    moved = F.movedim(x, axis, -1)
    ordered, order = F.sort(moved, axis=-1)
    place = F.expand(F.arange(n), ordered.shape)
    # The start of the run of equal elements that each element is in: the last one that begins.
    before = F.concat([ordered[..., :1], ordered[..., : n - 1]], axis=-1)
    begins = F.ne(ordered, before) | F.eq(place, 0)
    start = F.cummax(F.where(begins, place, 0), axis=-1)[0]
    # The run is longest at its last element; the first of the longest runs is the smallest value.
    at = F.argmax(place - start, axis=-1, keepdims=True)
    position = F.gather(order, F.cast(at, dtype=i64), axis=-1)
    values = F.movedim(F.gather(moved, position, axis=-1), -1, axis)
    position = F.movedim(position, -1, axis)
    return (values, position) if keepdims else (F.squeeze(values, axis), F.squeeze(position, axis))


def _average(F: Any, x: Any, axis: Any = None, weights: Any = None, keepdims: bool = False) -> Any:
    if weights is None:
        return F.mean(x, axis=axis, keepdims=keepdims)
    x, weights = as_inexact(F, x, weights)
    if tuple(weights.shape) != tuple(x.shape):
        if axis is None or len(weights.shape) != 1:
            raise ShapeError(f"average: weights {weights.shape} for {x.shape} along {axis}")
        place = resolve_axis(axis, len(x.shape))
        if weights.shape[0] != x.shape[place]:
            raise ShapeError(f"average: weights {weights.shape} for {x.shape} along {axis}")
        shape = [weights.shape[0] if i == place else 1 for i in range(len(x.shape))]
        weights = F.expand(F.reshape(weights, shape), x.shape)
    total = F.sum(weights, axis=axis, keepdims=keepdims)
    return F.sum(x * weights, axis=axis, keepdims=keepdims) / total


def _percentile(name: str) -> Any:
    def build(
        F: Any, x: Any, q: Any, axis: Any = None, keepdims: bool = False, method: str = "linear"
    ) -> Any:
        levels = q / 100.0 if is_tensor(q) else np.asarray(q, np.float64) / 100.0
        return getattr(F, name)(x, levels, axis, keepdims, method)

    return build


def _nan_position(name: str, value: float) -> Any:
    def build(F: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x = as_tensor(F, x)
        values = _skipped(F, x, value)[0] if x.dtype.is_float else x
        return getattr(F, name)(values, axis=axis, keepdims=keepdims)

    return build


def _nan_scan(name: str, value: float) -> Any:
    def build(F: Any, x: Any, axis: int) -> Any:
        x = as_tensor(F, x)
        values = _skipped(F, x, value)[0] if x.dtype.is_float else x
        return getattr(F, name)(values, axis=axis)

    return build


def _unique_consecutive(
    F: Any, x: Any, size: int, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    x = as_tensor(F, x)
    flat = F.reshape(x, (-1,))
    total = flat.shape[0]
    if not total:
        raise ShapeError("unique_consecutive: x is empty")
    changed = F.ne(flat[1:], flat[: total - 1])
    first = F.concat([F.ones((1,), dtype=bool_), changed], axis=0)
    results = [F.masked_select(flat, first, size)]
    group = F.cumsum(F.cast(first, dtype=i64), axis=0) - 1
    if return_inverse:
        results.append(F.reshape(group, x.shape))
    if return_counts:
        results.append(F.bincount(group, max(size, 1))[:size])
    return results[0] if len(results) == 1 else tuple(results)


NOGRAD = frozenset({"nograd"})
_SKIPPING = "{} over the axes, without the elements that are NaN."
ROWS: tuple[Op, ...] = (
    function("nansum", _SKIPPING.format("The sum"), _nan_reduction("sum", 0.0), method=True),
    function("nanprod", _SKIPPING.format("The product"), _nan_reduction("prod", 1.0)),
    function("nanmax", _SKIPPING.format("The largest element"), _nan_reduction("max", -inf)),
    function("nanmin", _SKIPPING.format("The smallest element"), _nan_reduction("min", inf)),
    function("nanmean", _SKIPPING.format("The mean"), _nanmean, method=True),
    function("nanvar", _SKIPPING.format("The variance"), _nanvar),
    function("nanstd", _SKIPPING.format("The standard deviation"), _nanstd),
    function(
        "nanmedian",
        "`median` without the elements that are NaN: of all, or along an axis with its position.",
        _nanmedian,
        method=True,
    ),
    function(
        "nanquantile", "`quantile` without the elements that are NaN.", _nanquantile, method=True
    ),
    function("percentile", "`quantile` of q / 100.", _percentile("quantile")),
    function("nanpercentile", "`nanquantile` of q / 100.", _percentile("nanquantile")),
    function(
        "mode",
        "The element that is most frequent along an axis, the smallest of several, and the "
        "position of its last occurrence.",
        _mode,
        method=True,
    ),
    function("average", "The mean over the axes, by weights if given.", _average),
    function(
        "nanargmax",
        "The position of the largest element that is not NaN.",
        _nan_position("argmax", -inf),
        tags=NOGRAD,
    ),
    function(
        "nanargmin",
        "The position of the smallest element that is not NaN.",
        _nan_position("argmin", inf),
        tags=NOGRAD,
    ),
    function("nancumsum", "The running sum; NaN counts as 0.", _nan_scan("cumsum", 0.0)),
    function("nancumprod", "The running product; NaN counts as 1.", _nan_scan("cumprod", 1.0)),
    function(
        "unique_consecutive",
        "The first elements of the first `size` runs of equal elements, then 0; also the run of "
        "each element, and the lengths of the runs.",
        _unique_consecutive,
    ),
)


def register_rows() -> None:
    register(*ROWS)
