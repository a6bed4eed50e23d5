"""Positions of the largest elements of windows, and the inverse of max pooling that uses them.

A position is a flat index into the spatial axes of the input, as torch returns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import i64
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import as_integers, as_tensor, function, to_dtype
from nova.ops.functional.convolution import Sizes, spatial_sizes, with_batch
from nova.ops.table import Op, register


def window_positions(F: Any, windows: Any, tables: Sequence[np.ndarray], sizes: Sizes) -> Any:
    """The flat position of the largest element of each window.

    `windows` is (batch, channels, *kernel, *counts); tables[a][k, c] is the position along spatial
    axis a of element k of window c.
    """
    rank = len(sizes)
    kernel, counts = windows.shape[2 : 2 + rank], windows.shape[2 + rank :]
    flat = F.reshape(windows, (*windows.shape[:2], prod(kernel), *counts))
    best = F.argmax(flat, axis=2)
    total = None
    for axis, table in enumerate(tables):
        within = (best // prod(kernel[axis + 1 :])) % kernel[axis]
        shape = [counts[axis] if i == axis else 1 for i in range(rank)]
        window = np.arange(counts[axis], dtype=np.int64).reshape(shape)
        # A window of padding alone has no position in the input: the nearest one.
        inside = np.clip(table, 0, sizes[axis] - 1).astype(np.int64).reshape(-1)
        place = F.take(inside, within * counts[axis] + window, axis=0)
        place = place * prod(sizes[axis + 1 :])
        total = place if total is None else total + place
    return total


def _unpooled_sizes(
    name: str, sizes: Sizes, options: tuple[Sizes, Sizes, Sizes], output_size: Any
) -> Sizes:
    kernel, stride, padding = options
    usual = tuple(
        (n - 1) * s - 2 * p + k for n, k, s, p in zip(sizes, kernel, stride, padding, strict=True)
    )
    if output_size is None:
        return usual
    rank = len(sizes)
    items = tuple(output_size)[-rank:] if isinstance(output_size, tuple | list) else output_size
    result = spatial_sizes(name, "output_size", items, rank)
    for n, u, s in zip(result, usual, stride, strict=True):
        if not u - s < n < u + s:
            raise ShapeError(
                f"{name}: output_size {result} for windows that cover {usual}",
                hint=f"a size differs by less than the stride ({s})",
            )
    return result


def _max_unpool(rank: int) -> Any:
    name = f"max_unpool{rank}d"

    def build(
        F: Any,
        x: Any,
        indices: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Any:
        x = as_tensor(F, x)
        positions = as_integers(F, name, indices, "indices")
        if tuple(positions.shape) != tuple(x.shape):
            raise ShapeError(f"{name}: indices {positions.shape} for x {x.shape}")
        x, added = with_batch(F, name, x, rank)
        kernel = spatial_sizes(name, "kernel_size", kernel_size, rank)
        strides = kernel if stride is None else spatial_sizes(name, "stride", stride, rank)
        paddings = spatial_sizes(name, "padding", padding, rank, 0)
        sizes = _unpooled_sizes(name, x.shape[2:], (kernel, strides, paddings), output_size)
        if min(sizes) < 1:
            raise AttributeValueError(f"{name}: the result has sizes {sizes}")
        lead = tuple(x.shape[:2])
        count = prod(x.shape[2:])
        flat = F.reshape(to_dtype(F, positions, i64), (*lead, count))
        empty = F.zeros((*lead, prod(sizes)), dtype=x.dtype)
        out = F.scatter(empty, flat, F.reshape(x, (*lead, count)), axis=2)
        out = F.reshape(out, (*lead, *sizes))
        return F.squeeze(out, 0) if added else out

    return build


ROWS: tuple[Op, ...] = tuple(
    function(
        f"max_unpool{rank}d",
        f"The inverse of max_pool{rank}d: each element at its index, 0 elsewhere.",
        _max_unpool(rank),
    )
    for rank in (1, 2, 3)
)


def register_rows() -> None:
    register(*ROWS)
