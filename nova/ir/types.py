"""Nova types as MLIR types and back."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nova.core.constants import LEAST
from nova.core.dtypes import (
    ALL,
    COMPLEX,
    EVERY,
    FLOATS_8,
    MORE_INTEGERS,
    DType,
    TensorType,
    array_dtype,
    bf16,
    bool_,
    converted,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    real_of,
)
from nova.core.sizes import is_static_shape
from nova.errors import DTypeError
from nova.ir.bindings import ir
from nova.ir.linalg.attribute_cache import active_cache
from nova.ir.resources import resource, resource_bytes
from nova.ir.symbolic.size_table import decoded, representative
from nova.ops.complex.rows import interleaved

_ARRAYS = (*ALL, *MORE_INTEGERS)
_BY_TEXT = (
    {("ui" + d.name[1:] if d.kind == "u" else d.name): d for d in _ARRAYS if d is not bool_}
    | {"s" + d.name: d for d in _ARRAYS if d.kind == "i"}
    | {"i1": bool_, "f8E4M3FN": f8e4m3, "f8E5M2": f8e5m2}
    | {f"complex<{real_of(d).name}>": d for d in COMPLEX}
)
_FLOATS = {
    f64: ir.F64Type,
    f32: ir.F32Type,
    f16: ir.F16Type,
    bf16: ir.BF16Type,
    f8e4m3: ir.Float8E4M3FNType,
    f8e5m2: ir.Float8E5M2Type,
}
HOST_FLOATS = (bf16, *FLOATS_8)
"""Floats of ml_dtypes: MLIR's bindings cannot read their elements."""
_TYPES: dict[str, TensorType] = {}
"""Keyed by the text of MLIR types: programs have few types and look them up often."""
_MOST_TYPES = 4096


def element_type(dtype: DType) -> ir.Type:
    """The signless MLIR element type; u8 is i8, u32 is i32, bool is i1."""
    if dtype.is_float:
        return _FLOATS[dtype].get()
    return ir.IntegerType.get_signless(1 if dtype is bool_ else dtype.bits)


def dialect_element_type(dtype: DType) -> ir.Type:
    """The element type in the nova dialect, where u8 is `ui8` to keep the signedness."""
    if dtype.is_complex:
        return ir.ComplexType.get(element_type(real_of(dtype)))
    return ir.IntegerType.get_unsigned(dtype.bits) if dtype.kind == "u" else element_type(dtype)


def tensor_type(type_: TensorType, *, dialect: bool = False) -> ir.RankedTensorType:
    """The ranked tensor type, with nova-dialect (signed) or signless elements.

    A complex type is one of the dialect; otherwise it is real with a last axis of two parts.
    """
    if type_.dtype.is_complex and not dialect:
        type_ = interleaved(type_)
    element = dialect_element_type(type_.dtype) if dialect else element_type(type_.dtype)
    return ir.RankedTensorType.get([representative(n) for n in type_.shape], element)


def dense(array: np.ndarray, type_: TensorType, *, dialect: bool = False) -> ir.Attribute:
    """The values as an attribute with nova-dialect (signed) or signless elements.

    Splats stay short; large arrays stay in their memory (`nova/ir/resources.py`).
    """
    element = dialect_element_type(type_.dtype) if dialect else element_type(type_.dtype)
    array = np.ascontiguousarray(array, dtype=type_.dtype.numpy).reshape(-1)
    raw = array.view(f"u{array.itemsize}")
    # Compare bytes, not numbers: 0.0 and -0.0 must stay distinct, and NaN is a splat too.
    if raw.size > 1 and bool((raw == raw[0]).all()):
        raw = raw[:1]
    elif raw.nbytes >= LEAST and type_.dtype is not bool_:
        return resource(raw, ir.RankedTensorType.get(list(type_.shape), element))
    return ir.DenseElementsAttr.get(raw, type=element, shape=list(type_.shape))


