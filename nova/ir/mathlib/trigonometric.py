"""sin, cos, tan, sincos: reduction to a quadrant and |y| <= pi/4, then polynomials.

In: a `Float` x. Out: a `Float`, or two for sincos. Called through the table in `mathlib`.

Every finite argument is reduced correctly. f32 multiplies x by 1/(2 pi), split into exact f64
pieces, and keeps the fraction of each partial term. f64 uses Cody-Waite reduction (multiples of
pi/2 in five parts) up to 2**30, and Payne-Hanek reduction (`payne_hanek.py`) beyond. Both are
computed because there are no branches, which makes f64 about twice as slow. With
`large-angles=false` the second is omitted, and an f64 beyond 2**30 gives NaN.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from nova.ir.mathlib.builder import Builder, Float, Int, where
from nova.ir.mathlib.double_double import two_sum
from nova.ir.mathlib.payne_hanek import reduce_large
from nova.ir.mathlib.rounding import nearest

_F64_LIMIT = 2.0**30
_PI_2 = 1.5707963267948966

# 1/(2 pi) in pieces of 29 bits: multiplied by the 24 bits of an f32, each is exact in f64.
_TURNS = tuple(
    float.fromhex(piece)
    for piece in (
        "0x1.45f306dp-3",
        "0x1.9391054p-32",
        "0x1.4fe13abp-61",
        "0x1.d1f534dp-90",
        "0x1.b81b6c5p-119",
        "0x1.5993c4p-150",
        "0x1.c820ff2p-177",
    )
)
# pi/2 in pieces of 22 bits (the last is full): multiplied by n < 2**31 they are exact.
_PI_2_PARTS = tuple(
    float.fromhex(piece)
    for piece in (
        "0x1.921fbp+0",
        "0x1.5110bp-22",
        "0x1.184698p-44",
        "0x1.3198ap-69",
        "0x1.701b839a25205p-92",
    )
)

# (sin(y) - y) / y**3, (cos(y) - 1 + y**2/2) / y**4 and (tan(y) - y) / y**3 in y**2.
_SIN_32 = (-0.16666655242443085, 0.008332189172506332, -0.0001951820304384455)
_COS_32 = (0.04166664555668831, -0.0013887308305129409, 2.4432107238681056e-05)
_TAN_32 = (
    0.33333349227905273,
    0.1333266943693161,
    0.05405997484922409,
    0.021279383450746536,
    0.010847724974155426,
    6.99190713930875e-05,
    0.004387747496366501,
)
_SIN_64 = (
    -0.16666666666666632,
    0.008333333333322425,
    -0.00019841269829773677,
    2.7557313669629212e-06,
    -2.505075339373478e-08,
    1.58964651623015e-10,
)
_COS_64 = (
    0.04166666666666659,
    -0.0013888888888872186,
    2.480158728829575e-05,
    -2.7557314015347663e-07,
    2.0875678131047236e-09,
    -1.1357339838947797e-11,
)


def _total(terms: Sequence[Float]) -> Float:
    return functools.reduce(operator.add, terms)


def _reduce_f32(b: Builder, x: Float) -> tuple[Int, Float, Float]:
    wide, d = x.to_double(), b.double
    products = [wide * piece for piece in _TURNS]
    fractions = [product - nearest(d, product) for product in products]
    n, n_int = d.round_to_int(_total(fractions) * 4.0)
    # The sum again, with the quadrants subtracted first: near a multiple of pi/2 its terms cancel,
    # so every step is exact that would otherwise have dropped bits of the small remainder.
    exact = _total([n * -0.25, *fractions]) * (4.0 * _PI_2)
    y = exact.to_single(b)
    return n_int.to_width_of(b), y, (exact - y.to_double()).to_single(b)


def _reduce_f64(b: Builder, x: Float) -> tuple[Int, Float, Float]:
    small = abs(x) <= _F64_LIMIT
    n, n_int = b.round_to_int(x * (1.0 / _PI_2))
    first, second, third, fourth, fifth = _PI_2_PARTS
    residue = (x - n * first) - n * second
    residue, error = two_sum(residue, n * -third)
    residue, error_2 = two_sum(residue, n * -fourth)
    low = b.mad(n, -fifth, error + error_2)
    y, low = two_sum(residue, low)
    if not b.large_angles:
        return n_int, where(small, y, float("nan")), low
    far_n, far_y, far_low = reduce_large(b, x)
    return small.choose(n_int, far_n), where(small, y, far_y), where(small, low, far_low)


def _reduce(b: Builder, x: Float) -> tuple[Int, Float, Float]:
    """Quadrant n and y with its tail, so that x = n * pi/2 + y + tail modulo 2 pi."""
    return _reduce_f64(b, x) if b.wide else _reduce_f32(b, x)


def _sin_reduced(b: Builder, y: Float, low: Float) -> Float:
    z = y * y
    tail = low * b.mad(z, -0.5, 1.0)
    return y + b.mad(y * z, b.poly(z, b.pick(_SIN_32, _SIN_64)), tail)


def _cos_reduced(b: Builder, y: Float, low: Float) -> Float:
    z = y * y
    half = z * 0.5
    main = 1.0 - half
    correction = b.mad(z * z, b.poly(z, b.pick(_COS_32, _COS_64)), -(y * low))
    # The bits that the subtraction 1 - half dropped are restored exactly.
    return main + (((1.0 - main) - half) + correction)


def _by_quarter(b: Builder, n: Int, sine: Float, cosine: Float) -> Float:
    """sin(n * pi/2 + y) from the sine and cosine of y."""
    value = where((n & 1).equals(0), sine, cosine)
    return (value.bits() ^ ((n & 2) << (b.layout.width - 2))).float()


def sincos(b: Builder, x: Float) -> tuple[Float, Float]:
    n, y, low = _reduce(b, x)
    sine, cosine = _sin_reduced(b, y, low), _cos_reduced(b, y, low)
    # The reduction loses the sign of a negative zero.
    first = where(x.equals(0.0), x, _by_quarter(b, n, sine, cosine))
    return first, _by_quarter(b, n + 1, sine, cosine)


def sin(b: Builder, x: Float) -> Float:
    n, y, low = _reduce(b, x)
    value = _by_quarter(b, n, _sin_reduced(b, y, low), _cos_reduced(b, y, low))
    return where(x.equals(0.0), x, value)


def cos(b: Builder, x: Float) -> Float:
    n, y, low = _reduce(b, x)
    return _by_quarter(b, n + 1, _sin_reduced(b, y, low), _cos_reduced(b, y, low))


def tan(b: Builder, x: Float) -> Float:
    n, y, low = _reduce(b, x)
    even = (n & 1).equals(0)
    if b.wide:
        sine, cosine = _sin_reduced(b, y, low), _cos_reduced(b, y, low)
        value = where(even, sine, -cosine) / where(even, cosine, sine)
    else:
        z = y * y
        t = y + b.mad(y * z, b.poly(z, _TAN_32), low * (z + 1.0))
        value = where(even, t, -1.0 / t)
    return where(x.equals(0.0), x, value)
