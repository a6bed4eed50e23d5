"""Rows of control flow: If, Loop and Scan.

An If whose condition is known at import is its branch; another is a `nova.cond`. A loop with a few
iterations is unrolled, so that its bodies may depend on the iteration number; a longer one becomes
a `nova.scan`, and one whose end depends on data a `nova.while_loop`. What these cannot express
(values that change their shapes, sequences) is unrolled too, which needs a known trip count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import bool_, i64
from nova.errors import BranchError, CarryError, ControlFlowError, OnnxError, OnnxValueError
from nova.frontends.onnx.element_types import constant, dtype_of, is_constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, narrow, permute_axis
from nova.frontends.onnx.table import row
from nova.graph.control.functions import cond, scan, while_loop
from nova.graph.tensor import Tensor
from nova.ops import F

_MOST_TRIPS = 10_000
# Fewer iterations are unrolled: neighboring iterations fuse.
LEAST_LOOP = 9
# What a region cannot hold: values that change their types, and bodies that need numbers.
_NOT_A_REGION = (BranchError, CarryError, ControlFlowError, OnnxValueError)


@row("If", lazy=True)
def _if(node: Node) -> Any:
    condition = node.tensor(0)
    branches = (node.attr("then_branch"), node.attr("else_branch"))
    if is_constant(condition):
        branch = branches[0] if condition.data.reshape(()).item() else branches[1]
        return tuple(node.importer.subgraph(branch, node.scope, ()))

    def traced(branch: Any) -> Any:
        return lambda: _tensors(node.importer.subgraph(branch, node.scope, ()))

    try:
        chosen = F.reshape(cast(condition, bool_), ())
        return tuple(cond(chosen, traced(branches[0]), traced(branches[1])))
    except (BranchError, ControlFlowError):
        # The condition decides shapes or types: its value has to be known.
        node.array(0)
        raise


def _tensors(values: Sequence[Any]) -> list[Any]:
    """The values, all of which must be tensors to cross the border of a region."""
    if not all(isinstance(value, Tensor) for value in values):
        raise ControlFlowError("sequences, optionals and narrow types stay outside of regions")
    return list(values)


@row("Loop", lazy=True)
def _loop(node: Node) -> Any:
    body = node.attr("body")
    state = list(node.inputs[2:])
    results = len(body.output) - 1 - len(state)
    if results < 0:
        raise OnnxError(f"Loop: a body of {len(body.output)} results for {len(state)} states")
    trips = _static_count(node)
    endless = trips is None or trips >= LEAST_LOOP
    if endless and state and all(isinstance(value, Tensor) for value in state):
        try:
            looped = _as_region(node, body, state, results, trips)
        except _NOT_A_REGION:
            looped = None  # a body that a region cannot hold is unrolled
        if looped is not None:
            return looped
    return _unrolled(node, body, state, results)


def _static_count(node: Node) -> int | None:
    """The trip count, if it is known and the condition starts as true."""
    if node.has(0) and not is_constant(node.value(0)):
        return None
    if node.has(1) and not is_constant(node.value(1)):
        return None
    return int(node.scalar(0)) if node.has(0) else None


def _as_region(
    node: Node, body: Any, state: list[Any], results: int, trips: int | None
) -> tuple[Any, ...] | None:
    """The loop as a scan, or as a while loop if it has no stacked results; None if neither."""
    count = len(state)
    true = constant(np.asarray(True))
    going = true
    if node.has(1) and is_constant(node.value(1)):
        going = constant(np.asarray(_truth(node, node.value(1))))
    elif node.has(1):
        going = F.reshape(cast(node.tensor(1), bool_), ())
    runs = is_constant(going) and bool(going.data)

    def step(number: Any, values: Sequence[Any]) -> list[Any]:
        return _tensors(node.importer.subgraph(body, node.scope, (number, true, *values)))

    if trips is not None and runs:
        steady = True

        def advance(values: Any, number: Any) -> Any:
            nonlocal steady
            outcome = step(number, values)
            steady = is_constant(outcome[0]) and bool(outcome[0].data)
            return outcome[1 : 1 + count], outcome[1 + count :]

        last, stacked = scan(advance, state, F.arange(trips))
        if steady:
            return (*last, *stacked)
    if results:
        return None
    limit = cast(F.reshape(node.tensor(0), ()), i64) if node.has(0) else None

    def again(carry: Any) -> Any:
        number, still, _ = carry
        return still if limit is None else F.logical_and(still, F.lt(number, limit))

    def advance_once(carry: Any) -> Any:
        number, _, values = carry
        outcome = step(number, values)
        still = F.reshape(cast(outcome[0], bool_), ())
        return number + 1, still, outcome[1:]

    zero = constant(np.asarray(0, np.int64))
    return tuple(while_loop(again, advance_once, (zero, going, state))[2])


def _unrolled(node: Node, body: Any, state: list[Any], results: int) -> tuple[Any, ...]:
    count = len(state)
    trips = int(node.scalar(0)) if node.has(0) else None
    going = _truth(node, node.value(1)) if node.has(1) else True
    scans: list[list[Any]] = [[] for _ in range(results)]
    trip = 0
    while going and (trips is None or trip < trips):
        if trip >= _MOST_TRIPS:
            raise node.refused(f"more than {_MOST_TRIPS} iterations", "this loop is unrolled")
        number, true = constant(np.asarray(trip, np.int64)), constant(np.asarray(True))
        outcome = node.importer.subgraph(body, node.scope, (number, true, *state))
        going = _truth(node, outcome[0])
        state = outcome[1 : 1 + count]
        for stacked, value in zip(scans, outcome[1 + count :], strict=True):
            stacked.append(value)
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
    state, scans = _scanned(node, body, inputs[:count], sources, length, results)
    stacked = []
    for i, (values, direction, axis) in enumerate(
        zip(scans, out_directions, out_axes, strict=True)
    ):
        if isinstance(values, Tensor):
            rows = F.flip(values, axes=(0,)) if direction else values
            stacked.append(permute_axis(rows, 0, node.resolve(axis, values.ndim)))
            continue
        ordered = values[::-1] if direction else values
        rank = values[0].ndim + 1 if values else 1
        at = node.resolve(axis, rank)
        stacked.append(_stacked(node, body, count + i, ordered, at))
    return (*state, *stacked)


def _scanned(
    node: Node, body: Any, state: list[Any], sources: list[Any], length: int, results: int
) -> tuple[list[Any], list[Any]]:
    """The last state, and each stacked result: a tensor of a `nova.scan`, or a list of values."""
    if length >= LEAST_LOOP:
        moved = []
        for x, axis, backward in sources:
            first = permute_axis(x, axis, 0)
            moved.append(F.flip(first, axes=(0,)) if backward else first)

        def advance(carry: Any, items: Any) -> Any:
            outcome = _tensors(node.importer.subgraph(body, node.scope, (*carry, *items)))
            return outcome[: len(carry)], outcome[len(carry) :]

        try:
            last, stacked = scan(advance, list(state), moved)
            return list(last), list(stacked)
        except _NOT_A_REGION:
            pass  # a body that a region cannot hold is unrolled
    return _steps(node, body, state, sources, length, results)


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
        for stacked, value in zip(scans, values[len(state) :], strict=True):
            stacked.append(value)
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
