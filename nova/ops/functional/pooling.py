"""Pooling over one to three spatial axes and resizing, with torch's arguments."""

from __future__ import annotations

from math import floor, isfinite, prod
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, accumulator, bool_
from nova.core.sizes import is_static_shape
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.functional.common import as_floats, as_tensor, choice, function, number, to_dtype
from nova.ops.functional.convolution import Sizes, pad_spatial, spatial_sizes, with_batch
from nova.ops.functional.sampling import cubic_weights
from nova.ops.functional.unpooling import window_positions
from nova.ops.reductions import lowest
from nova.ops.rules import int_value
from nova.ops.table import Op, register


def _counts(
    sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
) -> Sizes:
    """How many windows a pool has; with `ceil` the last may reach beyond the padding."""
    result = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        count = (span + s - 1 if ceil else span) // s + 1
        # The last window starts inside the input or the padding before it.
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        result.append(count)
    return tuple(result)


def _symbolic_ends(options: tuple[Sizes, Sizes, Sizes, Sizes]) -> Sizes:
    """The padding at the end for which windows of any size are counted as `_counts` with `ceil`.

    The last window reaches at most `stride - 1` elements beyond the padding, and it starts before
    the padding at the end. Which of these bounds is smaller does not depend on the size.
    """
    axes = zip(*options, strict=True)
    return tuple(min(p + s - 1, d * (k - 1)) for k, s, p, d in axes)


def _pooled_windows(
    F: Any,
    name: str,
    x: Any,
    options: tuple[Sizes, Sizes, Sizes, Sizes],
    ceil_mode: bool,
    value: float,
) -> Any:
    kernel, stride, padding, dilation = options
    for k, p in zip(kernel, padding, strict=True):
        if 2 * p > k:
            raise AttributeValueError(f"{name}: padding {p} is more than half of the kernel {k}")
    sizes = tuple(x.shape[2:])
    if is_static_shape(sizes):
        counts = _counts(sizes, kernel, stride, padding, dilation, ceil_mode)
        fits = all(c >= 1 for c in counts)
        axes = zip(counts, kernel, stride, padding, dilation, sizes, strict=True)
        ends = [max((c - 1) * s + d * (k - 1) + 1 - n - p, 0) for c, k, s, p, d, n in axes]
    else:
        # All of the padding: how much of it no window reads depends on the size.
        ends = list(_symbolic_ends(options) if ceil_mode else padding)
        spans = zip(sizes, kernel, padding, ends, dilation, strict=True)
        fits = all(n + p + e >= d * (k - 1) + 1 for n, k, p, e, d in spans)
    if not fits:
        raise ShapeError(
            f"{name}: a kernel of {kernel} does not fit in an input of {sizes} with padding "
            f"{padding}",
            hint="use a smaller kernel, more padding or a larger input",
        )
    padded = pad_spatial(F, x, padding, tuple(ends), value)
    return F.windows(padded, kernel=kernel, stride=stride, dilation=dilation)


