"""powf, fpowi, rsqrt, cbrt.

In: `Float`s. Out: a `Float`, with C99's rules for zeros, infinities, NaN and negative bases. Called
through the table in `mathlib`. f64 computes the logarithm in double-double, because its error is
multiplied by the exponent; f32 uses plain f64.
"""

from __future__ import annotations

from nova.ir.bindings import ir
from nova.ir.mathlib.builder import Builder, Float, where
from nova.ir.mathlib.double_double import fast_two_sum, two_product
from nova.ir.mathlib.exponential import LN2_HI, LN2_LO, exp_with_tail
from nova.ir.mathlib.logarithm import log_deficit, split_exponent

_INF, _NAN = float("inf"), float("nan")
_TWO_THIRDS_HI, _TWO_THIRDS_LO = 0.6666666666666666, 3.700743415417188e-17
# (log((1+s)/(1-s)) - 2*s - 2/3*s**3) / s**5 in s**2.
_ATANH_TAIL = (
    0.4,
    0.2857142857142689,
    0.2222222222271644,
    0.18181818106040973,
    0.1538462218294032,
    0.13332960080547912,
    0.11777261357102013,
    0.10279080806774034,
    0.12027984103061994,
)


def _log_double_double(b: Builder, x: Float) -> tuple[Float, Float]:
    """log(x) of a positive finite f64 as hi + lo, with a relative error of about 2**-64."""
    e, m, _ = split_exponent(b, x)
    f = m - 1.0
    # s = f / (m + 1) with its remainder.
    d_hi = m + 1.0
    d_lo = m - (d_hi - 1.0)
    s_hi = f / d_hi
    p, p_error = two_product(s_hi, d_hi)
    s_lo = (((f - p) - p_error) - s_hi * d_lo) / d_hi
    z_hi, z_lo = two_product(s_hi, s_hi)
    z_lo = z_lo + (s_hi + s_hi) * s_lo
    # c = 2/3 + z * tail, u = z * c, w = s * u, each as a double-double.
    c_hi, c_lo = fast_two_sum(b.const(_TWO_THIRDS_HI), z_hi * b.poly(z_hi, _ATANH_TAIL))
    c_lo = c_lo + _TWO_THIRDS_LO
    u_hi, u_lo = two_product(z_hi, c_hi)
    u_lo = u_lo + (z_hi * c_lo + z_lo * c_hi)
    w_hi, w_lo = two_product(s_hi, u_hi)
    w_lo = w_lo + (s_hi * u_lo + s_lo * u_hi)
    hi, lo = fast_two_sum(s_hi + s_hi, w_hi)
    lo = lo + (s_lo + s_lo + w_lo)
    # |e*ln2| exceeds |log(m)| unless it is zero.
    hi, carry = fast_two_sum(e * LN2_HI[64], hi)
    return fast_two_sum(hi, carry + (lo + e * LN2_LO[64]))


def _log_plain(b: Builder, x: Float) -> Float:
    e, m, _ = split_exponent(b, x)
    f = m - 1.0
    return b.mad(e, LN2_HI[64], b.mad(e, LN2_LO[64], f - log_deficit(b, f)))


def _power(b: Builder, x: Float, y: Float, *, double_double: bool) -> Float:
    """x**y in f64; without `double_double` accurate enough for rounding to f32."""
    base, exponent = abs(x), abs(y)
    # Beyond 2**64 every base but 1 overflows or underflows, and the terms below stay finite.
    bounded = exponent.at_most(2.0**64).copysign(y)
    if double_double:
        log_hi, log_lo = _log_double_double(b, base)
        hi, lo = two_product(log_hi, bounded)
        lo = lo + log_lo * bounded
        lo = where(abs(hi) < 750.0, lo, 0.0)
    else:
        hi, lo = _log_plain(b, base) * bounded, None
    result = exp_with_tail(b, hi.at_most(710.0).at_least(-746.0), lo)

    negative_exponent = y < 0.0
    at_zero = where(negative_exponent, _INF, b.const(0.0))
    at_infinity = where(negative_exponent, b.const(0.0), _INF)
    result = where(base.equals(0.0), at_zero, result)
    result = where(base.equals(_INF), at_infinity, result)

    unit = 2.0**52
    is_integer = ((exponent + unit) - unit).equals(exponent) | (exponent >= unit)
    half = exponent * 0.5
    odd = is_integer & (half < unit) & ((half + unit) - unit).differs(half)
    result = where(odd, result.copysign(x), result)
    # A negative base (not -0, not -inf) needs an integer exponent.
    no_power = (x < 0.0) & (base < _INF) & (exponent < unit)
    result = where(no_power, where(is_integer, result, _NAN), result)
    result = where(x.unordered(y), _NAN, result)
    return where(x.equals(1.0) | y.equals(0.0), 1.0, result)


def powf(b: Builder, x: Float, y: Float) -> Float:
    if b.wide:
        return _power(b, x, y, double_double=True)
    return _power(b.double, x.to_double(), y.to_double(), double_double=False).to_single(b)


def fpowi(b: Builder, x: Float, exponent: ir.Value) -> Float:
    """A float to an integer power; the exponent is exact up to 2**53."""
    double = b if b.wide else b.double
    y = double.value(
        ir.Operation.create("arith.sitofp", double.float_results, [exponent]).results[0]
    )
    if b.wide:
        return _power(b, x, y, double_double=True)
    return _power(double, x.to_double(), y, double_double=False).to_single(b)


def rsqrt(b: Builder, x: Float) -> Float:
    return 1.0 / x.sqrt()


def cbrt(b: Builder, x: Float) -> Float:
    layout = b.layout
    steps, shift, keep = b.pick((24, 8, 12), (54, 32, 26))
    magnitude = abs(x)
    subnormal = magnitude < layout.min_normal
    a = where(subnormal, magnitude * 2.0**steps, magnitude)
    # A third of the bits, as an integer, is the cube root to 4 bits; the offset restores the
    # missing third of the bias, adjusted to balance the error on both sides.
    unit = 2.0**layout.mantissa
    third = (((a.bits() >> shift) | b.const(unit).bits()).float() - unit) * (1.0 / 3.0)
    offset = int((layout.bias * 2.0 / 3.0 - 0.0331) * 2.0 ** (layout.mantissa - shift))
    t = ((b.round_to_int(third)[1] + offset) << shift).float()
    inverse = 1.0 / a
    for _ in range(b.pick(1, 2)):
        # Series of r**(-1/3) at r = t**3 / a = 1: each iteration quadruples the number of correct
        # bits.
        d = 1.0 - (t * t) * (t * inverse)
        t = t * b.poly(d, (1.0, 1.0 / 3.0, 2.0 / 9.0, 14.0 / 81.0))
    # With t cut to half of the bits, t*t is exact, and a final step adds a correction far below t.
    t = (t.bits() & (-1 << (layout.mantissa + 1 - keep))).float()
    q = a / (t * t)
    t = t + t * ((q - t) / (t + t + q))
    root = where(subnormal, t * 2.0 ** -(steps // 3), t).copysign(x)
    return where(magnitude.equals(0.0) | (magnitude >= _INF) | x.unordered(x), x, root)
