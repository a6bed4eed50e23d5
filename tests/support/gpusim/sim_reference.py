"""What instructions should give, from integers and fractions of Python: nothing is rounded twice.

Numbers come in and go out as raw bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

NEAREST, ZERO, DOWN, UP, AWAY = "rn", "rz", "rm", "rp", "rna"


@dataclass(frozen=True)
class Format:
    bits: int
    fraction: int
    bias: int
    nan: int
    shift: int = 0

    @property
    def infinity(self) -> int:
        return (2 * self.bias + 1) << self.fraction

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


FORMATS = {
    "f16": Format(16, 10, 15, 0x7FFF),
    "bf16": Format(16, 7, 127, 0x7FFF),
    "f32": Format(32, 23, 127, 0x7FFFFFFF),
    "f64": Format(64, 52, 1023, 0x7FF8000000000000),
    "tf32": Format(32, 10, 127, 0x7FFFFFFF, 13),
}


def is_nan(bits: int, f: Format) -> bool:
    return bits & (f.sign - 1) > f.infinity << f.shift


def is_infinite(bits: int, f: Format) -> bool:
    return bits & (f.sign - 1) == f.infinity << f.shift


def value_of(bits: int, f: Format) -> Fraction:
    """The value of a finite number."""
    size = bits & (f.sign - 1)
    exponent, fraction = size >> f.fraction, size & ((1 << f.fraction) - 1)
    if exponent:
        fraction |= 1 << f.fraction
    value = Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - f.bias - f.fraction)
    return -value if bits & f.sign else value


def round_value(value: Fraction, f: Format, mode: str = NEAREST, negative: bool = False) -> int:
    """The bits of a value; `negative` is the sign of a zero."""
    negative = value < 0 if value else negative
    value = abs(value)
    sign = f.sign if negative else 0
    if not value:
        return sign
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, 1 - f.bias) - f.fraction)
    full, remaining = divmod(value / unit, 1)
    half = Fraction(1, 2)
    up = {
        NEAREST: remaining > half or (remaining == half and full % 2 == 1),
        AWAY: remaining >= half,
        ZERO: False,
        DOWN: negative and remaining > 0,
        UP: not negative and remaining > 0,
    }[mode]
    rounded = (int(full) + up) * unit
    if rounded >= Fraction(2) ** (f.bias + 1):
        stays = mode == ZERO or (mode == DOWN and not negative) or (mode == UP and negative)
        return sign | (f.infinity - stays) << f.shift
    exponent = rounded.numerator.bit_length() - rounded.denominator.bit_length()
    if rounded and Fraction(2) ** exponent > rounded:
        exponent -= 1
    if exponent < 1 - f.bias or not rounded:
        return sign | int(rounded / unit) << f.shift
    fraction = rounded / Fraction(2) ** (exponent - f.fraction) - (1 << f.fraction)
    return sign | ((exponent + f.bias) << f.fraction | int(fraction)) << f.shift


# --- arithmetic ---------------------------------------------------------------------------------


def add(a: int, b: int, f: Format, mode: str = NEAREST) -> int:
    return fma(a, round_value(Fraction(1), f), b, f, mode)


def sub(a: int, b: int, f: Format, mode: str = NEAREST) -> int:
    return add(a, b ^ f.sign, f, mode)


def mul(a: int, b: int, f: Format, mode: str = NEAREST) -> int:
    zero = 0 if (a ^ b) & f.sign == 0 else f.sign  # -0 would be lost by adding +0
    return fma(a, b, zero, f, mode)


def fma(a: int, b: int, c: int, f: Format, mode: str = NEAREST) -> int:
    if any(is_nan(x, f) for x in (a, b, c)):
        return f.nan
    sign = (a ^ b) & f.sign
    if is_infinite(a, f) or is_infinite(b, f):
        finite = a if is_infinite(b, f) else b
        if finite & (f.sign - 1) == 0 or (is_infinite(c, f) and (c ^ sign) & f.sign):
            return f.nan
        return sign | f.infinity
    if is_infinite(c, f):
        return c
    product, term = value_of(a, f) * value_of(b, f), value_of(c, f)
    if product + term == 0:
        identical = sign == c & f.sign and product == 0
        negative = bool(sign) if identical else mode == DOWN
        return f.sign if negative else 0
    return round_value(product + term, f, mode)


def div(a: int, b: int, f: Format, mode: str = NEAREST) -> int:
    if is_nan(a, f) or is_nan(b, f):
        return f.nan
    sign = (a ^ b) & f.sign
    a_zero, b_zero = (x & (f.sign - 1) == 0 for x in (a, b))
    if (is_infinite(a, f) and is_infinite(b, f)) or (a_zero and b_zero):
        return f.nan
    if is_infinite(a, f) or b_zero:
        return sign | f.infinity
    if is_infinite(b, f) or a_zero:
        return sign
    return round_value(value_of(a, f) / value_of(b, f), f, mode)


def sqrt(a: int, f: Format, mode: str = NEAREST) -> int:
    if is_nan(a, f) or (a & f.sign and a != f.sign):
        return f.nan
    if a & (f.sign - 1) == 0 or is_infinite(a, f):
        return a
    # The root of an integer, with many bits to spare and a last one that says whether it is exact.
    value, shift = value_of(a, f), 1400
    scaled = int(value * (1 << 2 * shift))
    root = isqrt(scaled)
    exact = root * root == scaled
    return round_value(Fraction(2 * root + (not exact), 1 << (shift + 1)), f, mode)


def least(a: int, b: int, f: Format, *, most: bool = False, nan: bool = False) -> int:
    if is_nan(a, f) or is_nan(b, f):
        if nan or (is_nan(a, f) and is_nan(b, f)):
            return f.nan
        return b if is_nan(a, f) else a
    order = lambda x: -(x & (f.sign - 1)) - 1 if x & f.sign else x  # noqa: E731
    return max(a, b, key=order) if most else min(a, b, key=order)


def flush(a: int, f: Format) -> int:
    return a if a & f.infinity else a & f.sign


def saturate(a: int, f: Format) -> int:
    single = round_value(Fraction(1), f)
    if is_nan(a, f) or a & f.sign:
        return 0
    return min(a, single)


def relu(a: int, f: Format) -> int:
    return f.nan if is_nan(a, f) else 0 if a & f.sign else a


# --- conversions --------------------------------------------------------------------------------


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def to_integral(value: Fraction, mode: str) -> int:
    full, remaining = divmod(abs(value), 1)
    negative = value < 0
    up = {
        NEAREST: remaining > Fraction(1, 2) or (remaining == Fraction(1, 2) and full % 2 == 1),
        ZERO: False,
        DOWN: negative and remaining > 0,
        UP: not negative and remaining > 0,
    }[mode]
    return -(int(full) + up) if negative else int(full) + up


def integer_bounds(type_: str) -> tuple[int, int]:
    bits = int(type_[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)


def convert(bits: int, to: str, source: str, mode: str = "", sat: bool = False) -> int:
    """cvt; raw bits of the source's type to raw bits of the other, integers wrapped to 64 bits."""
    rounding, integral = mode.removesuffix("i") or NEAREST, mode.endswith("i")
    if source in FORMATS:
        f = FORMATS[source]
        if to in FORMATS:
            return _float_to_float(bits, to, source, rounding, integral, sat)
        low, high = integer_bounds(to)
        if is_nan(bits, f):
            wide = to.endswith("64") or source == "f64"
            top = 1 << int(to[1:]) - 1 if wide else 0
            return (signed(top, int(to[1:])) if to[0] == "s" else top) % (1 << 64)
        if is_infinite(bits, f):
            return (low if bits & f.sign else high) % (1 << 64)
        return min(max(to_integral(value_of(bits, f), rounding), low), high) % (1 << 64)
    width = int(source[1:])
    value = signed(bits, width) if source[0] == "s" else bits
    if to in FORMATS:
        return round_value(Fraction(value), FORMATS[to], rounding)
    low, high = integer_bounds(to)
    if sat:
        value = min(max(value, low), high)
    value %= 1 << int(to[1:])
    return (signed(value, int(to[1:])) if to[0] == "s" else value) % (1 << 64)


