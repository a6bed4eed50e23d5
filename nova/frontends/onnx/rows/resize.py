"""Rows of Resize and Upsample: a matrix of weights per axis, computed at import.

Every mode is linear in the elements of an axis, so an axis is resized by positions and weights of a
few neighbors: one for nearest, two for linear, four for cubic, more with `antialias`.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np

from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, counting, wide
from nova.frontends.onnx.table import row
from nova.ops import F
from nova.ops.functional.sampling import cubic_weights


@row("Upsample")
def _upsample(node: Node) -> Any:
    x = node.tensor(0)
    scales = node.attr("scales") if node.version < 9 else node.array(1).reshape(-1).tolist()
    sizes = [floor(n * s) for n, s in zip(x.shape, scales, strict=True)]
    mode = node.attr("mode", "nearest")
    options = _Options("asymmetric", "floor", -0.75, False, False, 0.0)
    return _resized(x, sizes, scales, mode, options, [(0.0, 1.0)] * x.ndim)


class _Options:
    def __init__(
        self,
        transform: str,
        nearest: str,
        cubic: float,
        exclude: bool,
        antialias: bool,
        outside: float,
    ):
        self.transform, self.nearest, self.cubic = transform, nearest, cubic
        self.exclude, self.antialias, self.outside = exclude, antialias, outside


@row("Resize", since=10)
def _resize(node: Node) -> Any:
    x = node.tensor(0)
    mode = node.attr("mode", "nearest")
    if node.version < 11:
        scales = node.array(1).reshape(-1).tolist()
        sizes = [floor(n * s) for n, s in zip(x.shape, scales, strict=True)]
        options = _Options("asymmetric", "floor", -0.75, False, False, 0.0)
        return _resized(x, sizes, scales, mode, options, [(0.0, 1.0)] * x.ndim)
    axes = [node.resolve(a, x.ndim) for a in node.attr("axes", None) or range(x.ndim)]
    options = _Options(
        node.attr("coordinate_transformation_mode", "half_pixel"),
        node.attr("nearest_mode", "round_prefer_floor"),
        node.attr("cubic_coeff_a", -0.75),
        bool(node.attr("exclude_outside", 0)),
        bool(node.attr("antialias", 0)),
        node.attr("extrapolation_value", 0.0),
    )
    regions = [(0.0, 1.0)] * x.ndim
    if options.transform == "tf_crop_and_resize":
        roi = node.array(1).reshape(-1).tolist()
        for i, axis in enumerate(axes):
            regions[axis] = (roi[i], roi[i + len(axes)])
    sizes, scales = _target(node, x, axes, regions, options)
    return _resized(x, sizes, scales, mode, options, regions)


def _target(
    node: Node, x: Any, axes: list[int], regions: list[Any], options: _Options
) -> tuple[list[int], list[float]]:
    sizes, scales = list(x.shape), [1.0] * x.ndim
    if node.has(2) and node.array(2).size:
        for axis, scale in zip(axes, node.array(2).reshape(-1).tolist(), strict=True):
            part = 1.0
            if options.transform == "tf_crop_and_resize":
                part = regions[axis][1] - regions[axis][0]
            scales[axis], sizes[axis] = scale, floor(x.shape[axis] * part * scale)
        return sizes, scales
    declared = node.ints(3)
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    ratios = [n / x.shape[a] for a, n in zip(axes, declared, strict=True)]
    if policy != "stretch":
        common = min(ratios) if policy == "not_larger" else max(ratios)
        for axis in axes:
            scales[axis], sizes[axis] = common, floor(x.shape[axis] * common + 0.5)
        return sizes, scales
    for axis, n, ratio in zip(axes, declared, ratios, strict=True):
        scales[axis], sizes[axis] = ratio, n
    return sizes, scales


def _resized(
    x: Any,
    sizes: list[int],
    scales: list[float],
    mode: str,
    options: _Options,
    regions: list[tuple[float, float]],
) -> Any:
    if mode not in ("nearest", "linear", "cubic"):
        raise OnnxError(f"Resize: mode {mode!r}")
    out = x if mode == "nearest" else wide(x)
    beyond = None
    for axis, (size, scale) in enumerate(zip(sizes, scales, strict=True)):
        if size == x.shape[axis] and scale == 1.0 and regions[axis] == (0.0, 1.0):
            continue
        coordinates = _coordinates(x.shape[axis], size, scale, options, regions[axis])
        if options.transform == "tf_crop_and_resize":
            outside = (coordinates < 0) | (coordinates > x.shape[axis] - 1)
            shape = tuple(-1 if i == axis else 1 for i in range(x.ndim))
            mask = constant(outside.reshape(shape))
            beyond = mask if beyond is None else F.logical_or(beyond, mask)
        out = _resize_axis(out, axis, coordinates, scale, mode, options)
    if beyond is not None:
        out = F.where(beyond, options.outside, out)
    return cast(out, x.dtype)


def _coordinates(
    n: int, size: int, scale: float, options: _Options, region: tuple[float, float]
) -> np.ndarray:
    """The coordinate in the input of each element of the result."""
    at = counting(size).astype(np.float64)
    transform = options.transform
    if transform == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if transform == "half_pixel_symmetric":
        adjustment = size / (scale * n)
        center = n / 2
        return center * (1 - adjustment) + (at + 0.5) / scale - 0.5
    if transform == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if size > 1 else np.zeros(size)
    if transform == "align_corners":
        length = n * scale
        return at * (n - 1) / (length - 1) if length > 1 else np.zeros(size)
    if transform == "asymmetric":
        return at / scale
    if transform == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if transform == "tf_crop_and_resize":
        start, end = region
        if size > 1:
            return start * (n - 1) + at * (end - start) * (n - 1) / (size - 1)
        return np.full(size, 0.5 * (start + end) * (n - 1))
    raise OnnxError(f"Resize: coordinate_transformation_mode {transform!r}")


def _nearest(coordinates: np.ndarray, mode: str) -> np.ndarray:
    if mode == "round_prefer_floor":
        return np.ceil(coordinates - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(coordinates + 0.5)
    if mode in ("floor", "ceil"):
        return np.floor(coordinates) if mode == "floor" else np.ceil(coordinates)
    raise OnnxError(f"Resize: nearest_mode {mode!r}")


def _resize_axis(
    x: Any, axis: int, coordinates: np.ndarray, scale: float, mode: str, options: _Options
) -> Any:
    n = x.shape[axis]
    if mode == "nearest":
        at = np.clip(_nearest(coordinates, options.nearest), 0, n - 1).astype(np.int64)
        return F.take(x, constant(at), axis=axis)
    taps, weights = _neighbors(coordinates, n, scale, mode, options)
    total = None
    shape = tuple(-1 if i == axis else 1 for i in range(x.ndim))
    for i in range(taps.shape[1]):
        weight = weights[:, i]
        if not weight.any():
            continue
        part = F.take(x, constant(np.clip(taps[:, i], 0, n - 1)), axis=axis)
        part = part * constant(weight.reshape(shape).astype(x.dtype.numpy))
        total = part if total is None else total + part
    return total


def _neighbors(
    coordinates: np.ndarray, n: int, scale: float, mode: str, options: _Options
) -> tuple[np.ndarray, np.ndarray]:
    """(positions, taps): the elements that each result reads, and their weights."""
    stretch = max(1.0, 1.0 / scale) if options.antialias else 1.0
    reach = (1 if mode == "linear" else 2) * stretch
    first = np.floor(coordinates - reach).astype(np.int64) + 1
    count = ceil(2 * reach) + 1 if stretch > 1 else int(2 * reach)
    taps = first[:, None] + counting(count)[None]
    distance = np.abs(coordinates[:, None] - taps) / stretch
    if mode == "linear":
        weights = np.maximum(1 - distance, 0)
    else:
        weights = _cubic(distance, options.cubic)
    if options.exclude:
        weights = np.where((taps < 0) | (taps >= n), 0, weights)
    if options.exclude or options.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return taps, weights


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel (1981)."""
    near = cubic_weights(distance, outer=False, a=a)
    far = cubic_weights(distance, outer=True, a=a)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
