"""Divides a model at the nodes that the host computes.

In: an `OnnxModel` and the results of nodes for the host. Out: parts in the order of execution:
models that are compiled, and nodes of the host between them. A node that only needs constants is
repeated in every part that uses it, so that shapes remain known at import. Called by
`nova.api.onnx_parts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np

from nova.core.records import record
from nova.errors import OnnxError, UnsupportedOpError
from nova.frontends.onnx.element_types import STRING
from nova.frontends.onnx.host.strings import string_outputs
from nova.frontends.onnx.importer import declared_inputs
from nova.frontends.onnx.package import onnx_package
from nova.frontends.onnx.read import OnnxModel
from nova.frontends.onnx.rows import load_rows
from nova.frontends.onnx.table import ML, ROWS


@record
class DevicePart:
    """Nodes that become one program, and the names of its inputs and outputs."""

    nodes: tuple[Any, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@record
class HostPart:
    """A node that the host computes."""

    node: Any


def string_names(nodes: Iterable[Any], inputs: Iterable[Any], weights: Iterable[Any]) -> set[str]:
    """The values of a graph that are strings."""
    names = {w.name for w in weights if w.data_type == STRING}
    for info in inputs:
        if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type == STRING:
            names.add(info.name)
    for node in nodes:
        names.update(string_outputs(node, not names.isdisjoint(node.input)))
    return names


def needs_host(nodes: Iterable[Any], inputs: Iterable[Any], weights: Iterable[Any]) -> bool:
    """Whether the host computes a node of a graph, whatever its inputs are."""
    nodes = [part for node in nodes for part in _split_labels(node)]
    return bool(string_names(nodes, inputs, weights)) or any(map(_makes_map, nodes))


def _makes_map(node: Any) -> bool:
    return bool(node.domain == ML and node.op_type == "ZipMap")


def used_names(node: Any) -> Iterator[str]:
    """The inputs of a node, with those that its subgraphs take from outside."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            inner = {value.name for value in (*graph.input, *graph.initializer)}
            for child in graph.node:
                yield from (name for name in used_names(child) if name not in inner)
                inner.update(child.output)
            yield from (out.name for out in graph.output if out.name not in inner)


