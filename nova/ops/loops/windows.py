"""Sliding windows over the last axes and their inverse, the sum of overlapping windows.

Convolutions (im2col), pooling and unfold are written with `windows`; its gradient, transposed
convolutions and fold are `overlap_add` (col2im). Taps come before positions, so that a batch of
windows is a matrix (taps, positions) in memory.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, bool_
from nova.core.sizes import known_equal, same_shape
from nova.errors import AttributeValueError, ShapeError
from nova.ops.rules import Types, clamp_position, int_tuple, size_tuple, widen
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]
Sizes = tuple[int, ...]


def window_counts(sizes: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Sizes:
    """How many windows fit along each axis."""
    axes = zip(sizes, kernel, stride, dilation, strict=True)
    return tuple((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in axes)


def _options(attrs: Attrs, count: int, names: tuple[str, ...]) -> Attrs:
    """Tuples of `count` positive ints; an int stands for every axis."""
    result = {}
    for name in names:
        values = size_tuple(attrs[name], name) if name == "size" else int_tuple(attrs[name], name)
        values = values * count if len(values) == 1 else values
        if len(values) != count or any(v < 1 for v in values):
            raise AttributeValueError(f"{name} {attrs[name]}: not {count} positive sizes")
        result[name] = values
    return result


# --- windows --------------------------------------------------------------------------------------


def _windows_canon(ins: Types, attrs: Attrs) -> Attrs:
    kernel = int_tuple(attrs["kernel"], "kernel")
    if not kernel or len(kernel) > ins[0].rank:
        raise ShapeError(f"a kernel of {len(kernel)} axes for {ins[0].shape}")
    return _options(attrs, len(kernel), ("kernel", "stride", "dilation"))


def _windows_type(ins: Types, attrs: Attrs) -> TensorType:
    kernel = attrs["kernel"]
    lead, sizes = _cut(ins[0].shape, len(kernel))
    counts = window_counts(sizes, kernel, attrs["stride"], attrs["dilation"])
    if any(n < 1 for n in counts):
        raise ShapeError(f"windows of {kernel} do not fit in {sizes}", hint="pad the tensor first")
    return ins[0].with_shape((*lead, *kernel, *counts))


def _cut(shape: Sizes, count: int) -> tuple[Sizes, Sizes]:
    return shape[: len(shape) - count], shape[len(shape) - count :]


def _windows_numpy(x: np.ndarray, *, kernel: Sizes, stride: Sizes, dilation: Sizes) -> np.ndarray:
    lead, sizes = _cut(x.shape, len(kernel))
    counts = window_counts(sizes, kernel, stride, dilation)
    result = np.empty((*lead, *kernel, *counts), x.dtype)
    for tap in product(*(range(k) for k in kernel)):
        result[_of_tap(tap)] = x[_at(tap, counts, stride, dilation)]
    return result


def _of_tap(tap: Sizes) -> tuple[Any, ...]:
    """One tap of all windows."""
    return (..., *tap, *(slice(None),) * len(tap))


def _at(tap: Sizes, counts: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Any, ...]:
    """The positions that one tap of all windows reads."""
    axes = zip(tap, counts, stride, dilation, strict=True)
    return (..., *(slice(t * d, t * d + (n - 1) * s + 1, s) for t, n, s, d in axes))


def _windows_lower(
    b: Any, out: TensorType, x: Any, *, kernel: Sizes, stride: Sizes, dilation: Sizes
) -> Any:
    if out.is_empty:
        return b.empty(out)
    rank = len(kernel)
    lead = x.type.rank - rank
    covered = all(k == 1 and s == 1 for k, s in zip(kernel, stride, strict=True))
    if covered:
        return b.reshape(out, x)

    def access(d: Any) -> list[Any]:
        taps, places = d[lead : lead + rank], d[lead + rank :]
        moved = [
            place * s + tap * w
            for tap, place, s, w in zip(taps, places, stride, dilation, strict=True)
        ]
        return [*d[:lead], *moved]

    # linalg takes the loop bounds from an identity access, which the taps of a single window are
    # once its axis of size 1 is folded: a part of an axis is read at computed positions.
    counts, sizes = out.shape[lead + rank :], x.shape[lead:]
    single = [
        known_equal(c, 1) and not known_equal(k, n)
        for c, k, n in zip(counts, kernel, sizes, strict=True)
    ]
    if any(single):
        indices = range(out.rank)
        return b.generic(
            out, [], lambda s: s.load(x.value, access([s.index(i) for i in indices]), x.dtype)
        )
    return b.remap(out, x, access)


def _windows_vjp(
    F: Any, g: Any, out: Any, x: Any, *, kernel: Any, stride: Any, dilation: Any
) -> Any:
    size = tuple(x.shape[len(x.shape) - len(kernel) :])
    return F.overlap_add(g, size=size, stride=stride, dilation=dilation)


# --- overlap_add ----------------------------------------------------------------------------------


def _overlap_canon(ins: Types, attrs: Attrs) -> Attrs:
    size = size_tuple(attrs["size"], "size")
    if not size or 2 * len(size) > ins[0].rank:
        raise ShapeError(
            f"{len(size)} sizes for windows {ins[0].shape}",
            hint="windows are (..., taps, positions)",
        )
    return _options(attrs, len(size), ("size", "stride", "dilation"))


def _overlap_type(ins: Types, attrs: Attrs) -> TensorType:
    size = attrs["size"]
    lead, axes = _cut(ins[0].shape, 2 * len(size))
    kernel, counts = axes[: len(size)], axes[len(size) :]
    for n, k, c, s, d in zip(size, kernel, counts, attrs["stride"], attrs["dilation"], strict=True):
        if k < 1 or (c - 1) * s + (k - 1) * d >= n:
            raise ShapeError(f"{c} windows of {k} taps do not fit in an axis of {n}")
    return ins[0].with_shape((*lead, *size))


def _overlap_numpy(x: np.ndarray, *, size: Sizes, stride: Sizes, dilation: Sizes) -> np.ndarray:
    lead, axes = _cut(x.shape, 2 * len(size))
    kernel, counts = axes[: len(size)], axes[len(size) :]
    total = np.zeros((*lead, *size), widen(x).dtype)
    for tap in product(*(range(k) for k in kernel)):
        total[_at(tap, counts, stride, dilation)] += widen(x)[_of_tap(tap)]
    return total.astype(x.dtype)


def _overlap_lower(
    b: Any, out: TensorType, x: Any, *, size: Sizes, stride: Sizes, dilation: Sizes
) -> Any:
    rank = len(size)
    lead = out.rank - rank
    kernel, counts = x.shape[lead : lead + rank], x.shape[lead + rank :]
    if x.type.is_empty:
        return b.fill(out, 0)

    def body(s: Any) -> Any:
        """The element of one tap that is added at a position, 0 where there is none."""
        taps = [s.index(out.rank + i) for i in range(rank)]
        inside, places = s.const(True, bool_), []
        for i, (tap, c, step, width) in enumerate(zip(taps, counts, stride, dilation, strict=True)):
            offset = s.index(lead + i) - tap * width
            place = offset if step == 1 else offset / step
            inside = inside & (offset >= 0) & (place < c)
            if step > 1:
                inside = inside & s.compare("eq", s.rem(offset, step), 0)
            places.append(clamp_position(s, place, c))
        at = [*(s.index(i) for i in range(lead)), *taps, *places]
        return s.select(inside, s.load(x.value, at, x.dtype), 0)

    return b.sum_over(out, kernel, body)


def _overlap_vjp(F: Any, g: Any, out: Any, x: Any, *, size: Any, stride: Any, dilation: Any) -> Any:
    count = len(size)
    kernel, counts = x.shape[-2 * count : -count], x.shape[-count:]
    spans = [
        (c - 1) * s + (k - 1) * d + 1
        for c, k, s, d in zip(counts, kernel, stride, dilation, strict=True)
    ]
    if not same_shape(spans, size):  # elements after the last window
        lead = g.shape[: len(g.shape) - count]
        g = F.slice(g, [0] * len(g.shape), [*lead, *spans])
    return F.windows(g, kernel=kernel, stride=stride, dilation=dilation)


ROWS: tuple[Op, ...] = (
    Op(
        "windows",
        "Sliding windows over the last axes, one for each size of `kernel`: (..., sizes) as "
        "(..., taps, positions).",
        attrs={"kernel": REQUIRED, "stride": 1, "dilation": 1},
        canon=_windows_canon,
        infer=_windows_type,
        numpy=_windows_numpy,
        vjp=_windows_vjp,
        lower=_windows_lower,
        tags=frozenset({"smooth"}),
    ),
    Op(
        "overlap_add",
        "Windows (..., taps, positions) added at their positions in axes of `size`: the transpose "
        "of `windows`.",
        attrs={"size": REQUIRED, "stride": 1, "dilation": 1},
        canon=_overlap_canon,
        infer=_overlap_type,
        numpy=_overlap_numpy,
        vjp=_overlap_vjp,
        lower=_overlap_lower,
        tags=frozenset({"smooth"}),
    ),
)


def register_rows() -> None:
    register(*ROWS)
