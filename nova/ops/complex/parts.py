"""The parts of complex operands, and arithmetic on pairs of parts.

A pair is (real part, imaginary part). The imaginary part of a real operand is None, so that a
product with a real number costs two multiplications instead of four. Called by the rules.
"""

from __future__ import annotations

from math import inf
from typing import Any

from nova.core.dtypes import dtype
from nova.ops.rules import broadcast_shapes

Pair = tuple[Any, Any]


def is_complex(value: Any) -> bool:
    """Whether an operand is complex: a tensor, an array or a Python number."""
    if isinstance(value, complex):
        return True
    element = getattr(value, "dtype", None)
    return element is not None and dtype(element).is_complex


def split(F: Any, x: Any) -> Pair:
    """The parts of an operand; None for the imaginary part of a real one."""
    if isinstance(x, complex):
        return x.real, x.imag
    return (F.real(x), F.imag(x)) if is_complex(x) else (x, None)


def split_all(F: Any, x: Any) -> Pair:
    """The parts of an operand, with zeros as the imaginary part of a real one."""
    re, im = split(F, x)
    return re, (zeros_like(F, re) if im is None else im)


def zeros_like(F: Any, x: Any) -> Any:
    return 0.0 if isinstance(x, int | float) else F.zeros_like(x)


def pack(F: Any, pair: Pair) -> Any:
    """The complex tensor of a pair."""
    re, im = pair
    return F.complex(re, zeros_like(F, re) if im is None else im)


def add(F: Any, x: Pair, y: Pair) -> Pair:
    re = F.add(x[0], y[0])
    if x[1] is None or y[1] is None:
        im = y[1] if x[1] is None else x[1]
        return re, None if im is None else F.expand(im, re.shape)
    return re, F.add(x[1], y[1])


def negate(F: Any, x: Pair) -> Pair:
    return F.neg(x[0]), None if x[1] is None else F.neg(x[1])


def subtract(F: Any, x: Pair, y: Pair) -> Pair:
    re = F.sub(x[0], y[0])
    if y[1] is None:
        return re, None if x[1] is None else F.expand(x[1], re.shape)
    return re, F.expand(F.neg(y[1]), re.shape) if x[1] is None else F.sub(x[1], y[1])


def multiply(F: Any, x: Pair, y: Pair, product: Any = None) -> Pair:
    """The product of two pairs; `product` multiplies parts (elementwise, or as matrices)."""
    times = product or F.mul
    (a, b), (c, d) = x, y
    if b is None and d is None:
        return times(a, c), None
    if b is None:
        return times(a, c), times(a, d)
    if d is None:
        return times(a, c), times(b, c)
    return F.sub(times(a, c), times(b, d)), F.add(times(a, d), times(b, c))


def divide(F: Any, x: Pair, y: Pair) -> Pair:
    """x / y, with y scaled by its larger part so that no square overflows (Smith 1962).

    An infinite y is scaled to its direction, and the result is 0 (C99, Annex G.5.1).
    """
    if y[1] is None:
        return F.div(x[0], y[0]), None if x[1] is None else F.div(x[1], y[0])
    scale = scale_of(F, y)
    infinite = F.isinf(F.maximum(F.abs(y[0]), F.abs(y[1])))
    c, d = (F.where(infinite, _direction(F, part), F.div(part, scale)) for part in y)
    norm = F.where(infinite, inf, F.mul(F.add(F.square(c), F.square(d)), scale))
    re, im = multiply(F, x, (c, F.neg(d)))
    return F.div(re, norm), F.div(im, norm)


def _direction(F: Any, part: Any) -> Any:
    """1 for an infinity and 0 for a finite number, with its sign; no gradient flows through it."""
    part = F.detach(part)
    return F.copysign(F.cast(F.isinf(part), dtype=part.dtype), part)


def scale_of(F: Any, x: Pair) -> Any:
    """A positive finite number of the size of a pair; gradients do not flow through it."""
    high = F.detach(F.maximum(F.abs(x[0]), F.abs(x[1])))
    return F.where(F.logical_and(F.isfinite(high), F.gt(high, 0)), high, 1.0)


def magnitude(F: Any, x: Pair) -> Any:
    """|x|; its gradient at 0 is 0, as in torch."""
    if x[1] is None:
        return F.abs(x[0])
    scale = scale_of(F, x)
    total = F.add(F.square(F.div(x[0], scale)), F.square(F.div(x[1], scale)))
    is_zero = F.eq(total, 0)
    root = F.mul(F.sqrt(F.where(is_zero, 1.0, total)), scale)
    infinite = F.logical_or(F.isinf(x[0]), F.isinf(x[1]))
    return F.where(infinite, inf, F.where(is_zero, 0.0, root))


def angle(F: Any, x: Pair) -> Any:
    """The argument of x in -pi..pi."""
    re, im = x
    is_zero = F.logical_and(F.eq(re, 0), F.eq(im, 0))
    # The sign of a zero real part selects the quadrant; the gradient at 0 does not divide by 0.
    return F.atan2(im, F.where(is_zero, F.copysign(1.0, F.detach(re)), re))


def times_i(F: Any, x: Pair) -> Pair:
    """i * x."""
    return F.neg(x[1]), x[0]


def common_shape(F: Any, x: Pair) -> Pair:
    """Both parts with the shape that they broadcast to."""
    shapes = [getattr(part, "shape", ()) for part in x]
    shape = broadcast_shapes(*shapes)
    return F.expand(x[0], shape), F.expand(x[1], shape)
