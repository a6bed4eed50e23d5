"""Pooling over one to three spatial axes and resizing, with torch's arguments."""

from __future__ import annotations

from math import floor, isfinite
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, accumulator, bool_
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.functional.common import as_floats, as_tensor, choice, function, number, to_dtype
from nova.ops.functional.convolution import Sizes, pad_spatial, spatial_sizes, with_batch
from nova.ops.functional.sampling import cubic_weights
from nova.ops.reductions import lowest
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
    counts = _counts(sizes, kernel, stride, padding, dilation, ceil_mode)
    if any(c < 1 for c in counts):
        raise ShapeError(f"{name}: a kernel of {kernel} for sizes {sizes}")
    ends = [
        max((c - 1) * s + d * (k - 1) + 1 - n - p, 0)
        for c, k, s, p, d, n in zip(counts, kernel, stride, padding, dilation, sizes, strict=True)
    ]
    padded = pad_spatial(F, x, padding, tuple(ends), value)
    return F.windows(padded, kernel=kernel, stride=stride, dilation=dilation)


def _options(
    name: str, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    kernel = spatial_sizes(name, "kernel_size", kernel_size, rank)
    return (
        kernel,
        kernel if stride is None else spatial_sizes(name, "stride", stride, rank),
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
    ) -> Any:
        x, added = with_batch(F, name, as_tensor(F, x), rank)
        options = _options(name, rank, kernel_size, stride, padding, dilation)
        windows = _pooled_windows(F, name, x, options, ceil_mode, _padding_value(name, x.type))
        out = F.max(windows, axis=tuple(range(2, 2 + rank)))
        return F.squeeze(out, 0) if added else out

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
    ) -> Any:
        (x,) = as_floats(F, x)
        x, added = with_batch(F, name, x, rank)
        options = _options(name, rank, kernel_size, stride, padding, 1)
        wide = to_dtype(F, x, accumulator(x.dtype))
        windows = _pooled_windows(F, name, wide, options, ceil_mode, 0.0)
        total = F.sum(windows, axis=tuple(range(2, 2 + rank)))
        divisor = _divisors(x.shape[2:], options, windows.shape[2 + rank :], count_include_pad)
        total = total / divisor.astype(wide.dtype.numpy)
        out = to_dtype(F, total, x.dtype)
        return F.squeeze(out, 0) if added else out

    return build


def _divisors(sizes: Any, options: Any, counts: Any, include_pad: bool) -> np.ndarray:
    """How many elements each window averages: those in the input, or in its padding too."""
    total = np.ones((1,) * len(counts))
    for axis, (n, k, s, p, c) in enumerate(zip(sizes, *options[:3], counts, strict=True)):
        start = np.arange(c) * s - p
        stop = np.minimum(start + k, n + p)
        if not include_pad:
            start, stop = np.maximum(start, 0), np.minimum(stop, n)
        shape = [c if i == axis else 1 for i in range(len(counts))]
        total = total * np.maximum(stop - start, 1).reshape(shape)
    return total


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
    *_ranks(_avg_pool, "avg_pool", "The mean of each window of {rank} spatial axes."),
    *_ranks(
        lambda rank: _adaptive_pool(rank, True),
        "adaptive_avg_pool",
        "The means of windows that divide {rank} spatial axes into output_size parts.",
    ),
    *_ranks(
        lambda rank: _adaptive_pool(rank, False),
        "adaptive_max_pool",
        "The maxima of windows that divide {rank} spatial axes into output_size parts.",
    ),
    *_ranks(_lp_pool, "lp_pool", "The p-norm of each window of {rank} spatial axes.")[:2],
    function(
        "interpolate",
        "The spatial axes resized: mode 'nearest', 'nearest-exact', 'linear', 'bilinear', "
        "'trilinear', 'bicubic' or 'area'.",
        _interpolate,
    ),
)


def register_rows() -> None:
    register(*ROWS)
