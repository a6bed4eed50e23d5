"""Ops on tensors of a few elements as scalar code: one value for each element.

In: the ops of a region whose tensors are all small. Out: the same computation over scalars, at the
insertion point. `scalar_loops.py` calls this for loops that one thread of a device runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from nova.errors import LoweringError
from nova.ir.bindings import arith, ir, tensor
from nova.ir.clone import clone_into
from nova.ir.index import index
from nova.ir.linalg.generic import GenericOp

MOST_ELEMENTS = 16
"""Elements of a tensor that become values of one thread."""
_SCALAR_DIALECTS = ("arith.", "math.")
_INSIDE = ("linalg.yield", "linalg.index")
_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")

Scalars = dict[Any, Any]
"""The object array of the elements of each tensor, or the value of each scalar."""


def is_small(value: Any) -> bool:
    """Whether a value is a tensor of a few elements."""
    type_ = value.type
    return (
        isinstance(type_, ir.RankedTensorType)
        and type_.has_static_shape
        and prod(type_.shape) <= MOST_ELEMENTS
    )


def read_elements(value: Any) -> Any:
    """Emit the reads of all elements of a tensor: their array."""
    elements = np.empty(tuple(value.type.shape), object)
    for position in np.ndindex(*elements.shape):
        elements[position] = tensor.extract(value, [index(i) for i in position])
    return elements


# --- matching -------------------------------------------------------------------------------------


def count_scalar_ops(op: Any) -> int | None:
    """The scalar ops that an op of a region becomes; None if it cannot be scalar code."""
    count = _COUNTS.get(op.name)
    if count is not None:
        return count(op)
    return 1 if _is_arithmetic(op) else None


def _is_shaped(value: Any) -> bool:
    return isinstance(value.type, ir.ShapedType)


def _is_arithmetic(op: Any) -> bool:
    values = (*op.operands, *op.results)
    return op.name.startswith(_SCALAR_DIALECTS) and not any(map(_is_shaped, values))


def _count_generic(op: Any) -> int | None:
    inside = [inner.operation for inner in op.regions[0].blocks[0].operations]
    if not all(is_small(v) for v in (*op.operands, *op.results) if _is_shaped(v)):
        return None
    counts = [1 if i.name in _INSIDE else count_scalar_ops(i) for i in inside]
    if None in counts:
        return None
    try:
        points = prod(GenericOp(op).sizes)
    except LoweringError:  # its loop bounds or accesses are not affine
        return None
    return points * sum(count for count in counts if count is not None)


def _count_constant(op: Any) -> int | None:
    result = op.results[0]
    if not _is_shaped(result):
        return 1
    value = op.attributes["value"]
    if not is_small(result) or not isinstance(value, ir.DenseElementsAttr):
        return None
    is_read = value.is_splat or str(result.type.element_type) in ("f32", "f64", "i32", "i64")
    return prod(result.type.shape) if is_read else None


def _count_copy(op: Any) -> int | None:
    """An op that rearranges elements, by static positions."""
    return 0 if all(is_small(v) for v in (*op.operands, *op.results)) else None


def _count_extract(op: Any) -> int | None:
    """A comparison and a selection for each element, unless the position is a constant."""
    source = op.operands[0]
    return 2 * prod(source.type.shape) if is_small(source) else None


def _count_elements(op: Any) -> int | None:
    return 0 if is_small(op.results[0]) else None


_COUNTS: dict[str, Callable[[Any], int | None]] = {
    "linalg.generic": _count_generic,
    "linalg.fill": _count_elements,
    "arith.constant": _count_constant,
    "tensor.empty": _count_elements,
    "tensor.from_elements": _count_elements,
    "tensor.splat": _count_elements,
    "tensor.extract": _count_extract,
    "tensor.extract_slice": _count_copy,
    "tensor.insert_slice": _count_copy,
    **dict.fromkeys(_RESHAPES, _count_copy),
}


def _constant_index(value: Any) -> int | None:
    op = value.owner.operation if isinstance(value, ir.OpResult) else None
    if op is None or op.name != "arith.constant":
        return None
    return int(op.attributes["value"].value)


# --- emission -------------------------------------------------------------------------------------


def emit_scalar_op(op: Any, scalars: Scalars) -> None:
    """Emit an op over the elements of its operands; `scalars` gains its results."""
    emit = _EMITTERS.get(op.name)
    if emit is None or (op.name == "arith.constant" and not is_small(op.results[0])):
        clone_into(op, scalars)
    else:
        scalars[op.results[0]] = emit(op, scalars)


def _array_of(value: Any, scalars: Scalars) -> Any:
    """The elements of an operand, which may be a scalar."""
    if _is_shaped(value):
        return scalars[value]
    return np.full((), scalars.get(value, value), object)


def _emit_generic(op: Any, scalars: Scalars) -> None:
    generic = GenericOp(op)
    arrays = [_array_of(value, scalars) for value in generic.inputs]
    arrays += [scalars[value].copy() for value in generic.outputs]
    *operations, ending = [inner.operation for inner in generic.block.operations]
    for point in product(*map(range, generic.sizes)):
        positions = [
            tuple(
                sum(c * i for c, i in zip(row, point, strict=True)) + constant
                for row, constant in zip(access.coefficients, access.constants, strict=True)
            )
            for access in generic.accesses
        ]
        inner: Scalars = dict(scalars)
        for argument, array, position in zip(
            generic.block.arguments, arrays, positions, strict=True
        ):
            if array[position] is not None:  # not of an empty tensor, which is not read
                inner[argument] = array[position]
        for operation in operations:
            if operation.name == "linalg.index":
                inner[operation.results[0]] = index(point[int(operation.attributes["dim"].value)])
            else:
                emit_scalar_op(operation, inner)
        first = generic.num_inputs
        for number, value in enumerate(ending.operands):
            arrays[first + number][positions[first + number]] = inner.get(value, value)
    for result, array in zip(op.results, arrays[generic.num_inputs :], strict=True):
        scalars[result] = array


def _full(op: Any, value: Any) -> Any:
    elements = np.empty(tuple(op.results[0].type.shape), object)
    elements.fill(value)
    return elements


def _emit_constant(op: Any, _: Scalars) -> Any:
    value, type_ = op.attributes["value"], op.results[0].type.element_type
    if value.is_splat:
        return _full(op, arith.ConstantOp(type_, value.get_splat_value()).result)
    elements = _full(op, None)
    for number, position in enumerate(np.ndindex(*elements.shape)):
        elements[position] = arith.ConstantOp(type_, value[number]).result
    return elements


def _emit_elements(op: Any, scalars: Scalars) -> Any:
    elements = _full(op, None)
    for position, value in zip(np.ndindex(*elements.shape), op.operands, strict=True):
        elements[position] = scalars.get(value, value)
    return elements


def _emit_extract(op: Any, scalars: Scalars) -> Any:
    source, *positions = op.operands
    elements = scalars[source]
    numbers = [_constant_index(position) for position in positions]
    if None not in numbers:
        return elements[tuple(numbers)]
    flat: Any = index(0)
    for size, position in zip(elements.shape, positions, strict=True):
        flat = arith.addi(arith.muli(flat, index(size)), scalars.get(position, position))
    first, *others = elements.ravel().tolist()
    for number, element in enumerate(others, 1):
        is_this = arith.cmpi(arith.CmpIPredicate.eq, flat, index(number))
        first = arith.select(is_this, element, first)
    return first


def _slice_of(op: Any) -> tuple[slice, ...]:
    numbers = (op.attributes[f"static_{name}"] for name in ("offsets", "sizes", "strides"))
    return tuple(
        slice(start, start + (size - 1) * step + 1, step)
        for start, size, step in zip(*numbers, strict=True)
    )


def _emit_insert(op: Any, scalars: Scalars) -> Any:
    source, into = op.operands
    elements = scalars[into].copy()
    part = _slice_of(op)
    elements[part] = scalars[source].reshape(elements[part].shape)
    return elements


def _reshaped(op: Any, elements: Any) -> Any:
    return elements.reshape(tuple(op.results[0].type.shape))


_EMITTERS: dict[str, Callable[[Any, Scalars], Any]] = {
    "linalg.fill": lambda op, scalars: _full(op, scalars.get(op.operands[0], op.operands[0])),
    "arith.constant": _emit_constant,
    "tensor.empty": lambda op, _: _full(op, None),
    "tensor.from_elements": _emit_elements,
    "tensor.splat": lambda op, scalars: _full(op, scalars.get(op.operands[0], op.operands[0])),
    "tensor.extract": _emit_extract,
    "tensor.extract_slice": lambda op, s: _reshaped(op, s[op.operands[0]][_slice_of(op)]),
    "tensor.insert_slice": _emit_insert,
    **dict.fromkeys(_RESHAPES, lambda op, s: _reshaped(op, s[op.operands[0]])),
}


def emit_block(block: Any, arguments: Sequence[Any]) -> list[Any]:
    """Emit the ops of a region over scalars; return the arrays of its results."""
    scalars: Scalars = dict(zip(block.arguments, arguments, strict=True))
    *operations, ending = [op.operation for op in block.operations]
    for op in operations:
        if op.name == "linalg.generic":
            _emit_generic(op, scalars)
        else:
            emit_scalar_op(op, scalars)
    return [scalars[value] for value in ending.operands]
