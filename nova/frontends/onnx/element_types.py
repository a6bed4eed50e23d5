"""The element types of ONNX as dtypes of Nova, and the narrow ones that Nova holds as codes.

A tensor of a narrow type (f8, f4, 4- and 2-bit integers) is a `Coded`: a tensor of u8 or i8 with
one element a byte. Casts and quantization decode and encode it (`rows/narrow.py`); other ops refuse
it.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nova.core.dtypes import (
    DType,
    TensorType,
    bf16,
    bool_,
    complex64,
    complex128,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from nova.core.records import record
from nova.errors import DTypeError
from nova.graph.tensor import Tensor

# Values of TensorProto.DataType.
DTYPES: dict[int, DType] = {
    1: f32,
    2: u8,
    3: i8,
    4: u16,
    5: i16,
    6: i32,
    7: i64,
    9: bool_,
    10: f16,
    11: f64,
    12: u32,
    13: u64,
    14: complex64,
    15: complex128,
    16: bf16,
}
ELEMENT_TYPES = {dtype: number for number, dtype in DTYPES.items()}
STRING = 8
_REFUSED = {8: "strings"}


@record
class Narrow:
    """A type with fewer bits than Nova computes with: its name, numpy type and code dtype."""

    name: str
    numpy: np.dtype
    code: DType
    is_float: bool


NARROW: dict[int, Narrow] = {
    17: Narrow("float8e4m3fn", np.dtype(ml_dtypes.float8_e4m3fn), u8, True),
    18: Narrow("float8e4m3fnuz", np.dtype(ml_dtypes.float8_e4m3fnuz), u8, True),
    19: Narrow("float8e5m2", np.dtype(ml_dtypes.float8_e5m2), u8, True),
    20: Narrow("float8e5m2fnuz", np.dtype(ml_dtypes.float8_e5m2fnuz), u8, True),
    21: Narrow("uint4", np.dtype(ml_dtypes.uint4), u8, False),
    22: Narrow("int4", np.dtype(ml_dtypes.int4), i8, False),
    23: Narrow("float4e2m1", np.dtype(ml_dtypes.float4_e2m1fn), u8, True),
    24: Narrow("float8e8m0", np.dtype(ml_dtypes.float8_e8m0fnu), u8, True),
    25: Narrow("uint2", np.dtype(ml_dtypes.uint2), u8, False),
    26: Narrow("int2", np.dtype(ml_dtypes.int2), i8, False),
}
_BY_NUMPY = {narrow.numpy: number for number, narrow in NARROW.items()}


@record
class Coded:
    """A tensor of a narrow type: `codes` has one element a byte, `element` is its ONNX type."""

    codes: Tensor
    element: int

    @property
    def narrow(self) -> Narrow:
        return NARROW[self.element]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape


def dtype_of(element: int) -> DType:
    """The dtype of an ONNX element type; DTypeError for one that Nova does not compute with."""
    if element in DTYPES:
        return DTYPES[element]
    if element in NARROW:
        raise DTypeError(
            f"{NARROW[element].name} is not computed with here",
            hint="Cast, QuantizeLinear and DequantizeLinear take it",
        )
    name = _REFUSED.get(element, f"element type {element}")
    raise DTypeError(f"{name}: Nova has no tensors of this type", hint="keep it out of the model")


def constant(array: np.ndarray) -> Any:
    """A value of the graph that is known at import: a leaf, or the codes of a narrow type."""
    array = np.asarray(array)
    if array.dtype in _BY_NUMPY:
        element = _BY_NUMPY[array.dtype]
        return Coded(constant(to_codes(array, element)), element)
    if array.dtype.kind in "OUS":
        raise DTypeError("strings: Nova has no tensors of this type")
    dtype = next((d for d in DTYPES.values() if d.numpy == array.dtype), None)
    if dtype is None:
        raise DTypeError(f"{array.dtype}: Nova has no tensors of this type")
    array = np.ascontiguousarray(array).reshape(array.shape)
    return Tensor(TensorType(array.shape, dtype), data=array, fixed=True)


def to_codes(array: np.ndarray, element: int) -> np.ndarray:
    """The codes of an array of a narrow type: bits of floats, values of integers."""
    narrow = NARROW[element]
    if not narrow.is_float:
        return array.astype(narrow.code.numpy)
    return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape)


def from_codes(codes: np.ndarray, element: int) -> np.ndarray:
    """The array of a narrow type that has these codes."""
    narrow = NARROW[element]
    if not narrow.is_float:
        return codes.astype(narrow.numpy)
    return np.ascontiguousarray(codes).view(narrow.numpy).reshape(codes.shape)


def is_constant(value: Any) -> bool:
    """Whether a value is known at import."""
    if isinstance(value, Coded):
        value = value.codes
    return isinstance(value, Tensor) and value.op is None and value.data is not None