def constant_values(array: np.ndarray, element: ir.Type) -> ir.Attribute:
    """The values of a flat array as an attribute; large arrays stay in their memory."""
    if array.nbytes >= LEAST:
        return resource(array.view(np.uint8), ir.RankedTensorType.get([len(array)], element))
    return ir.DenseElementsAttr.get(array, type=element, shape=[len(array)])


def host_float_elements(attr: ir.Attribute, dtype: DType) -> np.ndarray:
    """The elements of a dense attribute of one of `HOST_FLOATS`, flat."""
    text = str(attr).rpartition("> : ")[0].removeprefix("dense<")
    if text.startswith('"'):  # many elements: all bytes in hexadecimal
        return np.frombuffer(bytes.fromhex(text.strip('"')[2:]), dtype.numpy)
    words = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    # A decimal number, or the bits of a value without a decimal form.
    raw = np.dtype(f"u{dtype.itemsize}")
    bits = [
        int(word, 16)
        if word.startswith("0x")
        else converted(np.asarray(float(word)), dtype).view(raw)
        for word in words
    ]
    return np.array(bits, raw).view(dtype.numpy)


def nova_dtype(element: ir.Type) -> DType:
    """The Nova dtype of an MLIR element type; a signless i8 is i8."""
    try:
        return _BY_TEXT[str(element)]
    except KeyError:
        raise DTypeError(
            f"element type {element} is not one of Nova's",
            hint=f"the types are {', '.join(d.name for d in EVERY)}",
        ) from None


def memory_dtype(element: ir.Type) -> np.dtype:
    """The numpy dtype of elements in memory, including dtypes of imported programs."""
    if isinstance(element, ir.IndexType):
        return np.dtype(np.int64)
    if isinstance(element, ir.IntegerType) and element.width in (16, 32, 64):
        return np.dtype(f"i{element.width // 8}")
    return nova_dtype(element).numpy


def nova_type(type_: ir.Type) -> TensorType:
    """The TensorType of a ranked, static MLIR tensor or memref type."""
    cache = active_cache()
    result: TensorType | None = cache.get(type_)
    if result is None:
        text = str(type_)
        result = _TYPES.get(text)
        if result is None:
            if len(_TYPES) >= _MOST_TYPES:
                _TYPES.clear()
            result = _TYPES[text] = _read_type(type_)
        cache[type_] = result
    return result


def _read_type(type_: ir.Type) -> TensorType:
    if not isinstance(type_, ir.ShapedType):
        raise DTypeError(f"{type_} is not a tensor")
    shaped = ir.ShapedType(type_)
    if not shaped.has_rank or not shaped.has_static_shape:
        raise DTypeError(f"{type_} has no static shape", hint="a program of MLIR has static shapes")
    return TensorType(tuple(shaped.shape), nova_dtype(shaped.element_type))


def symbolic_type(type_: ir.Type) -> TensorType:
    """`nova_type`, with expressions for the sizes of the symbolic program that is lowered."""
    result = nova_type(type_)
    shape = decoded(result.shape)
    return result if is_static_shape(shape) else TensorType(shape, result.dtype)


def dense_bytes(attr: Any) -> bytes | memoryview:
    """The elements of a dense attribute in memory order."""
    data = resource_bytes(attr)
    if data is not None:
        return data
    type_ = attr.type
    dtype = memory_dtype(type_.element_type)
    shape = tuple(type_.shape)
    if prod(shape) == 0:
        return b""
    if attr.is_splat:
        return np.full(shape, attr.get_splat_value().value).astype(dtype).tobytes()
    if array_dtype(dtype) in HOST_FLOATS:
        return host_float_elements(attr, array_dtype(dtype)).tobytes()
    try:
        return np.array(attr).astype(dtype, copy=False).reshape(shape).tobytes()
    except (ValueError, TypeError):
        return np.asarray(list(attr)).astype(dtype).tobytes()
