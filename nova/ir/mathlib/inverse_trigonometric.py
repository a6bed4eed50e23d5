"""asin, acos, atan, atan2: one division or square root, one polynomial, and parts of pi.

In: `Float`s. Out: a `Float`. Called through the table in `mathlib`. f32 atan2 uses f64, where no
quotient of two f32 overflows or underflows.
"""

from __future__ import annotations

from nova.ir.mathlib.builder import Bool, Builder, Float, where
from nova.ir.mathlib.hyperbolic import through_double

_INF = float("inf")
# pi/2 as a sum of two floats, by width; pi and pi/4 are exact multiples of both.
_PI_2_HI = {32: float.fromhex("0x1.921fb6p+0"), 64: float.fromhex("0x1.921fb54442d18p+0")}
_PI_2_LO = {32: float.fromhex("-0x1.777a5cp-25"), 64: float.fromhex("0x1.1a62633145c07p-54")}
_TAN_PI_8 = 0.41421356237309503

# (asin(x) - x) / x**3 in x**2 <= 1/4.
_ASIN_32 = (
    0.16666753590106964,
    0.07495243847370148,
    0.0454779714345932,
    0.024138472974300385,
    0.042241420596838,
)
_ASIN_64 = (
    0.1666666666666539,
    0.07500000000341947,
    0.04464285682410042,
    0.03038195931771194,
    0.022371753568334214,
    0.01735977447019054,
    0.013884527316147307,
    0.012173982281421955,
    0.006506848596772615,
    0.019587363466841975,
    -0.01631890537384137,
    0.03197840405237081,
)
# (atan(t) - t) / t**3 in t**2, |t| <= tan(pi/8).
_ATAN_32 = (
    -0.33333316445350647,
    0.19998523592948914,
    -0.1424424797296524,
    0.10597777366638184,
    -0.06085840240120888,
)
_ATAN_64 = (
    -0.3333333333333319,
    0.19999999999952173,
    -0.14285714280052533,
    0.11111110776204902,
    -0.09090897547768317,
    0.07692056457484513,
    -0.06663061078405373,
    0.058475746960006146,
    -0.05037878235691001,
    0.03802809258054978,
    -0.017867027694354304,
)


def _asin_parts(b: Builder, x: Float) -> tuple[Bool, Float, Float]:
    """Whether |x| > 1/2; y, which is |x| or in that case sqrt((1 - |x|)/2); asin(y) - y."""
    magnitude = abs(x)
    outer = magnitude > 0.5
    z = where(outer, (1.0 - magnitude) * 0.5, magnitude * magnitude)
    y = where(outer, z.sqrt(), magnitude)
    return outer, y, y * z * b.poly(z, b.pick(_ASIN_32, _ASIN_64))


def asin(b: Builder, x: Float) -> Float:
    outer, y, tail = _asin_parts(b, x)
    hi, lo = _PI_2_HI[b.layout.width], _PI_2_LO[b.layout.width]
    # asin(x) = pi/2 - 2*asin(sqrt((1 - x)/2)); pi/4 is added last, so that the larger part of the
    # difference is exact.
    far = ((hi * 0.5 - (y + y)) - (tail + tail - lo)) + hi * 0.5
    return where(outer, far, y + tail).copysign(x)


def acos(b: Builder, x: Float) -> Float:
    outer, y, tail = _asin_parts(b, x)
    hi, lo = _PI_2_HI[b.layout.width], _PI_2_LO[b.layout.width]
    negative = x < 0.0
    # |x| > 1/2: 2*asin(y), from pi for negative x; else pi/2 - asin(x).
    twice = (y + y) + (tail + tail)
    far = where(negative, (2.0 * hi - (y + y)) - (tail + tail - 2.0 * lo), twice)
    signed_y, signed_rest = where(negative, -y, y), where(negative, -tail, tail)
    return where(outer, far, hi - (signed_y + (signed_rest - lo)))


def _atan_of_ratio(b: Builder, numerator: Float, denominator: Float, base: Float) -> Float:
    """base + atan(numerator / denominator) for a quotient up to tan(pi/8).

    `base` is a multiple of pi/2, as a `Float` that holds 0, 1/2 or 1.
    """
    t = numerator / denominator
    z = t * t
    width = b.layout.width
    tail = b.mad(base, _PI_2_LO[width], t * z * b.poly(z, b.pick(_ATAN_32, _ATAN_64)))
    return base * _PI_2_HI[width] + (t + tail)


def atan(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    middle = magnitude > _TAN_PI_8
    outer = magnitude > 1.0 / _TAN_PI_8
    numerator = where(outer, -1.0, where(middle, magnitude - 1.0, magnitude))
    denominator = where(outer, magnitude, where(middle, magnitude + 1.0, 1.0))
    base = where(outer, 1.0, where(middle, b.const(0.5), 0.0))
    return _atan_of_ratio(b, numerator, denominator, base).copysign(x)


@through_double
def atan2(b: Builder, y: Float, x: Float) -> Float:
    rise, run = abs(y), abs(x)
    steep = rise > run
    small, large = where(steep, run, rise), where(steep, rise, run)
    # 0/0 counts as 0/1 and inf/inf as 1/1.
    both_infinite = small.equals(_INF)
    small, large = where(both_infinite, 1.0, small), where(both_infinite, 1.0, large)
    large = where(large.equals(0.0), 1.0, large)
    factor = where(large > 2.0**1000, 2.0**-100, where(large < 2.0**-900, b.const(2.0**100), 1.0))
    small, large = small * factor, large * factor
    middle = small > large * _TAN_PI_8
    numerator = where(middle, small - large, small)
    denominator = where(middle, small + large, large)
    angle = _atan_of_ratio(b, numerator, denominator, where(middle, b.const(0.5), 0.0))
    hi, lo = _PI_2_HI[64], _PI_2_LO[64]
    angle = where(steep, hi - (angle - lo), angle)
    angle = where(x.sign_bit(), 2.0 * hi - (angle - 2.0 * lo), angle)
    return where(x.unordered(y), x + y, angle.copysign(y))
