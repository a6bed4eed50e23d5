"""Ops whose results have shapes that depend on values: NonZero, Unique and NonMaxSuppression.

The importer calls them for inputs that are known at import as well (`rows/indexing.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.frontends.onnx.host.table import host_row
from nova.frontends.onnx.node import Node


@host_row("NonZero")
def _non_zero(node: Node) -> Any:
    array = node.value(0)
    # A scalar has one element at no position.
    positions = np.nonzero(array) if array.ndim else np.zeros((0, int(bool(array))))
    return np.array(positions, np.int64).reshape(array.ndim, -1 if array.ndim else int(bool(array)))


@host_row("Compress")
def _compress(node: Node) -> Any:
    array, condition = node.value(0), node.value(1)
    axis = node.attr("axis", None)
    if axis is not None:
        axis = node.resolve(axis, array.ndim)
    return np.compress(condition, array, axis=axis)


@host_row("Unique")
def _unique(node: Node) -> Any:
    array = node.value(0)
    axis = node.attr("axis", None)
    if axis is not None:
        axis = node.resolve(axis, array.ndim)
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not node.attr("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return (values, *(a.astype(np.int64) for a in (first, inverse, counts)))


@host_row("NonMaxSuppression")
def _non_max_suppression(node: Node) -> Any:
    boxes, scores = node.value(0), node.value(1)
    most, overlap, least = (
        node.value(i).reshape(-1)[0].item() if node.has(i) and node.value(i).size else default
        for i, default in ((2, 0), (3, 0.0), (4, -np.inf))
    )
    center = node.attr("center_point_box", 0)
    picks = [
        (batch, group, box)
        for batch in range(scores.shape[0])
        for group in range(scores.shape[1])
        for box in _suppressed(boxes[batch], scores[batch, group], most, overlap, least, center)
    ]
    return np.array(picks, np.int64).reshape(-1, 3)


def _suppressed(
    boxes: np.ndarray, scores: np.ndarray, most: float, overlap: float, least: float, center: int
) -> list[int]:
    """The boxes of one class that remain, best first."""
    candidates = np.flatnonzero(scores > least)
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    if center:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        low, high = middle - half, middle + half
    else:
        low = np.minimum(boxes[:, :2], boxes[:, 2:])
        high = np.maximum(boxes[:, :2], boxes[:, 2:])
    area = np.prod(high - low, axis=1)
    picks: list[int] = []
    while candidates.size and len(picks) < most:
        best, others = candidates[0], candidates[1:]
        picks.append(int(best))
        size = np.minimum(high[best], high[others]) - np.maximum(low[best], low[others])
        shared = np.prod(np.maximum(size, 0), axis=1)
        candidates = others[~(shared > overlap * (area[best] + area[others] - shared))]
    return picks
