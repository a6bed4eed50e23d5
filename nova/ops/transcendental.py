"""Rows of the exponential, logarithmic, trigonometric and hyperbolic functions, and erf.

They take floats; integers and bools are computed in the float dtype that numpy's ufuncs choose.
Their scalar body is the function of the math dialect, for which codegen has vector code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nova.ops.pointwise import binary, unary
from nova.ops.table import Op, register

LN2, LN10 = math.log(2.0), math.log(10.0)
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def numpy_erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(_erf(x.astype(np.float64))).astype(x.dtype)


def numpy_erfc(x: np.ndarray) -> np.ndarray:
    return np.asarray(_erfc(x.astype(np.float64))).astype(x.dtype)


def smooth(
    name: str,
    doc: str,
    numpy: Callable[..., Any],
    derivative: Callable[..., Any],
    domain: str = "real",
) -> Op:
    """A function that the math dialect has under the same name; derivative(F, out, x)."""
    return unary(
        name,
        doc,
        numpy,
        lambda s, x: s.call(name, x),
        lambda F, g, out, x: g * derivative(F, out, x),
        cast="float",
        tags=("smooth",),
        domain=domain,
    )


EXPONENTIAL = (
    smooth("exp", "e to the power x.", np.exp, lambda F, out, x: out),
    smooth("exp2", "2 to the power x.", np.exp2, lambda F, out, x: out * LN2),
    smooth("expm1", "exp(x) - 1, accurate near 0.", np.expm1, lambda F, out, x: out + 1.0),
    smooth("log", "The natural logarithm.", np.log, lambda F, out, x: 1.0 / x, "positive"),
    smooth(
        "log2", "The logarithm to base 2.", np.log2, lambda F, out, x: 1.0 / (x * LN2), "positive"
    ),
    smooth(
        "log10",
        "The logarithm to base 10.",
        np.log10,
        lambda F, out, x: 1.0 / (x * LN10),
        "positive",
    ),
    smooth(
        "log1p",
        "log(1 + x), accurate near 0.",
        np.log1p,
        lambda F, out, x: 1.0 / (x + 1.0),
        "positive",
    ),
    smooth("sqrt", "The square root.", np.sqrt, lambda F, out, x: 0.5 / out, "positive"),
    smooth(
        "rsqrt",
        "1 / sqrt(x).",
        lambda x: x.dtype.type(1) / np.sqrt(x),
        lambda F, out, x: -0.5 * (out * out * out),
        "positive",
    ),
    smooth(
        "erf",
        "The error function.",
        numpy_erf,
        lambda F, out, x: TWO_OVER_SQRT_PI * F.exp(-(x * x)),
    ),
    smooth(
        "erfc",
        "1 - erf(x), accurate for large x too.",
        numpy_erfc,
        lambda F, out, x: -TWO_OVER_SQRT_PI * F.exp(-(x * x)),
    ),
)

TRIGONOMETRIC = (
    smooth("sin", "The sine of x in radians.", np.sin, lambda F, out, x: F.cos(x)),
    smooth("cos", "The cosine of x in radians.", np.cos, lambda F, out, x: -F.sin(x)),
    smooth(
        "tan", "The tangent of x in radians.", np.tan, lambda F, out, x: 1.0 + out * out, "unit"
    ),
    smooth(
        "asin",
        "The inverse sine, -pi/2 to pi/2; NaN outside of -1..1.",
        np.arcsin,
        lambda F, out, x: F.rsqrt((1.0 - x) * (1.0 + x)),
        "unit",
    ),
    smooth(
        "acos",
        "The inverse cosine, 0 to pi; NaN outside of -1..1.",
        np.arccos,
        lambda F, out, x: -F.rsqrt((1.0 - x) * (1.0 + x)),
        "unit",
    ),
    smooth(
        "atan",
        "The inverse tangent, -pi/2 to pi/2.",
        np.arctan,
        lambda F, out, x: 1.0 / (1.0 + x * x),
    ),
    binary(
        "atan2",
        "The angle, -pi to pi, of the point with ordinate y and abscissa x.",
        np.arctan2,
        lambda s, y, x: s.call("atan2", y, x),
        lambda F, g, out, y, x: (g * (x / (x * x + y * y)), g * (-y / (x * x + y * y))),
        operands=("y", "x"),
        cast="float",
        tags=("smooth",),
        domain="nonzero",
    ),
)

HYPERBOLIC = (
    smooth("sinh", "The hyperbolic sine.", np.sinh, lambda F, out, x: F.cosh(x)),
    smooth("cosh", "The hyperbolic cosine.", np.cosh, lambda F, out, x: F.sinh(x)),
    smooth("tanh", "The hyperbolic tangent.", np.tanh, lambda F, out, x: 1.0 - out * out),
    smooth(
        "asinh",
        "The inverse hyperbolic sine.",
        np.arcsinh,
        lambda F, out, x: F.rsqrt(x * x + 1.0),
    ),
    smooth(
        "acosh",
        "The inverse hyperbolic cosine; NaN below 1.",
        np.arccosh,
        lambda F, out, x: F.rsqrt((x - 1.0) * (x + 1.0)),
        "ge1",
    ),
    smooth(
        "atanh",
        "The inverse hyperbolic tangent; NaN outside of -1..1.",
        np.arctanh,
        lambda F, out, x: 1.0 / ((1.0 - x) * (1.0 + x)),
        "unit",
    ),
)


def register_rows() -> None:
    register(*EXPONENTIAL, *TRIGONOMETRIC, *HYPERBOLIC)
