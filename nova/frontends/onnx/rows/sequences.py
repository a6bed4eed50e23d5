"""Rows of sequences and optionals: lists of tensors whose lengths are known at import."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import EMPTY, Node
from nova.frontends.onnx.rows.common import narrow
from nova.frontends.onnx.table import row
from nova.ops import F


def _sequence(node: Node, position: int = 0) -> list[Any]:
    value = node.value(position)
    if not isinstance(value, list):
        raise OnnxError(f"input {position} of {node.op} is not a sequence")
    return value


def _position(node: Node, position: int, length: int, default: int) -> int:
    at = int(node.scalar(position)) if node.has(position) else default
    at = at + length if at < 0 else at
    if not 0 <= at <= length:
        raise OnnxError(f"{node.op}: position {at} in a sequence of {length}")
    return at


@row("SequenceEmpty", since=11, lazy=True)
def _empty(node: Node) -> Any:
    return ([],)


@row("SequenceConstruct", since=11, lazy=True)
def _construct(node: Node) -> Any:
    return (list(node.inputs),)


@row("SequenceInsert", since=11, lazy=True)
def _insert(node: Node) -> Any:
    items = list(_sequence(node))
    items.insert(_position(node, 2, len(items), len(items)), node.value(1))
    return (items,)


@row("SequenceErase", since=11, lazy=True)
def _erase(node: Node) -> Any:
    items = list(_sequence(node))
    del items[_position(node, 1, len(items), len(items) - 1)]
    return (items,)


@row("SequenceAt", since=11, lazy=True)
def _at(node: Node) -> Any:
    items = _sequence(node)
    return items[_position(node, 1, len(items), 0)]


@row("SequenceLength", since=11, lazy=True)
def _length(node: Node) -> Any:
    return constant(np.asarray(len(_sequence(node)), np.int64))


@row("ConcatFromSequence", since=11, lazy=True)
def _concat(node: Node) -> Any:
    items = _sequence(node)
    if node.attr("new_axis", 0):
        return F.stack(items, axis=node.resolve(node.attr("axis"), items[0].ndim + 1))
    return F.concat(items, axis=node.resolve(node.attr("axis"), items[0].ndim))


@row("SplitToSequence", since=11, lazy=True)
def _split(node: Node) -> Any:
    x = node.tensor(0)
    axis = node.axis(x.ndim, 0)
    n = x.shape[axis]
    if not node.has(1):
        parts = [narrow(x, axis, i, i + 1) for i in range(n)]
        if not node.attr("keepdims", 1):
            parts = [F.squeeze(part, axis) for part in parts]
        return (parts,)
    sizes = node.ints(1)
    if node.tensor(1).ndim == 0:
        [each] = sizes
        sizes = tuple(min(each, n - i) for i in range(0, n, each))
    if sum(sizes) != n:
        raise OnnxError(f"SplitToSequence: {sizes} of an axis of {n}")
    ends = np.cumsum(sizes)
    parts = [narrow(x, axis, int(e - k), int(e)) for k, e in zip(sizes, ends, strict=True)]
    return (parts,)


@row("SequenceMap", since=17, lazy=True)
def _map(node: Node) -> Any:
    items = _sequence(node)
    others = node.inputs[1:]
    body = node.attr("body")
    columns: list[list[Any]] = [[] for _ in body.output]
    for i, item in enumerate(items):
        values = [v[i] if isinstance(v, list) else v for v in others]
        results = node.importer.subgraph(body, node.scope, (item, *values))
        for column, value in zip(columns, results, strict=True):
            column.append(value)
    return tuple(columns)


# --- optionals ------------------------------------------------------------------------------------


@row("Optional", since=15, lazy=True)
def _optional(node: Node) -> Any:
    return (node.inputs[0] if node.inputs else EMPTY,)


@row("OptionalHasElement", since=15, lazy=True)
def _has_element(node: Node) -> Any:
    present = node.has(0) and node.inputs[0] is not EMPTY
    return constant(np.asarray(present))


@row("OptionalGetElement", since=15, lazy=True)
def _get_element(node: Node) -> Any:
    value = node.value(0)
    if value is EMPTY:
        raise OnnxError("OptionalGetElement of an empty optional")
    return (value,)
