"""Integers that a StableHLO program computes from sizes: the elements of its small tensors.

Rows of `ELEMENTS` map arrays of elements (`predicates.py`) to an array; None is data.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from nova.core.sizes import size_max, size_min
from nova.frontends.symbolic import predicates
from nova.frontends.symbolic.infer import MOST_ELEMENTS, Inference
from nova.frontends.symbolic.predicates import is_size
from nova.ir.bindings import ir


def record_elements(inference: Inference, op: Any) -> None:
    """Keep the elements of the result of an op, if it computes with sizes only."""
    row = ELEMENTS.get(op.name)
    if row is None or not is_small_integer(op.results[0].type):
        return
    arrays = [inference.find(value) for value in op.operands]
    known = [array for array in arrays if array is not None]
    if len(known) != len(arrays):
        return
    result = row(op, *known)
    if result is not None and any(n is not None for n in result.reshape(-1)):
        inference.elements[op.results[0]] = result


def is_small_integer(type_: Any) -> bool:
    """Whether a type is that of a small tensor of integers or truth values."""
    return (
        isinstance(type_, ir.RankedTensorType)
        and type_.has_static_shape
        and prod(type_.shape) <= MOST_ELEMENTS
        and isinstance(type_.element_type, ir.IntegerType)
    )


def objects(values: Any, shape: Any) -> np.ndarray:
    """An array of elements."""
    flat = list(values)
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(tuple(shape))


def _shape(op: Any) -> tuple[int, ...]:
    return tuple(op.results[0].type.shape)


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """A row that computes with numbers and sizes, element by element."""

    def compute(op: Any, *arrays: np.ndarray) -> np.ndarray:
        columns = zip(*(array.reshape(-1) for array in _broadcast(arrays)), strict=True)
        return objects(
            [function(*row) if all(map(is_size, row)) else None for row in columns], _shape(op)
        )

    return compute


def _any(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, of elements that may be truth values or data."""

    def compute(op: Any, *arrays: np.ndarray) -> np.ndarray:
        columns = zip(*(array.reshape(-1) for array in _broadcast(arrays)), strict=True)
        return objects([function(*row) for row in columns], _shape(op))

    return compute


def _broadcast(arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Scalars next to arrays, as `clamp` and `select` take them."""
    shape = max((array.shape for array in arrays), key=len)
    return [np.broadcast_to(array, shape) for array in arrays]


def _constant(op: Any) -> np.ndarray | None:
    value = op.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr):
        return None
    is_bool = value.type.element_type.width == 1
    if value.is_splat:
        number = value.get_splat_value().value
        numbers = [number] * prod(value.type.shape)
    else:
        numbers = list(value)
    return objects([bool(n) if is_bool else int(n) for n in numbers], _shape(op))


def _compare(op: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    direction = str(op.attributes["comparison_direction"]).split()[-1].rstrip(">")
    row: np.ndarray = _any(lambda a, b: predicates.compare(direction, a, b))(op, first, second)
    return row


def _convert(op: Any, array: np.ndarray) -> np.ndarray:
    to_bool = op.results[0].type.element_type.width == 1
    values: list[Any] = []
    for n in array.reshape(-1):
        if isinstance(n, bool):
            values.append(n if to_bool else int(n))
        else:
            values.append(n if is_size(n) and not to_bool else None)
    return objects(values, _shape(op))


def _broadcast_in_dim(op: Any, array: np.ndarray, *_: Any) -> np.ndarray:
    shape, axes = _shape(op), list(op.attributes["broadcast_dimensions"])
    inner = [1] * len(shape)
    for axis, size in zip(axes, array.shape, strict=True):
        inner[axis] = size
    return np.broadcast_to(array.reshape(inner), shape).copy()


def _slice(op: Any, array: np.ndarray) -> np.ndarray:
    bounds = (list(op.attributes[f"{name}"]) for name in _SLICE)
    return array[tuple(slice(*item) for item in zip(*bounds, strict=True))]


def _concatenate(op: Any, *arrays: np.ndarray) -> np.ndarray:
    return np.concatenate(arrays, axis=op.attributes["dimension"].value)


def _iota(op: Any) -> np.ndarray:
    shape, axis = _shape(op), op.attributes["iota_dimension"].value
    steps = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return objects([int(n) for n in np.broadcast_to(steps, shape).reshape(-1)], shape)


def _not(op: Any, array: np.ndarray) -> np.ndarray:
    values = [
        None if n is None or is_size(n) else predicates.connect("xor", n, True)
        for n in array.reshape(-1)
    ]
    return objects(values, _shape(op))


_SLICE = ("start_indices", "limit_indices", "strides")

ELEMENTS: dict[str, Callable[..., np.ndarray | None]] = {
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.convert": _convert,
    "stablehlo.reshape": lambda op, array: array.reshape(_shape(op)),
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.slice": _slice,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.compare": _compare,
    "stablehlo.not": _not,
    "stablehlo.add": _each(lambda a, b: a + b),
    "stablehlo.subtract": _each(lambda a, b: a - b),
    "stablehlo.multiply": _each(lambda a, b: a * b),
    "stablehlo.divide": _each(predicates.divide),
    "stablehlo.remainder": _each(predicates.remainder),
    "stablehlo.maximum": _each(size_max),
    "stablehlo.minimum": _each(size_min),
    "stablehlo.negate": _each(lambda a: -a),
    "stablehlo.abs": _each(lambda a: size_max(a, -a)),
    "stablehlo.sign": _each(predicates.sign),
    "stablehlo.clamp": _each(predicates.clamp),
    "stablehlo.select": _any(predicates.select),
    "stablehlo.and": _any(lambda a, b: predicates.connect("and", a, b)),
    "stablehlo.or": _any(lambda a, b: predicates.connect("or", a, b)),
    "stablehlo.xor": _any(lambda a, b: predicates.connect("xor", a, b)),
}
