"""Rows that read elements at positions, and that order them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import i64
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant, is_constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, counting
from nova.frontends.onnx.table import row
from nova.ops import F


@row("Gather")
def _gather(node: Node) -> Any:
    x, index = node.tensor(0), node.tensor(1)
    return F.take(x, index, axis=node.axis(x.ndim, 0))


@row("GatherElements", since=11)
def _gather_elements(node: Node) -> Any:
    x, index = node.tensor(0), node.tensor(1)
    return F.gather(x, index, axis=node.axis(x.ndim, 0))


def flat_positions(index: Any, sizes: tuple[int, ...]) -> Any:
    """Index tuples on the last axis as positions in a flattened tensor of `sizes`."""
    strides = np.array([prod(sizes[i + 1 :]) for i in range(len(sizes))], np.int64)
    index = cast(index, i64)
    index = F.where(F.lt(index, 0), index + constant(np.array(sizes, np.int64)), index)
    return F.sum(index * constant(strides), axis=-1)


@row("GatherND", since=11)
def _gather_nd(node: Node) -> Any:
    x, index = node.tensor(0), node.tensor(1)
    batch = node.attr("batch_dims", 0)
    depth = index.shape[-1]
    if batch + depth > x.ndim or x.shape[:batch] != index.shape[:batch]:
        raise OnnxError(f"GatherND: indices {index.shape} of {x.shape}")
    count = prod(x.shape[:batch])
    sizes, tail = x.shape[batch : batch + depth], x.shape[batch + depth :]
    positions = F.reshape(flat_positions(index, sizes), (count, -1 if index.size else 0))
    offsets = counting(count)[:, None] * prod(sizes)
    rows = F.reshape(x, (count * prod(sizes), *tail))
    gathered = F.take(rows, F.reshape(positions + constant(offsets), (positions.size,)), axis=0)
    return F.reshape(gathered, (*index.shape[:-1], *tail))


@row("OneHot")
def _one_hot(node: Node) -> Any:
    index, values = node.tensor(0), node.tensor(2)
    depth = int(node.scalar(1))
    axis = node.resolve(node.attr("axis", -1), index.ndim + 1)
    index = cast(index, i64)
    index = F.unsqueeze(F.where(F.lt(index, 0), index + depth, index), axis)
    shape = tuple(depth if i == axis else 1 for i in range(index.ndim))
    hot = F.eq(index, F.reshape(F.arange(depth), shape))
    return F.where(hot, values[1], values[0])


@row("ArgMax", "ArgMin")
def _arg(node: Node) -> Any:
    x = node.tensor(0)
    axis = node.axis(x.ndim, 0)
    keep = bool(node.attr("keepdims", 1))
    pick = F.argmax if node.op == "ArgMax" else F.argmin
    if not node.attr("select_last_index", 0):
        return pick(x, axis=axis, keepdims=keep)
    return x.shape[axis] - 1 - pick(F.flip(x, axes=(axis,)), axis=axis, keepdims=keep)


@row("TopK")
def _top_k(node: Node) -> Any:
    x = node.tensor(0)
    k = node.attr("k") if node.version < 10 else int(node.scalar(1))
    axis = node.axis(x.ndim, -1)
    return F.topk(x, k, axis=axis, largest=bool(node.attr("largest", 1)))


@row("Compress")
def _compress(node: Node) -> Any:
    x = node.tensor(0)
    positions = constant(np.flatnonzero(node.array(1)).astype(np.int64))
    axis = node.attr("axis", None)
    if axis is None:
        return F.take(F.reshape(x, (x.size,)), positions, axis=0)
    return F.take(x, positions, axis=node.resolve(axis, x.ndim))


def _constants(node: Node) -> list[Any]:
    """The inputs of an op whose result has a shape that depends on values."""
    for value in node.inputs:
        if value is not None and not is_constant(value):
            raise node.refused(
                "the shape of its result depends on values of a run",
                "Nova compiles static shapes: compute it before the program",
            )
    return [None if v is None else v.data for v in node.inputs]


@row("NonZero")
def _non_zero(node: Node) -> Any:
    [array] = _constants(node)
    return constant(np.array(np.nonzero(array), np.int64).reshape(array.ndim, -1))


@row("Unique", since=11)
def _unique(node: Node) -> Any:
    [array] = _constants(node)
    axis = node.attr("axis", None)
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not node.attr("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return tuple(map(constant, (values, *(a.astype(np.int64) for a in (first, inverse, counts)))))


@row("NonMaxSuppression")
def _non_max_suppression(node: Node) -> Any:
    arrays = _constants(node)
    boxes, scores = arrays[0], arrays[1]
    most, overlap, least = (
        a.reshape(-1)[0].item() if a is not None and a.size else default
        for a, default in zip([*arrays[2:], None, None, None][:3], (0, 0.0, -np.inf), strict=True)
    )
    center = node.attr("center_point_box", 0)
    picks = [
        (batch, group, box)
        for batch in range(scores.shape[0])
        for group in range(scores.shape[1])
        for box in _suppressed(boxes[batch], scores[batch, group], most, overlap, least, center)
    ]
    return constant(np.array(picks, np.int64).reshape(-1, 3))


def _suppressed(
    boxes: np.ndarray, scores: np.ndarray, most: float, overlap: float, least: float, center: int
) -> list[int]:
    if center:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        low, high = middle - half, middle + half
    else:
        low = np.minimum(boxes[:, :2], boxes[:, 2:])
        high = np.maximum(boxes[:, :2], boxes[:, 2:])
    area = np.prod(high - low, axis=1)
    picks: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        if len(picks) >= most or scores[box] <= least:
            break
        size = np.maximum(np.minimum(high[box], high[picks]) - np.maximum(low[box], low[picks]), 0)
        shared = np.prod(size, axis=1)
        union = area[box] + area[picks] - shared
        if not (shared > overlap * union).any():
            picks.append(int(box))
    return picks
