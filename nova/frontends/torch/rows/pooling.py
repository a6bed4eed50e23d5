"""Pools and their gradients.

torch sends the gradient of a maximum to one element, whose index the forward pass returns; Nova's
own pools share it among equal elements, so both passes are written here with the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nova.core.dtypes import bool_, i64
from nova.core.sizes import known_equal
from nova.frontends.torch.rows.table import row, unsupported
from nova.graph.autodiff import gradients
from nova.ops.reductions import lowest

Sizes = tuple[int, ...]


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


def _adaptive_backward(rank: int) -> Any:
    forward = _adaptive(rank)

    def build(F: Any, g: Any, x: Any) -> Any:
        size = tuple(g.shape[len(g.shape) - rank :])
        return gradients(forward(F, x, size), [x], g, partial=True)[0]

    return build


for _rank in (2, 3):
    row(f"_adaptive_avg_pool{_rank}d.default")(_adaptive(_rank))
    row(f"_adaptive_avg_pool{_rank}d_backward.default")(_adaptive_backward(_rank))
row("adaptive_avg_pool1d.default")(_adaptive(1))
