"""Rows of arithmetic, comparisons, logic, bits, casts and products."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from nova.core.dtypes import bool_, f64, i64
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant, dtype_of
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, narrow, number, wide
from nova.frontends.onnx.table import row
from nova.ops import F

# ONNX ops of one float operand that are one op of Nova.
_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "neg",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
    "BitwiseNot": "bitwise_not",
}
_BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


@row(*_UNARY)
def _unary(node: Node) -> Any:
    return getattr(F, _UNARY[node.op])(node.tensor(0))


def operands(node: Node) -> tuple[Any, Any]:
    """Two operands of one dtype."""
    x, y = node.tensor(0), node.tensor(1)
    if x.dtype is not y.dtype:
        raise OnnxError(f"{node.op} of {x.dtype} and {y.dtype}")
    return x, aligned(node, x, y)


def aligned(node: Node, x: Any, y: Any) -> Any:
    """`y` as operands were broadcast before opset 7: its axes are those of `x` from `axis` on."""
    axis = node.attrs.get("axis")
    if node.version >= 7 or axis is None:
        return y
    trailing = x.ndim - node.resolve(axis, x.ndim) - y.ndim
    return F.reshape(y, (*y.shape, *(1,) * max(trailing, 0)))


@row(*_BINARY)
def _binary(node: Node) -> Any:
    return getattr(F, _BINARY[node.op])(*operands(node))


@row(*_VARIADIC)
def _variadic(node: Node) -> Any:
    return reduce(getattr(F, _VARIADIC[node.op]), node.tensors())


@row("Mean")
def _mean(node: Node) -> Any:
    tensors = node.tensors()
    return reduce(F.add, tensors) / float(len(tensors))


@row("Div")
def _div(node: Node) -> Any:
    x, y = operands(node)
    return F.div(x, y) if x.dtype.is_float else truncated_division(x, y)


def truncated_division(x: Any, y: Any) -> Any:
    """The quotient of integers, rounded toward zero."""
    quotient = F.floor_div(x, y)
    if x.dtype.kind == "u":
        return quotient
    # floor_div rounds down: one more where the signs differ and something is left.
    inexact = F.ne(quotient * y, x) & F.ne(F.lt(x, 0), F.lt(y, 0))
    return quotient + cast(inexact, x.dtype)


@row("Mod")
def _mod(node: Node) -> Any:
    x, y = operands(node)
    if not node.attr("fmod", 0):
        if x.dtype.is_float:
            raise OnnxError("Mod of floats needs fmod=1")
        return F.mod(x, y)
    if x.dtype.kind == "u":
        return F.mod(x, y)
    remainder = F.mod(F.abs(x), F.abs(y))
    return F.where(F.lt(x, 0), F.neg(remainder), remainder)


@row("Pow")
def _pow(node: Node) -> Any:
    x, y = node.tensor(0), aligned(node, node.tensor(0), node.tensor(1))
    if x.dtype.is_float:
        return F.pow(x, cast(y, x.dtype))
    if y.dtype.is_float:
        return cast(F.pow(cast(x, f64), cast(y, f64)), x.dtype)
    return cast(F.pow(cast(x, i64), cast(y, i64)), x.dtype)


@row("BitShift", since=11)
def _bit_shift(node: Node) -> Any:
    x, y = operands(node)
    direction = node.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise OnnxError(f"BitShift: direction is {direction!r}")
    shift = F.bitwise_left_shift if direction == "LEFT" else F.bitwise_right_shift
    shifted = shift(x, y)
    # Nova keeps one bit of an unsigned number that is shifted out of its width.
    return F.where(F.ge(y, x.dtype.bits), number(0, x.dtype), shifted)


@row("Clip")
def _clip(node: Node) -> Any:
    x = node.tensor(0)
    if node.version < 11:
        low, high = node.attrs.get("min"), node.attrs.get("max")
        low = None if low is None else number(low, x.dtype)
        high = None if high is None else number(high, x.dtype)
    else:
        low, high = node.optional(1), node.optional(2)
    x = x if low is None else F.maximum(x, low)
    return x if high is None else F.minimum(x, high)


@row("IsInf")
def _is_inf(node: Node) -> Any:
    x = node.tensor(0)
    infinite = F.isinf(x)
    if not node.attr("detect_negative", 1):
        infinite = infinite & F.gt(x, 0)
    if not node.attr("detect_positive", 1):
        infinite = infinite & F.lt(x, 0)
    return infinite


@row("Where")
def _where(node: Node) -> Any:
    return F.where(cast(node.tensor(0), bool_), node.tensor(1), node.tensor(2))


# --- products -------------------------------------------------------------------------------------


@row("MatMul")
def _matmul(node: Node) -> Any:
    return F.matmul(*operands(node))


@row("Gemm")
def _gemm(node: Node) -> Any:
    x, y = operands(node)
    x = F.transpose(x) if node.attr("transA", 0) else x
    y = F.transpose(y) if node.attr("transB", 0) else y
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    product = F.matmul(x, y)
    if alpha != 1.0:
        product = cast(product * alpha, product.dtype)
    bias = node.optional(2)
    if bias is None:
        return product
    return product + (bias if beta == 1.0 else cast(bias * beta, bias.dtype))


@row("Einsum", since=12)
def _einsum(node: Node) -> Any:
    return F.einsum(node.attr("equation").replace(" ", ""), *node.tensors())


@row("Det", since=11)
def _det(node: Node) -> Any:
    """By Gaussian elimination with partial pivoting, unrolled over the rows."""
    x = node.tensor(0)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise OnnxError(f"Det of {x.shape}")
    size = x.shape[-1]
    if size > 32:
        raise node.refused(f"a matrix of {size} rows", "up to 32 are unrolled")
    lead = x.shape[:-2]
    rows = F.reshape(wide(x), (-1 if x.size else 0, size, size)) if lead else F.unsqueeze(x, 0)
    result = number(1, rows.dtype)
    for step in range(size):
        # The row with the largest head becomes the pivot; a swap changes the sign.
        heads = rows[:, :, 0]
        at = F.argmax(F.abs(heads), axis=1, keepdims=True)
        pivot = F.gather(
            rows, F.expand(F.unsqueeze(at, 2), (rows.shape[0], 1, rows.shape[2])), axis=1
        )
        head = pivot[:, 0, 0]
        sign = F.where(F.eq(at[:, 0], 0), 1.0, -1.0)
        result = result * head * cast(sign, rows.dtype)
        if step == size - 1:
            break
        first = rows[:, 0:1, :]
        # The first row moves to the pivot's place, then the pivot's row is left out.
        matches = F.eq(F.reshape(F.arange(rows.shape[1]), (1, -1, 1)), F.reshape(at, (-1, 1, 1)))
        others = F.where(matches, first, rows)[:, 1:, :]
        safe = F.where(F.eq(head, 0), 1.0, head)
        factor = others[:, :, 0:1] / F.reshape(cast(safe, rows.dtype), (-1, 1, 1))
        rows = (others - factor * pivot)[:, :, 1:]
    return cast(F.reshape(result, lead), x.dtype)


# --- casts ----------------------------------------------------------------------------------------


@row("BitCast", since=26)
def _bit_cast(node: Node) -> Any:
    x = node.tensor(0)
    target = dtype_of(node.attr("to"))
    if x.dtype is target:
        return x
    if target.bits != x.dtype.bits or target is bool_:
        raise node.refused(f"{x.dtype} to {target}", "types of one width have the same bits")
    return F.bitcast(x, dtype=target)


# --- running sums and products ----------------------------------------------------------------


def _running(node: Node, scan: Any, identity: int) -> Any:
    x = node.tensor(0)
    axis = node.resolve(int(node.scalar(1)), x.ndim)
    reverse, exclusive = node.attr("reverse", 0), node.attr("exclusive", 0)
    x = F.flip(x, axes=(axis,)) if reverse else x
    if exclusive and x.shape[axis]:
        low = [int(i == axis) for i in range(x.ndim)]
        x = F.pad(
            narrow(x, axis, 0, x.shape[axis] - 1),
            low=tuple(low),
            high=(0,) * x.ndim,
            value=identity,
        )
    result = scan(x, axis)
    return F.flip(result, axes=(axis,)) if reverse else result


@row("CumSum", since=11)
def _cumsum(node: Node) -> Any:
    return _running(node, lambda x, axis: cast(F.cumsum(x, axis=axis), x.dtype), 0)


@row("CumProd", since=26)
def _cumprod(node: Node) -> Any:
    return _running(node, _products, 1)


def _products(x: Any, axis: int) -> Any:
    if x.dtype.is_float:
        return F.cumprod(x, axis)
    step = 1  # Hillis and Steele's scan: log2 steps
    while step < x.shape[axis]:
        low = [step if i == axis else 0 for i in range(x.ndim)]
        shifted = narrow(x, axis, 0, x.shape[axis] - step)
        x = x * F.pad(shifted, low=tuple(low), high=(0,) * x.ndim, value=1)
        step *= 2
    return x


@row("MelWeightMatrix", since=17)
def _mel_weights(node: Node) -> Any:
    bins, length, rate = (int(node.scalar(i)) for i in range(3))
    low, high = (float(node.scalar(i)) for i in (3, 4))
    target = dtype_of(node.attr("output_datatype", 1))
    spectrum = length // 2 + 1
    edges = np.arange(0, bins + 2, dtype=np.float64)
    mel = [2595 * np.log10(1 + f / 700) for f in (low, high)]
    hertz = 700 * (10 ** ((edges * (mel[1] - mel[0]) / (bins + 2) + mel[0]) / 2595) - 1)
    points = ((length + 1) * hertz) // rate
    weights = np.zeros((spectrum, bins))
    for i in range(bins):
        lower, center, upper = (int(v) for v in points[i : i + 3])
        if lower == center:
            weights[center, i] = 1
        else:
            for j in range(lower, center + 1):
                weights[j, i] = (j - lower) / (center - lower)
        if upper > center:
            for j in range(center, upper):
                weights[j, i] = (upper - j) / (upper - center)
    return constant(weights.astype(np.float32).astype(target.numpy))
