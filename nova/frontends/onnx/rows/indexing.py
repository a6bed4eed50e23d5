"""Rows that read elements at positions, and that order them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import i64
from nova.errors import DataDependentShapeError, OnnxError, OnnxValueError
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.host.table import compute_on_host
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, counting
from nova.frontends.onnx.table import row
from nova.ops import F


@row("Gather")
def _gather(node: Node) -> Any:
    x, index = node.tensor(0), node.tensor(1)
    return F.take(x, index, axis=node.axis(x.ndim, 0))


@row("GatherElements", since=11)
def _gather_elements(node: Node) -> Any:
    x, index = node.tensor(0), node.tensor(1)
    return F.gather(x, index, axis=node.axis(x.ndim, 0))


def flat_positions(index: Any, sizes: tuple[int, ...]) -> Any:
    """Index tuples on the last axis as positions in a flattened tensor of `sizes`."""
    strides = np.array([prod(sizes[i + 1 :]) for i in range(len(sizes))], np.int64)
    index = cast(index, i64)
    index = F.where(F.lt(index, 0), index + constant(np.array(sizes, np.int64)), index)
    return F.sum(index * constant(strides), axis=-1)


@row("GatherND", since=11)
def _gather_nd(node: Node) -> Any:
    x, index = node.tensor(0), node.tensor(1)
    batch = node.attr("batch_dims", 0)
    depth = index.shape[-1]
    if batch + depth > x.ndim or x.shape[:batch] != index.shape[:batch]:
        raise OnnxError(f"GatherND: indices {index.shape} of {x.shape}")
    count = prod(x.shape[:batch])
    sizes, tail = x.shape[batch : batch + depth], x.shape[batch + depth :]
    positions = F.reshape(flat_positions(index, sizes), (count, -1 if index.size else 0))
    offsets = counting(count)[:, None] * prod(sizes)
    rows = F.reshape(x, (count * prod(sizes), *tail))
    gathered = F.take(rows, F.reshape(positions + constant(offsets), (positions.size,)), axis=0)
    return F.reshape(gathered, (*index.shape[:-1], *tail))


@row("OneHot")
def _one_hot(node: Node) -> Any:
    index, values = node.tensor(0), node.tensor(2)
    depth = int(node.scalar(1))
    axis = node.resolve(node.attr("axis", -1), index.ndim + 1)
    index = cast(index, i64)
    index = F.unsqueeze(F.where(F.lt(index, 0), index + depth, index), axis)
    shape = tuple(depth if i == axis else 1 for i in range(index.ndim))
    hot = F.eq(index, F.reshape(F.arange(depth), shape))
    return F.where(hot, values[1], values[0])


@row("ArgMax", "ArgMin")
def _arg(node: Node) -> Any:
    x = node.tensor(0)
    axis = node.axis(x.ndim, 0)
    keep = bool(node.attr("keepdims", 1))
    pick = F.argmax if node.op == "ArgMax" else F.argmin
    if not node.attr("select_last_index", 0):
        return pick(x, axis=axis, keepdims=keep)
    return x.shape[axis] - 1 - pick(F.flip(x, axes=(axis,)), axis=axis, keepdims=keep)


@row("TopK")
def _top_k(node: Node) -> Any:
    x = node.tensor(0)
    k = node.attr("k") if node.version < 10 else int(node.scalar(1))
    axis = node.axis(x.ndim, -1)
    return F.topk(x, k, axis=axis, largest=bool(node.attr("largest", 1)))


@row("Compress")
def _compress(node: Node) -> Any:
    x = node.tensor(0)
    positions = constant(np.flatnonzero(_known(node, [1])[1]).astype(np.int64))
    axis = node.attr("axis", None)
    if axis is None:
        return F.take(F.reshape(x, (x.size,)), positions, axis=0)
    return F.take(x, positions, axis=node.resolve(axis, x.ndim))


def _known(node: Node, positions: Sequence[int] | None = None) -> list[Any]:
    """The inputs as arrays, None for one that was left out; all of them must be known at import."""
    try:
        return [
            node.array(i) if node.has(i) and i in (positions or range(len(node.inputs))) else None
            for i in range(len(node.inputs))
        ]
    except OnnxValueError:
        raise DataDependentShapeError(
            f"{node.op}: the shape of its result depends on values of a run",
            hint="a call of the program computes it on the host, between compiled parts; "
            "a graph or a file has one part: compute it before the program",
        ) from None


@row("NonZero", "NonMaxSuppression")
def _selection(node: Node) -> Any:
    """On the host, by `host/selection.py`; here for inputs that are known at import."""
    host = Node(
        node.op, node.version, _known(node), node.attrs, node.outputs, None, None, node.title
    )
    return tuple(map(constant, compute_on_host(host, "")))


row("Unique", since=11)(_selection)
