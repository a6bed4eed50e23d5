"""Buffers and views: a view is the whole buffer in another shape, or adjacent elements of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nova.ir.bindings import ir
from nova.ir.linalg.ops import generic_op, yield_op

VIEWS = {"memref.expand_shape", "memref.collapse_shape", "memref.cast", "memref.reinterpret_cast"}
TENSOR_VIEWS = {"tensor.collapse_shape", "tensor.expand_shape"}
"""Reshapes of tensors, which become views of buffers."""

AS_BYTES = "builtin.unrealized_conversion_cast"
"""A buffer of any type as bytes: no op of the memref dialect does this."""

_ALL_VIEWS = VIEWS | TENSOR_VIEWS


def buffer_root(value: Any) -> Any:
    """The buffer that `value` is a view of, or the tensor that it is a reshape of."""
    while isinstance(value, ir.OpResult) and value.owner.operation.name in _ALL_VIEWS:
        value = value.owner.operands[0]
    return value


def view_as(value: Any, type_: Any) -> Any:
    """A contiguous buffer with another shape, at the insertion point."""
    return value if value.type == type_ else reinterpret(value, type_)


def reinterpret(value: Any, type_: Any) -> Any:
    """The elements of a contiguous buffer as another type, at the insertion point."""
    shape = list(type_.shape)
    strides = _row_major(shape)
    offset = 0 if isinstance(type_.layout, ir.AffineMapAttr) else type_.get_strides_and_offset()[1]
    # In a tenth of the time of its Python class, which takes lists of values for dynamic sizes.
    static = {"static_offsets": [offset], "static_sizes": shape, "static_strides": strides}
    attributes: dict[str, Any] = {
        name: ir.DenseI64ArrayAttr.get(numbers) for name, numbers in static.items()
    }
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 0, 0, 0])
    return ir.Operation.create(
        "memref.reinterpret_cast", [type_], [value], attributes=attributes
    ).result


def slice_view(value: Any, type_: Any, start: int) -> Any:
    """Adjacent elements of a contiguous buffer, from `start` on, at the insertion point.

    The result has the shape and the elements of a type, and the offset is part of its own.
    """
    shape = list(type_.shape)
    layout = ir.StridedLayoutAttr.get(start, _row_major(shape))
    return reinterpret(value, ir.MemRefType.get(shape, type_.element_type, layout))


def as_bytes(value: Any) -> Any:
    """A contiguous buffer as bytes, at the insertion point, for a `memref.view` of a part of it."""
    type_ = ir.MemRefType.get([nbytes(value.type)], ir.IntegerType.get_signless(8))
    return ir.Operation.create(AS_BYTES, [type_], [value]).result


def buffer_of_bytes(value: Any) -> Any:
    """The buffer that has the bytes of `value`: another one if it is from `as_bytes`."""
    if isinstance(value, ir.OpResult) and value.owner.operation.name == AS_BYTES:
        return buffer_root(value.owner.operation.operands[0])
    return value


def view_offset(value: Any) -> int:
    """The first element of a view in its buffer."""
    if not isinstance(value.type, ir.MemRefType) or isinstance(value.type.layout, ir.AffineMapAttr):
        return 0
    return int(value.type.get_strides_and_offset()[1])


def _row_major(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous buffer."""
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def nbytes(type_: Any) -> int:
    """The size of a static memref, in bytes; a bool takes one."""
    return prod(type_.shape) * element_bytes(type_)


def element_bytes(type_: Any) -> int:
    """The size of an element of a memref, in bytes."""
    element = type_.element_type
    return 8 if isinstance(element, ir.IndexType) else (int(element.width) + 7) // 8


def emit_copy(source: Any, target: Any) -> Any:
    """`target[...] = source[...]` as a linalg.generic, at the insertion point; returns the op."""
    rank = len(source.type.shape)
    identity = ir.AffineMap.get_identity(rank)
    generic = generic_op([], [source], [target], [identity, identity], ["parallel"] * rank)
    element = source.type.element_type
    block = generic.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        yield_op([block.arguments[0]])
    return generic
