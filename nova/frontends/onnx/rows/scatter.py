"""Rows that write elements at positions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import i64
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import is_constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, narrow
from nova.frontends.onnx.rows.indexing import flat_positions
from nova.frontends.onnx.table import row
from nova.ops import F

_REDUCTIONS = {"none": "scatter", "add": "scatter_add", "max": "scatter_max", "min": "scatter_min"}
_MOST_PRODUCTS = 256


def scatter(node: Node, x: Any, index: Any, updates: Any, axis: int, reduction: str) -> Any:
    """Updates combined with the elements of `x` at an index along an axis."""
    if x.dtype is not updates.dtype:
        raise OnnxError(f"{node.op}: updates of {updates.dtype} for {x.dtype}")
    if not index.size:
        return x
    if reduction in _REDUCTIONS:
        return getattr(F, _REDUCTIONS[reduction])(x, index, updates, axis=axis)
    if reduction != "mul":
        raise OnnxError(f"{node.op}: reduction {reduction!r}")
    count = index.shape[axis]
    if is_constant(index) and _is_unique(index.data, axis):
        return F.scatter(x, index, F.gather(x, index, axis=axis) * updates, axis=axis)
    if count > _MOST_PRODUCTS:
        raise node.refused(f"products of {count} updates", f"up to {_MOST_PRODUCTS} are unrolled")
    for i in range(count):  # one position at a time: equal ones multiply up
        at, update = narrow(index, axis, i, i + 1), narrow(updates, axis, i, i + 1)
        x = F.scatter(x, at, F.gather(x, at, axis=axis) * update, axis=axis)
    return x


def _is_unique(index: np.ndarray, axis: int) -> bool:
    ordered = np.sort(index, axis=axis)
    return bool((np.diff(ordered, axis=axis) != 0).all() and index.min() >= 0)


@row("ScatterElements", "Scatter")
def _scatter_elements(node: Node) -> Any:
    x, index, updates = (node.tensor(i) for i in range(3))
    axis = node.axis(x.ndim, 0)
    return scatter(node, x, index, updates, axis, node.attr("reduction", "none"))


@row("ScatterND", since=11)
def _scatter_nd(node: Node) -> Any:
    x, index, updates = (node.tensor(i) for i in range(3))
    depth = index.shape[-1]
    sizes, tail = x.shape[:depth], x.shape[depth:]
    if depth > x.ndim or updates.shape != (*index.shape[:-1], *tail):
        raise OnnxError(f"ScatterND: {index.shape} and {updates.shape} for {x.shape}")
    positions = flat_positions(index, sizes)
    count, width = positions.size, prod(tail)
    at = F.expand(F.reshape(positions, (count, 1)), (count, width))
    flat = F.reshape(x, (prod(sizes), width))
    written = scatter(
        node, flat, at, F.reshape(updates, (count, width)), 0, node.attr("reduction", "none")
    )
    return F.reshape(written, x.shape)


@row("TensorScatter", since=24)
def _tensor_scatter(node: Node) -> Any:
    """Updates written into a cache from one position per batch element on."""
    x, updates = node.tensor(0), node.tensor(1)
    axis = node.resolve(node.attr("axis", -2), x.ndim)
    mode = node.attr("mode", "linear")
    if mode not in ("linear", "circular"):
        raise OnnxError(f"TensorScatter: mode {mode!r}")
    starts = node.optional(2)
    steps = F.reshape(F.arange(updates.shape[axis]), _aligned(axis, updates.ndim))
    if starts is not None:
        steps = steps + F.reshape(cast(starts, i64), _aligned(0, updates.ndim))
    if mode == "circular":
        steps = F.mod(steps, x.shape[axis])
    return F.scatter(x, F.expand(steps, updates.shape), updates, axis=axis)


def _aligned(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(-1 if i == axis else 1 for i in range(rank))


@row("MaxUnpool")
def _max_unpool(node: Node) -> Any:
    x, index = node.tensor(0), node.tensor(1)
    rank = x.ndim - 2
    kernel = tuple(node.attr("kernel_shape"))
    stride = tuple(node.attr("strides", None) or (1,) * rank)
    pads = list(node.attr("pads", None) or [0] * (2 * rank))
    smallest = tuple(
        (n - 1) * s + k - a - b
        for n, k, s, a, b in zip(x.shape[2:], kernel, stride, pads[:rank], pads[rank:], strict=True)
    )
    shape = (*x.shape[:2], *smallest)
    positions = F.reshape(cast(index, i64), (index.size,))
    target = shape
    if node.has(2):
        target = tuple(node.ints(2))
        # The index counts in a result without extra sizes.
        parts: list[Any] = []
        for n in reversed(shape):
            parts.insert(0, F.mod(positions, n))
            positions = F.floor_div(positions, n)
        positions = flat_positions(F.stack(parts, axis=1), target)
    zeros = F.zeros((prod(target),), dtype=x.dtype)
    flat = F.scatter(zeros, positions, F.reshape(x, (x.size,)), axis=0)
    return F.reshape(flat, target)


@row("Col2Im", since=18)
def _col2im(node: Node) -> Any:
    x = node.tensor(0)
    image, block = node.ints(1), node.ints(2)
    rank = len(image)
    stride = tuple(node.attr("strides", None) or (1,) * rank)
    dilation = tuple(node.attr("dilations", None) or (1,) * rank)
    pads = list(node.attr("pads", None) or [0] * (2 * rank))
    full = tuple(n + a + b for n, a, b in zip(image, pads[:rank], pads[rank:], strict=True))
    counts = tuple(
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(full, block, stride, dilation, strict=True)
    )
    channels = x.shape[1] // prod(block)
    windows = F.reshape(x, (x.shape[0], channels, *block, *counts))
    out = F.overlap_add(windows, size=full, stride=stride, dilation=dilation)
    stops = tuple(a + n for a, n in zip(pads[:rank], image, strict=True))
    return F.slice(out, starts=(0, 0, *pads[:rank]), stops=(x.shape[0], channels, *stops))
