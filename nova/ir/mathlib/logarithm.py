"""log, log2, log10, log1p: the exponent by integer arithmetic, the mantissa by a polynomial.

In: a `Float` x. Out: a `Float`; zero gives -inf, negatives NaN. Called through the table in
`mathlib`; the inverse hyperbolic functions use `log_of_sum`.
"""

from __future__ import annotations

from nova.ir.mathlib.builder import Bool, Builder, Float, Int, where
from nova.ir.mathlib.exponential import LN2_HI, LN2_LO

_INF, _NAN = float("inf"), float("nan")

# (log(1+f) - f + f**2/2) / f**3 for 1+f in [sqrt(1/2), sqrt(2)].
_LOG_32 = (
    0.3333333134651184,
    -0.250008225440979,
    0.20001249015331268,
    -0.1662331372499466,
    0.1420130580663681,
    -0.13160236179828644,
    0.1276458501815796,
    -0.07637877762317657,
)
# (log((1+s)/(1-s)) - 2*s) / s**3 in s**2, for s = f / (2 + f).
_ATANH_64 = (
    0.6666666666666735,
    0.39999999999409336,
    0.28571428743700295,
    0.2222219842680557,
    0.18183572493858907,
    0.15313828132547477,
    0.14798303251864844,
)
_LOG2E, _LOG10E = 1.4426950408889634, 0.4342944819032518
_LOG10_2_HI = {32: float.fromhex("0x1.344p-2"), 64: float.fromhex("0x1.34413509f7p-2")}
_LOG10_2_LO = {32: float.fromhex("0x1.3509f8p-18"), 64: float.fromhex("0x1.3fde623e2566bp-43")}
_SQRT_HALF_BITS = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}


def split_exponent(b: Builder, x: Float) -> tuple[Float, Float, Int]:
    """e and m with x = m * 2**e and m in [sqrt(1/2), sqrt(2)), for a positive finite x.

    The third result is e + bias as an integer, before the correction for subnormals.
    """
    layout = b.layout
    steps = layout.mantissa + 1
    subnormal = x < layout.min_normal
    bits = where(subnormal, x * 2.0**steps, x).bits()
    exponent_one = layout.bias << layout.mantissa
    biased = (bits + (exponent_one - _SQRT_HALF_BITS[layout.width])) >> layout.mantissa
    m = (bits - ((biased - layout.bias) << layout.mantissa)).float()
    # Integer to float: the integer is placed in the low bits of 2**mantissa.
    unit = 2.0**layout.mantissa
    counted = (biased | b.const(unit).bits()).float()
    offset = unit + layout.bias
    return counted - where(subnormal, offset + steps, offset), m, biased


def log_deficit(b: Builder, f: Float) -> Float:
    """f - log(1 + f), for 1 + f in [sqrt(1/2), sqrt(2)]."""
    square = f * f
    if b.wide:
        s = f / (f + 2.0)
        z = s * s
        half = square * 0.5
        return half - s * b.mad(z, b.poly(z, _ATANH_64), half)
    return square * b.mad(f, -b.poly(f, _LOG_32), 0.5)


def guard(x: Float, result: Float, zero: float = 0.0) -> Float:
    """`result` if x is positive and finite, else the IEEE result of a logarithm."""
    result = where(x < _INF, result, x)
    return where(x <= zero, where(x < zero, _NAN, -_INF), result)


def log(b: Builder, x: Float) -> Float:
    e, m, _ = split_exponent(b, x)
    f = m - 1.0
    width = b.layout.width
    low = b.mad(e, LN2_LO[width], -log_deficit(b, f))
    return guard(x, b.mad(e, LN2_HI[width], low + f))


def log2(b: Builder, x: Float) -> Float:
    e, m, _ = split_exponent(b, x)
    f = m - 1.0
    # f itself is exact; only the rest of f*log2(e) is rounded.
    low = b.mad(f, _LOG2E - 1.0, -log_deficit(b, f) * _LOG2E)
    return guard(x, (low + f) + e)


def log10(b: Builder, x: Float) -> Float:
    e, m, _ = split_exponent(b, x)
    f = m - 1.0
    width = b.layout.width
    low = b.mad(f, _LOG10E - 0.5, -log_deficit(b, f) * _LOG10E)
    low = b.mad(e, _LOG10_2_LO[width], low)
    return guard(x, b.mad(e, _LOG10_2_HI[width], b.mad(f, 0.5, low)))


def log_of_sum(b: Builder, hi: Float, lo: Float, doubled: Bool | None = None) -> Float:
    """log(hi + lo), plus ln 2 where `doubled`; lo below an ulp of hi, hi normal and positive."""
    e, m, biased = split_exponent(b, hi)
    bias, width = b.layout.bias, b.layout.width
    # The reciprocal power stays normal: where the clamp acts, lo is negligible relative to hi.
    inverse = (2 * bias - biased).at_least(1)
    f = b.mad(lo, b.pow2(inverse), m - 1.0)
    if doubled is not None:
        e = where(doubled, e + 1.0, e)
    low = b.mad(e, LN2_LO[width], -log_deficit(b, f))
    return b.mad(e, LN2_HI[width], low + f)


def log1p_of_finite(b: Builder, x: Float, doubled: Bool | None = None) -> Float:
    """log(1 + x) for finite x > -1; where `doubled`, log(2 * x) instead."""
    total = x + 1.0
    # The error of that sum, for any order of magnitudes.
    error = total - x
    error = (x - (total - error)) + (1.0 - error)
    if doubled is not None:
        total, error = where(doubled, x, total), where(doubled, 0.0, error)
    return log_of_sum(b, total, error, doubled)


def log1p(b: Builder, x: Float) -> Float:
    return guard(x, log1p_of_finite(b, x).copysign(x), zero=-1.0)
