"""Rows of casts, and the codes of narrow types: f8, f4, 4- and 2-bit integers.

E4M3FN and E5M2 are dtypes of Nova, and converted by casts. Another float code is decoded by a table
of all codes, and a float is encoded by a search among the midpoints of adjacent numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ml_dtypes import finfo

from nova.core.dtypes import DType, f8e4m3, f8e5m2, f16, f32, f64, i64, u8
from nova.frontends.onnx.element_types import (
    ELEMENT_TYPES,
    NARROW,
    Coded,
    constant,
    dtype_of,
    from_codes,
)
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast
from nova.frontends.onnx.table import row
from nova.ops import F

_F8 = {17: f8e4m3, 19: f8e5m2}
"""Element types that Nova has itself."""


@row("Cast", lazy=True)
def _cast(node: Node) -> Any:
    return convert(node, node.value(0), node.attr("to"))


@row("CastLike", since=15, lazy=True)
def _cast_like(node: Node) -> Any:
    like = node.value(1)
    element = like.element if isinstance(like, Coded) else ELEMENT_TYPES[node.tensor(1).dtype]
    return convert(node, node.value(0), element)


def convert(node: Node, value: Any, element: int) -> Any:
    """A tensor or codes as another ONNX element type."""
    source = value.element if isinstance(value, Coded) else None
    if source == element:
        return value
    if element in NARROW:
        x = decode(value, f32) if isinstance(value, Coded) else value
        return encode(node, x, element, bool(node.attr("saturate", 1)))
    target = dtype_of(element)
    if isinstance(value, Coded):
        return decode(value, target)
    return cast(node.tensor(0) if value is node.value(0) else value, target)


def decode(value: Coded, dtype: DType) -> Any:
    """The numbers of codes, as `dtype`."""
    if not value.narrow.is_float:
        return cast(value.codes, dtype)
    if value.element in _F8:
        return cast(F.bitcast(value.codes, dtype=_F8[value.element]), dtype)
    codes = np.arange(16 if value.narrow.name.startswith("float4") else 256, dtype=np.uint8)
    table = constant(from_codes(codes, value.element).astype(np.float32))
    flat = F.reshape(value.codes, (value.codes.size,))
    numbers = F.reshape(F.take(table, cast(flat, i64), axis=0), value.shape)
    return cast(numbers, dtype)


def encode(node: Node, x: Any, element: int, saturate: bool = True) -> Coded:
    """Numbers as codes of a narrow type, rounded to nearest, half to even."""
    narrow = NARROW[element]
    if not narrow.is_float:
        return Coded(_integer_codes(x, element), element)
    if x.dtype not in (f32, f16):
        x = cast(x, f32)
    if element in _F8:
        return Coded(_f8_codes(x, _F8[element], saturate), element)
    if element == 24:
        return Coded(_power_codes(node, x), element)
    return Coded(_float_codes(x, element, saturate), element)


def _f8_codes(x: Any, dtype: DType, saturate: bool) -> Any:
    if saturate:
        largest = float(finfo(dtype.numpy).max)
        x = F.clamp(x, min=-largest, max=largest)
    return F.bitcast(F.cast(x, dtype=dtype), dtype=u8)


def _integer_codes(x: Any, element: int) -> Any:
    bits = 4 if element in (21, 22) else 2
    signed = element in (22, 26)
    integer = F.bitwise_and(cast(x, i64), (1 << bits) - 1)
    if signed:
        integer = F.where(F.ge(integer, 1 << (bits - 1)), integer - (1 << bits), integer)
    return cast(integer, NARROW[element].code)


def finite_table(element: int) -> np.ndarray:
    """The finite numbers from 0 up that codes 0, 1, 2, ... of a float type stand for."""
    codes = np.arange(8 if element == 23 else 128, dtype=np.uint8)
    numbers = from_codes(codes, element).astype(np.float64)
    return numbers[: np.argmin(np.isfinite(numbers)) if not np.isfinite(numbers).all() else None]


def _float_codes(x: Any, element: int, saturate: bool) -> Any:
    """By binary search among the midpoints of adjacent numbers; ties go to the even code."""
    table = finite_table(element)
    middles = (table[1:] + table[:-1]) / 2
    size = F.abs(cast(x, f64))
    flat = F.reshape(size, (size.size,))
    # The count of midpoints below the number is its code. At a midpoint the even code wins:
    # midpoints before odd codes count only if they are below.
    odd = np.arange(1, len(table)) % 2 == 1
    below = np.where(odd, np.nextafter(middles, np.inf), middles)
    code = F.reshape(F.searchsorted(constant(below), flat, right=True), x.shape)
    top = len(table) - 1
    step = table[-1] - table[-2]
    special = _special_codes(element)
    over = F.ge(size, table[-1] + step / 2) if top % 2 else F.gt(size, table[-1] + step / 2)
    infinite = F.isinf(x)
    if saturate:
        code = F.where(infinite | over, top, code)
    else:
        code = F.where(infinite | over, special["overflow"], code)
    negative = F.lt(x, 0) | (F.eq(x, 0) & F.lt(F.reciprocal(cast(x, f32)), 0))
    sign = special["sign"]
    if special["unsigned_zero"]:
        negative = negative & F.ne(code, 0)
    if not saturate and special["overflow_unsigned"]:
        negative = negative & F.eq(infinite | over, False)
    code = code + F.where(negative, sign, 0)
    code = F.where(F.isnan(x), special["nan"], code)
    return cast(code, u8)


def _special_codes(element: int) -> dict[str, Any]:
    uz = element in (18, 20)
    return {
        "sign": 8 if element == 23 else 128,
        "nan": {18: 0x80, 20: 0x80, 23: 0x08}[element],
        "overflow": {18: 0x80, 20: 0x80, 23: 0x07}[element],
        "unsigned_zero": uz,
        "overflow_unsigned": uz,
    }


def _power_codes(node: Node, x: Any) -> Any:
    """Codes of powers of two, by the attribute `round_mode`."""
    mode = node.attr("round_mode", "up")
    size = F.abs(cast(x, f64))
    table = from_codes(np.arange(255, dtype=np.uint8), 24).astype(np.float64)
    flat = F.reshape(size, (size.size,))
    if mode == "up":
        code = F.searchsorted(constant(table), flat)
    elif mode == "down":
        code = F.searchsorted(constant(table), flat, right=True) - 1
    else:
        code = F.searchsorted(constant(table[:-1] * 1.5), flat, right=True)
    code = F.clamp(F.reshape(code, x.shape), min=0, max=254)
    return cast(F.where(F.isnan(x), 255, code), u8)
