"""sinh, cosh, tanh and their inverses, from exp, a polynomial near zero, and log1p.

In: a `Float` x. Out: a `Float`. Called through the table in `mathlib`. tanh is computed in its own
type; the f32 inverse functions use f64, where the sum in the logarithm has bits to spare.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from nova.ir.mathlib.builder import Builder, Float, where
from nova.ir.mathlib.exponential import Whole, expm1_of_reduced, reduce_ln2, scale
from nova.ir.mathlib.logarithm import log1p_of_finite

_INF, _NAN = float("inf"), float("nan")

# (sinh(x) - x) / x**3 in x**2 <= 1.
_SINH_32 = (
    0.1666666716337204,
    0.00833331048488617,
    0.00019842891197185963,
    2.782267074508127e-06,
)
_SINH_64 = (
    0.16666666666666669,
    0.008333333333333146,
    0.0001984126984143269,
    2.755731915680174e-06,
    2.5052123181365412e-08,
    1.6057256169499518e-10,
    7.758861486541412e-13,
)
# (tanh(x) - x) / x**3 in x**2, |x| <= 0.625.
_TANH_32 = (
    -0.3333328068256378,
    0.1333141028881073,
    -0.05373714864253998,
    0.02063087746500969,
    -0.00569590087980032,
)
_TANH_64 = (
    -0.33333333333332854,
    0.1333333333326197,
    -0.05396825393121055,
    0.021869487574776355,
    -0.008863220985273963,
    0.003591989033140163,
    -0.0014549581522810382,
    0.0005863141521221889,
    -0.00022855935869231574,
    7.713882165345508e-05,
    -1.606984459571602e-05,
)


def through_double(function: Callable[..., Float]) -> Callable[..., Float]:
    """Evaluate an f32 function with the f64 code, and round once at the end."""

    @wraps(function)
    def evaluate(b: Builder, *operands: Float) -> Float:
        if b.wide:
            return function(b, *operands)
        return function(b.double, *(x.to_double() for x in operands)).to_single(b)

    return evaluate


def _half_exp(b: Builder, magnitude: Float) -> Float:
    """e**magnitude / 2, which overflows exactly where sinh and cosh do."""
    n, r = reduce_ln2(b, magnitude.at_most(b.pick(90.0, 711.0)))
    return scale(b, expm1_of_reduced(b, r) + 1.0, Whole(n.number - 1.0, n.integer - 1))


def _odd_near_zero(b: Builder, x: Float, coefficients: tuple[float, ...]) -> Float:
    z = x * x
    return b.mad(x * z, b.poly(z, coefficients), x)


def sinh(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    half = _half_exp(b, magnitude)
    near = _odd_near_zero(b, x, b.pick(_SINH_32, _SINH_64))
    return where(magnitude < 1.0, near, (half - 0.25 / half).copysign(x))


def cosh(b: Builder, x: Float) -> Float:
    half = _half_exp(b, abs(x))
    return half + 0.25 / half


def tanh(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    bounded = magnitude.at_most(b.pick(10.0, 20.0))
    n, r = reduce_ln2(b, bounded + bounded)
    square = (expm1_of_reduced(b, r) + 1.0) * b.pow2(n.integer + b.layout.bias)
    far = 1.0 - 2.0 / (square + 1.0)
    near = _odd_near_zero(b, x, b.pick(_TANH_32, _TANH_64))
    # Near -0 the polynomial cancels to +0, so the sign is applied last.
    return where(magnitude < 0.625, near, far).copysign(x)


@through_double
def asinh(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    large = magnitude > 2.0**28
    # For large x, x*x may overflow: it is not used there.
    root = b.mad(magnitude, magnitude, 1.0).sqrt() + 1.0
    argument = where(large, magnitude, magnitude + magnitude * magnitude / root)
    result = log1p_of_finite(b, argument, doubled=large)
    return where(magnitude < _INF, result, magnitude).copysign(x)


@through_double
def acosh(b: Builder, x: Float) -> Float:
    large = x > 2.0**28
    t = x - 1.0
    argument = where(large, x, t + b.mad(t, t, t + t).sqrt())
    result = log1p_of_finite(b, argument, doubled=large)
    result = where(x < _INF, result, x)
    return where(x < 1.0, _NAN, result)


@through_double
def atanh(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    argument = (magnitude + magnitude) / (1.0 - magnitude)
    result = log1p_of_finite(b, argument) * 0.5
    result = where(magnitude < 1.0, result, where(magnitude.equals(1.0), _INF, _NAN))
    return result.copysign(x)
