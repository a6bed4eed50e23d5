"""Pools and their gradients.

torch sends the gradient of a maximum to one element, whose index the forward pass returns; Nova's
own pools share it among equal elements, so both passes are written here with the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from nova.core.dtypes import accumulator, bool_, i64
from nova.core.sizes import is_static_shape, known_equal
from nova.frontends.torch.rows.table import row, unsupported
from nova.graph.autodiff import gradients
from nova.ops.reductions import lowest

Sizes = tuple[int, ...]

_MOST_REACHING = 9
"""Windows that reach an element, up to which it reads them all."""


def _spatial(value: Any, rank: int, default: Sizes = ()) -> Sizes:
    """One size per spatial axis, from one or several; the default for an empty list."""
    sizes = (value,) if isinstance(value, int) else tuple(value)
    if not sizes:
        return default
    return sizes * rank if len(sizes) == 1 else sizes


def _window_counts(
    sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
) -> Sizes:
    counts = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        count = -(-span // s) + 1 if ceil else span // s + 1
        if ceil and (count - 1) * s >= n + p:
            count -= 1  # the last window starts inside the input or the padding before it
        counts.append(count)
    return tuple(counts)


class _MaxPool:
    """The windows of a max pool: input (..., sizes), results (..., counts)."""

    def __init__(self, x: Any, rank: int, options: Sequence[Any], ceil: bool):
        kernel, stride, padding, dilation = options
        self.rank = rank
        self.kernel = _spatial(kernel, rank)
        self.stride = _spatial(stride, rank, self.kernel)
        self.padding = _spatial(padding, rank)
        self.dilation = _spatial(dilation, rank)
        self.lead = tuple(x.shape[: len(x.shape) - rank])
        self.sizes = tuple(x.shape[len(x.shape) - rank :])
        self.counts = _window_counts(
            self.sizes, self.kernel, self.stride, self.padding, self.dilation, ceil
        )
        axes = zip(
            self.counts,
            self.kernel,
            self.stride,
            self.padding,
            self.dilation,
            self.sizes,
            strict=True,
        )
        self.spans = tuple(max((c - 1) * s + d * (k - 1) + 1, n + p) for c, k, s, p, d, n in axes)

    @property
    def reaching(self) -> Sizes:
        """Windows that may reach one element, along each axis."""
        axes = zip(self.kernel, self.stride, self.dilation, strict=True)
        return tuple((k - 1) * d // s + 1 for k, s, d in axes)

    @property
    def groups(self) -> Sizes:
        """Groups of `stride` elements, along each axis."""
        axes = zip(self.padding, self.sizes, self.stride, strict=True)
        return tuple(-(-(p + n) // s) for p, n, s in axes)

    @property
    def is_gathered(self) -> bool:
        """Whether few windows reach an element."""
        if not is_static_shape((*self.lead, *self.sizes)) or prod(self.reaching) > _MOST_REACHING:
            return False
        return all(n <= group + 1 for n, group in zip(self.reaching, self.groups, strict=True))

    def windows(self, F: Any, x: Any, value: Any) -> Any:
        """(..., taps, positions) of the padded input."""
        low = (*(0,) * len(self.lead), *self.padding)
        high = [
            span - n - p for span, n, p in zip(self.spans, self.sizes, self.padding, strict=True)
        ]
        padded = x
        if any(low) or any(high):
            padded = F.pad(x, low, (*(0,) * len(self.lead), *high), value=value)
        return F.windows(padded, kernel=self.kernel, stride=self.stride, dilation=self.dilation)

    def positions(self, F: Any) -> Any:
        """The flat index into `sizes` of every tap of every window; -1 in the padding."""
        flat = F.reshape(F.arange(start=0, stop=prod(self.sizes), step=1, dtype=i64), self.sizes)
        pool = object.__new__(_MaxPool)
        pool.__dict__.update(self.__dict__, lead=())
        return pool.windows(F, flat, -1)


def _max_pool(rank: int) -> Any:
    def build(
        F: Any,
        x: Any,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> tuple[Any, Any]:
        if x.dtype is bool_ or any(known_equal(size, 0) for size in x.shape[-rank:]):
            raise unsupported(f"a max pool of {x.type}")
        pool = _MaxPool(x, rank, (kernel, stride, padding, dilation), ceil_mode)
        windows = pool.windows(F, x, lowest(x.dtype))
        lead = len(pool.lead)
        taps = prod(pool.kernel)
        flat = F.reshape(windows, (*pool.lead, taps, *pool.counts))
        values = F.max(flat, axis=(lead,))
        tap = F.argmax(flat, axis=lead)
        return values, _index_of_tap(F, pool, tap)

    return build


def _index_of_tap(F: Any, pool: _MaxPool, tap: Any) -> Any:
    """The flat index into the input of a tap of each window."""
    index: Any = None
    left = tap
    for i in reversed(range(pool.rank)):
        here = F.mod(left, pool.kernel[i]) if i else left
        left = F.floor_div(left, pool.kernel[i]) if i else left
        ends = [1] * pool.rank
        ends[i] = pool.counts[i]
        position = F.arange(start=0, stop=pool.counts[i], step=1, dtype=i64) * pool.stride[i]
        place = F.reshape(position, tuple(ends)) + here * pool.dilation[i] - pool.padding[i]
        step = prod(pool.sizes[i + 1 :])
        # A window of padding only (all taps equal) names its first tap, as torch does.
        place = place * step if step != 1 else place
        index = place if index is None else index + place
    return index


def _max_pool_backward(rank: int) -> Any:
    def build(
        F: Any,
        g: Any,
        x: Any,
        kernel: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        indices: Any,
    ) -> Any:
        pool = _MaxPool(x, rank, (kernel, stride, padding, dilation), ceil_mode)
        lead = len(pool.lead)
        if g.dtype.bits == 16 and pool.is_gathered:
            return _gathered(F, g, indices, pool)
        # Each tap takes the gradient of its window if the window's maximum is its element: no two
        # threads add to one element, as a scatter would.
        shape = (*pool.lead, *(1,) * rank, *pool.counts)
        hit = F.eq(F.reshape(indices, shape), pool.positions(F))
        taps = F.where(hit, F.reshape(g, shape), 0.0)
        out = F.overlap_add(taps, size=pool.spans, stride=pool.stride, dilation=pool.dilation)
        if pool.spans == pool.sizes:
            return out
        stops = [p + n for p, n in zip(pool.padding, pool.sizes, strict=True)]
        return F.slice(out, (*(0,) * lead, *pool.padding), (*pool.lead, *stops))

    return build


def _gathered(F: Any, g: Any, indices: Any, pool: _MaxPool) -> Any:
    """The gradient of a max pool: each element adds those of windows of which it is the maximum.

    Elements are in groups of `stride`, which the same windows reach: window a - j for group a. No
    tap of a window is written to memory.
    """
    lead, rank = len(pool.lead), pool.rank
    groups = pool.groups
    pairs = [size for group, s in zip(groups, pool.stride, strict=True) for size in (group, s)]
    place: Any = None
    for i in range(rank):
        step = prod(pool.sizes[i + 1 :])
        for axis, width in ((2 * i, pool.stride[i]), (2 * i + 1, 1)):
            number = F.arange(start=0, stop=pairs[axis], step=1, dtype=i64) * (width * step)
            number = number - pool.padding[i] * step if axis % 2 else number
            ones = [n if a == axis else 1 for a, n in enumerate(pairs)]
            along = F.reshape(number, ((1,) * lead + tuple(ones)))
            place = along if place is None else place + along
    total: Any = None
    for back in product(*(range(n) for n in pool.reaching)):
        near, index = (
            _shifted(F, value, pool, back, fill) for value, fill in ((g, 0.0), (indices, -1))
        )
        part = F.where(F.eq(index, place), near, 0.0)
        part = F.cast(part, dtype=accumulator(g.dtype))
        total = part if total is None else total + part
    total = F.cast(total, dtype=g.dtype)
    covered = [group * s for group, s in zip(groups, pool.stride, strict=True)]
    out = F.reshape(total, (*pool.lead, *covered))
    stops = [p + n for p, n in zip(pool.padding, pool.sizes, strict=True)]
    return F.slice(out, (*(0,) * lead, *pool.padding), (*pool.lead, *stops))


def _shifted(F: Any, x: Any, pool: _MaxPool, back: Sequence[int], fill: Any) -> Any:
    """x (..., windows) at window a - j for each group a, for all elements of the group."""
    lead, groups = len(pool.lead), pool.groups
    low = (*(0,) * lead, *back)
    high = [group - b - n for group, b, n in zip(groups, back, pool.counts, strict=True)]
    stops = [n + min(0, h) for n, h in zip(pool.counts, high, strict=True)]
    if any(h < 0 for h in high):
        x = F.slice(x, (0,) * (lead + pool.rank), (*pool.lead, *stops))
    x = F.pad(x, low, (*(0,) * lead, *(max(0, h) for h in high)), value=fill)
    split = [n for group in groups for n in (group, 1)]
    whole = [n for group, s in zip(groups, pool.stride, strict=True) for n in (group, s)]
    return F.expand(F.reshape(x, (*pool.lead, *split)), shape=(*pool.lead, *whole))


for _rank in (2, 3):
    row(f"max_pool{_rank}d_with_indices.default")(_max_pool(_rank))
    row(f"max_pool{_rank}d_with_indices_backward.default")(_max_pool_backward(_rank))


def _avg_pool(rank: int) -> Any:
    def build(
        F: Any,
        x: Any,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        kernel = _spatial(kernel, rank)
        stride = _spatial(stride, rank, kernel)
        if not x.dtype.is_float or not x.size:
            raise unsupported(f"an average pool of {x.type}")
        options = (_spatial(padding, rank), ceil_mode, count_include_pad, divisor_override)
        return getattr(F, f"avg_pool{rank}d")(x, kernel, stride, *options)

    return build


def _avg_pool_backward(rank: int) -> Any:
    forward = _avg_pool(rank)

    def build(F: Any, g: Any, x: Any, *options: Any) -> Any:
        return gradients(forward(F, x, *options), [x], g, partial=True)[0]

    return build


for _rank in (1, 2, 3):
    row(f"avg_pool{_rank}d.default")(_avg_pool(_rank))
    row(f"avg_pool{_rank}d_backward.default")(_avg_pool_backward(_rank))


def _adaptive(rank: int) -> Any:
    def build(F: Any, x: Any, size: Any) -> Any:
        if not x.size or not x.dtype.is_float:
            raise unsupported(f"an adaptive pool of {x.type}")
        sizes = _spatial(size, rank)
        axes = tuple(range(len(x.shape) - rank, len(x.shape)))
        if set(sizes) == {1}:
            return F.mean(x, axis=axes, keepdims=True)
        return getattr(F, f"adaptive_avg_pool{rank}d")(x, sizes)

    return build


def _adaptive_max(rank: int) -> Any:
    def build(F: Any, x: Any, size: Any) -> Any:
        sizes = _spatial(size, rank)
        if not is_static_shape(x.shape) or 0 in (*x.shape, *sizes):
            raise unsupported(f"an adaptive pool of {x.type} to {sizes}")
        return getattr(F, f"adaptive_max_pool{rank}d")(x, sizes, return_indices=True)

    return build


def _adaptive_max_backward(rank: int) -> Any:
    def build(F: Any, g: Any, x: Any, indices: Any) -> Any:
        lead = tuple(x.shape[: len(x.shape) - rank])
        zeros = F.full(shape=(*lead, prod(x.shape[len(lead) :])), value=0.0, dtype=g.dtype)
        g, indices = (F.reshape(value, (*lead, -1)) for value in (g, indices))
        return F.reshape(F.scatter_add(zeros, indices, g, axis=len(lead)), x.shape)

    return build


def _adaptive_backward(rank: int) -> Any:
    forward = _adaptive(rank)

    def build(F: Any, g: Any, x: Any) -> Any:
        size = tuple(g.shape[len(g.shape) - rank :])
        return gradients(forward(F, x, size), [x], g, partial=True)[0]

    return build


for _rank in (2, 3):
    row(f"_adaptive_avg_pool{_rank}d.default")(_adaptive(_rank))
    row(f"_adaptive_avg_pool{_rank}d_backward.default")(_adaptive_backward(_rank))
    row(f"adaptive_max_pool{_rank}d.default")(_adaptive_max(_rank))
    row(f"adaptive_max_pool{_rank}d_backward.default")(_adaptive_max_backward(_rank))
row("adaptive_avg_pool1d.default")(_adaptive(1))
