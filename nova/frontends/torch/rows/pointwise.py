"""Elementwise ops: one result element from one element of each operand."""

from __future__ import annotations

from math import inf, pi, sqrt
from typing import Any

from nova.core.dtypes import bf16, bool_, f16, f32
from nova.frontends.torch.rows.table import cast, common_dtype, converted, promoted, row
from nova.graph.control.integers import gcd, lcm
from nova.graph.tensor import Tensor

# --- one operand ----------------------------------------------------------------------------------

# ATen name -> name of the row in `nova/ops`, where they differ in nothing else.
UNARY = {
    name: name
    for name in (
        *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos"),
        *(
            "cosh",
            "digamma",
            "erf",
            "erfc",
            "erfinv",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "isfinite",
            "isinf",
            "isnan",
        ),
        *("lgamma", "log", "log10", "log1p", "log2", "logical_not", "neg", "reciprocal", "relu"),
        *("round", "rsqrt", "sigmoid", "silu", "sin", "sinc", "sinh", "sqrt", "tan"),
        *("tanh", "trunc", "relu6", "hardsigmoid", "hardswish", "mish", "frac", "deg2rad"),
        *("rad2deg", "square"),
    )
} | {"log_sigmoid": "logsigmoid"}


def _unary(name: str) -> Any:
    def build(F: Any, x: Any) -> Any:
        return getattr(F, name)(x)

    return build


for _aten, _nova in UNARY.items():
    row(f"{_aten}.default")(_unary(_nova))


@row("sign.default", "sgn.default")
def _sign(F: Any, x: Any) -> Any:
    sign = F.sign(x)
    return F.where(F.isnan(x), 0, sign) if x.dtype.is_float else sign  # torch's sign of NaN is 0


@row("signbit.default")
def _signbit(F: Any, x: Any) -> Any:
    if not x.dtype.is_float:
        return F.lt(x, 0) if x.dtype is not bool_ else F.logical_xor(x, x)
    return F.lt(F.copysign(F.ones_like(x), x), 0)


@row("round.decimals")
def _round_decimals(F: Any, x: Any, *, decimals: int = 0) -> Any:
    if not decimals:
        return F.round(x)
    scale = 10.0 ** abs(decimals)
    if decimals < 0:
        return F.round(x / scale) * scale
    return F.round(x * scale) / scale


@row("gelu.default")
def _gelu(F: Any, x: Any, *, approximate: str = "none") -> Any:
    return F.gelu(x, approximate=approximate)


@row("leaky_relu.default")
def _leaky_relu(F: Any, x: Any, negative_slope: float = 0.01) -> Any:
    return F.where(F.gt(x, 0), x, x * negative_slope)


