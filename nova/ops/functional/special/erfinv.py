"""The inverse of the error function: Giles's polynomial (2010) and Newton steps, in f64."""

from __future__ import annotations

from math import inf, nan, pi, sqrt
from typing import Any

from nova.core.dtypes import f64
from nova.ops.functional.common import as_floats, function, to_dtype
from nova.ops.table import Op, register

# erfinv(x) / x as polynomials of w = -log(1 - x^2), for w below 5 and above, lowest power first.
_NEAR = (
    *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087),
    *(-4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
)
_FAR = (
    *(2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773),
    *(-0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257),
)


def _horner(coefficients: tuple[float, ...], x: Any) -> Any:
    total = coefficients[0]
    for c in coefficients[1:]:
        total = total * x + c
    return total


def _newton(F: Any, y: Any, x: Any, complement: Any) -> Any:
    """One step for erf(y) = x, y and x not negative; for log(erfc(y)) where x is near 1."""
    other = F.erfc(y)
    near = F.erf(y) - x
    far = -F.log(other / complement) * other
    return y - F.where(x < 0.5, near, far) * (sqrt(pi) / 2) * F.exp(y * y)


def inverse(F: Any, size: Any, complement: Any) -> Any:
    """y with erf(y) = size, from size in 0..1 and 1 - size, which is exact near 0."""
    fixed, rest = F.detach(size), F.detach(complement)
    w = -F.log(rest * (1.0 + fixed))
    near = _horner(_NEAR[::-1], F.minimum(w, 5.0) - 2.5)
    far = _horner(_FAR[::-1], F.sqrt(F.maximum(w, 5.0)) - 3.0)
    y = F.where(w < 5.0, near, far) * fixed
    # Beyond the polynomials, the first terms of the asymptotic series of erfc.
    size_of_log = F.maximum(-F.log(rest), 16.0)
    y = F.where(w < 16.0, y, F.sqrt(size_of_log - 0.5 * F.log(size_of_log * pi)))
    for _ in range(2):
        y = _newton(F, y, fixed, rest)
    # Two more steps from a constant: exact derivatives of the first three orders.
    y = F.detach(y)
    for _ in range(2):
        y = _newton(F, y, size, complement)
    return y


def _erfinv(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    wide = to_dtype(F, x, f64)
    sign = F.where(wide < 0.0, -1.0, 1.0)
    size = wide * sign
    inside = size < 1.0
    size = F.where(inside, size, 0.5)
    y = inverse(F, size, 1.0 - size)
    result = y * sign
    edge = F.where(F.eq(wide, 1.0), inf, F.where(F.eq(wide, -1.0), -inf, nan))
    return to_dtype(F, F.where(inside, result, edge), x.dtype)


ROWS: tuple[Op, ...] = (function("erfinv", "The inverse of erf, on -1..1.", _erfinv, method=True),)


def register_rows() -> None:
    register(*ROWS)
