"""Rows that sample images at computed coordinates: GridSample and RoiAlign."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import i64
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, wide
from nova.frontends.onnx.rows.convolution import bilinear
from nova.frontends.onnx.table import row
from nova.ops import F

_LINEAR = ("linear", "bilinear")
_CUBIC = ("cubic", "bicubic")


@row("GridSample", since=16)
def _grid_sample(node: Node) -> Any:
    x, grid = node.tensor(0), wide(node.tensor(1))
    rank = x.ndim - 2
    if rank < 1 or grid.ndim != x.ndim or grid.shape[-1] != rank:
        raise OnnxError(f"GridSample: grid {grid.shape} for {x.shape}")
    mode = node.attr("mode", "linear")
    padding = node.attr("padding_mode", "zeros")
    corners = bool(node.attr("align_corners", 0))
    if padding not in ("zeros", "border", "reflection"):
        raise OnnxError(f"GridSample: padding_mode {padding!r}")
    sizes = x.shape[2:]
    # The last axis of the grid is (x, y, ...): the innermost axis of the image first.
    coordinates = []
    for axis, n in enumerate(sizes):
        g = grid[..., rank - 1 - axis]
        coordinates.append((g + 1) * ((n - 1) / 2) if corners else ((g + 1) * n - 1) * 0.5)
    if mode == "nearest":
        taps = [[(F.round(coordinate), None)] for coordinate in coordinates]
    elif mode in _LINEAR:
        taps = [_linear_taps(coordinate) for coordinate in coordinates]
    elif mode in _CUBIC:
        taps = [_cubic_taps(coordinate) for coordinate in coordinates]
    else:
        raise OnnxError(f"GridSample: mode {mode!r}")
    return cast(_weighted_taps(wide(x), taps, sizes, padding, corners), x.dtype)


def _linear_taps(coordinate: Any) -> list[tuple[Any, Any]]:
    low = F.floor(coordinate)
    share = coordinate - low
    return [(low, 1 - share), (low + 1, share)]


def _cubic_taps(coordinate: Any, a: float = -0.75) -> list[tuple[Any, Any]]:
    low = F.floor(coordinate)
    t = coordinate - low
    taps = []
    for offset in (-1, 0, 1, 2):
        d = F.abs(t - offset)
        if offset in (0, 1):
            weight = ((a + 2) * d - (a + 3)) * d * d + 1
        else:
            weight = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        taps.append((low + offset, weight))
    return taps


def _weighted_taps(x: Any, taps: list[Any], sizes: Any, padding: str, corners: bool) -> Any:
    batch, channels = x.shape[:2]
    flat = F.reshape(x, (batch, channels, prod(sizes)))
    total = None
    for chosen in product(*taps):
        position: Any = None
        weight: Any = None
        inside: Any = None
        for (coordinate, share), n in zip(chosen, sizes, strict=True):
            if padding == "zeros":
                matches = F.ge(coordinate, 0) & F.le(coordinate, n - 1)
                inside = matches if inside is None else inside & matches
            elif padding == "reflection":
                coordinate = _reflected(coordinate, n, corners)
            at = cast(F.clamp(coordinate, min=0, max=n - 1), i64)
            position = at if position is None else position * n + at
            if share is not None:
                weight = share if weight is None else weight * share
        shape = position.shape[1:]
        index = F.reshape(position, (batch, 1, prod(shape)))
        gathered = F.gather(flat, F.expand(index, (batch, channels, prod(shape))), axis=2)
        gathered = F.reshape(gathered, (batch, channels, *shape))
        gathered = gathered if weight is None else gathered * F.unsqueeze(weight, 1)
        gathered = gathered if inside is None else F.where(F.unsqueeze(inside, 1), gathered, 0.0)
        total = gathered if total is None else total + gathered
    return total


def _reflected(coordinate: Any, n: int, corners: bool) -> Any:
    low, high = (0.0, n - 1.0) if corners else (-0.5, n - 0.5)
    span = high - low
    if span <= 0:
        return coordinate * 0.0
    distance = F.abs(coordinate - low)
    remainder = F.mod(distance, 2 * span)
    return F.where(F.gt(remainder, span), 2 * span - remainder, remainder) + low


@row("RoiAlign", since=10)
def _roi_align(node: Node) -> Any:
    x, rois, batches = node.tensor(0), wide(node.tensor(1)), node.tensor(2)
    mode = node.attr("mode", "avg")
    height, width = node.attr("output_height", 1), node.attr("output_width", 1)
    samples = node.attr("sampling_ratio", 0)
    scale = node.attr("spatial_scale", 1.0)
    half = "half_pixel" if node.version >= 16 else "output_half_pixel"
    shift = 0.5 if node.attr("coordinate_transformation_mode", half) == "half_pixel" else 0.0
    if samples <= 0:
        return _roi_align_adaptive(node, x, rois, batches, (height, width), scale, shift)
    left, top, right, bottom = (rois[:, i] * scale - shift for i in range(4))
    grid = _roi_grid(left, top, right, bottom, (height, width), (samples, samples), shift)
    return cast(_pool_samples(wide(x), batches, *grid, mode), x.dtype)


def _roi_grid(
    left: Any, top: Any, right: Any, bottom: Any, sizes: Any, samples: Any, shift: float
) -> tuple[Any, Any]:
    """(rois, bins, samples): the coordinates along both axes."""
    axes = []
    for start, stop, bins, count in zip((top, left), (bottom, right), sizes, samples, strict=True):
        length = stop - start
        length = length if shift else F.maximum(length, 1.0)
        step = F.reshape(length, (-1, 1, 1)) / bins
        base = F.reshape(F.arange(bins), (1, -1, 1))
        inner = (F.reshape(F.arange(count), (1, 1, -1)) + 0.5) / count
        axes.append(F.reshape(start, (-1, 1, 1)) + (inner + base) * step)
    return axes[0], axes[1]


def _pool_samples(x: Any, batches: Any, y: Any, x_at: Any, mode: str) -> Any:
    """Bilinear samples of each bin, averaged or maximized."""
    if mode not in ("avg", "max"):
        raise OnnxError(f"RoiAlign: mode {mode!r}")
    _, channels, height, width = x.shape
    rois, rows, per_row = y.shape
    columns, per_column = x_at.shape[1:]
    shape = (rois, 1, rows, per_row, columns, per_column)
    at_y = F.expand(F.reshape(y, (rois, 1, rows, per_row, 1, 1)), shape)
    at_x = F.expand(F.reshape(x_at, (rois, 1, 1, 1, columns, per_column)), shape)
    # Samples more than one element outside are 0, others are moved to the edge.
    valid = F.ge(at_y, -1.0) & F.le(at_y, height) & F.ge(at_x, -1.0) & F.le(at_x, width)
    at_y = F.clamp(at_y, min=0.0, max=height - 1.0)
    at_x = F.clamp(at_x, min=0.0, max=width - 1.0)
    images = F.take(F.reshape(x, (x.shape[0], 1, channels, height * width)), batches, axis=0)
    if mode == "avg":
        values = bilinear(images, at_y, at_x, height, width)
        values = F.where(F.unsqueeze(valid, 2), values, 0.0)
        pooled = F.mean(values, axis=(4, 6))
    else:
        values = _largest_corner(images, at_y, at_x, height, width)
        values = F.where(F.unsqueeze(valid, 2), values, 0.0)
        pooled = F.max(values, axis=(4, 6))
    return F.squeeze(pooled, 1)


def _largest_corner(image: Any, y: Any, x: Any, height: int, width: int) -> Any:
    """The largest weighted corner of each sample: ONNX's max mode does not sum the corners."""
    parts = []
    top, left = F.floor(y), F.floor(x)
    for dy in (0, 1):
        for dx in (0, 1):
            weight = (1 - F.abs(y - top - dy)) * (1 - F.abs(x - left - dx))
            at_y = F.clamp(top + dy, min=0.0, max=height - 1.0)
            at_x = F.clamp(left + dx, min=0.0, max=width - 1.0)
            corner = bilinear(image, at_y, at_x, height, width)
            parts.append(corner * F.unsqueeze(weight, 2))
    best = parts[0]
    for part in parts[1:]:
        best = F.maximum(best, part)
    return best


def _roi_align_adaptive(
    node: Node, x: Any, rois: Any, batches: Any, sizes: Any, scale: float, shift: float
) -> Any:
    """One sample per element of a bin: their number follows from the sizes of the regions."""
    regions = node.static_array(rois, "the regions (sampling_ratio is 0)").astype(np.float64)
    results = []
    for i, (left, top, right, bottom) in enumerate(regions * scale - shift):
        spans = [bottom - top, right - left]
        spans = spans if shift else [max(span, 1.0) for span in spans]
        counts = [max(int(np.ceil(s / n)), 1) for s, n in zip(spans, sizes, strict=True)]
        edges = [constant(np.array([v], np.float32)) for v in (left, top, right, bottom)]
        grid = _roi_grid(edges[0], edges[1], edges[2], edges[3], sizes, counts, shift)
        chosen = F.narrow(batches, 0, i, 1)
        results.append(_pool_samples(wide(x), chosen, *grid, node.attr("mode", "avg")))
    return cast(F.concat(results, axis=0) if len(results) > 1 else results[0], x.dtype)
