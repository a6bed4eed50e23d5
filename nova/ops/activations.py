"""Rows of the activation functions, with torch's semantics and defaults.

Each is one primitive, so that f16 and bf16 round once; swiglu is a composite over silu.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from nova.core.dtypes import NARROW_FLOATS, TensorType, f32
from nova.errors import AttributeValueError, ShapeError
from nova.ops.pointwise import in_f32, unary
from nova.ops.rules import Types, broadcast_shapes, is_zero
from nova.ops.table import Op, register
from nova.ops.transcendental import numpy_erf

Attrs = dict[str, Any]

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
# gelu's tanh form: 0.5 x (1 + tanh(K (x + C x^3))).
K, C = math.sqrt(2.0 / math.pi), 0.044715
# Beyond this the tanh above is 1 in f64, so the derivative's second term is 0.
GELU_FLAT = 10.0
# Beyond this tanh(softplus(x)) is 1 in f64.
MISH_LINEAR = 20.0


def _rounded_once(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """A derivative of several ops: for narrow floats computed in f32, and rounded at the end."""

    @wraps(vjp)
    def gradient(F: Any, g: Any, out: Any, x: Any, **attrs: Any) -> Any:
        if x.dtype not in NARROW_FLOATS:
            return vjp(F, g, out, x, **attrs)
        wide = vjp(F, F.cast(g, dtype=f32), out, F.cast(x, dtype=f32), **attrs)
        return F.cast(wide, dtype=x.dtype)

    return gradient


# --- sigmoid and functions of it ----------------------------------------------------------------


def _scalar_sigmoid(s: Any, x: Any) -> Any:
    # `expand-math` recognizes this form, and computes it as one function.
    return 1 / (s.call("exp", -x) + 1)


def _numpy_sigmoid(x: np.ndarray) -> np.ndarray:
    # exp(-x) alone overflows where the result is still subnormal.
    unit = x.dtype.type(1)
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, unit) / (unit + e)


def _scalar_silu(s: Any, x: Any) -> Any:
    # Uses sqrt(exp(-|x|)), which neither overflows nor becomes subnormal: below zero only the last
    # multiplication may, so the result is rounded once.
    root = s.call("exp", s.call("absf", x) * -0.5)
    below = (x * root) * root
    return s.select(x < 0, below, x) / (root * root + 1)


def _numpy_silu(x: np.ndarray) -> np.ndarray:
    root = np.exp(np.abs(x) * x.dtype.type(-0.5))
    return np.where(x < 0, x * root * root, x) / (root * root + x.dtype.type(1))


@_rounded_once
def _vjp_silu(F: Any, g: Any, out: Any, x: Any) -> Any:
    s = F.sigmoid(x)
    return g * (s * (1.0 + x * (1.0 - s)))


def _scalar_softplus(s: Any, x: Any, beta: float, threshold: float) -> Any:
    scaled = x * beta
    tail = s.call("log1p", s.call("exp", -s.call("absf", scaled)))
    return s.select(scaled > threshold, x, (s.maximum(scaled, 0) + tail) / beta)


def _numpy_softplus(x: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    scaled = x * x.dtype.type(beta)
    soft = np.maximum(scaled, 0) + np.log1p(np.exp(-np.abs(scaled)))
    return np.where(scaled > threshold, x, soft / x.dtype.type(beta))


def _scalar_mish(s: Any, x: Any) -> Any:
    # tanh(log(1 + e)) is n / (n + 2) with n = e (e + 2): one exp, and no cancellation.
    e = s.call("exp", s.minimum(x, MISH_LINEAR))
    n = e * (e + 2)
    return x * (n / (n + 2))


@_rounded_once
def _vjp_mish(F: Any, g: Any, out: Any, x: Any) -> Any:
    t = F.tanh(F.softplus(x))
    return g * (t + x * (1.0 - t * t) * F.sigmoid(x))


# --- gelu ---------------------------------------------------------------------------------------


def _gelu_attrs(ins: Types, attrs: Attrs) -> Attrs:
    if attrs["approximate"] not in ("none", "tanh"):
        raise AttributeValueError(
            f"approximate={attrs['approximate']!r} is unknown", hint="use 'none' or 'tanh'"
        )
    return attrs


def _scalar_gelu(s: Any, x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        # (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)): one exp, and nothing cancels at negative x.
        return x / (s.call("exp", x * (x * x * (-2.0 * K * C) - 2.0 * K)) + 1)
    return x * 0.5 * (s.call("erf", x * SQRT_HALF) + 1)


def _numpy_gelu(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "tanh":
        bent = np.tanh((x + x * x * x * x.dtype.type(C)) * x.dtype.type(K))
    else:
        bent = numpy_erf(x * x.dtype.type(SQRT_HALF))
    return x * x.dtype.type(0.5) * (bent + x.dtype.type(1))


@_rounded_once
def _vjp_gelu(F: Any, g: Any, out: Any, x: Any, approximate: str) -> Any:
    if approximate == "none":
        density = F.exp(x * x * -0.5) * INV_SQRT_2PI
        return g * (0.5 * (1.0 + F.erf(x * SQRT_HALF)) + x * density)
    # Clamped: else x * x would overflow to inf and be multiplied by the 0 of 1 - t * t.
    x = F.clamp(x, min=-GELU_FLAT, max=GELU_FLAT)
    square = x * x
    # (1 + tanh(u)) / 2 as a sigmoid of 2 u, whose derivative by x is `slope`.
    s = F.sigmoid(x * (square * (2.0 * K * C) + 2.0 * K))
    slope = square * (6.0 * K * C) + 2.0 * K
    return g * (s + x * slope * (s * (1.0 - s)))


# --- number attributes --------------------------------------------------------------------------


def _floats(ins: Types, attrs: Attrs) -> Attrs:
    for name, value in attrs.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            raise AttributeValueError(f"{name} must be a number, not {value!r}")
    return {name: float(value) for name, value in attrs.items()}


def _softplus_attrs(ins: Types, attrs: Attrs) -> Attrs:
    attrs = _floats(ins, attrs)
    if attrs["beta"] == 0:
        raise AttributeValueError("beta must not be 0", hint="the default is 1")
    return attrs


# --- swiglu -------------------------------------------------------------------------------------


def _swiglu_type(ins: Types, attrs: Attrs) -> TensorType:
    x = ins[0]
    if len(ins) == 2:
        return x.with_shape(broadcast_shapes(x.shape, ins[1].shape))
    if x.rank == 0 or not is_zero(x.shape[-1] % 2):
        raise ShapeError(
            f"one operand is halved along its last axis, and {x.shape} has no even one",
            hint="give the second operand, or an even last axis",
        )
    return x.with_shape((*x.shape[:-1], x.shape[-1] // 2))


def _compose_swiglu(F: Any, x: Any, y: Any = None) -> Any:
    if y is None:
        half = x.shape[-1] // 2
        x, y = x[..., :half], x[..., half:]
    return F.silu(x) * y


def _numpy_swiglu(x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    if y is None:
        x, y = np.split(x, 2, axis=-1)
    return x * _numpy_sigmoid(x) * y


# --- rows ---------------------------------------------------------------------------------------

ROWS = (
    unary(
        "relu",
        "max(x, 0), also of integers; the gradient at 0 is 0, and passes at NaN.",
        lambda x: np.maximum(x, x.dtype.type(0)),
        lambda s, x: s.maximum(x, 0),
        lambda F, g, out, x: F.where(out <= 0, 0.0, g),
    ),
    unary(
        "leaky_relu",
        "x where x > 0, else negative_slope * x.",
        lambda x, negative_slope: np.where(x > 0, x, x * x.dtype.type(negative_slope)),
        lambda s, x, negative_slope: s.select(x > 0, x, x * negative_slope),
        lambda F, g, out, x, negative_slope: F.where(x > 0, g, g * negative_slope),
        cast="float",
        attrs={"negative_slope": 0.01},
        canon=_floats,
    ),
    unary(
        "elu",
        "x where x > 0, else alpha * (exp(x) - 1); the gradient passes at NaN.",
        lambda x, alpha: np.where(x > 0, x, np.expm1(x) * x.dtype.type(alpha)),
        lambda s, x, alpha: s.select(x > 0, x, s.call("expm1", x) * alpha),
        # The inner where keeps exp finite in the branch that is not selected.
        lambda F, g, out, x, alpha: F.where(x <= 0, g * (F.exp(F.where(x > 0, 0.0, x)) * alpha), g),
        cast="float",
        attrs={"alpha": 1.0},
        canon=_floats,
        tags=("smooth",),
    ),
    unary(
        "gelu",
        "x times the normal distribution function of x, by erf or (approximate='tanh') by "
        "torch's tanh formula.",
        _numpy_gelu,
        _scalar_gelu,
        _vjp_gelu,
        cast="float",
        attrs={"approximate": "none"},
        canon=_gelu_attrs,
        tags=("smooth",),
    ),
    unary(
        "sigmoid",
        "1 / (1 + exp(-x)), without overflow on either side.",
        _numpy_sigmoid,
        _scalar_sigmoid,
        lambda F, g, out, x: g * (out * (1.0 - out)),
        cast="float",
        tags=("smooth",),
    ),
    unary(
        "silu",
        "x * sigmoid(x), also called swish.",
        _numpy_silu,
        _scalar_silu,
        _vjp_silu,
        cast="float",
        tags=("smooth",),
    ),
    unary(
        "softplus",
        "log(1 + exp(beta * x)) / beta without overflow; x itself where beta * x > threshold.",
        _numpy_softplus,
        _scalar_softplus,
        lambda F, g, out, x, beta, threshold: F.where(
            x * beta > threshold, g, g * F.sigmoid(x * beta)
        ),
        cast="float",
        attrs={"beta": 1.0, "threshold": 20.0},
        canon=_softplus_attrs,
        tags=("smooth",),
    ),
    unary(
        "mish",
        "x * tanh(softplus(x)).",
        lambda x: x * np.tanh(np.logaddexp(x, x.dtype.type(0))),
        _scalar_mish,
        _vjp_mish,
        cast="float",
        tags=("smooth",),
    ),
    Op(
        "swiglu",
        "silu(x) * y; of one operand, whose last axis is halved, the first half is x, the "
        "second y.",
        ("x", "y?"),
        infer=_swiglu_type,
        cast="float",
        numpy=in_f32(_numpy_swiglu),
        compose=_compose_swiglu,
        methods=("swiglu",),
        tags=frozenset(("smooth",)),
    ),
)


def register_rows() -> None:
    register(*ROWS)
