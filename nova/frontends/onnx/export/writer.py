"""Writes Nova's graph as an ONNX model.

In: tensors of inputs, params and outputs. Out: a `ModelProto` of opset 21 with the values of params
and literals as initializers. An op with a row in `elementwise.py` or `structure.py` becomes ONNX
nodes, some groups of ops become one (`patterns.py`); a composite without a row is expanded into
other ops. Others are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import DType
from nova.errors import UnsupportedOpError
from nova.frontends.onnx.element_types import ELEMENT_TYPES
from nova.frontends.onnx.export.patterns import PATTERNS
from nova.frontends.onnx.package import onnx_package
from nova.graph.autodiff import expand_composite
from nova.graph.tensor import Tensor

OPSET = 21
# Models of ONNX 1.16, which has opset 21.
_IR_VERSION = 10

ExportRow = Callable[["Writer", Tensor, list[str]], str]
EXPORTS: dict[str, ExportRow] = {}


def exports(*names: str) -> Callable[[ExportRow], ExportRow]:
    """Register a function as the row of Nova's ops `names`."""

    def register(build: ExportRow) -> ExportRow:
        for name in names:
            EXPORTS[name] = build
        return build

    return register


class Writer:
    """Collects nodes and initializers; names of values are unique."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._constants: dict[tuple[Any, ...], str] = {}
        self._used: set[str] = set()
        # By the id of a tensor; the operands, expansions among them, stay alive here.
        self._matches: dict[int, tuple[ExportRow, tuple[Tensor, ...]]] = {}

    def fresh(self, stem: str) -> str:
        """A name that no other value has."""
        name, number = stem, 1
        while name in self._used:
            number += 1
            name = f"{stem}_{number}"
        self._used.add(name)
        return name

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """A node with one output; its name."""
        output = self.fresh(op.lower())
        self.nodes.append(onnx_package().helper.make_node(op, list(inputs), [output], **attrs))
        return output

    def constant(self, value: Any, dtype: DType | np.dtype | str) -> str:
        """An initializer; equal ones are one."""
        numpy_dtype = dtype.numpy if isinstance(dtype, DType) else np.dtype(dtype)
        array = np.asarray(value).astype(numpy_dtype)
        key = (array.shape, str(array.dtype), array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.initializer(array, "constant")
        return self._constants[key]

    def ints(self, values: Sequence[int]) -> str:
        """A vector of i64."""
        return self.constant(list(values), "i8")

    def initializer(self, array: np.ndarray, stem: str) -> str:
        """A weight."""
        name = self.fresh(stem)
        contiguous = np.ascontiguousarray(array).reshape(array.shape)
        self.initializers[name] = onnx_package().numpy_helper.from_array(contiguous, name)
        return name

    def cast(self, value: str, dtype: DType) -> str:
        """A Cast node."""
        return self.node("Cast", value, to=ELEMENT_TYPES[dtype])

    def bind(self, tensor: Tensor, name: str) -> str:
        """Give a tensor a name."""
        self._names[id(tensor)] = name
        return name

    def name_of(self, tensor: Tensor) -> str:
        """The name of a tensor, whose nodes are written first."""
        stack = [tensor]
        while stack:
            value = stack[-1]
            if id(value) in self._names:
                stack.pop()
                continue
            row, operands = self._matched(value)
            missing = [t for t in operands if id(t) not in self._names]
            if missing:
                stack.extend(reversed(missing))
                continue
            self.bind(value, row(self, value, [self._names[id(t)] for t in operands]))
        return self._names[id(tensor)]

    def _matched(self, tensor: Tensor) -> tuple[ExportRow, tuple[Tensor, ...]]:
        """The row that writes a tensor, and the tensors that the row reads."""
        if id(tensor) not in self._matches:
            self._matches[id(tensor)] = self._match(tensor)
        return self._matches[id(tensor)]

    def _match(self, tensor: Tensor) -> tuple[ExportRow, tuple[Tensor, ...]]:
        if tensor.op is None:
            return _write_leaf, ()
        for pattern in PATTERNS:
            match = pattern(tensor)
            if match is not None:
                return match
        row = EXPORTS.get(tensor.op.name)
        if row is not None:
            return row, tensor.inputs
        if tensor.op.compose is not None:
            return _write_expansion, (expand_composite(tensor, list(tensor.inputs)),)
        raise UnsupportedOpError(
            f"{tensor.op.name} has no form in ONNX", where=str(tensor.location)
        )


def _write_leaf(writer: Writer, tensor: Tensor, names: list[str]) -> str:
    if tensor.data is None:
        raise UnsupportedOpError(f"{tensor!r} is not an input of the program")
    return writer.initializer(tensor.data, tensor.name or "weight")


def _write_expansion(writer: Writer, tensor: Tensor, names: list[str]) -> str:
    return names[0]


def write_model(
    inputs: Sequence[tuple[str, Tensor]],
    params: Sequence[tuple[str, Tensor, np.ndarray | None]],
    outputs: Sequence[Tensor],
) -> Any:
    """The model; a param without a value is an input."""
    from nova.frontends.onnx.export import elementwise, structure

    assert elementwise and structure  # imported for their rows
    helper, writer = onnx_package().helper, Writer()
    infos = []
    for name, tensor in inputs:
        infos.append(_info(writer.bind(tensor, writer.fresh(name)), tensor))
    for name, tensor, value in params:
        if value is None:
            infos.append(_info(writer.bind(tensor, writer.fresh(name)), tensor))
        else:
            writer.bind(tensor, writer.initializer(value, name))
    results = []
    for number, tensor in enumerate(outputs):
        # An Identity: an output may be an input, or be returned twice.
        inner = writer.name_of(tensor)
        name = writer.fresh(f"output_{number}")
        writer.nodes.append(helper.make_node("Identity", [inner], [name]))
        results.append(_info(name, tensor))
    graph = helper.make_graph(
        writer.nodes, "nova", infos, results, list(writer.initializers.values())
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="nova",
        ir_version=_IR_VERSION,
    )


def _info(name: str, tensor: Tensor) -> Any:
    return onnx_package().helper.make_tensor_value_info(
        name, ELEMENT_TYPES[tensor.dtype], list(tensor.shape)
    )
