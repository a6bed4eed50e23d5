"""Rows of quantized tensors: QuantizeLinear, QLinear ops and integer products.

Integer products accumulate in i32; results are rounded half to even and saturate.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import DType, f32, f64, i32, u8
from nova.frontends.onnx.element_types import DTYPES, NARROW, Coded, is_constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast
from nova.frontends.onnx.rows.convolution import convolve, find_windows
from nova.frontends.onnx.rows.narrow import decode, encode
from nova.frontends.onnx.table import row
from nova.ops import F

# The largest difference of an 8-bit number and its zero point.
_LARGEST = 255
_BITS = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}


def _aligned(node: Node, value: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point in a shape that broadcasts with `x`."""
    if value.ndim == 0 or value.size == 1:
        return F.reshape(value, ())
    if not block:
        return F.reshape(value, tuple(-1 if i == axis else 1 for i in range(x.ndim)))
    repeated = F.repeat_interleave(value, block, axis=axis)
    return F.narrow(repeated, axis, 0, x.shape[axis])


def _axis(node: Node, x: Any) -> int:
    return node.resolve(node.attr("axis", 1), x.ndim) if x.ndim > 1 else 0


def saturate(x: Any, dtype: DType) -> Any:
    """A float rounded half to even and limited to an integer type."""
    info = np.iinfo(dtype.numpy)
    return cast(F.clamp(x, min=float(info.min), max=float(info.max)), dtype)


@row("QuantizeLinear", since=10, lazy=True)
def _quantize(node: Node) -> Any:
    x, scale = node.tensor(0), node.tensor(1)
    axis, block = _axis(node, x), node.attr("block_size", 0)
    point = node.value(2) if node.has(2) else None
    element = node.attr("output_dtype", 0)
    if isinstance(point, Coded):
        element = point.element
    elif point is not None:
        element = next(e for e, d in DTYPES.items() if d is point.dtype)
    element = element or 2
    precision = DTYPES.get(node.attr("precision", 0), None)
    wide = precision or f32
    scaled = cast(x, wide) / _aligned(node, cast(scale, wide), x, axis, block)
    if element in NARROW and NARROW[element].is_float:
        return encode(node, scaled, element, bool(node.attr("saturate", 1)))
    rounded = F.round(scaled)
    if point is not None:
        numbers = point.codes if isinstance(point, Coded) else point
        rounded = rounded + _aligned(node, cast(numbers, rounded.dtype), x, axis, block)
    if element in NARROW:
        low, high = _BITS[element]
        codes = F.clamp(rounded, min=float(low), max=float(high))
        return Coded(cast(codes, NARROW[element].code), element)
    return saturate(rounded, DTYPES[element])


@row("DequantizeLinear", since=10, lazy=True)
def _dequantize(node: Node) -> Any:
    value, scale = node.value(0), node.tensor(1)
    target = DTYPES.get(node.attr("output_dtype", 0), scale.dtype)
    x = value.codes if isinstance(value, Coded) else node.tensor(0)
    axis, block = _axis(node, x), node.attr("block_size", 0)
    if isinstance(value, Coded) and value.narrow.is_float:
        numbers = decode(value, f32)
    elif x.dtype is i32:
        numbers = cast(x, f64)
    else:
        numbers = cast(x, f32)
    if node.has(2):
        point = node.value(2)
        zero = decode(point, f32) if isinstance(point, Coded) else cast(point, numbers.dtype)
        numbers = numbers - _aligned(node, cast(zero, numbers.dtype), x, axis, block)
    out = cast(numbers, f32) * _aligned(node, cast(scale, f32), x, axis, block)
    return cast(out, target)


@row("DynamicQuantizeLinear", since=11)
def _dynamic_quantize(node: Node) -> Any:
    x = node.tensor(0)
    low, high = F.minimum(F.min(x), 0.0), F.maximum(F.max(x), 0.0)
    scale = (high - low) / 255.0
    safe = F.where(F.eq(scale, 0), 1.0, scale)
    zero = F.clamp(F.round(F.neg(low) / safe), min=0.0, max=255.0)
    codes = saturate(F.round(x / safe) + zero, u8)
    return codes, scale, cast(zero, u8)


def _shifted(node: Node, x: Any, point: Any, axis: int) -> Any:
    """Integers less their zero point, as i32; a vector of zero points lies along `axis`."""
    x = cast(x, i32)
    if point is None:
        return x
    point = cast(point, i32)
    if point.ndim == 1 and point.size > 1:
        shape = [1] * x.ndim
        shape[axis] = -1
        point = F.reshape(point, tuple(shape))
    elif point.size == 1:
        point = F.reshape(point, ())
    return x - point


def _integer_matmul(node: Node, x: Any, x_point: Any, y: Any, y_point: Any) -> Any:
    """(x - x_point) @ (y - y_point) in i32: the product of the bytes, less what the points add."""
    if x.ndim < 2 or y.ndim < 2:
        left = _shifted(node, x, x_point, max(x.ndim - 2, 0))
        return F.matmul(left, _shifted(node, y, y_point, y.ndim - 1))
    x_point, y_point = _nonzero(x_point), _nonzero(y_point)
    total = F.wide_matmul(x, y)
    rows = _point_along(x_point, (-1, 1))
    columns = _point_along(y_point, (1, -1))
    # Sums of rows and columns are exact modulo 2**32, as the product is.
    if columns is not None:
        total = total - _sum_i32(x, -1) * columns
    if rows is not None:
        right = cast(y, i32) if columns is None else cast(y, i32) - columns
        total = total - rows * _sum_i32(right, -2)
    return total


