"""Differences, integrals, interpolation and polynomials of sampled functions."""

from __future__ import annotations

from math import inf, pi
from typing import Any

from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import (
    as_common,
    as_floats,
    as_inexact,
    as_tensor,
    choice,
    function,
    number,
    require_rank,
)
from nova.ops.rules import int_tuple, int_value, resolve_axis, static_axis
from nova.ops.table import Op, register


def _along(F: Any, positions: Any, axis: int, rank: int) -> Any:
    """A vector as an array whose only axis of that size is `axis`."""
    return F.reshape(positions, [positions.shape[0] if i == axis else 1 for i in range(rank)])


def _cumulative_trapezoid(F: Any, y: Any, dx: Any = 1.0, axis: int = -1, x: Any = None) -> Any:
    if x is None and hasattr(dx, "shape"):  # torch's second argument
        x = dx
    (y,) = as_inexact(F, y)
    axis = resolve_axis(axis, len(y.shape))
    size = max(y.shape[axis] - 1, 0)
    pairs = F.narrow(y, axis, min(1, y.shape[axis]), size) + F.narrow(y, axis, 0, size)
    if x is None:
        widths = number("cumulative_trapezoid", "dx", dx)
    else:
        (x,) = as_inexact(F, x)
        x = _along(F, x, axis, len(y.shape)) if len(x.shape) == 1 else x
        if x.shape[axis - len(y.shape)] != y.shape[axis]:
            raise ShapeError(
                f"cumulative_trapezoid: positions {x.shape} for y {y.shape} along axis {axis}"
            )
        widths = F.diff(x, 1, axis - len(y.shape))
    return F.cumsum(pairs * widths * 0.5, axis=axis)


def _gradient(
    F: Any, x: Any, spacing: Any = None, axis: Any = None, edge_order: int = 1
) -> tuple[Any, ...]:
    """Central differences inside, one-sided ones of `edge_order` at both ends."""
    x = as_tensor(F, x)
    if not x.dtype.is_float and not x.dtype.is_complex:
        (x,) = as_inexact(F, x)
    rank = len(x.shape)
    axes = range(rank) if axis is None else int_tuple(axis, "gradient: axis")
    places = [resolve_axis(a, rank) for a in axes]
    spacing = 1.0 if spacing is None else spacing
    is_many = isinstance(spacing, tuple | list)
    steps = list(spacing) if is_many else [spacing] * len(places)
    if len(steps) != len(places):
        raise ShapeError(f"gradient: {len(steps)} spacings for {len(places)} axes")
    order = int_value(edge_order, "gradient: edge_order")
    if order not in (1, 2):
        raise AttributeValueError(f"gradient: edge_order {order}, it is 1 or 2")
    return tuple(_slope(F, x, a, s, order) for a, s in zip(places, steps, strict=True))


def _slope(F: Any, x: Any, axis: int, spacing: Any, order: int) -> Any:
    n = static_axis(x.type, axis, "gradient along")
    if n < order + 1:
        raise ShapeError(f"gradient: axis {axis} of {x.shape} needs {order + 1} elements or more")
    if hasattr(spacing, "shape") or isinstance(spacing, list | tuple):
        points = as_tensor(F, spacing)
        if tuple(points.shape) != (n,):
            raise ShapeError(f"gradient: positions {points.shape} for axis {axis} of {x.shape}")
        widths = _along(F, F.diff(points, 1, 0), axis, len(x.shape))
    else:
        widths = F.full(
            [n - 1 if i == axis else 1 for i in range(len(x.shape))],
            number("gradient", "spacing", spacing),
            F.real(x).dtype,
        )
    slopes = F.diff(x, 1, axis) / widths
    before, after = F.narrow(widths, axis, 0, n - 2), F.narrow(widths, axis, 1, n - 2)
    # A line through the neighbors, weighted by the distances.
    total = before + after
    inner = (
        F.narrow(slopes, axis, 0, n - 2) * after + F.narrow(slopes, axis, 1, n - 2) * before
    ) / total
    ends = [F.narrow(slopes, axis, 0, 1), F.narrow(slopes, axis, n - 2, 1)]
    if order == 2:
        for end, (near, far) in enumerate(((0, 1), (n - 2, n - 3))):
            h, k = (F.narrow(widths, axis, i, 1) for i in (near, far))
            first, second = (F.narrow(slopes, axis, i, 1) for i in (near, far))
            ends[end] = first + (first - second) * h / (h + k)
    return F.concat([ends[0], inner, ends[1]], axis=axis)


