"""Converts attribute values of the op table to MLIR attributes and back.

None is omitted in the IR; reading restores the row's default (or None).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova.core.dtypes import DType, dtype
from nova.core.sizes import SizeExpr
from nova.errors import AttributeValueError, LoweringError, UnknownKeywordError
from nova.ir.bindings import ir
from nova.ir.symbolic.size_table import decoded, representative
from nova.ir.types import dialect_element_type, nova_dtype
from nova.ops import REQUIRED, Op

# Attributes that MLIR itself keeps on an op.
_BOOKKEEPING = {"operandSegmentSizes", "resultSegmentSizes"}


def to_attributes(attrs: dict[str, Any]) -> dict[str, Any]:
    """The MLIR attributes of a step's attrs."""
    return {k: _attribute(k, v) for k, v in attrs.items() if v is not None}


def from_attributes(row: Op, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attrs of a nova op, with the row's defaults for attributes that the IR omits.

    Names with a dot belong to other dialects; any other name that is not in the row is an error.
    """
    for name in attributes:
        if name not in row.attrs and "." not in name and name not in _BOOKKEEPING:
            raise UnknownKeywordError(f"has no attribute `{name}`")
    attrs: dict[str, Any] = {}
    for name, default in row.attrs.items():
        if name in attributes:
            attrs[name] = _value(attributes[name])
        else:
            if default is REQUIRED:
                raise AttributeValueError(f"needs the attribute `{name}`")
            attrs[name] = default
    return attrs


def _attribute(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int | SizeExpr):
        value = representative(value)
        _check_integer(name, value)
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F64Type.get(), value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, DType):
        return ir.TypeAttr.get(dialect_element_type(value))
    if isinstance(value, tuple) and all(isinstance(v, int | SizeExpr) for v in value):
        value = [representative(v) for v in value]
        for item in value:
            _check_integer(name, item)
        return ir.DenseI64ArrayAttr.get(list(value))
    raise LoweringError(f"attribute {name}={value!r} has no MLIR form")


def symbolic_attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attrs with expressions for the sizes of the symbolic program that is lowered."""
    return {name: _symbolic(value) for name, value in attrs.items()}


def _symbolic(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_symbolic, value))
    return decoded((value,))[0] if type(value) is int else value


def _check_integer(name: str, value: int) -> None:
    if not -(1 << 63) <= value < 1 << 63:
        raise AttributeValueError(f"attribute {name}={value} is not a 64-bit integer")


def _value(attr: Any) -> Any:
    class_name = str(type(attr).__name__)
    if class_name == "BoolAttr":
        return bool(attr.value)
    if class_name in ("IntegerAttr", "FloatAttr", "StringAttr"):
        return attr.value
    if class_name == "TypeAttr":
        return dtype(nova_dtype(attr.value))
    if class_name == "DenseI64ArrayAttr":
        return tuple(attr)
    raise LoweringError(f"attribute {attr} has a type that nova ops do not have")
