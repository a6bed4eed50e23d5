"""Images sampled at computed coordinates: grid_sample, and grids of affine maps."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import accumulator, i64
from nova.errors import ShapeError
from nova.ops.functional.common import as_floats, choice, function, require_rank, to_dtype
from nova.ops.table import Op, register

_LINEAR = ("linear", "bilinear")
_CUBIC = ("cubic", "bicubic")
_MODES = ("nearest", *_LINEAR, *_CUBIC)
_PADDINGS = ("zeros", "border", "reflection")
CUBIC = -0.75
"""The free parameter of Keys's cubic convolution (1981), as torch and ONNX choose it."""


def cubic_weights(distance: Any, outer: bool, a: float = CUBIC) -> Any:
    """The weight of an element at a distance of 0..1, or 1..2 if `outer` (Keys 1981)."""
    if outer:
        return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return ((a + 2) * distance - (a + 3)) * distance * distance + 1


def _grid_sample(
    F: Any,
    x: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Any:
    x, grid = as_floats(F, x, grid)
    choice("grid_sample", "mode", mode, _MODES)
    choice("grid_sample", "padding_mode", padding_mode, _PADDINGS)
    rank = len(x.shape) - 2
    if rank < 1 or len(grid.shape) != len(x.shape) or grid.shape[-1] != rank:
        raise ShapeError(f"grid_sample: a grid of {grid.shape} for {x.shape}")
    if grid.shape[0] != x.shape[0]:
        raise ShapeError(f"grid_sample: {x.shape[0]} images and {grid.shape[0]} grids")
    wide = accumulator(x.dtype)
    grid = to_dtype(F, grid, wide)
    # The last axis of the grid is (x, y, ...): the innermost axis of the image first.
    coordinates = []
    for axis, n in enumerate(x.shape[2:]):
        g = F.select(grid, -1, rank - 1 - axis)
        place = (g + 1) * ((n - 1) / 2) if align_corners else ((g + 1) * n - 1) * 0.5
        coordinates.append(_inside(F, place, n, mode, padding_mode, align_corners))
    taps = [_taps(F, place, mode) for place in coordinates]
    result = _weighted_taps(F, to_dtype(F, x, wide), taps, padding_mode, align_corners)
    return to_dtype(F, result, x.dtype)


def _inside(F: Any, place: Any, n: int, mode: str, padding: str, corners: bool) -> Any:
    """A coordinate moved into the image, as torch does before it is split into taps."""
    if mode in _CUBIC or padding == "zeros":
        return place
    if padding == "reflection":
        place = _reflected(F, place, n, corners)
    return F.clamp(place, min=0, max=n - 1)


def _taps(F: Any, place: Any, mode: str) -> list[tuple[Any, Any]]:
    """The elements that a sample reads along one axis, with their weights."""
    if mode == "nearest":
        return [(F.round(place), None)]
    low = F.detach(F.floor(place))
    share = place - low
    if mode in _LINEAR:
        return [(low, 1 - share), (low + 1, share)]
    return [
        (low - 1, cubic_weights(share + 1, outer=True)),
        (low, cubic_weights(share, outer=False)),
        (low + 1, cubic_weights(1 - share, outer=False)),
        (low + 2, cubic_weights(2 - share, outer=True)),
    ]


def _weighted_taps(F: Any, x: Any, taps: list[Any], padding: str, corners: bool) -> Any:
    batch, channels, *sizes = x.shape
    flat = F.reshape(x, (batch, channels, prod(sizes)))
    total = None
    for combination in product(*taps):
        position: Any = None
        weight: Any = None
        inside: Any = None
        for (place, share), n in zip(combination, sizes, strict=True):
            if padding == "zeros":
                matches = F.ge(place, 0) & F.le(place, n - 1)
                inside = matches if inside is None else inside & matches
            elif padding == "reflection":
                place = _reflected(F, place, n, corners)
            index = F.cast(F.clamp(place, min=0, max=n - 1), dtype=i64)
            position = index if position is None else position * n + index
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


def _reflected(F: Any, place: Any, n: int, corners: bool) -> Any:
    low, high = (0.0, n - 1.0) if corners else (-0.5, n - 0.5)
    span = high - low
    if span <= 0:
        return place * 0.0
    remainder = F.mod(F.abs(place - low), 2 * span)
    return F.where(F.gt(remainder, span), 2 * span - remainder, remainder) + low


def _affine_grid(F: Any, theta: Any, size: Any, align_corners: bool = False) -> Any:
    (theta,) = as_floats(F, theta)
    require_rank("affine_grid", theta, 3, 3)
    sizes = tuple(int(n) for n in size)[2:]
    rank = len(sizes)
    if tuple(theta.shape[1:]) != (rank, rank + 1):
        raise ShapeError(f"affine_grid: maps of {theta.shape} for a size of {tuple(size)}")
    axes = []
    for n in sizes:
        places = np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(n)
        axes.append(places if align_corners else places * ((n - 1) / n if n else 1.0))
    mesh = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones(sizes)], axis=-1).reshape(prod(sizes), rank + 1)
    mapped = F.matmul(points.astype(theta.dtype.numpy), F.swapaxes(theta, 1, 2))
    return F.reshape(mapped, (theta.shape[0], *sizes, rank))


ROWS: tuple[Op, ...] = (
    function(
        "grid_sample",
        "Samples of images at the coordinates of a grid in -1..1: mode 'bilinear', 'nearest' or "
        "'bicubic', padding_mode 'zeros', 'border' or 'reflection'.",
        _grid_sample,
        operands=("x", "grid"),
    ),
    function(
        "affine_grid",
        "The grid of grid_sample for affine maps of images of a size (batch, channels, ...).",
        _affine_grid,
        operands=("theta",),
    ),
)


def register_rows() -> None:
    register(*ROWS)