def _interp(F: Any, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    x, xp, fp = as_floats(F, x, xp, fp)
    require_rank("interp", xp, 1, 1)
    if tuple(xp.shape) != tuple(fp.shape) or not xp.shape[0]:
        raise ShapeError(f"interp: positions {xp.shape} and values {fp.shape}: equal vectors")
    n = xp.shape[0]
    place = F.clamp(F.searchsorted(F.detach(xp), F.detach(x), right=True), min=1, max=max(n - 1, 1))
    high = F.minimum(place, n - 1)
    low = place - 1
    begin, end = F.take(xp, low, axis=0), F.take(xp, high, axis=0)
    first, second = F.take(fp, low, axis=0), F.take(fp, high, axis=0)
    width = end - begin
    share = (x - begin) / F.where(F.eq(width, 0.0), 1.0, width)
    result = F.where(F.eq(width, 0.0), first, first + share * (second - first))
    lowest = fp[0] if left is None else number("interp", "left", left)
    highest = fp[n - 1] if right is None else number("interp", "right", right)
    result = F.where(x < xp[0], lowest, result)
    return F.where(x > xp[n - 1], highest, result)


def _polyval(F: Any, p: Any, x: Any) -> Any:
    p, x = as_common(F, p, x)
    require_rank("polyval", p, 1, 1)
    total = F.zeros_like(x)
    for i in range(static_axis(p.type, 0, "polyval of the coefficients")):
        total = total * x + p[i]
    return total


_MODES = ("full", "same", "valid")


def _convolve(F: Any, x: Any, y: Any, mode: str = "full") -> Any:
    x, y = as_common(F, x, y)
    for operand in (x, y):
        require_rank("convolve", operand, 1, 1)
        if not operand.shape[0]:
            raise ShapeError("convolve: no elements")
    choice("convolve", "mode", mode, _MODES)
    if x.shape[0] < y.shape[0]:
        x, y = y, x
    n, k = x.shape[0], y.shape[0]
    low = {"full": k - 1, "same": (k - 1) - (k - 1) // 2, "valid": 0}[mode]
    low = (k - 1) // 2 if mode == "same" and k % 2 else k // 2 if mode == "same" else low
    high = {"full": k - 1, "same": k - 1 - low, "valid": 0}[mode]
    windows = F.windows(
        F.reshape(F.pad(x, (low,), (high,)), (1, 1, n + low + high)), kernel=(k,), stride=(1,)
    )
    return F.matmul(F.flip(y, (0,)), F.reshape(windows, (k, n + low + high - k + 1)))


def _correlate(F: Any, x: Any, y: Any, mode: str = "valid") -> Any:
    x, y = as_common(F, x, y)
    require_rank("correlate", y, 1, 1)
    if x.shape[0] < y.shape[0]:
        # numpy's: the result is that of the swapped operands in reverse.
        return F.flip(F.conj(_convolve(F, y, F.conj(F.flip(x, (0,))), mode)), (0,))
    return _convolve(F, x, F.conj(F.flip(y, (0,))), mode)


def _unwrap(F: Any, x: Any, discont: Any = None, axis: int = -1, period: float = 2 * pi) -> Any:
    (x,) = as_floats(F, x)
    axis = resolve_axis(axis, len(x.shape))
    cycle = number("unwrap", "period", period)
    limit = cycle / 2 if discont is None else max(number("unwrap", "discont", discont), cycle / 2)
    steps = F.diff(x, 1, axis)
    wrapped = F.mod(steps + cycle / 2, cycle) - cycle / 2
    wrapped = F.where(F.eq(wrapped, -cycle / 2) & (steps > 0), cycle / 2, wrapped)
    jump = F.where(F.abs(steps) < limit, 0.0, wrapped - steps)
    low = tuple(1 if i == axis else 0 for i in range(len(x.shape)))
    return x + F.cumsum(F.pad(jump, low, (0,) * len(x.shape)), axis=axis)


def _ediff1d(F: Any, x: Any) -> Any:
    return F.diff(F.reshape(x, (-1,)))


def _renorm(F: Any, x: Any, p: float, axis: int, maxnorm: float) -> Any:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    limit, order = number("renorm", "maxnorm", maxnorm, 0), number("renorm", "p", p)
    if not order > 0:
        raise AttributeValueError(f"renorm: p must be above 0, not {p!r}")
    if len(x.shape) < 2:
        raise ShapeError(f"renorm: {x.shape} has no slices: it needs two axes or more")
    others = tuple(i for i in range(len(x.shape)) if i != axis)
    length = F.norm(x, p=inf if order == inf else order, axis=others, keepdims=True)
    return x * F.where(length > limit, limit / (length + 1e-7), 1.0)


ROWS: tuple[Op, ...] = (
    function(
        "cumulative_trapezoid",
        "The running integral of y by trapezoids, of width dx or between positions x.",
        _cumulative_trapezoid,
        operands=("y",),
    ),
    function(
        "gradient",
        "Differences between the neighbors of each element along axes, a tuple; `spacing` is the "
        "distance, or the positions, for all axes or each.",
        _gradient,
    ),
    function(
        "interp",
        "The values at x of the line through the points (xp, fp), xp in ascending order.",
        _interp,
        operands=("x", "xp", "fp"),
    ),
    function(
        "polyval",
        "The polynomial with coefficients p, the highest power first, at x.",
        _polyval,
        operands=("p", "x"),
    ),
    function(
        "convolve",
        "The convolution of two vectors; mode 'full', 'same' or 'valid'.",
        _convolve,
        operands=("x", "y"),
    ),
    function(
        "correlate",
        "The correlation of two vectors; mode 'full', 'same' or 'valid'.",
        _correlate,
        operands=("x", "y"),
    ),
    function("unwrap", "Jumps of more than half a period removed from phases.", _unwrap),
    function("ediff1d", "The differences of neighbors of the flattened tensor.", _ediff1d),
    function(
        "renorm",
        "The slices of an axis whose p-norm is above maxnorm scaled down to it.",
        _renorm,
        method=True,
    ),
)


def register_rows() -> None:
    register(*ROWS)
