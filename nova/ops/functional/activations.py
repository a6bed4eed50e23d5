"""Activation functions with torch's names and defaults."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.sizes import known_equal
from nova.errors import ShapeError
from nova.ops.functional.common import as_floats, as_inexact, as_tensor, function, number
from nova.ops.rules import is_unit, is_zero, resolve_axis
from nova.ops.table import Op, register

# Klambauer et al., "Self-normalizing neural networks", 2017.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946

_NUMBERS = (int, float, np.number)


def _inner_gradient(F: Any, x: Any, low: Any, high: Any) -> Any:
    """x, with a gradient only where low < x < high: torch's convention at these kinks.

    `clamp` passes the gradient at its bounds. The values are those of x, so that
    `canonicalize-nova` drops the selection from the forward computation.
    """
    return F.where((x > low) & (x < high), x, F.detach(x))


def _relu6(F: Any, x: Any) -> Any:
    return _hardtanh(F, x, 0.0, 6.0)


def _hardtanh(F: Any, x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    x = as_tensor(F, x)
    # clamp refuses bounds that are not numbers.
    if x.dtype.is_float and all(isinstance(v, _NUMBERS) for v in (min_val, max_val)):
        x = _inner_gradient(F, x, min_val, max_val)
    return F.clamp(x, min=min_val, max=max_val)


def _hardsigmoid(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    return F.clamp(_inner_gradient(F, x, -3.0, 3.0) / 6.0 + 0.5, min=0.0, max=1.0)


def _hardswish(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    return x * _hardsigmoid(F, x)


def _logsigmoid(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    return F.minimum(x, 0.0) - F.log1p(F.exp(-F.abs(x)))


def _softsign(F: Any, x: Any) -> Any:
    (x,) = as_inexact(F, x)
    return x / (F.abs(x) + 1.0)


def _tanhshrink(F: Any, x: Any) -> Any:
    (x,) = as_inexact(F, x)
    return x - F.tanh(x)


def _softshrink(F: Any, x: Any, lambd: float = 0.5) -> Any:
    width = number("softshrink", "lambd", lambd, 0)
    (x,) = as_floats(F, x)
    return F.where(x > width, x - width, F.where(x < -width, x + width, x * 0.0))


def _hardshrink(F: Any, x: Any, lambd: float = 0.5) -> Any:
    width = number("hardshrink", "lambd", lambd)
    (x,) = as_floats(F, x)
    return F.where((x >= -width) & (x <= width), 0.0, x)


def _threshold(F: Any, x: Any, threshold: float, value: float) -> Any:
    x = as_tensor(F, x)
    return F.where(x <= threshold, value, x)


def _celu(F: Any, x: Any, alpha: float = 1.0) -> Any:
    scale = number("celu", "alpha", alpha)
    (x,) = as_floats(F, x)
    # The argument of the branch that is not selected is 0, so it cannot overflow.
    low = F.where(x <= 0, x, 0.0)
    return F.where(x <= 0, F.expm1(low / scale) * scale, x)


def _selu(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    low = F.where(x <= 0, x, 0.0)
    return F.where(x <= 0, F.expm1(low) * _SELU_ALPHA, x) * _SELU_SCALE


def _prelu(F: Any, x: Any, weight: Any) -> Any:
    x, weight = as_floats(F, x, weight)
    if len(weight.shape) > 1:
        raise ShapeError(f"prelu: weight {weight.shape} is not one number or one per channel")
    if not is_unit(weight.size):
        if len(x.shape) < 2 or not known_equal(weight.size, x.shape[1]):
            raise ShapeError(f"prelu: weight {weight.shape} for x {x.shape}: not one per channel")
        weight = F.reshape(weight, (weight.size, *(1,) * (len(x.shape) - 2)))
    elif len(weight.shape) > len(x.shape):
        weight = F.reshape(weight, ())
    return F.where(x > 0, x, x * weight)


def _glu(F: Any, x: Any, axis: int = -1) -> Any:
    (x,) = as_floats(F, x)
    axis = resolve_axis(axis, len(x.shape))
    if not is_zero(x.shape[axis] % 2):
        raise ShapeError(f"glu: axis {axis} of {x.shape} has an odd size")
    first, second = F.split(x, 2, axis=axis)
    return first * F.sigmoid(second)


def _squareplus(F: Any, x: Any, b: float = 4.0) -> Any:
    (x,) = as_floats(F, x)
    return (x + F.sqrt(F.square(x) + number("squareplus", "b", b, 0))) * 0.5


def _sparse_plus(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    return F.where(x <= -1.0, 0.0, F.where(x >= 1.0, x, F.square(x + 1.0) * 0.25))


def _sparse_sigmoid(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    return F.clamp((x + 1.0) * 0.5, min=0.0, max=1.0)


def _standardize(F: Any, x: Any, axis: Any = -1, eps: float = 1e-5) -> Any:
    (x,) = as_floats(F, x)
    mean = F.mean(x, axis=axis, keepdims=True)
    variance = F.var(x, axis=axis, correction=0, keepdims=True)
    return (x - mean) * F.rsqrt(variance + number("standardize", "eps", eps, 0))


ROWS: tuple[Op, ...] = (
    function("squareplus", "(x + sqrt(x^2 + b)) / 2.", _squareplus),
    function("sparse_plus", "0 below -1, x above 1, (x + 1)^2 / 4 between.", _sparse_plus),
    function("sparse_sigmoid", "(x + 1) / 2 limited to 0..1.", _sparse_sigmoid),
    function("standardize", "Mean 0 and variance 1 over the axes.", _standardize),
    function("relu6", "x limited to 0..6; the gradient at 0 and 6 is 0.", _relu6, method=True),
    function(
        "hardtanh",
        "x limited to min_val..max_val; the gradient at both is 0.",
        _hardtanh,
        method=True,
    ),
    function("hardsigmoid", "x / 6 + 0.5 limited to 0..1.", _hardsigmoid),
    function("hardswish", "x * hardsigmoid(x).", _hardswish),
    function("logsigmoid", "log(sigmoid(x)) without overflow.", _logsigmoid),
    function("softsign", "x / (1 + |x|).", _softsign),
    function("tanhshrink", "x - tanh(x).", _tanhshrink),
    function("softshrink", "x moved by lambd toward 0, 0 in -lambd..lambd.", _softshrink),
    function("hardshrink", "x, but 0 in -lambd..lambd.", _hardshrink),
    function("threshold", "x where it is above the threshold, else value.", _threshold),
    function("celu", "x above 0, alpha * (exp(x / alpha) - 1) below.", _celu),
    function("selu", "The scaled elu of self-normalizing networks.", _selu),
    function(
        "prelu",
        "x above 0, weight * x below; weight has one element, or one per channel (axis 1).",
        _prelu,
        operands=("x", "weight"),
    ),
    function("glu", "The first half of an axis times the sigmoid of the second.", _glu),
)


def register_rows() -> None:
    register(*ROWS)
