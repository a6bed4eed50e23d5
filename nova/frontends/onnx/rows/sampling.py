"""Rows that sample images at computed coordinates: GridSample and RoiAlign."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, wide
from nova.frontends.onnx.rows.convolution import bilinear
from nova.frontends.onnx.table import row
from nova.ops import F


@row("GridSample", since=16)
def _grid_sample(node: Node) -> Any:
    x, grid = node.tensor(0), wide(node.tensor(1))
    mode = node.attr("mode", "linear")
    padding = node.attr("padding_mode", "zeros")
    corners = bool(node.attr("align_corners", 0))
    result = F.grid_sample(wide(x), grid, mode=mode, padding_mode=padding, align_corners=corners)
    return cast(result, x.dtype)


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
