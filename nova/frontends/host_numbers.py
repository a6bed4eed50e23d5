"""Host scalars that kernels need: their buffers, and loads and stores of them.

Device programs are tables of launches on buffers, so a scalar is a buffer of one element: an
argument of the program, a constant, or the result of host arithmetic in the workspace. Called by
`nova.frontends.host_code` and `nova.frontends.host_kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nova.ir.bindings import arith, ir, memref
from nova.ir.mathlib.f8_formats import NARROW_TYPES


@dataclass(frozen=True, eq=False)
class Number:
    """A scalar that the host computes: `type` is that of its buffer."""

    type: Any


@dataclass(frozen=True)
class Constant:
    """A known scalar: an attribute with the element type of its buffer."""

    value: Any

    @property
    def type(self) -> Any:
        return ir.MemRefType.get([], self.value.type)


def is_number(value: Any) -> bool:
    """Whether a value is a scalar, and neither memory nor a token."""
    return isinstance(value.type, (ir.IntegerType, ir.IndexType, *_FLOATS))


_FLOATS = (ir.F64Type, ir.F32Type, NARROW_TYPES)


def buffer_of(type_: Any) -> Any:
    """The type of a scalar's buffer; an index has 64 bits there."""
    is_index = isinstance(type_, ir.IndexType)
    return ir.MemRefType.get([], ir.IntegerType.get_signless(64) if is_index else type_)


def constant_of(op: Any) -> Constant:
    """The scalar of an `arith.constant`."""
    value = op.attributes["value"]
    if isinstance(value.type, ir.IndexType):
        value = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value.value)
    return Constant(value)


def load_number(buffer: Any, type_: Any) -> Any:
    """Load a scalar of `type_` from its buffer, at the insertion point."""
    value = memref.LoadOp(buffer, []).result
    return arith.index_cast(type_, value) if isinstance(type_, ir.IndexType) else value


def store_number(value: Any, buffer: Any) -> None:
    """Store a scalar to its buffer, at the insertion point."""
    if isinstance(value.type, ir.IndexType):
        value = arith.index_cast(ir.IntegerType.get_signless(64), value)
    memref.StoreOp(value, buffer, [])
