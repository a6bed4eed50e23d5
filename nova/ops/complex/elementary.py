"""Elementary functions of complex numbers, on pairs of parts.

Formulas are those of Kahan (1987), "Branch cuts for complex elementary functions", where the plain
ones lose digits or overflow. Branch cuts are numpy's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, pi
from typing import Any

from nova.core.dtypes import complex_of, dtype, f64, promote_all, real_of
from nova.ops.complex.parts import (
    Pair,
    add,
    angle,
    divide,
    is_complex,
    magnitude,
    multiply,
    pack,
    split,
    split_all,
    subtract,
    times_i,
)

_SATURATED = 40.0
"""tanh is 1 to the last bit of f64 from here on."""
_LARGE = 2.0**27
"""1 + x^2 is x^2 to the last bit of f64 from here on."""
_MOST_FACTORS = 16


def exp(F: Any, x: Pair) -> Pair:
    size = F.exp(x[0])
    return _scaled(F, size, F.cos(x[1]), is_real=True), _scaled(F, size, F.sin(x[1]))


def _scaled(F: Any, size: Any, wave: Any, *, is_real: bool = False) -> Any:
    """size * wave, a sine or cosine that is NaN for an infinite angle (C99, Annex G).

    A factor of 0 gives 0 whatever the other one is; a real part of infinite size stays infinite.
    """
    product = F.mul(size, wave)
    zero = F.where(F.eq(size, 0), F.detach(size), F.detach(wave))
    product = F.where(F.logical_and(F.isnan(product), F.eq(zero, 0)), zero, product)
    if not is_real:
        return product
    return F.where(F.logical_and(F.isinf(size), F.isnan(wave)), F.detach(size), product)


def expm1(F: Any, x: Pair) -> Pair:
    """exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin(b / 2)^2."""
    half = F.square(F.sin(F.mul(x[1], 0.5)))
    re = F.sub(F.mul(F.expm1(x[0]), F.cos(x[1])), F.mul(half, 2.0))
    return re, F.mul(F.exp(x[0]), F.sin(x[1]))


def logarithm(F: Any, x: Pair) -> Pair:
    """With m the larger part and n the smaller: near the unit circle, log|x| cancels, and is
    log1p((m - 1) (m + 1) + n^2) / 2."""
    larger, smaller = F.maximum(F.abs(x[0]), F.abs(x[1])), F.minimum(F.abs(x[0]), F.abs(x[1]))
    return _log_size(F, F.sub(_wide(F, larger), 1.0), smaller, magnitude(F, x)), angle(F, x)


def log1p(F: Any, x: Pair) -> Pair:
    """log|1 + x| = log1p(a (a + 2) + b^2) / 2, which keeps the digits of a small x."""
    moved = (F.add(x[0], 1.0), x[1])
    return _log_size(F, _wide(F, x[0]), x[1], magnitude(F, moved)), angle(F, moved)


def _log_size(F: Any, offset: Any, height: Any, size: Any) -> Any:
    """log of `size`, which is the magnitude of (1 + offset, height)."""
    is_near = F.logical_and(F.gt(size, 0.5), F.lt(size, 2.0))
    # In f64 the products of parts that are f32 are exact, and little is left of their sum.
    square = F.add(F.mul(offset, F.add(offset, 2.0)), F.square(_wide(F, height)))
    square = F.cast(F.where(is_near, square, 0.0), dtype=size.dtype)
    return F.where(is_near, F.mul(F.log1p(square), 0.5), F.log(F.where(is_near, 1.0, size)))


def _wide(F: Any, x: Any) -> Any:
    return F.cast(x, dtype=f64)


def sqrt(F: Any, x: Pair) -> Pair:
    """The root with a non-negative real part; its sum of like signs cancels nothing.

    An infinite imaginary part gives an infinite root, also if the real part is NaN (C99, Annex G).
    """
    re, im = x
    is_right, sign = F.ge(re, 0), F.copysign(1.0, F.detach(im))
    # Absolute values with a one-sided derivative at 0: that of `abs` is 0 there.
    width, height = F.where(is_right, re, F.neg(re)), F.mul(im, sign)
    size = F.mul(F.add(magnitude(F, x), width), 0.5)
    is_zero = F.eq(size, 0)
    large = F.sqrt(F.where(is_zero, 1.0, size))
    small = F.where(is_zero, 0.0, F.div(F.mul(height, 0.5), large))
    large = F.where(is_zero, 0.0, large)
    real, imaginary = F.where(is_right, large, small), F.where(is_right, small, large)
    infinite = F.isinf(im)
    return F.where(infinite, inf, real), F.mul(F.where(infinite, inf, imaginary), sign)


def rsqrt(F: Any, x: Pair) -> Pair:
    return divide(F, (1.0, None), sqrt(F, x))


def square(F: Any, x: Pair) -> Pair:
    a, b = x
    return F.mul(F.sub(a, b), F.add(a, b)), F.mul(F.mul(a, b), 2.0)


def reciprocal(F: Any, x: Pair) -> Pair:
    return divide(F, (1.0, None), x)


def sinh(F: Any, x: Pair) -> Pair:
    a, b = x
    re = _scaled(F, F.sinh(a), F.cos(b), is_real=True)
    return re, _scaled(F, F.cosh(a), F.sin(b))


def cosh(F: Any, x: Pair) -> Pair:
    a, b = x
    re = _scaled(F, F.cosh(a), F.cos(b), is_real=True)
    return re, _scaled(F, F.sinh(a), F.sin(b))


def tanh(F: Any, x: Pair) -> Pair:
    """With s = sinh(a): (s cosh(a) + i sin(b) cos(b)) / (cos(b)^2 + s^2)."""
    a = F.clamp(x[0], -_SATURATED, _SATURATED)
    s, sine, cosine = F.sinh(a), F.sin(x[1]), F.cos(x[1])
    norm = F.add(F.square(cosine), F.square(s))
    is_flat, is_even = F.isinf(x[0]), F.logical_and(F.eq(x[1], 0), F.isnan(x[0]))
    re = F.where(F.logical_and(F.eq(a, 0), F.isnan(norm)), 0.0, F.div(F.mul(s, F.cosh(a)), norm))
    re = F.where(is_flat, F.copysign(1.0, F.detach(a)), re)
    im = F.div(F.mul(sine, cosine), norm)
    return re, F.where(F.logical_or(is_flat, is_even), 0.0, im)


def asinh(F: Any, x: Pair) -> Pair:
    """log(x + sqrt(1 + x^2)) of the half plane with a non-negative real part; it is odd.

    A real part of -0 is negative: on that side of the cut the sum would cancel.
    """
    sign = F.copysign(1.0, F.detach(x[0]))
    far = F.mul(x[0], sign), F.mul(x[1], sign)
    is_large, (a, b) = _without_large(F, far)
    # sqrt(1 + ix) sqrt(1 - ix) has the right branch cuts, and x^2 might overflow.
    root = multiply(F, sqrt(F, (F.sub(1.0, b), a)), sqrt(F, (F.add(1.0, b), F.neg(a))))
    near = logarithm(F, (F.add(a, root[0]), F.add(b, root[1])))
    re, im = _log_of_double(F, is_large, far, near)
    return F.mul(re, sign), F.mul(im, sign)


def acosh(F: Any, x: Pair) -> Pair:
    is_large, near = _without_large(F, x)
    a, b = near
    root = multiply(F, sqrt(F, (F.add(a, 1.0), b)), sqrt(F, (F.sub(a, 1.0), b)))
    return _log_of_double(F, is_large, x, logarithm(F, add(F, near, root)))


def _without_large(F: Any, x: Pair) -> tuple[Any, Pair]:
    """Where a number is large or infinite, and the numbers with others in those places."""
    is_large = F.logical_or(F.gt(F.abs(x[0]), _LARGE), F.gt(F.abs(x[1]), _LARGE))
    return is_large, (F.where(is_large, 2.0, x[0]), F.where(is_large, 2.0, x[1]))


def _log_of_double(F: Any, is_large: Any, x: Pair, near: Pair) -> Pair:
    """log(2 x) where x is large, which is asinh(x) and acosh(x) there; `near` elsewhere."""
    re, im = logarithm(F, (F.where(is_large, x[0], 2.0), F.where(is_large, x[1], 2.0)))
    return F.where(is_large, F.add(re, log(2.0)), near[0]), F.where(is_large, im, near[1])


def atanh(F: Any, x: Pair) -> Pair:
    """(log1p(x) - log1p(-x)) / 2; for a large x, 1 / x with an imaginary part near pi / 2."""
    is_large, (a, b) = _without_large(F, x)
    re, im = subtract(F, log1p(F, (a, b)), log1p(F, (F.neg(a), F.neg(b))))
    far = reciprocal(F, (F.where(is_large, x[0], 2.0), F.where(is_large, x[1], 2.0)))
    angle_part = F.add(far[1], F.copysign(pi / 2, F.detach(x[1])))
    return F.where(is_large, far[0], F.mul(re, 0.5)), F.where(is_large, angle_part, F.mul(im, 0.5))


def acos(F: Any, x: Pair) -> Pair:
    re, im = _rotated(asinh)(F, x)
    return F.sub(pi / 2, re), F.neg(im)


def sigmoid(F: Any, x: Pair) -> Pair:
    """With t = exp(-|a|) and p = 1 + cos(b): |1 + t exp(ib)|^2 = (1 - t)^2 + 2 t p.

    Real parts are (1 - t) + t p, or t (cos(b) + t) for a < 0, which is t (p - (1 - t)) near the
    poles at t = 1: nothing overflows, and a result that is close to 0 has its digits.
    """
    is_right = F.ge(x[0], 0)
    # With a one-sided derivative at 0: that of `abs` is 0 there.
    fall = F.where(is_right, F.neg(x[0]), x[0])
    t, gap = F.exp(fall), F.neg(F.expm1(fall))
    p = F.mul(F.square(F.cos(F.mul(x[1], 0.5))), 2.0)
    tp = _scaled(F, t, p)
    norm = F.add(F.square(gap), F.mul(tp, 2.0))
    left = F.where(F.lt(t, 0.5), F.add(F.cos(x[1]), t), F.sub(p, gap))
    re = F.where(is_right, F.add(gap, tp), F.mul(t, left))
    return F.div(re, norm), F.div(_scaled(F, t, F.sin(x[1])), norm)


def _rotated(function: Callable[[Any, Pair], Pair]) -> Callable[[Any, Pair], Pair]:
    """-i f(i x): the circular function of a hyperbolic one."""

    def rotated(F: Any, x: Pair) -> Pair:
        re, im = function(F, times_i(F, x))
        return im, F.neg(re)

    return rotated


def _scaled_log(factor: float) -> Callable[[Any, Pair], Pair]:
    def scaled(F: Any, x: Pair) -> Pair:
        re, im = logarithm(F, x)
        return F.mul(re, factor), F.mul(im, factor)

    return scaled


def _exp2(F: Any, x: Pair) -> Pair:
    return exp(F, (F.mul(x[0], log(2.0)), F.mul(x[1], log(2.0))))


UNARY: dict[str, Callable[[Any, Pair], Pair]] = {
    "exp": exp,
    "exp2": _exp2,
    "expm1": expm1,
    "log": logarithm,
    "log2": _scaled_log(1 / log(2.0)),
    "log10": _scaled_log(1 / log(10.0)),
    "log1p": log1p,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "square": square,
    "reciprocal": reciprocal,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "sin": _rotated(sinh),
    "cos": lambda F, x: cosh(F, times_i(F, x)),
    "tan": _rotated(tanh),
    "asin": _rotated(asinh),
    "acos": acos,
    "atan": _rotated(atanh),
    "sigmoid": sigmoid,
}


def power(F: Any, x: Any, y: Any) -> Any:
    """x ** y: products for small whole numbers, else exp(y log(x)); 0 ** y is 0, or 1 for y = 0."""
    if isinstance(y, int | float) and abs(y) <= _MOST_FACTORS and y == int(y):
        result = _whole_power(F, split_all(F, x), abs(int(y)))
        return pack(F, divide(F, (1.0, None), result) if y < 0 else result)
    x, y = _promoted(F, x, y)
    base, exponent = split_all(F, x), split(F, y)
    is_zero = F.logical_and(F.eq(base[0], 0), F.eq(base[1], 0))
    safe = (F.where(is_zero, 1.0, base[0]), base[1])
    re, im = exp(F, _complete(F, multiply(F, exponent, logarithm(F, safe))))
    is_unit = F.eq(y, 0)
    at_zero = F.cast(is_unit, dtype=re.dtype) if hasattr(is_unit, "dtype") else float(is_unit)
    return F.complex(F.where(is_zero, at_zero, re), F.where(is_zero, 0.0, im))


def _promoted(F: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The base as a tensor of the result's type, the exponent with parts of that precision.

    The logarithm of the base has the precision of the result. Python numbers are weak.
    """
    types = [dtype(v.dtype) for v in (x, y) if hasattr(v, "dtype")]
    target = complex_of(promote_all(types))
    base = F.cast(x, dtype=target) if hasattr(x, "dtype") else F.full((), x, dtype=target)
    if hasattr(y, "dtype"):
        y = F.cast(y, dtype=target if is_complex(y) else real_of(target))
    return base, y


def _complete(F: Any, x: Pair) -> Pair:
    return x if x[1] is not None else (x[0], F.zeros_like(x[0]))


def _whole_power(F: Any, x: Pair, exponent: int) -> Pair:
    result: Pair | None = None
    while exponent:
        if exponent % 2:
            result = x if result is None else multiply(F, result, x)
        exponent //= 2
        if exponent:
            x = square(F, x)
    return (F.ones_like(x[0]), F.zeros_like(x[0])) if result is None else result


__all__ = ["UNARY", "is_complex", "power"]
