"""Shape computations of a model whose axes have symbolic sizes.

A tensor of sizes is computed by the run (`extent`), and its elements are known at import as sizes
of Nova: `SizedTensors` keeps them, and evaluates the ops that models compute shapes with. Rows get
the elements where they ask for integers (`Node.ints`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import i64
from nova.core.sizes import Shape, Size, SizeExpr, dim, is_static, known_equal, size_max, size_min
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant, dtype_of, is_constant
from nova.graph.tensor import Tensor
from nova.ops import F

_MOST_ELEMENTS = 64
"""Elements of a tensor of sizes: a shape, not data."""


class SizedTensors:
    """The elements of tensors of sizes, by tensor."""

    def __init__(self) -> None:
        self._elements: dict[int, tuple[Tensor, np.ndarray]] = {}

    def make(self, elements: Any, dtype: Any = i64) -> Tensor:
        """A tensor of sizes; a constant if all of them are numbers."""
        array = np.asarray(elements, object)
        if all(map(is_static, array.reshape(-1))):
            return constant(array.astype(np.int64))
        parts = [F.cast(F.extent(value=n), dtype=dtype) for n in array.reshape(-1)]
        tensor = F.reshape(F.stack(parts), array.shape)
        self._elements[id(tensor)] = tensor, array
        return tensor

    def find(self, value: Any) -> np.ndarray | None:
        """The elements of a tensor of sizes; None for others."""
        entry = self._elements.get(id(value))
        return None if entry is None else entry[1]

    def evaluate(self, node: Any) -> Any | None:
        """The result of an op on tensors of sizes; None if it is another op, or has others."""
        row = _ROWS.get(node.op)
        if row is None or not any(self.find(value) is not None for value in node.inputs):
            return None
        arrays = []
        for value in node.inputs:
            elements = self.find(value)
            if elements is None and is_constant(value) and value.data.size <= _MOST_ELEMENTS:
                elements = value.data.astype(object) if value.data.dtype.kind != "b" else value.data
            if elements is None and value is not None:
                return None
            arrays.append(elements)
        result = row(node, *arrays)
        if isinstance(result, Tensor) or result is None:
            return result
        result = np.asarray(result)
        if result.dtype == bool:
            return constant(result)
        return self.make(result, _dtype(node))


def _dtype(node: Any) -> Any:
    if node.op == "Cast":
        return dtype_of(node.attr("to"))
    return next((v.dtype for v in node.inputs if isinstance(v, Tensor) and v.dtype.is_integer), i64)


# --- ops on arrays of sizes -----------------------------------------------------------------------


def _elementwise(function: Callable[[Any, Any], Any], result: Any = object) -> Callable[..., Any]:
    def row(node: Any, *arrays: np.ndarray) -> Any:
        total = arrays[0]
        for array in arrays[1:]:
            total = np.frompyfunc(function, 2, 1)(total, array)
        return np.asarray(total, result)

    return row


def _slice(node: Any, data: np.ndarray, *bounds: Any) -> Any:
    if data.ndim != 1 or node.version < 10:
        return None
    start, end = bounds[0].reshape(-1)[0], bounds[1].reshape(-1)[0]
    step = bounds[3].reshape(-1)[0] if len(bounds) > 3 else 1
    return data[slice(start, end, step)] if all(map(is_static, (start, end, step))) else None


def _reshape(node: Any, data: np.ndarray, *shape: Any) -> Any:
    target = shape[0] if shape else node.attr("shape")
    return data.reshape(tuple(int(n) for n in np.asarray(target).reshape(-1)))


def _unsqueeze(node: Any, data: np.ndarray, *axes: Any) -> Any:
    positions = axes[0].reshape(-1) if axes else node.attr("axes")
    return np.expand_dims(data, tuple(int(a) for a in positions))


def _squeeze(node: Any, data: np.ndarray, *axes: Any) -> Any:
    positions = axes[0].reshape(-1) if axes else node.attr("axes", None)
    return np.squeeze(data, None if positions is None else tuple(int(a) for a in positions))


def _cast(node: Any, data: np.ndarray) -> Any:
    return data if dtype_of(node.attr("to")).is_integer else None


def _range(node: Any, start: np.ndarray, stop: np.ndarray, step: np.ndarray) -> Any:
    return F.arange(start.reshape(-1)[0], stop.reshape(-1)[0], step.reshape(-1)[0])


_ROWS: Mapping[str, Callable[..., Any]] = {
    "Identity": lambda node, data: data,
    "Gather": lambda node, data, index: np.take(data, index.astype(int), node.attr("axis", 0)),
    "Concat": lambda node, *parts: np.concatenate(parts, node.attr("axis")),
    "Slice": _slice,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Cast": _cast,
    "Range": _range,
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _elementwise(lambda a, b: a // b),
    "Mod": _elementwise(lambda a, b: a % b),
    "Max": _elementwise(size_max),
    "Min": _elementwise(size_min),
    "Equal": _elementwise(lambda a, b: a == b, bool),
    "Where": lambda node, mask, a, b: np.where(mask.astype(bool), a, b),
    "ReduceProd": lambda node, data, *axes: (
        np.asarray([prod(data.reshape(-1))], object) if data.ndim == 1 else None
    ),
}


# --- shapes ---------------------------------------------------------------------------------------


def broadcast_sizes(first: Sequence[Size], second: Sequence[Size]) -> Shape:
    """The shape of two shapes broadcast together; a symbolic size equals itself only."""
    rank = max(len(first), len(second))
    padded = [(*(1,) * (rank - len(shape)), *shape) for shape in (first, second)]
    sizes: list[Size] = []
    for a, b in zip(*padded, strict=True):
        if known_equal(a, b) or known_equal(b, 1):
            sizes.append(a)
        elif known_equal(a, 1):
            sizes.append(b)
        else:
            raise OnnxError(f"shapes {tuple(first)} and {tuple(second)} do not broadcast")
    return tuple(sizes)


def symbolic_shape(info: Any, fixed: Mapping[str, int]) -> Shape | None:
    """The declared shape of a tensor input, with a dim for each axis without a size."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    shape: list[Size] = []
    for axis, declared in enumerate(tensor.shape.dim):
        if declared.HasField("dim_value"):
            shape.append(int(declared.dim_value))
        elif declared.dim_param in fixed:
            shape.append(int(fixed[declared.dim_param]))
        else:
            shape.append(dim(_identifier(declared.dim_param or f"{info.name}_{axis}")))
    return tuple(shape)


def _identifier(name: str) -> str:
    """The name of an axis as that of a dim: `batch-size` is `batch_size`."""
    plain = re.sub(r"\W", "_", name)
    return plain if plain.isidentifier() and plain not in ("max", "min") else f"axis_{plain}"


def is_symbolic(shape: Sequence[Size]) -> bool:
    return any(isinstance(n, SizeExpr) for n in shape)
