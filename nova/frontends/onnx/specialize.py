"""A model specialized for arguments: shapes of dynamic axes, and values that decide shapes.

In: an `OnnxModel`, sizes and values that the user fixes, and arguments of a call. Out: the
`OnnxGraph` for them. If a value that decides shapes comes from an input (`Reshape` to a shape that
is an argument), the graph is built again with the value of that argument as a constant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nova.core.dlpack import as_numpy, is_array
from nova.core.sizes import Shape
from nova.errors import (
    ArgumentDTypeError,
    ArgumentNameError,
    ArgumentShapeError,
    ArgumentTypeError,
    OnnxError,
    OnnxValueError,
    OptionTypeError,
)
from nova.frontends.onnx.element_types import (
    NARROW,
    STRING,
    Coded,
    constant,
    dtype_of,
    from_codes,
    to_codes,
)
from nova.frontends.onnx.host.divide import needs_host
from nova.frontends.onnx.host.table import string_array
from nova.frontends.onnx.importer import (
    EMPTY,
    Importer,
    OnnxGraph,
    declared_inputs,
    input_shape,
    make_placeholder,
)
from nova.frontends.onnx.read import OnnxModel
from nova.frontends.onnx.sized import is_symbolic, symbolic_shape
from nova.graph.tensor import Tensor

# A larger argument is data and not a shape: its value is never made a constant.
_MOST_FIXED = 1 << 12
Shapes = Mapping[str, Any]


class Specializer:
    """Builds the graphs of a model for arguments."""

    def __init__(
        self,
        model: OnnxModel,
        shapes: Shapes | None,
        values: Mapping[str, Any] | None,
        keeps_weights: bool = False,
    ):
        self.model = model
        self.keeps_weights = keeps_weights
        self.inputs = declared_inputs(model)
        self.names = [info.name for info in self.inputs]
        self.sizes: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        axes = self._axis_names()
        for name, size in _items("shapes", shapes):
            if name in self.names:
                self.shapes[name] = _shape(name, size)
            elif name in axes:
                self.sizes[name] = _shape(name, size)[0]
            else:
                raise ArgumentNameError(
                    f"the model has no input or axis {name!r}",
                    hint=f"inputs: {', '.join(self.names)}; axes: {', '.join(axes) or 'none'}",
                )
        self.values = {name: np.asarray(value) for name, value in _items("values", values)}
        for name in self.values:
            if name not in self.names:
                raise ArgumentNameError(
                    f"the model has no input {name!r}", hint=f"inputs: {', '.join(self.names)}"
                )

    def _axis_names(self) -> list[str]:
        dims = (d for info in self.inputs for d in info.type.tensor_type.shape.dim)
        return sorted({d.dim_param for d in dims if d.dim_param})

    def graph(self, arguments: Mapping[str, Any] | None = None) -> OnnxGraph:
        """The graph for these arguments; without them by the declared shapes alone."""
        fixed = dict(self.values)
        while True:
            inputs = self._inputs(arguments, fixed)
            try:
                return Importer(self.model, self.keeps_weights).build(inputs)
            except OnnxValueError as error:
                more = self._fixable(error, arguments, fixed)
                if not more:
                    raise
                fixed.update(more)

    def placeholders(self, without: Collection[str] = ()) -> dict[str, Any]:
        """The inputs by name, for the declared shapes and the values that the user fixes."""
        infos = [info for info in self.inputs if info.name not in without]
        return {info.name: self._input(info, None, self.values) for info in infos}

    def _inputs(self, arguments: Mapping[str, Any] | None, fixed: Any) -> dict[str, Any]:
        return {info.name: self._input(info, arguments, fixed) for info in self.inputs}

    def uses_strings(self) -> bool:
        """Whether a value of the model's graph, or a label of a node, is a string."""
        graph = self.model.proto.graph
        return needs_host(graph.node, self.inputs, graph.initializer)

    def has_free_axes(self) -> bool:
        """Whether an input has an axis without a size."""
        return any(is_symbolic(self._all_sizes(info) or ()) for info in self._free_inputs())

    def symbolic_graph(self) -> OnnxGraph:
        """The graph for all sizes of the axes without one."""
        inputs: dict[str, Any] = {n: constant(v) for n, v in self.values.items()}
        for info in self._free_inputs():
            shape = self._all_sizes(info)
            if shape is None:
                raise OnnxError(f"input {info.name!r} is not a tensor of a declared rank")
            inputs[info.name] = make_placeholder(info.type.tensor_type.elem_type, shape, info.name)
        importer = Importer(self.model, self.keeps_weights)
        return importer.build({name: inputs[name] for name in self.names})

    def _free_inputs(self) -> list[Any]:
        return [info for info in self.inputs if info.name not in self.values]

    def _all_sizes(self, info: Any) -> Shape | None:
        if info.type.WhichOneof("value") != "tensor_type":
            return None
        return self.shapes.get(info.name) or symbolic_shape(info, self.sizes)

    def _fixable(
        self, error: OnnxValueError, arguments: Mapping[str, Any] | None, fixed: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The arguments that decide shapes, if all of them may become constants."""
        more = {}
        for name in error.names:
            value = (arguments or {}).get(name)
            if name in fixed or not isinstance(value, np.ndarray) or value.size > _MOST_FIXED:
                return {}
            more[name] = value
        return more

    def _input(self, info: Any, arguments: Mapping[str, Any] | None, fixed: Any) -> Any:
        name = info.name
        if name in fixed:
            return constant(fixed[name])
        if arguments is not None:
            return _like_argument(info.type, arguments[name], name)
        sort = info.type.WhichOneof("value")
        if sort != "tensor_type":
            raise OnnxError(
                f"input {name!r} is not a tensor: its length is not known",
                hint="call the program: each call specializes it",
            )
        shape = self.shapes.get(name) or input_shape(info, self.sizes)
        if shape is None:
            raise OnnxError(
                f"input {name!r} has axes without a size",
                hint=f"pass shapes={{{name!r}: (...)}} or sizes of named axes "
                f"({', '.join(self._axis_names()) or 'none here'}), or call the program",
            )
        return make_placeholder(info.type.tensor_type.elem_type, shape, name)

    # --- arguments --------------------------------------------------------------------------------

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the names of inputs, checked against the declared types."""
        free = [info for info in self.inputs if info.name not in self.values]
        names = [info.name for info in free]
        if len(args) > len(names):
            raise ArgumentNameError(f"the model takes {len(names)} inputs, and got {len(args)}")
        bound = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in bound:
                raise ArgumentNameError(
                    f"argument {name!r}", hint=f"the inputs are {', '.join(names)}"
                )
            bound[name] = value
        missing = [n for n in names if n not in bound]
        if missing:
            raise ArgumentNameError(f"the inputs {', '.join(missing)} are missing")
        return {info.name: self._argument(info.type, bound[info.name], info.name) for info in free}

    def _argument(self, type_: Any, value: Any, name: str) -> Any:
        sort = type_.WhichOneof("value")
        if sort == "optional_type":
            return (
                None
                if value is None
                else self._argument(type_.optional_type.elem_type, value, name)
            )
        if sort == "sequence_type":
            if not isinstance(value, list | tuple):
                raise ArgumentTypeError(f"input {name!r} is a sequence: pass a list of arrays")
            return [self._argument(type_.sequence_type.elem_type, v, name) for v in value]
        if sort != "tensor_type":
            raise ArgumentTypeError(f"input {name!r} is a {sort}, which Nova does not take")
        return self._array(type_.tensor_type, value, name)

    def _array(self, tensor: Any, value: Any, name: str) -> np.ndarray:
        element = tensor.elem_type
        if element == STRING:
            return _checked_shape(tensor, string_array(value, f"input {name!r}"), name)
        array = as_numpy(value, f"input {name!r}") if is_array(value) else np.asarray(value)
        expected = NARROW[element].numpy if element in NARROW else dtype_of(element).numpy
        if array.dtype != expected:
            if is_array(value):
                raise ArgumentDTypeError(
                    f"input {name!r} is {array.dtype}, the model takes {expected}"
                )
            try:
                array = array.astype(expected)
            except (TypeError, ValueError):
                raise ArgumentDTypeError(
                    f"input {name!r} takes {expected}, and {value!r} has other values"
                ) from None
        return _checked_shape(tensor, array, name)


def _checked_shape(tensor: Any, array: np.ndarray, name: str) -> np.ndarray:
    """The array of an input, which has its declared shape."""
    if not tensor.HasField("shape"):
        return array
    dims = list(tensor.shape.dim)
    fits = len(dims) == array.ndim and all(
        not d.HasField("dim_value") or d.dim_value == n
        for d, n in zip(dims, array.shape, strict=True)
    )
    if not fits:
        declared = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims]
        raise ArgumentShapeError(
            f"input {name!r} has the shape {array.shape}, the model takes {declared}"
        )
    return array