@row("elu.default")
def _elu(F: Any, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    wide = cast(F, x, f32) if x.dtype in (f16, bf16) else x
    negative = F.expm1(wide * input_scale) * (alpha * scale)
    return F.where(F.gt(wide, 0), wide * scale, negative)


@row("softplus.default")
def _softplus(F: Any, x: Any, beta: float = 1, threshold: float = 20) -> Any:
    return F.softplus(x, beta=float(beta), threshold=float(threshold))


@row("hardtanh.default")
def _hardtanh(F: Any, x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    # Its gradient at the limits is 0, that of clamp is 1.
    return F.hardtanh(x, min_val, max_val)


@row("threshold.default")
def _threshold(F: Any, x: Any, threshold: float, value: float) -> Any:
    return F.where(F.le(x, threshold), value, x)


@row("clamp.default", "clamp.Tensor")
def _clamp(F: Any, x: Any, min: Any = None, max: Any = None) -> Any:
    x, *limits = promoted(F, *(v for v in (x, min, max) if v is not None))
    low = limits.pop(0) if min is not None else None
    high = limits.pop(0) if max is not None else None
    if not isinstance(low, Tensor) and not isinstance(high, Tensor) and x.dtype.is_float:
        return F.clamp(x, min=low, max=high)  # its gradient passes at the limits
    x = x if low is None else F.maximum(x, low)
    return x if high is None else F.minimum(x, high)


@row("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(F: Any, x: Any, min: Any) -> Any:
    return _clamp(F, x, min)


@row("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(F: Any, x: Any, max: Any) -> Any:
    return _clamp(F, x, None, max)


@row("logit.default")
def _logit(F: Any, x: Any, eps: float | None = None) -> Any:
    return F.logit(x, eps)


@row("nan_to_num.default")
def _nan_to_num(
    F: Any, x: Any, nan: Any = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    if not x.dtype.is_float:
        return x
    return F.nan_to_num(x, 0.0 if nan is None else nan, posinf, neginf)


@row("_to_copy.default")
def _to_copy(F: Any, x: Any, *, dtype: Any = None, **placement: Any) -> Any:
    return x if dtype is None else converted(F, x, dtype)


@row("prims.convert_element_type.default")
def _convert_element_type(F: Any, x: Any, dtype: Any) -> Any:
    return converted(F, x, dtype)


@row(
    *("clone.default", "detach.default", "alias.default", "lift_fresh_copy.default"),
    *("lift_fresh.default", "contiguous.default", "positive.default", "detach_.default"),
)
def _same(F: Any, x: Any, **layout: Any) -> Any:
    return x


# --- two operands ---------------------------------------------------------------------------------


def _scaled(x: Any, alpha: Any) -> Any:
    return x if alpha == 1 else x * alpha


@row("add.Tensor", "add.Scalar")
def _add(F: Any, x: Any, y: Any, alpha: Any = 1) -> Any:
    x, y = promoted(F, x, y, opmath=alpha != 1 or not isinstance(y, Tensor))
    return F.add(x, _scaled(y, alpha))


@row("sub.Tensor", "sub.Scalar")
def _sub(F: Any, x: Any, y: Any, alpha: Any = 1) -> Any:
    x, y = promoted(F, x, y, opmath=alpha != 1 or not isinstance(y, Tensor))
    return F.sub(x, _scaled(y, alpha))


@row("rsub.Tensor", "rsub.Scalar")
def _rsub(F: Any, x: Any, y: Any, alpha: Any = 1) -> Any:
    x, y = promoted(F, x, y, opmath=True)
    return F.sub(y, _scaled(x, alpha))


# ATen name -> row in `nova/ops`, with torch's promotion of both operands.
BINARY = {
    "mul": "mul",
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
}


def _binary(name: str, arithmetic: bool) -> Any:
    def build(F: Any, x: Any, y: Any) -> Any:
        x, y = promoted(F, x, y, opmath=arithmetic and not isinstance(y, Tensor))
        return getattr(F, name)(x, y)

    return build


def _logical(name: str) -> Any:
    def build(F: Any, x: Any, y: Any) -> Any:
        return getattr(F, name)(x, y)

    return build


for _aten, _nova in BINARY.items():
    row(f"{_aten}.Tensor", f"{_aten}.Scalar")(_binary(_nova, _aten == "mul"))
for _aten in ("maximum", "minimum"):
    row(f"{_aten}.default")(_binary(_aten, False))
for _aten in ("logical_and", "logical_or", "logical_xor"):
    row(f"{_aten}.default")(_logical(_aten))


@row("atan2.default")
def _atan2(F: Any, y: Any, x: Any) -> Any:
    return F.atan2(*promoted(F, y, x))


@row("div.Tensor", "div.Scalar")
def _div(F: Any, x: Any, y: Any) -> Any:
    x, y = promoted(F, x, y, opmath=not isinstance(y, Tensor))
    return F.div(x, y)


@row("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(F: Any, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return _div(F, x, y)
    x, y = promoted(F, x, y, opmath=True)
    if rounding_mode == "floor":
        return F.floor_div(x, y)
    if common_dtype((x, y)).is_float:
        return F.trunc(F.div(x, y))
    quotient = F.floor_div(x, y)
    inexact = F.logical_and(F.ne(F.mul(quotient, y), x), F.lt(quotient, 0))
    return F.add(quotient, cast(F, inexact, quotient.dtype))


@row("floor_divide.default", "floor_divide.Scalar")
def _floor_divide(F: Any, x: Any, y: Any) -> Any:
    return F.floor_div(*promoted(F, x, y, opmath=True))


@row("remainder.Tensor", "remainder.Scalar")
def _remainder(F: Any, x: Any, y: Any) -> Any:
    return F.mod(*promoted(F, x, y, opmath=True))


@row("fmod.Tensor", "fmod.Scalar")
def _fmod(F: Any, x: Any, y: Any) -> Any:
    x, y = promoted(F, x, y, opmath=True)
    size = F.mod(F.abs(x), F.abs(y) if isinstance(y, Tensor) else abs(y))
    return F.where(F.lt(x, 0), F.neg(size), size)


@row("pow.Tensor_Tensor")
def _pow(F: Any, x: Any, y: Any) -> Any:
    return F.pow(*promoted(F, x, y))


@row("pow.Tensor_Scalar")
def _pow_scalar(F: Any, x: Any, y: Any) -> Any:
    x, y = promoted(F, x, y, opmath=True)
    if y == 0.5:
        return F.sqrt(x)
    if y == -0.5:
        return F.rsqrt(x)
    if y == 2:
        return F.mul(x, x)
    if y == 3:
        return F.mul(F.mul(x, x), x)
    if y == -1:
        return F.reciprocal(x)
    return F.pow(x, y)


@row("pow.Scalar")
def _pow_of_scalar(F: Any, x: Any, y: Any) -> Any:
    dtype = common_dtype((x, y))
    if dtype.is_complex:
        return F.pow(x, cast(F, y, dtype))
    if not dtype.is_float:
        return F.pow(F.full_like(cast(F, y, dtype), x), cast(F, y, dtype))
    (wide,) = promoted(F, cast(F, y, dtype), opmath=True)
    return F.pow(F.full_like(wide, x), wide)


@row("copysign.Tensor", "copysign.Scalar")
def _copysign(F: Any, x: Any, y: Any) -> Any:
    x, y = promoted(F, x, y)
    dtype = x.dtype if x.dtype.is_float else f32
    y = cast(F, y, dtype) if isinstance(y, Tensor) else float(y)
    return F.copysign(cast(F, x, dtype), y)


@row("hypot.default")
def _hypot(F: Any, x: Any, y: Any) -> Any:
    # Scaled by the larger one, so that squares do not overflow.
    x, y = promoted(F, x, y, opmath=True)
    a, b = F.abs(x), F.abs(y)
    large, small = F.maximum(a, b), F.minimum(a, b)
    ratio = F.where(F.eq(large, 0.0), 0.0, small / F.where(F.eq(large, 0.0), 1.0, large))
    result = large * F.sqrt(ratio * ratio + 1.0)
    return F.where(F.logical_or(F.isinf(a), F.isinf(b)), inf, result)


@row("fmax.default")
def _fmax(F: Any, x: Any, y: Any) -> Any:
    x, y = promoted(F, x, y)
    return F.where(F.isnan(x), y, F.where(F.isnan(y), x, F.maximum(x, y)))


@row("fmin.default")
def _fmin(F: Any, x: Any, y: Any) -> Any:
    x, y = promoted(F, x, y)
    return F.where(F.isnan(x), y, F.where(F.isnan(y), x, F.minimum(x, y)))


@row("logaddexp.default")
def _logaddexp(F: Any, x: Any, y: Any) -> Any:
    x, y = promoted(F, x, y, opmath=True)
    top = F.maximum(x, y)
    same = F.logical_and(F.isinf(x), F.eq(x, y))
    return F.where(same, x, top + F.log1p(F.exp(-F.abs(x - y))))


@row("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self")
def _xlogy(F: Any, x: Any, y: Any) -> Any:
    x, y = promoted(F, x, y)
    x = x if isinstance(x, Tensor) else F.full_like(y, x)
    y = y if isinstance(y, Tensor) else F.full_like(x, y)
    if not y.dtype.is_float:
        x, y = cast(F, x, f32), cast(F, y, f32)
    product = F.where(F.eq(x, 0), 0.0, F.mul(x, F.log(y)))
    return F.where(F.isnan(y), y, product)


@row("heaviside.default")
def _heaviside(F: Any, x: Any, values: Any) -> Any:
    step = cast(F, F.gt(x, 0), x.dtype)
    return F.where(F.eq(x, 0), values, F.where(F.isnan(x), 0, step) if x.dtype.is_float else step)


@row("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "__lshift__.Scalar")
def _shift_left(F: Any, x: Any, y: Any) -> Any:
    return F.bitwise_left_shift(*promoted(F, x, y))


@row("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "__rshift__.Scalar")
def _shift_right(F: Any, x: Any, y: Any) -> Any:
    return F.bitwise_right_shift(*promoted(F, x, y))


@row("gcd.default")
def _gcd(F: Any, x: Any, y: Any) -> Any:
    return gcd(*promoted(F, x, y))


@row("lcm.default")
def _lcm(F: Any, x: Any, y: Any) -> Any:
    return lcm(*promoted(F, x, y))


# --- three operands -------------------------------------------------------------------------------


@row("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(F: Any, condition: Any, x: Any, y: Any) -> Any:
    return F.where(condition, *promoted(F, x, y))


@row("prims.fma.default")
def _fma(F: Any, a: Any, b: Any, c: Any) -> Any:
    a, b, c = promoted(F, a, b, c, opmath=True)
    return F.add(F.mul(a, b), c)


@row("addcmul.default")
def _addcmul(F: Any, x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    x, a, b = promoted(F, x, a, b, opmath=True)
    return F.add(x, F.mul(_scaled(a, value), b))


@row("addcdiv.default")
def _addcdiv(F: Any, x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    x, a, b = promoted(F, x, a, b, opmath=True)
    return F.add(x, F.div(_scaled(a, value), b))


@row("lerp.Tensor", "lerp.Scalar")
def _lerp(F: Any, start: Any, end: Any, weight: Any) -> Any:
    start, end, weight = promoted(F, start, end, weight, opmath=True)
    if not isinstance(weight, Tensor):
        if abs(weight) < 0.5:
            return start + (end - start) * weight
        return end - (end - start) * (1 - weight)
    step = end - start
    near = F.lt(F.abs(weight), 0.5)
    return F.where(near, start + weight * step, end - step * (1 - weight))


@row("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(F: Any, x: Any, mask: Any, value: Any) -> Any:
    return F.where(mask, cast(F, value, x.dtype) if isinstance(value, Tensor) else value, x)


@row("fill.Scalar", "fill.Tensor")
def _fill(F: Any, x: Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        return F.expand(cast(F, value, x.dtype), shape=x.shape)
    return F.full(shape=x.shape, value=value, dtype=x.dtype)


@row("copy.default")
def _copy(F: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    return F.expand(converted(F, source, x.dtype), shape=x.shape)


# --- gradients of activations ---------------------------------------------------------------------

_SQRT_HALF = sqrt(0.5)


@row("gelu_backward.default")
def _gelu_backward(F: Any, g: Any, x: Any, *, approximate: str = "none") -> Any:
    narrow = x.dtype in (f16, bf16)
    g, x = (cast(F, g, f32), cast(F, x, f32)) if narrow else (g, x)
    if approximate == "tanh":
        k, c = sqrt(2.0 / pi), 0.044715
        inner = (x + x * x * x * c) * k
        t = F.tanh(inner)
        slope = (x * x * (3.0 * c) + 1.0) * k
        return g * ((t + 1.0) * 0.5 + x * (1.0 - t * t) * slope * 0.5)
    cdf = (F.erf(x * _SQRT_HALF) + 1.0) * 0.5
    pdf = F.exp(x * x * -0.5) * (1.0 / sqrt(2.0 * pi))
    return g * (cdf + x * pdf)


@row("sigmoid_backward.default")
def _sigmoid_backward(F: Any, g: Any, out: Any) -> Any:
    g, out = promoted(F, g, F.conj(out), opmath=True)
    return g * (1.0 - out) * out


@row("tanh_backward.default")
def _tanh_backward(F: Any, g: Any, out: Any) -> Any:
    g, out = promoted(F, g, F.conj(out), opmath=True)
    return g * (1.0 - out * out)


@row("threshold_backward.default")
def _threshold_backward(F: Any, g: Any, x: Any, threshold: float) -> Any:
    return F.where(F.le(x, threshold), 0.0 if g.dtype.is_float else 0, g)
