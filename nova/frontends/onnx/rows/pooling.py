"""Rows of pooling over one to three spatial axes, by sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, counting, pad, spatial, spatial_pads, wide
from nova.frontends.onnx.table import row
from nova.ops import F
from nova.ops.reductions import lowest


class Pool:
    """The window of a pool: sizes, padding and how many positions it has."""

    def __init__(self, node: Node, shape: Sequence[int]):
        rank = len(shape) - 2
        if rank < 1:
            raise OnnxError(f"{node.op} of {tuple(shape)}")
        self.sizes = tuple(shape[2:])
        self.kernel = tuple(node.attr("kernel_shape"))
        if len(self.kernel) != rank:
            raise OnnxError(f"{node.op}: kernel {self.kernel} for {tuple(shape)}")
        self.stride = spatial(node, "strides", rank)
        self.dilation = spatial(node, "dilations", rank)
        self.low, self.high = spatial_pads(
            node, self.sizes, self.kernel, self.stride, self.dilation
        )
        ceil = bool(node.attr("ceil_mode", 0))
        axes = zip(
            self.sizes, self.kernel, self.stride, self.dilation, self.low, self.high, strict=True
        )
        counts = []
        for n, k, s, d, a, b in axes:
            span = n + a + b - d * (k - 1) - 1
            count = (-(-span // s) if ceil else span // s) + 1
            # The last window starts inside the input or the padding before it.
            if ceil and (count - 1) * s >= n + a:
                count -= 1
            counts.append(count)
        self.counts = tuple(counts)
        if any(c < 1 for c in counts):
            raise OnnxError(f"{node.op}: a kernel of {self.kernel} for sizes {self.sizes}")

    def windows(self, x: Any, value: Any) -> Any:
        """(batch, channels, taps..., positions...) of the padded input."""
        axes = zip(
            self.sizes, self.kernel, self.stride, self.dilation, self.low, self.counts, strict=True
        )
        ends = [(c - 1) * s + d * (k - 1) + 1 - n - a for n, k, s, d, a, c in axes]
        padded = pad(x, [0, 0, *self.low], [0, 0, *ends], value)
        return F.windows(padded, kernel=self.kernel, stride=self.stride, dilation=self.dilation)

    @property
    def taps(self) -> tuple[int, ...]:
        """The axes of the taps in `windows`."""
        return tuple(range(2, 2 + len(self.kernel)))


@row("MaxPool")
def _max_pool(node: Node) -> Any:
    x = node.tensor(0)
    pool = Pool(node, x.shape)
    windows = pool.windows(x, lowest(x.dtype))
    values = F.max(windows, axis=pool.taps)
    if node.outputs < 2:
        return values
    flat = F.reshape(windows, (*x.shape[:2], prod(pool.kernel), *pool.counts))
    best = F.argmax(flat, axis=2)
    coordinate = _element_numbers(pool, bool(node.attr("storage_order", 0)))
    table = F.reshape(constant(coordinate), (1, 1, *coordinate.shape))
    shape = (*x.shape[:2], *coordinate.shape)
    inside = F.gather(F.expand(table, shape), F.unsqueeze(best, 2), axis=2)
    images = counting(prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * len(pool.counts))
    offsets = constant(images.astype(np.int64) * prod(pool.sizes))
    return values, F.squeeze(inside, 2) + offsets


def _element_numbers(pool: Pool, column_major: bool) -> np.ndarray:
    """(taps, positions...): the number of the element in its image that a tap reads."""
    sizes = pool.sizes
    strides = [prod(sizes[:i]) if column_major else prod(sizes[i + 1 :]) for i in range(len(sizes))]
    rank = len(sizes)
    total = np.zeros((1,) * (2 * rank), np.int64)
    for axis in range(rank):
        taps = counting(pool.kernel[axis]) * pool.dilation[axis]
        coordinates = counting(pool.counts[axis]) * pool.stride[axis] - pool.low[axis]
        grid = (taps[:, None] + coordinates[None, :]) * strides[axis]
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = grid.shape
        total = total + grid.reshape(shape)
    return total.reshape(prod(pool.kernel), *pool.counts)


@row("AveragePool")
def _average_pool(node: Node) -> Any:
    x = node.tensor(0)
    pool = Pool(node, x.shape)
    total = F.sum(pool.windows(wide(x), 0), axis=pool.taps)
    divisor = _divisors(pool, bool(node.attr("count_include_pad", 0)))
    return cast(total / constant(divisor.astype(total.dtype.numpy)), x.dtype)


def _divisors(pool: Pool, include_pad: bool) -> np.ndarray:
    total = np.ones((1,) * len(pool.sizes))
    for axis, n in enumerate(pool.sizes):
        taps = counting(pool.kernel[axis]) * pool.dilation[axis]
        at = (
            taps[None] + (counting(pool.counts[axis]) * pool.stride[axis] - pool.low[axis])[:, None]
        )
        inside = (at < n + pool.high[axis]) if include_pad else ((at >= 0) & (at < n))
        shape = [1] * len(pool.sizes)
        shape[axis] = -1
        total = total * np.maximum(inside.sum(axis=1), 1).reshape(shape)
    return total


@row("LpPool")
def _lp_pool(node: Node) -> Any:
    x = node.tensor(0)
    power = node.attr("p", 2)
    pool = Pool(node, x.shape)
    total = F.sum(F.pow(F.abs(pool.windows(wide(x), 0)), float(power)), axis=pool.taps)
    return cast(F.pow(total, 1.0 / power), x.dtype)


def _global_axes(node: Node, x: Any) -> tuple[int, ...]:
    if x.ndim < 3:
        raise OnnxError(f"{node.op} of {x.shape}")
    return tuple(range(2, x.ndim))


@row("GlobalAveragePool")
def _global_average(node: Node) -> Any:
    x = node.tensor(0)
    return F.mean(x, axis=_global_axes(node, x), keepdims=True)


@row("GlobalMaxPool")
def _global_max(node: Node) -> Any:
    x = node.tensor(0)
    return F.max(x, axis=_global_axes(node, x), keepdims=True)


@row("GlobalLpPool")
def _global_lp(node: Node) -> Any:
    x = node.tensor(0)
    power = node.attr("p", 2)
    total = F.sum(F.pow(F.abs(wide(x)), float(power)), axis=_global_axes(node, x), keepdims=True)
    return cast(F.pow(total, 1.0 / power), x.dtype)
