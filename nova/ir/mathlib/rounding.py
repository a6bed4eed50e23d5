"""floor, ceil, trunc, round, roundeven for targets without a rounding instruction.

In: a `Float` x. Out: a `Float` with the sign of x. Called through the table in `mathlib` when
`native-rounding=false`; `nearest` serves the library itself either way.
"""

from __future__ import annotations

from nova.ir.mathlib.builder import Builder, Float, where


def nearest(b: Builder, x: Float) -> Float:
    """The nearest integer, ties to even, by the fastest method of the target."""
    return x.round_even() if b.native_rounding else roundeven(b, x)


def _nearest_magnitude(b: Builder, magnitude: Float) -> Float:
    """Ties to even, for a magnitude below 2**mantissa, where the last bit has weight one."""
    unit = 2.0**b.layout.mantissa
    return (magnitude + unit) - unit


def _keep_large(b: Builder, x: Float, magnitude: Float, rounded: Float) -> Float:
    """`rounded` with the sign of x; x itself if it has no fraction (or is inf or NaN)."""
    small = magnitude < 2.0**b.layout.mantissa
    return where(small, rounded.copysign(x), x)


def _truncate_magnitude(b: Builder, magnitude: Float) -> Float:
    r = _nearest_magnitude(b, magnitude)
    return where(r > magnitude, r - 1.0, r)


def roundeven(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    return _keep_large(b, x, magnitude, _nearest_magnitude(b, magnitude))


def trunc(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    return _keep_large(b, x, magnitude, _truncate_magnitude(b, magnitude))


def round_half_away(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    t = _truncate_magnitude(b, magnitude)
    return _keep_large(b, x, magnitude, where(magnitude - t >= 0.5, t + 1.0, t))


def floor(b: Builder, x: Float) -> Float:
    r = roundeven(b, x)
    return where(r > x, r - 1.0, r)


def ceil(b: Builder, x: Float) -> Float:
    r = roundeven(b, x)
    # The copy keeps the sign of a zero: ceil(-0.5) is -0.
    return where(r < x, r + 1.0, r).copysign(x)
