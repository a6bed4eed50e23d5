"""Error-free sums and multiplications: double-double numbers, the unevaluated sum of two floats.

In: `Float`s. Out: pairs (value, error). Called by the power function and by the trigonometric
reduction. None of these ops may be contracted or reordered, and the builder's plain operators are
not. The multiplication is Dekker's, because FMA would be a library call on targets without the
instruction.
"""

from __future__ import annotations

from nova.ir.mathlib.builder import Float


def two_sum(x: Float, y: Float) -> tuple[Float, Float]:
    """x + y exactly, for any order of magnitudes (Knuth's TwoSum)."""
    total = x + y
    shadow = total - x
    return total, (x - (total - shadow)) + (y - shadow)


def fast_two_sum(large: Float, small: Float) -> tuple[Float, Float]:
    """large + small exactly, if |large| >= |small| or large is zero (Dekker's Fast2Sum)."""
    total = large + small
    return total, small - (total - large)


def split(x: Float) -> tuple[Float, Float]:
    """x as a sum of two f64 halves of at most 26 bits each (Veltkamp); |x| < 2**990."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high


def two_product(x: Float, y: Float) -> tuple[Float, Float]:
    """x * y exactly for f64, barring overflow and underflow (Dekker)."""
    product = x * y
    x_hi, x_lo = split(x)
    y_hi, y_lo = split(y)
    error = ((x_hi * y_hi - product) + x_hi * y_lo + x_lo * y_hi) + x_lo * y_lo
    return product, error
