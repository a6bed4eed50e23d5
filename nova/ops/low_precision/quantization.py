"""Affine quantization of tensors, and 4-bit integers packed in bytes.

`nova.ops` registers the functions, which are written with other rows. x is close to
(q - zero_point) * scale; q saturates. Semantics are those of ONNX's QuantizeLinear.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import FLOATS_8, DType, dtype, f32, f64, i8, i16, i32, i64, u8, u16
from nova.core.sizes import known_equal
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.functional.common import as_floats, as_tensor, function, is_tensor, to_dtype
from nova.ops.rules import resolve_axis, static_axis
from nova.ops.table import Op, register

_INTEGERS = (i8, u8, i16, u16, i32)
_RANGES = {"i4": (-8, 7), "u4": (0, 15)}
"""Integers that are stored one in a byte, until `pack_int4` packs them."""


def _target(name: str, spec: Any) -> tuple[DType, float, float]:
    """The dtype of quantized numbers, the least and the largest of them."""
    if isinstance(spec, str) and spec in _RANGES:
        low, high = _RANGES[spec]
        return (i8 if spec == "i4" else u8), low, high
    names = [*_RANGES, *(d.name for d in (*_INTEGERS, *FLOATS_8))]
    try:
        chosen = dtype(spec)
    except DTypeError as error:
        short = str(spec).removeprefix("torch.").replace("uint", "u").replace("int", "i")
        if short in names:
            hint = f"did you mean {short}?"
        elif "did you mean" in str(error.hint):
            hint = str(error.hint)
        else:
            hint = f"give one of {', '.join(names)}"
        raise DTypeError(f"{name}: {error.what}", hint=hint) from None
    if chosen in FLOATS_8:
        from ml_dtypes import finfo

        largest = float(finfo(chosen.numpy).max)
        return chosen, -largest, largest
    if chosen not in _INTEGERS:
        raise DTypeError(
            f"{name}: dtype {chosen} is not one to quantize to",
            hint=f"give one of {', '.join(names)}; nova.cast converts to other dtypes",
        )
    limits = np.iinfo(chosen.numpy)
    return chosen, int(limits.min), int(limits.max)


def _along(F: Any, name: str, option: str, value: Any, x: Any, axis: int | None) -> Any:
    """A scale or zero point that broadcasts to x: one number, or one for each index of `axis`."""
    value = as_tensor(F, value)
    if all(known_equal(n, 1) for n in value.shape):
        return F.reshape(value, ())
    if axis is None or len(value.shape) != 1:
        raise ShapeError(
            f"{name}: {option} has shape {value.shape}",
            hint="one number, or one for each index of the axis that axis= names",
        )
    position = resolve_axis(axis, len(x.shape))
    if not known_equal(value.shape[0], x.shape[position]):
        raise ShapeError(
            f"{name}: {option} has {value.shape[0]} elements, axis {axis} of x {x.shape[position]}"
        )
    shape = [1] * len(x.shape)
    shape[position] = value.shape[0]
    return F.reshape(value, tuple(shape))


def _check_point(name: str, zero_point: Any, dtype: str, low: float, high: float) -> None:
    """Raise for a zero point that no quantized number can equal, where its value is known."""
    values = zero_point
    if is_tensor(zero_point):
        values = zero_point.data if zero_point.op is None else None
    if values is None:
        return
    numbers = np.asarray(values)
    outside = numbers[~((numbers >= low) & (numbers <= high) & (numbers % 1 == 0))]
    if outside.size:
        raise AttributeValueError(
            f"{name}: zero_point {outside.flat[0]} is not a number of {dtype}",
            hint=f"integers from {low:.0f} to {high:.0f}",
        )


def _quantize(
    F: Any, x: Any, scale: Any, zero_point: Any = None, *, dtype: Any = i8, axis: int | None = None
) -> Any:
    (x,) = as_floats(F, x)
    target, low, high = _target("quantize", dtype)
    wide = to_dtype(F, x, f32) if x.dtype.bits < 32 else x
    divisor = to_dtype(F, _along(F, "quantize", "scale", scale, x, axis), wide.dtype)
    quotient = wide / divisor
    if target in FLOATS_8:
        if zero_point is not None:
            raise AttributeValueError(f"quantize: {target} has no zero point")
        return F.cast(F.clamp(quotient, min=low, max=high), dtype=target)
    number = F.round(quotient)
    exact = wide.dtype
    if target is i32:
        # An f32 does not represent the largest i32; sums of what i32 may give fit into i64.
        number, exact = F.cast(F.clamp(number, min=2.0 * low, max=-2.0 * low), dtype=i64), i64
    if zero_point is not None:
        _check_point("quantize", zero_point, str(dtype), low, high)
        offset = _along(F, "quantize", "zero_point", zero_point, x, axis)
        number = number + to_dtype(F, offset, exact)
    return F.cast(F.clamp(number, min=low, max=high), dtype=target)


def _dequantize_linear(
    F: Any, x: Any, scale: Any, zero_point: Any = None, *, dtype: Any = f32, axis: int | None = None
) -> Any:
    x = as_tensor(F, x)
    result = _result_dtype(dtype)
    if not x.dtype.is_integer and x.dtype not in FLOATS_8:
        raise DTypeError(f"dequantize_linear: x is {x.dtype}, not integers or 8-bit floats")
    wide = result if result.bits >= 32 else f32
    number = x
    if zero_point is not None:
        if x.dtype in FLOATS_8:
            raise AttributeValueError(f"dequantize_linear: {x.dtype} has no zero point")
        limits = np.iinfo(x.dtype.numpy)
        _check_point("dequantize_linear", zero_point, x.dtype.name, limits.min, limits.max)
        offset = _along(F, "dequantize_linear", "zero_point", zero_point, x, axis)
        # Differences of integers are exact in the next wider type; those of 64 bits round.
        exact = i32 if x.dtype.bits < 32 else i64 if x.dtype.bits == 32 else f64
        number = to_dtype(F, x, exact) - to_dtype(F, offset, exact)
    factor = to_dtype(F, _along(F, "dequantize_linear", "scale", scale, x, axis), wide)
    return to_dtype(F, to_dtype(F, number, wide) * factor, result)


def _result_dtype(spec: Any) -> DType:
    result = dtype(spec)
    if not result.is_float:
        raise DTypeError(f"dequantize_linear: dtype must be a float, not {result}")
    return result


# --- 4-bit integers -----------------------------------------------------------------------------


def _bytes_operand(F: Any, name: str, x: Any, expected: tuple[DType, ...]) -> Any:
    x = as_tensor(F, x)
    if x.dtype not in expected:
        names = " or ".join(d.name for d in expected)
        raise DTypeError(f"{name}: x is {x.dtype}, not {names}")
    if not x.shape:
        raise ShapeError(f"{name}: x has no axes")
    return x


def _pack_int4(F: Any, x: Any) -> Any:
    x = _bytes_operand(F, "pack_int4", x, (i8, u8))
    size = static_axis(x.type, len(x.shape) - 1, "pack_int4 packs")
    if size % 2:
        raise ShapeError(
            f"pack_int4: the last axis of {x.shape} is odd", hint="pad it with one element"
        )
    pairs = F.reshape(F.bitwise_and(F.cast(x, dtype=u8), 15), (*x.shape[:-1], size // 2, 2))
    low, high = pairs[..., 0], pairs[..., 1]
    return F.bitwise_or(low, F.bitwise_left_shift(high, 4))


def _unpack_int4(F: Any, x: Any, *, signed: bool = True) -> Any:
    x = _bytes_operand(F, "unpack_int4", x, (u8,))
    size = static_axis(x.type, len(x.shape) - 1, "unpack_int4 unpacks")
    halves = F.stack([F.bitwise_and(x, 15), F.bitwise_right_shift(x, 4)], axis=-1)
    codes = F.reshape(halves, (*x.shape[:-1], 2 * size))
    if not signed:
        return codes
    # The sign bit has weight -8.
    return F.cast(F.bitwise_xor(codes, 8), dtype=i8) - 8


_X = ("x",)
ROWS: tuple[Op, ...] = (
    function(
        "quantize",
        "x / scale rounded to even, plus zero_point, saturated to dtype (i4, u4, i8, u8, i16, u16, "
        "i32, f8e4m3 or f8e5m2); scale and zero_point are numbers, or one for each index of axis.",
        _quantize,
        operands=_X,
    ),
    function(
        "dequantize_linear",
        "(x - zero_point) * scale, the inverse of quantize.",
        _dequantize_linear,
        operands=_X,
    ),
    function(
        "pack_int4",
        "4-bit integers, one in a byte, packed two in a byte along the last axis: the first of a "
        "pair in the low half.",
        _pack_int4,
        operands=_X,
    ),
    function(
        "unpack_int4",
        "The 4-bit integers of packed bytes, one in a byte: i8 from -8 to 7, or u8 from 0 to 15.",
        _unpack_int4,
        operands=_X,
    ),
)


def register_rows() -> None:
    register(*ROWS)
