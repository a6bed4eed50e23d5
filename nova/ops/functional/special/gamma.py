"""The logarithm of the gamma function and its derivative, by Stirling's series.

Both compute in f64: the argument is raised by the recurrence to where the series has converged,
and negative arguments are reflected.
"""

from __future__ import annotations

from math import inf, log, nan, pi
from typing import Any

from nova.core.dtypes import f64
from nova.ops.functional.common import as_floats, function, to_dtype
from nova.ops.table import Op, register

_RAISED = 10
# B(2k) / (2k (2k - 1)) and B(2k) / 2k, of the Bernoulli numbers.
_LOG_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_SLOPE_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _series(F: Any, inverse: Any, coefficients: tuple[float, ...]) -> Any:
    """The sum of c[k] * inverse ** k."""
    total = F.zeros_like(inverse) + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * inverse + c
    return total


def _log_positive(F: Any, x: Any) -> Any:
    product = x
    for i in range(1, _RAISED):
        product = product * (x + float(i))
    z = x + float(_RAISED)
    tail = _series(F, 1.0 / (z * z), _LOG_SERIES) / z
    return (z - 0.5) * F.log(z) - z + 0.5 * log(2 * pi) + tail - F.log(product)


def _slope_positive(F: Any, x: Any) -> Any:
    total = 1.0 / x
    for i in range(1, _RAISED):
        total = total + 1.0 / (x + float(i))
    z = x + float(_RAISED)
    inverse = 1.0 / (z * z)
    return F.log(z) - 0.5 / z - inverse * _series(F, inverse, _SLOPE_SERIES) - total


def _beyond_integer(F: Any, x: Any, low: Any) -> Any:
    """x less the nearest integer where `low`, else 0.5: exact, near the poles too."""
    return F.where(low, x - F.round(x), 0.5)


def _lgamma(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    wide = to_dtype(F, x, f64)
    low = wide < 0.5
    # Large arguments: the product of the recurrence would overflow, and the series has converged.
    large = wide > 1e6
    safe = F.where(low, 1.0 - wide, F.where(large, 1.0, wide))
    positive = _log_positive(F, safe)
    big = F.where(large, wide, 1e7)
    positive = F.where(large, (big - 0.5) * F.log(big) - big + 0.5 * log(2 * pi), positive)
    reflected = log(pi) - F.log(F.sin(F.abs(_beyond_integer(F, wide, low)) * pi)) - positive
    result = F.where(low, reflected, positive)
    return to_dtype(F, F.where(F.eq(F.abs(wide), inf), inf, result), x.dtype)


def _digamma(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    wide = to_dtype(F, x, f64)
    low = wide < 0.5
    positive = _slope_positive(F, F.where(low, 1.0 - wide, wide))
    fraction = _beyond_integer(F, wide, low)
    angle = fraction * pi
    reflected = positive - pi * F.cos(angle) / F.sin(angle)
    pole = F.eq(fraction, 0.0) & F.ne(wide, 0.0)
    reflected = F.where(pole, nan, reflected)
    return to_dtype(F, F.where(low, reflected, positive), x.dtype)


ROWS: tuple[Op, ...] = (
    function(
        "lgamma", "The logarithm of the absolute value of the gamma function.", _lgamma, method=True
    ),
    function("digamma", "The derivative of lgamma.", _digamma, method=True),
)


def register_rows() -> None:
    register(*ROWS)
