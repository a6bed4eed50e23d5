"""Products of 8-bit operands, bits as another type, and the ops of `quantized_decomposed`."""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import f32, i32
from nova.frontends.torch.rows.table import cast, row, unsupported

_NAMESPACE = "quantized_decomposed"


@row("_scaled_mm.default")
def _scaled_mm(
    F: Any,
    x: Any,
    y: Any,
    scale_x: Any,
    scale_y: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    rows, columns = x.shape[0], y.shape[1]
    for scale, per in ((scale_x, rows), (scale_y, columns)):
        if scale.size not in (1, per):
            raise unsupported(f"_scaled_mm with scales of shape {scale.shape}")
    product = F.scaled_matmul(
        x,
        y,
        F.reshape(scale_x, (-1,) if scale_x.size > 1 else ()),
        F.reshape(scale_y, (-1,) if scale_y.size > 1 else ()),
        bias,
    )
    result = x.dtype if out_dtype is None else out_dtype
    if scale_result is not None and result.bits == 8:
        product = product * F.reshape(scale_result, ())
    return cast(F, product, result)


@row("_int_mm.default")
def _int_mm(F: Any, x: Any, y: Any) -> Any:
    return F.wide_matmul(x, y)


def _along(F: Any, value: Any, x: Any, axis: int | None) -> Any:
    """Scales or zero points in a shape that broadcasts with x."""
    if not hasattr(value, "shape"):
        return value
    if axis is None:
        return F.reshape(value, ())
    return F.reshape(value, tuple(-1 if i == axis else 1 for i in range(x.ndim)))


def _quantized(F: Any, x: Any, scale: Any, point: Any, low: int, high: int, dtype: Any) -> Any:
    """torch multiplies by the reciprocal of the scale."""
    inverse = F.reciprocal(cast(F, scale, f32)) if hasattr(scale, "shape") else 1.0 / scale
    point = cast(F, point, f32) if hasattr(point, "shape") else float(point)
    number = F.round(cast(F, x, f32) * inverse) + point
    return cast(F, F.clamp(number, min=low, max=high), dtype)


def _dequantized(F: Any, x: Any, scale: Any, point: Any, out_dtype: Any) -> Any:
    if hasattr(point, "shape"):
        point = cast(F, point, i32)
    number = cast(F, cast(F, x, i32) - point, f32)
    scale = cast(F, scale, f32) if hasattr(scale, "shape") else scale
    return cast(F, number * scale, out_dtype or f32)


@row(
    f"{_NAMESPACE}.quantize_per_tensor.default",
    f"{_NAMESPACE}.quantize_per_tensor.tensor",
)
def _quantize_per_tensor(
    F: Any, x: Any, scale: Any, point: Any, low: int, high: int, dtype: Any
) -> Any:
    scale, point = (_along(F, value, x, None) for value in (scale, point))
    return _quantized(F, x, scale, point, low, high, dtype)


@row(
    f"{_NAMESPACE}.dequantize_per_tensor.default",
    f"{_NAMESPACE}.dequantize_per_tensor.tensor",
)
def _dequantize_per_tensor(
    F: Any,
    x: Any,
    scale: Any,
    point: Any,
    low: int,
    high: int,
    dtype: Any,
    *,
    out_dtype: Any = None,
) -> Any:
    scale, point = (_along(F, value, x, None) for value in (scale, point))
    return _dequantized(F, x, scale, point, out_dtype)


@row(f"{_NAMESPACE}.quantize_per_channel.default")
def _quantize_per_channel(
    F: Any, x: Any, scales: Any, points: Any, axis: int, low: int, high: int, dtype: Any
) -> Any:
    scales, points = (_along(F, value, x, axis) for value in (scales, points))
    return _quantized(F, x, scales, points, low, high, dtype)


@row(f"{_NAMESPACE}.dequantize_per_channel.default")
def _dequantize_per_channel(
    F: Any,
    x: Any,
    scales: Any,
    points: Any,
    axis: int,
    low: int,
    high: int,
    dtype: Any,
    *,
    out_dtype: Any = None,
) -> Any:
    scales = _along(F, scales, x, axis)
    points = 0 if points is None else _along(F, points, x, axis)
    return _dequantized(F, x, scales, points, out_dtype)