def _converted_nan(bits: int, to: str, source: str, rounding: str) -> int:
    """What an H200 makes of a NaN; PTX does not say."""
    f, g = FORMATS[source], FORMATS[to]
    if (source, to) == ("f32", "f32"):
        return bits
    if (source, to) == ("bf16", "f32"):
        return bits << 16
    if source == "f64" and to != "f64":
        quiet = {"f32": 0x7FC00000, "f16": 0x7E00, "bf16": 0x7FC0, "tf32": 0x7FC00000}[to]
        return quiet | (g.sign if bits & f.sign else 0)
    if to == "tf32":
        return bits & ~0x1FFF if rounding == "rna" else 0x7FFFE000
    return g.nan


def _float_to_float(
    bits: int, to: str, source: str, rounding: str, integral: bool, sat: bool
) -> int:
    f, g = FORMATS[source], FORMATS[to]
    negative = bool(bits & f.sign)
    if is_nan(bits, f):
        out = g.nan if integral else _converted_nan(bits, to, source, rounding)
    elif is_infinite(bits, f):
        out = (g.sign if negative else 0) | g.infinity << g.shift
    else:
        value = value_of(bits, f)
        if integral:
            value, rounding = Fraction(to_integral(value, rounding)), NEAREST
        out = round_value(value, g, rounding, negative)
    return saturate(out, g) if sat else out


Reference = Callable[..., int]
