"""Hurwitz's zeta function by the formula of Euler and Maclaurin, and functions of the gamma family.

zeta(s, q) is the sum of (q + k) ** -s: the first terms are added, the others are an integral with
corrections by Bernoulli numbers.
"""

from __future__ import annotations

from math import factorial, inf, log, nan, pi
from typing import Any

import numpy as np

from nova.core.dtypes import f64
from nova.errors import AttributeValueError
from nova.ops.functional.common import as_floats, function, to_dtype
from nova.ops.rules import int_value
from nova.ops.table import Op, register

_ADDED = 10
# B(2j) / (2j)! of the Bernoulli numbers.
_CORRECTIONS = (
    *(1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160),
    *(-691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000),
)


def _zeta_wide(F: Any, s: Any, q: Any) -> Any:
    """For s > 1 and q > 0."""
    total = F.pow(q, -s)
    for k in range(1, _ADDED):
        total = total + F.pow(q + float(k), -s)
    z = q + float(_ADDED)
    last = F.pow(z, -s)
    total = total + last * z / (s - 1.0) + last * 0.5
    factor, power = s, last / z
    for j, c in enumerate(_CORRECTIONS):
        total = total + factor * power * c
        factor = factor * (s + (2.0 * j + 1.0)) * (s + (2.0 * j + 2.0))
        power = power / (z * z)
    return total


def _zeta(F: Any, x: Any, y: Any) -> Any:
    x, y = as_floats(F, x, y)
    s, q = to_dtype(F, x, f64), to_dtype(F, y, f64)
    inside = (s > 1.0) & (q > 0.0)
    value = _zeta_wide(F, F.where(inside, s, 2.0), F.where(inside, q, 1.0))
    is_pole = F.eq(s, 1.0) | (F.eq(q, F.floor(q)) & (q <= 0.0) & (s > 1.0))
    return to_dtype(F, F.where(inside, value, F.where(is_pole, inf, nan)), x.dtype)


def _polygamma(F: Any, n: int, x: Any) -> Any:
    if hasattr(n, "shape") and not hasattr(x, "shape"):  # x.polygamma(n)
        n, x = x, n
    order = int_value(n, "polygamma: n")
    if order < 0:
        raise AttributeValueError(f"polygamma: n must be at least 0, not {order}")
    (x,) = as_floats(F, x)
    if order == 0:
        return F.digamma(x)
    wide = to_dtype(F, x, f64)
    low = wide < 0.5
    q = F.where(low, 1.0 - wide, wide)
    scale = float(factorial(order)) * (-1.0) ** (order + 1)
    positive = _zeta_wide(F, F.full((), float(order + 1), f64), q) * scale
    fraction = F.where(low, wide - F.round(wide), 0.5)
    is_pole = F.eq(fraction, 0.0)
    reflected = positive * (-1.0) ** order - _cotangent_derivative(
        F, order, F.where(is_pole, 0.5, fraction)
    )
    reflected = F.where(is_pole, inf if order % 2 else -inf, reflected)
    return to_dtype(F, F.where(low, reflected, positive), x.dtype)


def _cotangent_derivative(F: Any, order: int, x: Any) -> Any:
    """The derivative of pi cot(pi x): a polynomial of the cotangent, by d cot = -(1 + cot^2)."""
    polynomial = np.polynomial.Polynomial([0.0, pi])
    for _ in range(order):
        polynomial = polynomial.deriv() * np.polynomial.Polynomial([-pi, 0.0, -pi])
    cotangent = F.cos(x * pi) / F.sin(x * pi)
    total = F.zeros_like(x)
    for c in reversed(polynomial.coef.tolist()):
        total = total * cotangent + c
    return total


def _mvlgamma(F: Any, x: Any, p: int) -> Any:
    count = int_value(p, "mvlgamma: p")
    if count < 1:
        raise AttributeValueError(f"mvlgamma: p must be at least 1, not {count}")
    (x,) = as_floats(F, x)
    total = F.zeros_like(x) + count * (count - 1) / 4 * log(pi)
    for j in range(count):
        total = total + F.lgamma(x - j / 2)
    return total


def _betaln(F: Any, x: Any, y: Any) -> Any:
    x, y = as_floats(F, x, y)
    return F.lgamma(x) + F.lgamma(y) - F.lgamma(x + y)


ROWS: tuple[Op, ...] = (
    function(
        "zeta",
        "Hurwitz's zeta function: the sum of (y + k) ** -x over k = 0, 1, ..., for y above 0.",
        _zeta,
        operands=("x", "y"),
    ),
    function(
        "polygamma", "The n-th derivative of digamma.", _polygamma, method=True, operands=("x",)
    ),
    function(
        "mvlgamma", "The logarithm of the multivariate gamma function.", _mvlgamma, method=True
    ),
    function("betaln", "The logarithm of the beta function.", _betaln, operands=("x", "y")),
)


def register_rows() -> None:
    register(*ROWS)