def _sum_i32(x: Any, axis: int) -> Any:
    return cast(F.sum(x, axis=axis, keepdims=True), i32)


def _point_along(point: Any, shape: tuple[int, int]) -> Any:
    """A zero point in i32 that broadcasts with a product: one for all, rows or columns."""
    if point is None:
        return None
    point = cast(point, i32)
    return F.reshape(point, () if point.size == 1 else shape) if point.ndim < 2 else point


def _nonzero(point: Any) -> Any:
    """A zero point, or None for one that is 0 at import."""
    if point is not None and is_constant(point) and not point.data.any():
        return None
    return point


@row("MatMulInteger", since=10)
def _matmul_integer(node: Node) -> Any:
    return _integer_matmul(node, node.tensor(0), node.optional(2), node.tensor(1), node.optional(3))


@row("ConvInteger", since=10)
def _conv_integer(node: Node) -> Any:
    x_point, weight_point = (_nonzero(node.optional(i)) for i in (2, 3))
    return _integer_convolution(node, node.tensor(0), x_point, node.tensor(1), weight_point)


# Integers below this bound are exact in f32.
_EXACT_F32 = 1 << 24


def _integer_convolution(node: Node, x: Any, x_point: Any, weight: Any, weight_point: Any) -> Any:
    """A convolution of bytes in i32: a matmul of the weight with the windows of x."""
    groups, rank = node.attr("group", 1), x.ndim - 2
    is_matmul = rank in (1, 2, 3) and weight.ndim == x.ndim and weight.shape[1] > 1
    if not is_matmul or (x_point is not None and x_point.size != 1):
        left = _shifted(node, x, x_point, 0)
        return _convolution_in_floats(node, left, _shifted(node, weight, weight_point, 0))
    if x_point is not None:
        # A padding of 0 is one of x_point in the end.
        x_point = F.reshape(x_point, ())
        x = F.bitwise_xor(x, x_point)
    windows = find_windows(node, x, tuple(weight.shape[2:]))
    if x_point is not None:
        windows = F.bitwise_xor(windows, x_point)
    outputs, places = weight.shape[0], windows.shape[2 + rank :]
    taps = weight.size // outputs
    columns = F.reshape(windows, (x.shape[0], groups, taps, prod(places)))
    matrix = F.reshape(weight, (groups, outputs // groups, taps))
    if weight_point is not None and weight_point.size > 1:
        weight_point = F.reshape(weight_point, (groups, outputs // groups, 1))
    total = _integer_matmul(node, matrix, weight_point, columns, x_point)
    return F.reshape(total, (x.shape[0], outputs, *places))


def _convolution_in_floats(node: Node, x: Any, weight: Any) -> Any:
    """In f32 if every sum of products of 8-bit numbers is exact there, else in f64."""
    taps = weight.size // weight.shape[0] if weight.shape[0] else 0
    wide = f32 if taps * _LARGEST * _LARGEST < _EXACT_F32 else f64
    return cast(convolve(node, cast(x, wide), cast(weight, wide)), i32)


def _requantized(node: Node, total: Any, scales: tuple[Any, Any, Any], point: Any) -> Any:
    """An i32 sum as the quantized type of `point`."""
    x, y, out = (cast(s, f32) for s in scales)
    factor = x * y / out
    rounded = F.round(cast(cast(total, f64) * cast(factor, f64), f32))
    return saturate(rounded + cast(point, f32), point.dtype)


@row("QLinearMatMul", since=10)
def _qlinear_matmul(node: Node) -> Any:
    total = _integer_matmul(node, node.tensor(0), node.tensor(2), node.tensor(3), node.tensor(5))
    scales = tuple(node.tensor(i) for i in (1, 4, 6))
    shaped = []
    for scale, axis in zip(scales, (-2, -1, -2), strict=True):
        if scale.size == 1:
            shaped.append(F.reshape(scale, ()))
        elif scale.ndim == 1:
            shaped.append(F.reshape(scale, (-1, 1) if axis == -2 else (1, -1)))
        else:
            shaped.append(scale)
    point = node.tensor(7)
    point = F.reshape(point, ()) if point.size == 1 else F.reshape(point, (-1, 1))
    return _requantized(node, total, (shaped[0], shaped[1], shaped[2]), point)


@row("QLinearConv", since=10)
def _qlinear_conv(node: Node) -> Any:
    x, weight = node.tensor(0), node.tensor(3)
    x_point, weight_point = (_nonzero(node.tensor(i)) for i in (2, 5))
    total = _integer_convolution(node, x, x_point, weight, weight_point)
    rank = x.ndim - 2
    if node.has(8):
        total = total + F.reshape(cast(node.tensor(8), i32), (-1, *(1,) * rank))
    scale = node.tensor(4)
    scale = F.reshape(scale, () if scale.size == 1 else (-1, *(1,) * rank))
    out, point = F.reshape(node.tensor(6), ()), F.reshape(node.tensor(7), ())
    return _requantized(node, total, (F.reshape(node.tensor(1), ()), scale, out), point)
