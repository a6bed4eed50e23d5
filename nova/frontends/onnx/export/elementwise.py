"""Export rows of elementwise ops, reductions and products."""

from __future__ import annotations

from math import log, pi
from typing import Any

from nova.core.dtypes import bool_, i32
from nova.errors import UnsupportedOpError
from nova.frontends.onnx.element_types import ELEMENT_TYPES
from nova.frontends.onnx.export.writer import Writer, exports
from nova.graph.tensor import Tensor

# Ops of Nova that are one ONNX node without attributes.
_SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bitwise_and": "BitwiseAnd",
    "bitwise_not": "BitwiseNot",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "detach": "Identity",
    "div": "Div",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "isnan": "IsNaN",
    "le": "LessOrEqual",
    "log": "Log",
    "lt": "Less",
    "matmul": "MatMul",
    "maximum": "Max",
    "minimum": "Min",
    "mish": "Mish",
    "mul": "Mul",
    "neg": "Neg",
    "pow": "Pow",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
    "where": "Where",
}
_OF_BOOLS = {"add": "Or", "mul": "And", "maximum": "Or", "minimum": "And"}
_OF_BOOLS |= {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor", "bitwise_not": "Not"}
_WHOLE = ("floor", "ceil", "round")


@exports(*_SAME)
def _same(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    operand = t.inputs[0].dtype
    if t.op.name in _WHOLE and not operand.is_float:
        return w.node("Identity", *names)
    if t.op.name == "isnan" and not operand.is_float:
        return w.node("And", w.constant(False, bool_), w.node("Equal", names[0], names[0]))
    if operand is bool_ and t.op.name in _OF_BOOLS:
        return w.node(_OF_BOOLS[t.op.name], *names)
    return w.node(_SAME[t.op.name], *names)


@exports("ne")
def _not_equal(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Not", w.node("Equal", *names))


@exports("logical_and", "logical_or", "logical_xor", "logical_not")
def _logical(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    operands = [
        n if x.dtype is bool_ else w.cast(n, bool_) for n, x in zip(names, t.inputs, strict=True)
    ]
    return w.node(t.op.name.removeprefix("logical_").capitalize(), *operands)


@exports("isinf")
def _isinf(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("IsInf", names[0])


@exports("isfinite")
def _isfinite(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Not", w.node("Or", w.node("IsNaN", names[0]), w.node("IsInf", names[0])))


@exports("square")
def _square(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Mul", names[0], names[0])


@exports("rsqrt")
def _rsqrt(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Reciprocal", w.node("Sqrt", names[0]))


@exports("trunc")
def _trunc(w: Writer, t: Tensor, names: list[str]) -> str:
    if not t.dtype.is_float:
        return w.node("Identity", *names)
    return w.node("Mul", w.node("Sign", names[0]), w.node("Floor", w.node("Abs", names[0])))


@exports("floor_div")
def _floor_div(w: Writer, t: Tensor, names: list[str]) -> str:
    quotient = w.node("Div", *names)
    if t.dtype.is_float:
        return w.node("Floor", quotient)
    if t.dtype.kind == "u":
        return quotient
    # ONNX rounds quotients of integers toward zero.
    zero = w.constant(0, t.dtype)
    inexact = w.node("Not", w.node("Equal", w.node("Mul", quotient, names[1]), names[0]))
    signs = w.node("Xor", w.node("Less", names[0], zero), w.node("Less", names[1], zero))
    less = w.node("Sub", quotient, w.constant(1, t.dtype))
    return w.node("Where", w.node("And", inexact, signs), less, quotient)


@exports("mod")
def _mod(w: Writer, t: Tensor, names: list[str]) -> str:
    if not t.dtype.is_float:
        return w.node("Mod", *names)
    steps = w.node("Floor", w.node("Div", *names))
    return w.node("Sub", names[0], w.node("Mul", steps, names[1]))


@exports("bitwise_left_shift", "bitwise_right_shift")
def _shift(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    if t.dtype.kind != "u":
        raise UnsupportedOpError(f"{t.op.name} of {t.dtype}: ONNX shifts unsigned integers only")
    direction = "LEFT" if "left" in t.op.name else "RIGHT"
    return w.node("BitShift", *names, direction=direction)


@exports("clamp")
def _clamp(w: Writer, t: Tensor, names: list[str]) -> str:
    bounds = [t.attrs["min"], t.attrs["max"]]
    return w.node("Clip", names[0], *("" if b is None else w.constant(b, t.dtype) for b in bounds))


@exports("cast")
def _cast(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Cast", names[0], to=ELEMENT_TYPES[t.dtype])


# --- functions that ONNX has in another form ------------------------------------------------------


@exports("exp2")
def _exp2(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Pow", w.constant(2.0, t.dtype), names[0])


@exports("expm1")
def _expm1(w: Writer, t: Tensor, names: list[str]) -> str:
    """2 sinh(x / 2) exp(x / 2): accurate near 0, where exp(x) - 1 cancels."""
    half = w.node("Mul", names[0], w.constant(0.5, t.dtype))
    product = w.node("Mul", w.node("Sinh", half), w.node("Exp", half))
    return w.node("Mul", product, w.constant(2.0, t.dtype))


@exports("log2", "log10")
def _log_base(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    base = 2.0 if t.op.name == "log2" else 10.0
    return w.node("Mul", w.node("Log", names[0]), w.constant(1 / log(base), t.dtype))


@exports("log1p")
def _log1p(w: Writer, t: Tensor, names: list[str]) -> str:
    """2 atanh(x / (2 + x)): accurate near 0, where 1 + x rounds."""
    total = w.node("Add", names[0], w.constant(2.0, t.dtype))
    inverse = w.node("Atanh", w.node("Div", names[0], total))
    return w.node("Mul", inverse, w.constant(2.0, t.dtype))


@exports("atan2")
def _atan2(w: Writer, t: Tensor, names: list[str]) -> str:
    y, x = names
    zero = w.constant(0.0, t.dtype)
    angle = w.node("Atan", w.node("Div", y, x))
    below = w.node("Less", y, zero)
    shift = w.node("Where", below, w.constant(-pi, t.dtype), w.constant(pi, t.dtype))
    backward = w.node("Where", w.node("Less", x, zero), w.node("Add", angle, shift), angle)
    upright = w.node("Mul", w.node("Sign", y), w.constant(pi / 2, t.dtype))
    return w.node("Where", w.node("Equal", x, zero), upright, backward)


@exports("leaky_relu")
def _leaky_relu(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("LeakyRelu", names[0], alpha=float(t.attrs["negative_slope"]))


@exports("elu")
def _elu(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Elu", names[0], alpha=float(t.attrs["alpha"]))


@exports("gelu")
def _gelu(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Gelu", names[0], approximate=t.attrs["approximate"])


@exports("silu")
def _silu(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Mul", names[0], w.node("Sigmoid", names[0]))


@exports("softplus")
def _softplus(w: Writer, t: Tensor, names: list[str]) -> str:
    beta = float(t.attrs["beta"])
    scaled = w.node("Mul", names[0], w.constant(beta, t.dtype))
    curved = w.node("Mul", w.node("Softplus", scaled), w.constant(1 / beta, t.dtype))
    linear = w.node("Greater", scaled, w.constant(float(t.attrs["threshold"]), t.dtype))
    return w.node("Where", linear, names[0], curved)


# --- reductions -----------------------------------------------------------------------------------

_REDUCTIONS = {
    "sum": "ReduceSum",
    "prod": "ReduceProd",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "mean": "ReduceMean",
    "logsumexp": "ReduceLogSumExp",
}


def _axes(t: Tensor) -> Any:
    axis = t.attrs["axis"]
    if axis is None:
        return tuple(range(t.inputs[0].ndim))
    return axis if isinstance(axis, tuple) else (axis,)


@exports(*_REDUCTIONS)
def _reduce(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    x = names[0] if t.inputs[0].dtype is t.dtype else w.cast(names[0], t.dtype)
    axes, keep = _axes(t), int(t.attrs["keepdims"])
    if t.dtype is bool_:
        x = w.cast(x, i32)
    options = {"keepdims": keep, "noop_with_empty_axes": 1}
    result = w.node(_REDUCTIONS[t.op.name], x, w.ints(axes), **options)
    return w.cast(result, bool_) if t.dtype is bool_ else result


@exports("any", "all")
def _any(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    truth = names[0] if t.inputs[0].dtype is bool_ else w.cast(names[0], bool_)
    op = "ReduceMax" if t.op.name == "any" else "ReduceMin"
    options = {"keepdims": int(t.attrs["keepdims"]), "noop_with_empty_axes": 1}
    return w.cast(w.node(op, w.cast(truth, i32), w.ints(_axes(t)), **options), bool_)


@exports("argmax", "argmin")
def _arg(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    op = "ArgMax" if t.op.name == "argmax" else "ArgMin"
    axis, keep = t.attrs["axis"], int(t.attrs["keepdims"])
    if axis is not None:
        return w.node(op, names[0], axis=int(axis), keepdims=keep)
    flat = w.node("Reshape", names[0], w.ints([-1]))
    return w.node("Reshape", w.node(op, flat, axis=0, keepdims=0), w.ints(t.shape))
