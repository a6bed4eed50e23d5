"""exp, exp2, expm1: Cody-Waite reduction x = n*ln2 + r, a polynomial in r, and the scale 2**n.

In: a `Float` x. Out: a `Float`. Called through the table in `mathlib`, and by the hyperbolic, error
and power functions. The scale is applied as two factors, so overflow and subnormal results are
rounded once, or by an instruction that does the same.
"""

from __future__ import annotations

from typing import NamedTuple

from nova.ir.mathlib.builder import Builder, Float, Int

INV_LN2 = 1.4426950408889634
# The low part that an f32 of it loses.
_INV_LN2_LO = 1.9259629911266175e-08
# ln 2 in two parts (Cody-Waite); the first is short enough that n times it is exact.
LN2_HI = {32: float.fromhex("0x1.62e4p-1"), 64: float.fromhex("0x1.62e42fefa3p-1")}
LN2_LO = {32: 1.428606765330187e-06, 64: float.fromhex("0x1.3de6af278ece6p-42")}

# (e**r - 1 - r) / r**2 on |r| <= ln(2)/2.
_EXP_32 = (
    0.4999999701976776,
    0.1666654497385025,
    0.04166743531823158,
    0.00836645346134901,
    0.001387089490890503,
)
_EXP_64 = (
    0.5,
    0.16666666666666677,
    0.041666666666666505,
    0.00833333333332142,
    0.0013888888888964215,
    0.00019841269886749263,
    2.480158716997343e-05,
    2.755724350136972e-06,
    2.755740390986301e-07,
    2.5109309704060283e-08,
    2.087522279019006e-09,
)
# (2**r - 1) / r on |r| <= 1/2.
_EXP2_32 = (
    0.6931471824645996,
    0.24022647738456726,
    0.055503591895103455,
    0.009618505835533142,
    0.001339124166406691,
    0.00015327103028539568,
)
_EXP2_64 = (
    0.6931471805599453,
    0.24022650695910072,
    0.055504108664821694,
    0.009618129107628324,
    0.0013333558146391541,
    0.00015403530393649022,
    1.5252733855527914e-05,
    1.321548659029433e-06,
    1.0178051396450028e-07,
    7.054975442215865e-09,
    4.456658621804334e-10,
    2.5625065630951523e-11,
)


class Whole(NamedTuple):
    """An integer, as a float and as an int."""

    number: Float
    integer: Int


def reduce_ln2(b: Builder, x: Float) -> tuple[Whole, Float]:
    """n and r with x = n*ln2 + r and |r| slightly above ln(2)/2 at most; x must not be huge."""
    width = b.layout.width
    n = Whole(*b.round_to_int(x * INV_LN2))
    r = b.mad(n.number, -LN2_HI[width], x)
    return n, b.mad(n.number, -LN2_LO[width], r)


def expm1_of_reduced(b: Builder, r: Float) -> Float:
    """e**r - 1 for a reduced r."""
    return b.mad(r * r, b.poly(r, b.pick(_EXP_32, _EXP_64)), r)


def scale_factors(b: Builder, n: Int) -> tuple[Int, Int]:
    """Two biased exponents whose powers of two multiply to 2**n, for |n| < 2 * bias."""
    total = n + 2 * b.layout.bias
    first = total >> 1
    return first, total - first


def scale(b: Builder, p: Float, n: Whole) -> Float:
    """p * 2**n, rounded once, for p near 1."""
    if b.has_scale:
        return b.scale(p, n.number)
    first, second = scale_factors(b, n.integer)
    return p * b.pow2(first) * b.pow2(second)


def exp(b: Builder, x: Float) -> Float:
    x = x.at_most(b.pick(89.0, 710.0)).at_least(b.pick(-104.0, -746.0))
    n, r = reduce_ln2(b, x)
    return scale(b, expm1_of_reduced(b, r) + 1.0, n)


def exp_by_instruction(b: Builder, x: Float) -> Float:
    """exp of an f32 if 2**r is an instruction; f64 uses the generic code.

    After removing a whole power of two the rest of x is small, so its error is that of the
    instruction. The power is clamped to the exponent range of f32: beyond it r is large, and the
    instruction gives zero, infinity, or a value that becomes subnormal when it is scaled.
    """
    if b.wide:
        return exp(b, x)
    power, scale = _whole_power(b, x * INV_LN2)
    r = b.fused(x, INV_LN2, -power)
    return b.fused(x, _INV_LN2_LO, r).exp2() * scale


def exp2_by_instruction(b: Builder, x: Float) -> Float:
    """exp2 by the same method."""
    if b.wide:
        return exp2(b, x)
    power, scale = _whole_power(b, x)
    return (x - power).exp2() * scale


def _whole_power(b: Builder, x: Float) -> tuple[Float, Float]:
    """The integer n nearest to x, clamped to the exponent range of f32; and 2**n."""
    # The low bits of the sum are n plus the exponent bias.
    magic = b.const(1.5 * 2.0**b.layout.mantissa + b.layout.bias)
    shifted = x.bounded(1.0 - b.layout.bias, b.layout.bias - 1.0) + magic
    return shifted - magic, b.pow2(shifted.bits())


def exp_with_tail(
    b: Builder, hi: Float, lo: Float | None = None, factor: Float | None = None
) -> Float:
    """factor * e**(hi + lo), with at most one more rounding, if the result is subnormal.

    hi is at most 710 and at least -1400 in f64; lo is a small correction.
    """
    n, r = reduce_ln2(b, hi)
    p = expm1_of_reduced(b, r if lo is None else r + lo) + 1.0
    return scale(b, p if factor is None else p * factor, n)


def exp2(b: Builder, x: Float) -> Float:
    x = x.at_most(b.pick(128.0, 1024.0)).at_least(b.pick(-151.0, -1076.0))
    n = Whole(*b.round_to_int(x))
    r = x - n.number
    return scale(b, b.mad(r, b.poly(r, b.pick(_EXP2_32, _EXP2_64)), 1.0), n)


def logistic(b: Builder, x: Float) -> Float:
    """1 / (1 + e**x), without rounding e**x first."""
    bound = b.pick(104.0, 746.0)
    n, r = reduce_ln2(b, x.at_most(bound).at_least(-bound))
    p = expm1_of_reduced(b, r)
    first, second = scale_factors(b, n.integer)
    # Numerator and denominator are scaled by 2**-second: nothing overflows. The rounding error of 1
    # + 2**n is added to p, so only one rounding of the denominator counts.
    s, scaled_one = b.pow2(first), b.pow2(2 * b.layout.bias - second)
    total = s + scaled_one
    return scaled_one / (b.mad(p, s, scaled_one - (total - s)) + total)


def expm1(b: Builder, x: Float) -> Float:
    n, r = reduce_ln2(b, x.at_least(-50.0).at_most(b.pick(90.0, 711.0)))
    p = expm1_of_reduced(b, r)
    first, second = scale_factors(b, n.integer)
    s = b.pow2(first)
    # 2**n * (p + 1) - 1 with the second factor taken out, so it does not overflow early.
    inverse = b.pow2(2 * b.layout.bias - second)
    return (b.mad(p, s, s - inverse) * b.pow2(second)).copysign(x)
