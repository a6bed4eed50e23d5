"""Runs an ONNX model whose nodes are partly computed by the host, between compiled programs.

In: a model, and the names of results that the host computes. Called by `OnnxProgram.run`, which
makes the programs of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from nova.frontends.onnx.host.divide import DevicePart, Division, HostPart
from nova.frontends.onnx.host.table import compute_on_host, is_string_array, string_array
from nova.frontends.onnx.importer import Importer, Scope
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.read import OnnxModel


class DividedModel:
    """A model in parts; the program of each is made at its first run."""

    def __init__(self, model: OnnxModel, host: Set[str], make: Callable[[OnnxModel], Any]):
        self._division = Division(model, host)
        self._importer = Importer(model)
        self._make = make
        # By the number of the part: the types of its inputs, and its program.
        self._programs: dict[int, tuple[Mapping[str, Any], Any]] = {}
        self._constants: dict[str, Any] = {}

    def run(self, arguments: Mapping[str, Any]) -> list[Any]:
        """The outputs of the model for arguments by name."""
        values = dict(arguments)
        for i, part in enumerate(self._division.parts):
            if isinstance(part, HostPart):
                values.update(self._on_host(part.node, values))
            else:
                values.update(self._on_device(i, part, values))
        outputs = self._division.outputs
        return [values[n] if n in values else self._constant(n) for n in outputs]

    def describe(self) -> str:
        """The parts in order, one a line."""
        lines = []
        for part in self._division.parts:
            if isinstance(part, HostPart):
                lines.append(f"host: {part.node.op_type}({', '.join(part.node.input)})")
            else:
                inputs, outputs = ", ".join(part.inputs), ", ".join(part.outputs)
                lines.append(f"program: ({inputs}) -> ({outputs})")
        return "\n".join(lines)

    def _on_device(
        self, index: int, part: DevicePart, values: Mapping[str, Any]
    ) -> Iterable[tuple[str, Any]]:
        if not part.outputs:
            return ()
        inputs = {name: values[name] for name in part.inputs}
        before, program = self._programs.get(index, ({}, None))
        types = {n: self._division.input_type(n, v, before.get(n)) for n, v in inputs.items()}
        if program is None or types != before:
            program = self._make(self._division.part_model(part, types))
            self._programs[index] = types, program
        return zip(part.outputs, program.run(**inputs), strict=True)

    def _on_host(self, node: Any, values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        model = self._division.model
        opsets = model.opsets()
        domain = "" if node.domain == "ai.onnx" else node.domain
        inputs = [
            None if not n else values[n] if n in values else self._constant(n) for n in node.input
        ]
        title = f"{model.name}: node {node.name or ', '.join(node.output)} ({node.op_type})"
        attrs = self._importer.attributes(node, Scope(opsets))
        version = opsets.get(domain, 1)
        row = Node(
            node.op_type, version, inputs, attrs, len(node.output), self._importer, None, title
        )
        results = compute_on_host(row, domain)
        return [(n, v) for n, v in zip(node.output, results, strict=False) if n]

    def _constant(self, name: str) -> Any:
        """The value of a weight, or of a chain of nodes without inputs of the model."""
        if name not in self._constants:
            weight = self._division.weights.get(name)
            if weight is not None:
                value = self._division.model.array(weight)
                value = string_array(value, name) if is_string_array(value) else value
            else:
                [(_, tensor)] = Importer(self._division.constant_model([name])).build({}).outputs
                value = self._importer.evaluate(tensor)
            self._constants[name] = value
        return self._constants[name]