def _items(option: str, entries: Mapping[str, Any] | None) -> Iterable[tuple[str, Any]]:
    if entries is not None and not isinstance(entries, Mapping):
        raise OptionTypeError(
            f"{option} is {entries!r}, of type {type(entries).__name__}",
            hint=f"it takes a dict: {option}={{name: ...}}",
        )
    return (entries or {}).items()


def _shape(name: str, value: Any) -> tuple[int, ...]:
    items = value if isinstance(value, tuple | list) else (value,)
    if not items or not all(isinstance(n, int) and n >= 0 for n in items):
        raise ArgumentShapeError(f"the shape of {name!r} is {value!r}: sizes are ints")
    return tuple(items)


def _like_argument(type_: Any, value: Any, name: str) -> Any:
    """Placeholders for an argument of a call."""
    if value is None:
        return EMPTY
    if isinstance(value, list):
        inner = _element_type(type_)
        return [_like_argument(inner, v, f"{name}_{i}") for i, v in enumerate(value)]
    sort = type_.WhichOneof("value")
    if sort == "optional_type":
        return _like_argument(type_.optional_type.elem_type, value, name)
    return make_placeholder(type_.tensor_type.elem_type, value.shape, name)


def _element_type(type_: Any) -> Any:
    if type_.WhichOneof("value") == "optional_type":
        type_ = type_.optional_type.elem_type
    return type_.sequence_type.elem_type


def arrays_of(graph: OnnxGraph, arguments: Mapping[str, Any]) -> list[np.ndarray]:
    """The arrays that a run takes, in the order of `graph.placeholders()`."""
    arrays: list[np.ndarray] = []

    def add(symbol: Any, value: Any) -> None:
        if isinstance(symbol, list):
            for inner, item in zip(symbol, value, strict=True):
                add(inner, item)
        elif isinstance(symbol, Coded) and symbol.codes.data is None:
            arrays.append(to_codes(value, symbol.element))
        elif isinstance(symbol, Tensor) and symbol.data is None:
            arrays.append(value)

    for name, symbol in graph.inputs:
        add(symbol, arguments.get(name))
    return arrays


def results_of(graph: OnnxGraph, arrays: Sequence[np.ndarray]) -> list[Any]:
    """The outputs of the model from the arrays that a run gives."""
    remainder = iter(arrays)

    def take(symbol: Any) -> Any:
        if isinstance(symbol, list):
            return [take(item) for item in symbol]
        if isinstance(symbol, Coded):
            return from_codes(next(remainder), symbol.element)
        return next(remainder) if isinstance(symbol, Tensor) else None

    return [take(symbol) for _, symbol in graph.outputs]
