"""Walks the graph of an ONNX model and builds Nova's graph, node by node.

In: an `OnnxModel`, shapes of its dynamic axes and values that are fixed at import. Out: an
`OnnxGraph`. A node whose inputs are known at import is evaluated by the numpy interpreter, so
chains of Shape, Gather, Concat and Reshape leave no op. Rows are in `rows/`; an op without a row is
expanded by a function of the model, or by the body that its ONNX schema has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType
from nova.core.sizes import Size, SizeExpr, known_less
from nova.errors import DataDependentShapeError, NovaError, OnnxError, UnsupportedOpError
from nova.frontends.onnx.element_types import (
    ELEMENT_TYPES,
    NARROW,
    Coded,
    constant,
    dtype_of,
    is_constant,
)
from nova.frontends.onnx.node import EMPTY, Node
from nova.frontends.onnx.package import onnx_package
from nova.frontends.onnx.read import OnnxModel
from nova.frontends.onnx.rows import load_rows
from nova.frontends.onnx.sized import SizedTensors
from nova.frontends.onnx.table import ROWS, Row
from nova.graph.interpret import evaluate
from nova.graph.order import topological
from nova.graph.tensor import Tensor

# Larger results stay ops of the graph: the compiler folds what pays.
_MOST_FOLDED = 1 << 20
_MOST_NODES = 200_000
_MOST_DEPTH = 32
# What a malformed node may raise in a row, besides Nova's own errors.
_MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass
class Scope:
    """The values of a graph or function body by name, and what its nodes refer to."""

    opsets: Mapping[str, int]
    parent: Scope | None = None
    values: dict[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] | None = None
    """In a function body: the attributes of the call."""

    def get(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        raise OnnxError(f"the value {name!r} is used before it is computed")

    def inner(self) -> Scope:
        """The scope of a subgraph."""
        return Scope(self.opsets, self, attrs=self.attrs)


@dataclass(frozen=True)
class OnnxGraph:
    """Nova's graph of a model: values of inputs and outputs in order, with their names.

    A value is a tensor, a list of them (a sequence), a `Coded` (a narrow type), or `EMPTY`.
    Constant outputs are leaves with data.
    """

    inputs: tuple[tuple[str, Any], ...]
    outputs: tuple[tuple[str, Any], ...]

    def placeholders(self) -> list[Tensor]:
        """The tensors that a run takes, in order; inputs with fixed values are not among them."""
        return [t for _, value in self.inputs for t in flat_tensors(value) if t.data is None]

    def results(self) -> list[Tensor]:
        """The tensors that a run gives, in order."""
        return [t for _, value in self.outputs for t in flat_tensors(value)]


def flat_tensors(value: Any) -> list[Tensor]:
    """The tensors of a value."""
    if isinstance(value, list):
        return [t for item in value for t in flat_tensors(item)]
    if isinstance(value, Coded):
        return [value.codes]
    return [value] if isinstance(value, Tensor) else []


def is_weight(value: Tensor) -> bool:
    """Whether a leaf is a float initializer, whose value may be that of a param."""
    is_array = value.op is None and value.data is not None and value.ndim > 0
    return is_array and bool(value.name) and value.dtype.is_float


class Importer:
    """Builds the graph of one model; with `keeps_weights` no node of a weight is folded."""

    def __init__(self, model: OnnxModel, keeps_weights: bool = False):
        load_rows()
        self.model = model
        self.keeps_weights = keeps_weights
        self.sizes = SizedTensors()
        self.nodes = 0
        self.depth = 0
        self.functions = {(f.domain, f.name): f for f in model.proto.functions}

    # --- graphs -----------------------------------------------------------------------------------

    def build(self, inputs: Mapping[str, Any]) -> OnnxGraph:
        """The graph for these values of the inputs: placeholders or constants."""
        graph = self.model.proto.graph
        scope = Scope(self.model.opsets())
        scope.values.update(inputs)
        results = self.build_graph(graph, scope)
        names = [output.name for output in graph.output]
        return OnnxGraph(tuple(inputs.items()), tuple(zip(names, results, strict=True)))

    def build_graph(self, graph: Any, scope: Scope) -> list[Any]:
        """The outputs of a graph whose inputs are in `scope`."""
        if graph.sparse_initializer:
            raise UnsupportedOpError("sparse initializers", hint="store the weights densely")
        for tensor in graph.initializer:
            if tensor.name not in scope.values:  # an input of that name overrides it
                weight = constant(self.model.array(tensor))
                if isinstance(weight, Tensor):
                    weight.name = tensor.name
                scope.values[tensor.name] = weight
        for node in graph.node:
            self.build_node(node, scope)
        return [scope.get(output.name) for output in graph.output]

    def subgraph(self, graph: Any, scope: Scope, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the body of a control flow op, for values of its inputs."""
        if len(graph.input) != len(inputs):
            raise OnnxError(f"a body takes {len(graph.input)} inputs, and gets {len(inputs)}")
        inner = scope.inner()
        inner.values.update((i.name, v) for i, v in zip(graph.input, inputs, strict=True))
        return self.build_graph(graph, inner)

    # --- nodes ------------------------------------------------------------------------------------

    def build_node(self, proto: Any, scope: Scope) -> None:
        """Compute the outputs of a node into `scope`."""
        self.nodes += 1
        title = f"{self.model.name}: node {proto.name or self.nodes} ({proto.op_type})"
        if self.nodes > _MOST_NODES:
            raise OnnxError(
                f"the model has more than {_MOST_NODES} nodes when its loops are unrolled",
                where=title,
            )
        self.depth += 1
        try:
            if self.depth > _MOST_DEPTH:
                raise OnnxError(f"functions and subgraphs are nested more than {_MOST_DEPTH} deep")
            results = self._results(proto, scope, title)
        except DataDependentShapeError as error:
            if error.where is None and self.depth == 1:
                error.results = tuple(proto.output)
            raise error.located(title) from None
        except NovaError as error:
            raise error.located(title) from None
        except _MALFORMED as error:
            raise OnnxError(
                f"{proto.op_type} is malformed: {type(error).__name__}: {error}", where=title
            ) from error
        finally:
            self.depth -= 1
        for name, value in zip(proto.output, results, strict=False):
            if name:
                scope.values[name] = value

    def _results(self, proto: Any, scope: Scope, title: str) -> list[Any]:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        inputs = [scope.get(name) if name else None for name in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        attrs = self.attributes(proto, scope)
        if (domain, proto.op_type) in self.functions:
            function = self.functions[domain, proto.op_type]
            return self._call(function, inputs, attrs, None, len(proto.output))
        version = scope.opsets.get(domain)
        entry = ROWS.get((domain, proto.op_type))
        if version is None and domain == "" and entry is not None:
            version = 1  # the body of a function may leave its own opset out
        if entry is None:
            return self._expand(proto, domain, version, inputs, attrs, scope)
        if entry.build is None:
            raise UnsupportedOpError(f"{proto.op_type}: {entry.refused}", where=title)
        node = Node(
            proto.op_type, version or 1, inputs, attrs, len(proto.output), self, scope, title
        )
        sized = self.sizes.evaluate(node)
        if sized is not None:
            return [sized]
        results = entry.build(node)
        if results is NotImplemented:
            return self._expand(proto, domain, version, inputs, attrs, scope)
        results = list(results) if isinstance(results, tuple) else [results]
        return self._folded(entry, inputs, results)

    def build_row(self, node: Node, domain: str, inputs: list[Any], attrs: Any) -> list[Any]:
        """The results of the row of a node for other inputs and attributes."""
        entry = ROWS.get((domain, node.op))
        if entry is None or entry.build is None:
            raise UnsupportedOpError(f"{node.op} of strings has no code in Nova")
        other = Node(
            node.op, node.version, inputs, attrs, node.outputs, self, node.scope, node.title
        )
        results = entry.build(other)
        return list(results) if isinstance(results, tuple) else [results]

    def attributes(self, proto: Any, scope: Scope) -> dict[str, Any]:
        """The attributes of a node as Python values and arrays."""
        attrs: dict[str, Any] = {}
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                outer = scope.attrs or {}
                if attribute.ref_attr_name in outer:
                    attrs[attribute.name] = outer[attribute.ref_attr_name]
                continue
            attrs[attribute.name] = self._attribute(attribute)
        return attrs

    def _attribute(self, attribute: Any) -> Any:
        value = onnx_package().helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if attribute.type == attribute.TENSOR:
            return self.model.array(value)
        if attribute.type == attribute.STRINGS:
            return [text.decode("utf-8", "replace") for text in value]
        return list(value) if hasattr(value, "__len__") and not hasattr(value, "node") else value

    # --- functions --------------------------------------------------------------------------------

    def _call(
        self,
        function: Any,
        inputs: list[Any],
        attrs: Mapping[str, Any],
        opsets: Mapping[str, int] | None,
        count: int,
    ) -> list[Any]:
        """The first `count` outputs of a function body."""
        versions = {
            "" if entry.domain == "ai.onnx" else entry.domain: int(entry.version)
            for entry in function.opset_import
        }
        defaults = {a.name: self._attribute(a) for a in function.attribute_proto}
        scope = Scope({**(opsets or {}), **versions}, attrs={**defaults, **attrs})
        if len(inputs) > len(function.input):
            raise OnnxError(f"{function.name} takes {len(function.input)} inputs")
        padded = [*inputs, *[None] * (len(function.input) - len(inputs))]
        scope.values.update(zip(function.input, padded, strict=True))
        for node in function.node:
            self.build_node(node, scope)
        # An optional output that the call leaves out may not be computed.
        return [scope.values.get(name) for name in list(function.output)[:count]]

    def _expand(
        self,
        proto: Any,
        domain: str,
        version: int | None,
        inputs: list[Any],
        attrs: Mapping[str, Any],
        scope: Scope,
    ) -> list[Any]:
        """An op without a row, by the body that its schema has."""
        defs = onnx_package().defs
        name = f"{domain}.{proto.op_type}" if domain else proto.op_type
        if version is None or not defs.has(proto.op_type, domain):
            raise UnsupportedOpError(
                f"{name} is not an ONNX op that Nova knows",
                hint="ops of other domains need a function in the model",
            )
        try:
            schema = defs.get_schema(proto.op_type, version, domain)
        except defs.SchemaError:
            raise OnnxError(f"opset {version} has no {name}") from None
        body = None
        if schema.has_function:
            body = schema.function_body
        elif schema.has_context_dependent_function:
            types = [value_type(value).SerializeToString() for value in inputs]
            usable = [v for v in schema.context_dependent_function_opset_versions if v <= version]
            data = schema.get_context_dependent_function_with_opset_version(
                max(usable, default=version), proto.SerializeToString(), types
            )
            body = onnx_package().FunctionProto.FromString(data) if data else None
        if body is None:
            raise UnsupportedOpError(f"{name} of opset {version} has no code in Nova")
        defaults = {
            attribute.name: self._attribute(attribute.default_value)
            for attribute in schema.attributes.values()
            if attribute.default_value.name
        }
        return self._call(body, inputs, {**defaults, **attrs}, scope.opsets, len(proto.output))

    # --- folding ----------------------------------------------------------------------------------

    def _folded(self, entry: Row, inputs: list[Any], results: list[Any]) -> list[Any]:
        """The results as constants, if the inputs are constants and the results are small."""
        present = [value for value in inputs if value is not None]
        if entry.random or not present or not all(map(is_constant, present)):
            return results
        pending = [t for value in results for t in flat_tensors(value) if t.op is not None]
        order = topological(pending)
        if any(t.data is None and t.op is None for t in order):
            return results
        if self.keeps_weights and any(map(is_weight, order)):
            return results
        if sum(t.type.nbytes for t in order if t.op is not None) > _MOST_FOLDED:
            return results
        values = dict(zip(map(id, pending), map(constant, evaluate(pending)), strict=True))
        return [_replaced(value, values) for value in results]

    def evaluate(self, value: Tensor) -> np.ndarray:
        """The value of a tensor without run-time inputs, of any size that memory holds."""
        if sum(t.type.nbytes for t in topological([value])) > 1 << 32:
            raise OnnxError("a value that decides shapes has more than 4 GiB")
        [result] = evaluate([value])
        return result


def _replaced(value: Any, values: Mapping[int, Any]) -> Any:
    if isinstance(value, list):
        return [_replaced(item, values) for item in value]
    if isinstance(value, Coded):
        return Coded(values.get(id(value.codes), value.codes), value.element)
    return values.get(id(value), value)


# --- types ----------------------------------------------------------------------------------------


def value_type(value: Any) -> Any:
    """The TypeProto of a value."""
    helper = onnx_package().helper
    if isinstance(value, Tensor):
        return helper.make_tensor_type_proto(ELEMENT_TYPES[value.dtype], value.shape)
    if isinstance(value, Coded):
        return helper.make_tensor_type_proto(value.element, value.shape)
    if isinstance(value, list) and value:
        return helper.make_sequence_type_proto(value_type(value[0]))
    return onnx_package().TypeProto()


def declared_inputs(model: OnnxModel) -> list[Any]:
    """The inputs of a model that are not weights: a ValueInfoProto each."""
    graph = model.proto.graph
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def input_shape(info: Any, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The declared shape of a tensor input; None if an axis has no size."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    shape: list[int] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            shape.append(int(dim.dim_value))
        elif dim.dim_param in sizes:
            shape.append(int(sizes[dim.dim_param]))
        else:
            return None
    if any(n < 0 for n in shape):
        raise OnnxError(f"input {info.name!r} has the shape {tuple(shape)}")
    return tuple(shape)


def make_placeholder(element: int, shape: Sequence[Size], name: str) -> Any:
    """A tensor, or the codes of a narrow type, whose value a run supplies."""
    sizes = tuple(n if isinstance(n, SizeExpr) else int(n) for n in shape)
    if element in NARROW:
        return Coded(Tensor(TensorType(sizes, NARROW[element].code), name=name), element)
    dtype = dtype_of(element)
    if known_less(prod(sizes), 0):
        raise OnnxError(f"input {name!r} has the shape {sizes}")
    return Tensor(TensorType(sizes, dtype), name=name)


__all__ = [
    "EMPTY",
    "Importer",
    "OnnxGraph",
    "Scope",
    "declared_inputs",
    "flat_tensors",
    "input_shape",
    "make_placeholder",
    "value_type",
]
