"""Error-free sums and products: a number as the unevaluated sum of two floats.

In: `Float`s. Out: pairs (value, error). Called by the power function and by the trigonometric
reduction. None of these ops may be contracted or reordered, and the builder's plain operators are
not. The product is Dekker's, because a fused multiply-add would be a call on targets without one.
"""

from __future__ import annotations

from nova.ir.mathlib.builder import Float


def two_sum(x: Float, y: Float) -> tuple[Float, Float]:
    """x + y exactly, whichever is larger."""
    total = x + y
    shadow = total - x
    return total, (x - (total - shadow)) + (y - shadow)


def fast_two_sum(large: Float, small: Float) -> tuple[Float, Float]:
    """large + small exactly, where |large| >= |small| or large is zero."""
    total = large + small
    return total, small - (total - large)


def split(x: Float) -> tuple[Float, Float]:
    """x as a sum of two f64 halves of at most 26 bits each; |x| < 2**990."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high


def two_product(x: Float, y: Float) -> tuple[Float, Float]:
    """x * y exactly for f64, barring over- and underflow."""
    product = x * y
    x_hi, x_lo = split(x)
    y_hi, y_lo = split(y)
    error = ((x_hi * y_hi - product) + x_hi * y_lo + x_lo * y_hi) + x_lo * y_lo
    return product, error