class Division:
    """A model in parts: `parts` in order, and the models of those that are compiled."""

    def __init__(self, model: OnnxModel, host: Set[str]):
        load_rows()
        self.model, self.graph = model, model.proto.graph
        if self.graph.sparse_initializer:
            raise UnsupportedOpError("sparse initializers", hint="store the weights densely")
        self.inputs = {info.name: info for info in declared_inputs(model)}
        self.outputs = tuple(output.name for output in self.graph.output)
        self.weights = {w.name: w for w in self.graph.initializer}
        self.nodes = [part for node in self.graph.node for part in _split_labels(node)]
        self.strings = string_names(self.nodes, self.inputs.values(), self.weights.values())
        self.host = host
        self.constants: dict[str, Any] = {}
        """The nodes that need no input of the model, by the names of their results."""
        self.parts = self._divide()

    def is_host_node(self, node: Any) -> bool:
        strings = self.strings
        return (
            not self.host.isdisjoint(node.output)
            or not strings.isdisjoint(node.output)
            or not strings.isdisjoint(used_names(node))
            or _makes_map(node)
        )

    def _divide(self) -> list[DevicePart | HostPart]:
        """Stages: even ones are compiled, odd ones are computed by the host."""
        stages: dict[str, int] = dict.fromkeys(self.inputs, 0)
        members: dict[int, list[Any]] = {}
        for node in self.nodes:
            needs = list(used_names(node))
            for name in needs:
                if name not in stages and name not in self.weights and name not in self.constants:
                    raise OnnxError(f"the value {name!r} is used before it is computed")
            on_host = self.is_host_node(node)
            if not on_host and self._is_constant(node, needs):
                self.constants.update((name, node) for name in node.output if name)
                continue
            stage = max((stages[name] for name in needs if name in stages), default=0)
            if (stage % 2 == 1) != on_host:
                stage += 1
            stages.update((name, stage) for name in node.output if name)
            members.setdefault(stage, []).append(node)
        parts: list[DevicePart | HostPart] = []
        for stage, nodes in sorted(members.items()):
            if stage % 2:
                parts += map(HostPart, nodes)
            else:
                parts.append(self._device_part(stage, nodes, members))
        return parts

    def _is_constant(self, node: Any, needs: list[str]) -> bool:
        domain = "" if node.domain == "ai.onnx" else node.domain
        entry = ROWS.get((domain, node.op_type))
        if entry is not None and entry.random:
            return False
        return all(name in self.constants or name in self.weights for name in needs)

    def _device_part(
        self, stage: int, nodes: list[Any], members: Mapping[int, list[Any]]
    ) -> DevicePart:
        made = {name for node in nodes for name in node.output if name}
        others = (n for s, group in members.items() if s != stage for n in group)
        wanted = {name for node in others for name in used_names(node)} | set(self.outputs)
        needs = {name for node in nodes for name in used_names(node)} - made
        inputs = sorted(n for n in needs if n not in self.constants and n not in self.weights)
        return DevicePart(
            (*self._closure(needs), *nodes), tuple(inputs), tuple(sorted(made & wanted))
        )

    def _closure(self, names: Iterable[str]) -> list[Any]:
        """The nodes that compute constants, in the order of the model."""
        pending, chosen = [n for n in names if n in self.constants], set()
        while pending:
            node = self.constants[pending.pop()]
            if id(node) not in chosen:
                chosen.add(id(node))
                pending += [n for n in used_names(node) if n in self.constants]
        return [node for node in self.nodes if id(node) in chosen]

    # --- models of parts --------------------------------------------------------------------------

    def part_model(self, part: DevicePart, types: Mapping[str, Any]) -> OnnxModel:
        """The model of a part; `types` has the ValueInfoProto of each input by name."""
        empty = onnx_package().helper.make_empty_tensor_value_info
        infos = [types[name] for name in part.inputs]
        return self._sub_model(part.nodes, infos, [empty(name) for name in part.outputs])

    def constant_model(self, names: Iterable[str]) -> OnnxModel:
        """The model that computes constants."""
        names = list(names)
        empty = onnx_package().helper.make_empty_tensor_value_info
        return self._sub_model(self._closure(names), [], [empty(name) for name in names])

    def _sub_model(self, nodes: Iterable[Any], inputs: list[Any], outputs: list[Any]) -> OnnxModel:
        nodes = list(nodes)
        used = {name for node in nodes for name in used_names(node)}
        used |= {output.name for output in outputs}
        helper = onnx_package().helper
        weights = [self.weights[name] for name in sorted(used & self.weights.keys())]
        graph = helper.make_graph(nodes, "part", inputs, outputs, weights)
        source = self.model.proto
        proto = helper.make_model(
            graph,
            opset_imports=list(source.opset_import),
            functions=list(source.functions),
            ir_version=source.ir_version,
        )
        return OnnxModel(proto, self.model.name, self.model.folder)

    def input_type(self, name: str, value: Any, before: Any | None) -> Any:
        """The type of an input of a part: the declared one, or that of its values.

        An axis has the size that all calls have had; an axis with several sizes has none. `before`
        is the type of earlier calls.
        """
        if name in self.inputs:
            return self.inputs[name]
        helper = onnx_package().helper
        items = value if isinstance(value, list) else [value]
        if not items or not all(isinstance(item, np.ndarray) for item in items):
            raise UnsupportedOpError(
                f"{name!r} goes from one part to another and is not a tensor or a list of tensors",
                where=self.model.name,
                hint="NonZero and other ops of the host divide a model: docs/onnx.md",
            )
        element = helper.np_dtype_to_tensor_dtype(items[0].dtype)
        if isinstance(value, list):
            return helper.make_tensor_sequence_value_info(name, element, None)
        sizes: list[int | None] = list(value.shape)
        if before is not None and len(before.type.tensor_type.shape.dim) == len(sizes):
            dims = before.type.tensor_type.shape.dim
            sizes = [
                n if d.HasField("dim_value") and d.dim_value == n else None
                for d, n in zip(dims, sizes, strict=True)
            ]
        return helper.make_tensor_value_info(name, element, sizes)


_CLASSIFIERS = {
    "TreeEnsembleClassifier": "classlabels_int64s",
    "LinearClassifier": "classlabels_ints",
}


def has_string_labels(node: Any) -> bool:
    """Whether a node is a classifier whose labels are strings."""
    if node.domain != ML or node.op_type not in _CLASSIFIERS:
        return False
    return any(a.name == "classlabels_strings" and a.strings for a in node.attribute)


def _split_labels(node: Any) -> list[Any]:
    """A classifier with labels of strings as one with their positions, and a table of labels."""
    if not has_string_labels(node):
        return [node]
    [labels] = [a for a in node.attribute if a.name == "classlabels_strings"]
    numbers = _CLASSIFIERS[node.op_type]
    helper = onnx_package().helper
    positions = list(range(len(labels.strings)))
    classifier = onnx_package().NodeProto()
    classifier.CopyFrom(node)
    del classifier.attribute[:]
    classifier.attribute.extend(a for a in node.attribute if a.name != labels.name)
    classifier.attribute.append(helper.make_attribute(numbers, positions))
    if not node.output or not node.output[0]:
        return [classifier]
    label = f"{node.output[0]}/position"
    classifier.output[0] = label
    table = helper.make_node(
        "LabelEncoder",
        [label],
        [node.output[0]],
        node.name,
        domain=ML,
        keys_int64s=positions,
        values_strings=list(labels.strings),
    )
    return [classifier, table]
