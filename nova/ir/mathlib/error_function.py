"""erf and erfc.

In: a `Float` x. Out: a `Float`. Called through the table in `mathlib`. f32 erf is computed in f32:
a polynomial in the middle and 1 - exp(polynomial) outside. f64 erf and erfc use erfc(x) =
exp(-x**2) * erfcx(x), with erfcx as a polynomial in (x - 4)/(x + 4); f32 erfc uses it, too.
"""

from __future__ import annotations

from nova.ir.mathlib.builder import Builder, Float, where
from nova.ir.mathlib.double_double import split
from nova.ir.mathlib.exponential import exp_with_tail, expm1_of_reduced, reduce_ln2
from nova.ir.mathlib.hyperbolic import through_double

# erf(x)/x - 1 in x**2, to |x| = 0.927 (f32) and 1 (f64).
_ERF_32 = (
    0.12837916612625122,
    -0.3761262893676758,
    0.11283625662326813,
    -0.026855729520320892,
    0.005192392971366644,
    -0.0008049533353187144,
    7.995212217792869e-05,
)
_ERF_64 = (
    0.12837916709551256,
    -0.37612638903183343,
    0.11283791670936952,
    -0.026866170641952562,
    0.0052239775965948546,
    -0.0008548325473192063,
    0.0001205527997637419,
    -1.492445224048342e-05,
    1.6443941735136664e-06,
    -1.6182052351004004e-07,
    1.3606834001948681e-08,
    -7.58664115806674e-10,
)
# log(erfc(x)) on [0.92, 3.95], weighted for use in 1 - exp(.).
_LOG_ERFC_32 = (
    -0.00019566122500691563,
    -1.1276756525039673,
    -0.6371822357177734,
    -0.10393160581588745,
    0.022226938977837563,
    -0.0030432294588536024,
    0.00019593954493757337,
)
# erfc(x) * exp(x**2) * (1 + 2*x) in t = (x - 4)/(x + 4), x in [0.45, 28].
_ERFCX_64 = (
    1.2329951186255526,
    -0.13962111684056153,
    0.015379652102603154,
    0.06809705425457357,
    -0.10103906603531339,
    0.09373283500262833,
    -0.06633036583508209,
    0.0371675154661924,
    -0.016197733790393343,
    0.005031970638606141,
    -0.000757775087438592,
    -0.00019926041510972701,
    0.00015062907867201354,
    -2.438593446929267e-05,
    -1.124107925481645e-05,
    5.679410857997126e-06,
    3.240607232322944e-07,
    -7.821904220400151e-07,
    4.670695604602193e-08,
    7.43301566025038e-08,
    -5.0681852090843835e-09,
)


def _erf_near_zero(b: Builder, x: Float) -> Float:
    z = x * x
    return b.mad(x, b.poly(z, b.pick(_ERF_32, _ERF_64)), x)


def _erfc_tail(b: Builder, magnitude: Float) -> Float:
    """erfc of an f64 magnitude >= 0.45."""
    x = magnitude.at_most(28.0)
    t = (x - 4.0) / (x + 4.0)
    factor = b.poly(t, _ERFCX_64) / b.mad(x, 2.0, 1.0)
    # exp(-x**2) needs x**2 with more than 53 bits: high*high is exact.
    high, _ = split(x)
    return exp_with_tail(b, -(high * high), (high - x) * (high + x), factor)


def erf(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    if b.wide:
        near, far = magnitude < 0.75, 1.0 - _erfc_tail(b, magnitude)
    else:
        near = magnitude < 0.921875
        n, r = reduce_ln2(b, b.poly(magnitude.at_most(3.9375), _LOG_ERFC_32))
        far = 1.0 - (expm1_of_reduced(b, r) + 1.0) * b.pow2(n.integer + b.layout.bias)
    return where(near, _erf_near_zero(b, x), far.copysign(x))


@through_double
def erfc(b: Builder, x: Float) -> Float:
    magnitude = abs(x)
    tail = _erfc_tail(b, magnitude)
    far = where(x < 0.0, 2.0 - tail, tail)
    return where(magnitude < 0.5, 1.0 - _erf_near_zero(b, x), far)
