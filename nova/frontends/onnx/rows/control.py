"""Rows of control flow: If, Loop and Scan.

An If whose condition is known at import is its branch; one whose branches have equal types selects
between both. Loops and scans are unrolled: their trip counts are known at import.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import bool_
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant, dtype_of, is_constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, narrow
from nova.frontends.onnx.table import row
from nova.graph.tensor import Tensor
from nova.ops import F

_MOST_TRIPS = 10_000


@row("If", lazy=True)
def _if(node: Node) -> Any:
    condition = node.tensor(0)
    branches = (node.attr("then_branch"), node.attr("else_branch"))
    build = node.importer.subgraph
    if is_constant(condition):
        branch = branches[0] if condition.data.reshape(()).item() else branches[1]
        return tuple(build(branch, node.scope, ()))
    both = [build(branch, node.scope, ()) for branch in branches]
    if not all(_same_type(a, b) for a, b in zip(*both, strict=True)):
        # The condition decides shapes or types.
        node.array(0)
    condition = F.reshape(cast(condition, bool_), ())
    return tuple(F.where(condition, a, b) for a, b in zip(*both, strict=True))


def _same_type(a: Any, b: Any) -> bool:
    return isinstance(a, Tensor) and isinstance(b, Tensor) and a.type == b.type


@row("Loop", lazy=True)
def _loop(node: Node) -> Any:
    body = node.attr("body")
    state = list(node.inputs[2:])
    trips = int(node.scalar(0)) if node.has(0) else None
    going = _truth(node, node.value(1)) if node.has(1) else True
    count = len(state)
    scans: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - count)]
    trip = 0
    while going and (trips is None or trip < trips):
        if trip >= _MOST_TRIPS:
            raise node.refused(f"more than {_MOST_TRIPS} iterations", "loops are unrolled")
        number = constant(np.asarray(trip, np.int64))
        going_in = constant(np.asarray(True))
        results = node.importer.subgraph(body, node.scope, (number, going_in, *state))
        going = _truth(node, results[0])
        state = results[1 : 1 + count]
        for scan, value in zip(scans, results[1 + count :], strict=True):
            scan.append(value)
        trip += 1
    return (*state, *(_stacked(node, body, i + 1 + count, s) for i, s in enumerate(scans)))


def _truth(node: Node, condition: Any) -> bool:
    return bool(node.static_array(condition, "the condition of the loop").reshape(()).item())


def _stacked(node: Node, body: Any, output: int, values: list[Any], axis: int = 0) -> Any:
    if values:
        return F.stack(values, axis=axis)
    tensor = body.output[output].type.tensor_type
    shape = tuple(int(d.dim_value) for d in tensor.shape.dim)
    return F.full(shape=(0, *shape), value=0, dtype=dtype_of(tensor.elem_type))


@row("Scan", lazy=True)
def _scan(node: Node) -> Any:
    body = node.attr("body")
    scanned = node.attr("num_scan_inputs")
    inputs = list(node.inputs)
    if node.version < 9:
        return _batched_scan(node, body, scanned, inputs)
    count = len(inputs) - scanned
    if count < 0:
        raise OnnxError(f"Scan: {scanned} scanned of {len(inputs)} inputs")
    results = len(body.output) - count
    directions = _attribute(node, "scan_input_directions", scanned)
    out_directions = _attribute(node, "scan_output_directions", results)
    axes = _attribute(node, "scan_input_axes", scanned)
    out_axes = _attribute(node, "scan_output_axes", results)
    sources = [
        (x, node.resolve(a, x.ndim), d)
        for x, a, d in zip(inputs[count:], axes, directions, strict=True)
    ]
    lengths = {x.shape[a] for x, a, _ in sources}
    if len(lengths) != 1:
        raise OnnxError(f"Scan: inputs have {sorted(lengths)} steps")
    [length] = lengths
    state, scans = _steps(node, body, inputs[:count], sources, length, results)
    stacked = []
    for i, (values, direction, axis) in enumerate(
        zip(scans, out_directions, out_axes, strict=True)
    ):
        ordered = values[::-1] if direction else values
        rank = values[0].ndim + 1 if values else 1
        at = node.resolve(axis, rank)
        stacked.append(_stacked(node, body, count + i, ordered, at))
    return (*state, *stacked)


def _steps(
    node: Node, body: Any, state: list[Any], sources: list[Any], length: int, results: int
) -> tuple[list[Any], list[list[Any]]]:
    scans: list[list[Any]] = [[] for _ in range(results)]
    for step in range(length):
        items = []
        for x, axis, backward in sources:
            at = length - 1 - step if backward else step
            items.append(F.squeeze(narrow(x, axis, at, at + 1), axis))
        values = node.importer.subgraph(body, node.scope, (*state, *items))
        state = values[: len(state)]
        for scan, value in zip(scans, values[len(state) :], strict=True):
            scan.append(value)
    return state, scans


def _attribute(node: Node, name: str, count: int) -> list[int]:
    values = list(node.attr(name, None) or [0] * count)
    if len(values) != count:
        raise OnnxError(f"Scan: {name} has {len(values)} entries for {count}")
    return values


def _batched_scan(node: Node, body: Any, scanned: int, inputs: list[Any]) -> Any:
    """Opset 8: a batch axis before the scanned one, and lengths per element of the batch."""
    if inputs and inputs[0] is not None:
        raise node.refused("sequence_lens of opset 8", "use opset 9 or later")
    inputs = inputs[1:]
    count = len(inputs) - scanned
    directions = _attribute(node, "directions", scanned)
    batch = inputs[-1].shape[0]
    outcomes = []
    for element in range(batch):
        chosen = [x[element] for x in inputs]
        sources = [(x, 0, d) for x, d in zip(chosen[count:], directions, strict=True)]
        results = len(body.output) - count
        length = sources[0][0].shape[0]
        state, scans = _steps(node, body, chosen[:count], sources, length, results)
        outcomes.append([*state, *(F.stack(values, axis=0) for values in scans)])
    return tuple(F.stack(list(values), axis=0) for values in zip(*outcomes, strict=True))