def _options(
    name: str, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    kernel = spatial_sizes(name, "kernel_size", kernel_size, rank)
    return (
        kernel,
        kernel if stride is None or stride == () else spatial_sizes(name, "stride", stride, rank),
        spatial_sizes(name, "padding", padding, rank, 0),
        spatial_sizes(name, "dilation", dilation, rank),
    )


def _padding_value(name: str, x: TensorType) -> Any:
    if x.dtype is bool_:
        raise DTypeError(f"{name}: x is bool", hint="cast it to u8 first")
    return lowest(x.dtype)


def _max_pool(rank: int) -> Any:
    name = f"max_pool{rank}d"

    def build(
        F: Any,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        x, added = with_batch(F, name, as_tensor(F, x), rank)
        options = _options(name, rank, kernel_size, stride, padding, dilation)
        windows = _pooled_windows(F, name, x, options, ceil_mode, _padding_value(name, x.type))
        results = [F.max(windows, axis=tuple(range(2, 2 + rank)))]
        if return_indices:
            counts = windows.shape[2 + rank :]
            tables = [
                np.arange(c) * s - p + np.arange(k)[:, None] * d
                for c, k, s, p, d in zip(counts, *options, strict=True)
            ]
            results.append(window_positions(F, windows, tables, tuple(x.shape[2:])))
        results = [F.squeeze(out, 0) if added else out for out in results]
        return tuple(results) if return_indices else results[0]

    return build


def _avg_pool(rank: int) -> Any:
    name = f"avg_pool{rank}d"

    def build(
        F: Any,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        (x,) = as_floats(F, x)
        x, added = with_batch(F, name, x, rank)
        options = _options(name, rank, kernel_size, stride, padding, 1)
        wide = to_dtype(F, x, accumulator(x.dtype))
        windows = _pooled_windows(F, name, wide, options, ceil_mode, 0.0)
        total = F.sum(windows, axis=tuple(range(2, 2 + rank)))
        counts = windows.shape[2 + rank :]
        complete = not ceil_mode and (count_include_pad or not any(options[2]))
        if divisor_override is not None:
            total = total / _nonzero_divisor(name, divisor_override)
        elif complete and not is_static_shape(x.shape[2:]):
            total = total / float(prod(options[0]))
        else:
            total = total / _divisors(F, wide, options, counts, count_include_pad)
        out = to_dtype(F, total, x.dtype)
        return F.squeeze(out, 0) if added else out

    return build


def _nonzero_divisor(name: str, value: Any) -> int:
    divisor = int_value(value, f"{name}: divisor_override")
    if not divisor:
        raise AttributeValueError(f"{name}: divisor_override must not be 0")
    return divisor


def _divisors(F: Any, x: Any, options: Any, counts: Any, include_pad: bool) -> Any:
    """How many elements each window averages: those in the input, or in its padding too.

    An array in the dtype of x, or a tensor where sizes are symbolic.
    """
    sizes = tuple(x.shape[2:])
    arrays = np if is_static_shape(sizes) else F
    total: Any = 1
    for axis, (n, k, s, p, c) in enumerate(zip(sizes, *options[:3], counts, strict=True)):
        start = arrays.arange(c) * s - p
        stop = arrays.minimum(start + k, n + p)
        if not include_pad:
            start, stop = arrays.maximum(start, 0), arrays.minimum(stop, n)
        shape = [c if i == axis else 1 for i in range(len(counts))]
        total = total * arrays.reshape(arrays.maximum(stop - start, 1), shape)
    is_array = isinstance(total, np.ndarray)
    return total.astype(x.dtype.numpy) if is_array else F.cast(total, dtype=x.dtype)


def _bounds(n: int, count: int) -> list[tuple[int, int]]:
    """Where the windows of an adaptive pool start and stop."""
    return [(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]


def _adaptive_sizes(name: str, x: Any, output_size: Any, rank: int) -> Sizes:
    items = output_size if isinstance(output_size, tuple | list) else (output_size,) * rank
    if len(items) != rank:
        raise AttributeValueError(f"{name}: output_size {output_size!r}: not {rank} sizes")
    sizes = tuple(x.shape[2 + i] if n is None else n for i, n in enumerate(items))
    return spatial_sizes(name, "output_size", sizes, rank)


def _adaptive_pool(rank: int, average: bool) -> Any:
    name = f"adaptive_{'avg' if average else 'max'}_pool{rank}d"

    def build(F: Any, x: Any, output_size: Any) -> Any:
        (x,) = as_floats(F, x)
        x, added = with_batch(F, name, x, rank)
        sizes = _adaptive_sizes(name, x, output_size, rank)
        wide = to_dtype(F, x, accumulator(x.dtype)) if average else x
        for axis, count in enumerate(sizes, 2):
            wide = _adapt_axis(F, wide, axis, count, average)
        out = to_dtype(F, wide, x.dtype)
        return F.squeeze(out, 0) if added else out

    return build


def _adaptive_max_pool(rank: int) -> Any:
    pool = _adaptive_pool(rank, False)

    def build(F: Any, x: Any, output_size: Any, return_indices: bool = False) -> Any:
        result = pool(F, x, output_size)
        if not return_indices:
            return result
        (x,) = as_floats(F, x)
        x, added = with_batch(F, f"adaptive_max_pool{rank}d", x, rank)
        windows, tables = x, []
        for axis, count in enumerate(result.shape[-rank:]):
            n = x.shape[2 + axis]
            starts, stops = (np.array(v) for v in zip(*_bounds(n, count), strict=True))
            within = np.arange((stops - starts).max())[:, None] + starts
            tables.append(within)
            # Axis a becomes two, the elements of a window and the windows, side by side.
            place = 2 + 2 * axis
            windows = F.take(windows, np.minimum(within, n - 1), axis=place)
            shape = [1] * len(windows.shape)
            shape[place : place + 2] = within.shape
            windows = F.where((within < stops).reshape(shape), windows, lowest(x.dtype))
        order = (0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 2 + 2 * rank, 2))
        windows = F.permute(windows, order)
        positions = window_positions(F, windows, tables, tuple(x.shape[2:]))
        return result, F.squeeze(positions, 0) if added else positions

    return build


def _adapt_axis(F: Any, x: Any, axis: int, count: int, average: bool) -> Any:
    n = x.shape[axis]
    if n % count == 0:
        split = F.reshape(x, (*x.shape[:axis], count, n // count, *x.shape[axis + 1 :]))
        return F.mean(split, axis=axis + 1) if average else F.max(split, axis=axis + 1)
    parts = [F.narrow(x, axis, a, b - a) for a, b in _bounds(n, count)]
    fold = F.mean if average else F.max
    return F.concat([fold(part, axis=axis, keepdims=True) for part in parts], axis=axis)


def _lp_pool(rank: int) -> Any:
    name = f"lp_pool{rank}d"

    def build(
        F: Any,
        x: Any,
        norm_type: float,
        kernel_size: Any,
        stride: Any = None,
        ceil_mode: bool = False,
    ) -> Any:
        (x,) = as_floats(F, x)
        x, added = with_batch(F, name, x, rank)
        power = number(name, "norm_type", norm_type)
        if power == 0:
            raise AttributeValueError(f"{name}: norm_type must not be 0")
        options = _options(name, rank, kernel_size, stride, 0, 1)
        windows = _pooled_windows(F, name, F.pow(x, power), options, ceil_mode, 0.0)
        total = F.sum(windows, axis=tuple(range(2, 2 + rank)))
        if ceil_mode:
            # As in torch, a window that ends outside counts as one full of its mean.
            divisor = _divisors(F, x, options, windows.shape[2 + rank :], True)
            total = total * float(prod(options[0])) / divisor
        out = F.pow(F.relu(F.sign(total) * F.abs(total)), 1.0 / power)
        return F.squeeze(out, 0) if added else out

    return build


# --- interpolate ----------------------------------------------------------------------------------

_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
_MODES = ("nearest", "nearest-exact", *_RANKS, "area")


def _interpolate(
    F: Any,
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    recompute_scale_factor: bool = False,
) -> Any:
    (x,) = as_floats(F, x)
    choice("interpolate", "mode", mode, _MODES)
    rank = len(x.shape) - 2
    if rank < 1 or _RANKS.get(mode, rank) != rank:
        raise ShapeError(f"interpolate: {x.shape} for mode {mode!r}")
    if (size is None) == (scale_factor is None):
        raise AttributeValueError("interpolate: needs size or scale_factor, not both")
    factors: list[float | None] = [None] * rank
    if size is not None:
        sizes = spatial_sizes("interpolate", "size", size, rank)
    else:
        items = scale_factor if isinstance(scale_factor, tuple | list) else [scale_factor] * rank
        factors = [number("interpolate", "scale_factor", v) for v in items]
        if len(factors) != rank or not all(isfinite(f) for f in factors if f is not None):
            raise AttributeValueError(
                f"interpolate: scale_factor {scale_factor!r}: not {rank} finite numbers"
            )
        scaled = zip(x.shape[2:], factors, strict=True)
        sizes = spatial_sizes(
            "interpolate", "size", tuple(floor(n * f) for n, f in scaled if f is not None), rank
        )
    if recompute_scale_factor:  # positions by the ratio of the sizes, not by the factor
        factors = [None] * rank
    if mode == "area":
        return _adaptive_pool(rank, True)(F, x, sizes)
    wide = to_dtype(F, x, accumulator(x.dtype))
    for axis, (count, factor) in enumerate(zip(sizes, factors, strict=True), 2):
        wide = _resize_axis(F, wide, axis, count, factor, mode, align_corners)
    return to_dtype(F, wide, x.dtype)


def _resize_axis(
    F: Any, x: Any, axis: int, count: int, factor: float | None, mode: str, corners: bool
) -> Any:
    n = x.shape[axis]
    scale = 1.0 / factor if factor else n / count
    at = np.arange(count)
    if mode in ("nearest", "nearest-exact"):
        # Places are f32, as in torch: those on a boundary round to the same element.
        center = 0.0 if mode == "nearest" else 0.5
        place = (at + center).astype(np.float32) * np.float32(scale)
        return F.take(x, np.minimum(np.floor(place).astype(np.int64), n - 1), axis=axis)
    if corners:
        place = at * ((n - 1) / (count - 1) if count > 1 else 0.0)
    else:
        place = (at + 0.5) * scale - 0.5
    if mode == "bicubic":
        return _resize_cubic(F, x, axis, place)
    place = np.maximum(place, 0.0)
    low = np.minimum(np.floor(place).astype(np.int64), n - 1)
    high = np.minimum(low + 1, n - 1)
    shape = [count if i == axis else 1 for i in range(len(x.shape))]
    weight = (place - low).reshape(shape).astype(x.dtype.numpy)
    first, second = F.take(x, low, axis=axis), F.take(x, high, axis=axis)
    return first * (1 - weight) + second * weight


def _resize_cubic(F: Any, x: Any, axis: int, place: np.ndarray) -> Any:
    """Four elements each, by Keys's cubic convolution; those outside are the nearest inside."""
    low = np.floor(place).astype(np.int64)
    share = place - low
    shape = [len(place) if i == axis else 1 for i in range(len(x.shape))]
    total = None
    for offset, distance in ((-1, share + 1), (0, share), (1, 1 - share), (2, 2 - share)):
        weight = cubic_weights(distance, outer=offset in (-1, 2))
        index = np.clip(low + offset, 0, x.shape[axis] - 1)
        term = F.take(x, index, axis=axis) * weight.reshape(shape).astype(x.dtype.numpy)
        total = term if total is None else total + term
    return total


def _ranks(make: Any, name: str, doc: str) -> tuple[Op, ...]:
    return tuple(
        function(f"{name}{rank}d", doc.format(rank=rank), make(rank)) for rank in (1, 2, 3)
    )


ROWS: tuple[Op, ...] = (
    *_ranks(
        _max_pool,
        "max_pool",
        "The largest element of each window of {rank} spatial axes; ties share the gradient.",
    ),
    *_ranks(
        _avg_pool,
        "avg_pool",
        "The mean of each window of {rank} spatial axes; divisor_override replaces its size.",
    ),
    *_ranks(
        lambda rank: _adaptive_pool(rank, True),
        "adaptive_avg_pool",
        "The means of windows that divide {rank} spatial axes into output_size parts.",
    ),
    *_ranks(
        _adaptive_max_pool,
        "adaptive_max_pool",
        "The maxima of windows that divide {rank} spatial axes into output_size parts.",
    ),
    *_ranks(_lp_pool, "lp_pool", "The p-norm of each window of {rank} spatial axes."),
    function(
        "interpolate",
        "The spatial axes resized: mode 'nearest', 'nearest-exact', 'linear', 'bilinear', "
        "'trilinear', 'bicubic' or 'area'.",
        _interpolate,
    ),
)


def register_rows() -> None:
    register(*ROWS)
