"""Matmuls of narrow operands: sums and results have a wider type than the operands.

`nova.ops` registers them. `wide_matmul` is the primitive; `scaled_matmul` multiplies its result by
the scales of the operands, which becomes the epilogue of the GEMM. CPUs multiply integers as
integers. GPUs multiply those of 8 bits as bf16, exactly: k is divided into parts whose sums f32
represents, and the parts are added as integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, bf16, dtype, f32, f64, i8, i32, i64, u8
from nova.core.sizes import known_equal
from nova.errors import DTypeError, ShapeError
from nova.ops.contraction import matmul_gradients, matmul_subscripts, matmul_type
from nova.ops.functional.common import as_tensor, function, to_dtype
from nova.ops.rules import Types
from nova.ops.table import Attrs, Op, register

_WIDE = (f32, f64, i32, i64)
_EXACT = 1 << 24
"""f32 represents every integer up to this one."""


def _wide_dtype(types: Types) -> DType:
    """The dtype of sums of products: f32 for narrow floats, i32 for integers up to 32 bits."""
    dtypes = [t.dtype for t in types]
    if any(d.is_float for d in dtypes):
        return f64 if f64 in dtypes else f32
    return i64 if any(d.bits > 32 for d in dtypes) else i32


def _wide_attrs(ins: Types, attrs: Attrs) -> Attrs:
    chosen = attrs["dtype"]
    return {"dtype": _wide_dtype(ins) if chosen is None else dtype(chosen)}


def _wide_type(ins: Types, attrs: Attrs) -> TensorType:
    x, y = ins
    if x.dtype.is_float != y.dtype.is_float:
        raise DTypeError(
            f"operands are {x.dtype} and {y.dtype}: one holds floats, the other integers",
            hint="cast one of them first",
        )
    result, least = attrs["dtype"], _wide_dtype(ins)
    if result not in _WIDE or result.is_float != x.dtype.is_float or result.bits < least.bits:
        raise DTypeError(
            f"dtype {result} does not hold sums of products of {x.dtype} and {y.dtype}",
            hint=f"give {least}, or cast the result",
        )
    return matmul_type(ins, {}).with_dtype(result)


def _wide_numpy(x: np.ndarray, y: np.ndarray, dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(x.astype(dtype.numpy), y.astype(dtype.numpy)))


def _wide_lower(b: Any, out: TensorType, x: Any, y: Any, dtype: DType) -> Any:
    subscripts = matmul_subscripts(x.shape, y.shape)
    parts = _exact_parts(x.dtype, y.dtype, x.shape[-1])
    if parts is None or (dtype is i32 and not b.bytes_as_bf16):
        return b.contract(out, x, y, subscripts)
    # bf16 represents integers of 8 bits, and tensor cores multiply it.
    x, y = b.cast(x, bf16), b.cast(y, bf16)
    if parts == 1:
        product = b.contract(out.with_dtype(f32), x, y, subscripts)
        return b.cast(b.operand(product, out.with_dtype(f32)), dtype).value
    depth = x.shape[-1] // parts
    rows = b.reshaped(x, (*x.shape[:-1], parts, depth))
    at = max(0, len(y.shape) - 2)
    columns = b.reshaped(y, (*y.shape[:at], parts, depth, *y.shape[at + 1 :]))
    sums = TensorType((parts, *out.shape), f32)
    sources, result = subscripts.split("->")
    product = b.contract(sums, rows, columns, f"{sources.replace('k', 'zk')}->z{result}")
    integers = b.cast(b.operand(product, sums), dtype)
    return b.reduce(out, integers, (0,), False, 0, lambda s, total, part: total + part)


def _exact_parts(x: DType, y: DType, depth: Any) -> int | None:
    """Into how many parts k is divided, so that f32 represents every sum of a part.

    None for operands that are not integers of 8 bits, or k without a divisor.
    """
    if not {x, y} <= {i8, u8} or not isinstance(depth, int) or depth == 0:
        return None
    largest = (128 if x is i8 else 255) * (128 if y is i8 else 255)
    most = _EXACT // largest
    fewest = -(-depth // most)
    return next((n for n in range(fewest, 2 * fewest + 1) if depth % n == 0), None)


def _wide_vjp(F: Any, g: Any, out: Any, x: Any, y: Any, dtype: DType) -> tuple[Any, Any]:
    wide = [to_dtype(F, operand, dtype) for operand in (x, y)]
    dx, dy = matmul_gradients(F, g, out, *wide)
    return to_dtype(F, dx, x.dtype), to_dtype(F, dy, y.dtype)


# --- scales -------------------------------------------------------------------------------------


def _scale(F: Any, name: str, scale: Any, extent: Any, axis: int) -> Any:
    """A scale as a factor of the product: one number, or one for each row or column."""
    scale = as_tensor(F, scale)
    if not scale.dtype.is_float:
        raise DTypeError(f"scaled_matmul: {name} must hold floats, not {scale.dtype}")
    scale = to_dtype(F, scale, f32)
    if all(known_equal(n, 1) for n in scale.shape):
        return F.reshape(scale, ())
    expected = [(extent,), (extent, 1) if axis == -2 else (1, extent)]
    for shape in expected:
        if len(shape) == len(scale.shape) and all(map(known_equal, shape, scale.shape)):
            return F.reshape(scale, expected[1])
    raise ShapeError(
        f"scaled_matmul: {name} has shape {scale.shape}",
        hint=f"one number, or shape {expected[0]} or {expected[1]}: a scale for each "
        f"{'row of a' if axis == -2 else 'column of b'}",
    )


def _scaled_matmul(
    F: Any,
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    *,
    out_dtype: Any = f32,
) -> Any:
    a, b = as_tensor(F, a), as_tensor(F, b)
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise ShapeError(f"scaled_matmul: {a.shape} @ {b.shape}: both operands must be matrices")
    if a.dtype.kind == "c" or b.dtype.kind == "c" or a.dtype.is_float != b.dtype.is_float:
        raise DTypeError(
            f"scaled_matmul: operands are {a.dtype} and {b.dtype}",
            hint="both hold floats (f8e4m3, f8e5m2, bf16, ...) or both integers (i8, u8): "
            "nova.quantize and nova.cast convert",
        )
    result_type = dtype(out_dtype)
    if not result_type.is_float:
        raise DTypeError(f"scaled_matmul: out_dtype must be a float, not {result_type}")
    product = to_dtype(F, F.wide_matmul(a, b), f32)
    product = product * _scale(F, "scale_a", scale_a, a.shape[-2], -2)
    product = product * _scale(F, "scale_b", scale_b, b.shape[-1], -1)
    if bias is not None:
        product = product + to_dtype(F, as_tensor(F, bias), f32)
    return to_dtype(F, product, result_type)


ROWS: tuple[Op, ...] = (
    Op(
        "wide_matmul",
        "Matmul with sums and result in a wider type: f32 for f8, f16 and bf16, i32 for integers; "
        "the two operands may have different narrow types.",
        operands=("x", "y"),
        attrs={"dtype": None},
        canon=_wide_attrs,
        infer=_wide_type,
        numpy=_wide_numpy,
        vjp=_wide_vjp,
        lower=_wide_lower,
        tags=frozenset({"contraction", "smooth"}),
    ),
    function(
        "scaled_matmul",
        "(a @ b) * scale_a * scale_b + bias, summed in f32, for 8-bit operands: a scale is one "
        "number, or one for each row of a (column of b).",
        _scaled_matmul,
        operands=("a", "b", "scale_a", "scale_b"),
    ),
)


def register_rows() -> None:
    register(*ROWS)
