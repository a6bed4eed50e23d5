"""Rows of losses."""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import i64
from nova.errors import OnnxError
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, number
from nova.frontends.onnx.table import row
from nova.ops import F


def _negative_log_likelihood(node: Node, x: Any, target: Any, weight: Any) -> Any:
    """-x at the target class on axis 1, weighted and reduced as the node says."""
    if x.ndim < 2 or target.shape != (x.shape[0], *x.shape[2:]):
        raise OnnxError(f"{node.op}: targets {target.shape} for {x.shape}")
    ignore = node.attr("ignore_index", None)
    target = cast(target, i64)
    valid = None if ignore is None else F.ne(target, ignore)
    safe = target if valid is None else F.where(valid, target, 0)
    losses = F.neg(F.squeeze(F.gather(x, F.unsqueeze(safe, 1), axis=1), 1))
    each = None
    if weight is not None:
        each = F.take(weight, F.reshape(safe, (safe.size,)), axis=0)
        each = F.reshape(each, safe.shape)
    if valid is not None:
        zero = number(0, x.dtype)
        each = cast(valid, x.dtype) if each is None else F.where(valid, each, zero)
    losses = losses if each is None else losses * each
    reduction = node.attr("reduction", "mean")
    if reduction == "none":
        return losses
    total = F.sum(losses)
    if reduction == "sum":
        return total
    if reduction != "mean":
        raise OnnxError(f"{node.op}: reduction {reduction!r}")
    return total / (float(prod(losses.shape)) if each is None else F.sum(each))


@row("NegativeLogLikelihoodLoss", since=12)
def _nll(node: Node) -> Any:
    return _negative_log_likelihood(node, node.tensor(0), node.tensor(1), node.optional(2))


@row("SoftmaxCrossEntropyLoss", since=12)
def _cross_entropy(node: Node) -> Any:
    scores = node.tensor(0)
    logs = F.log_softmax(scores, axis=1)
    return _negative_log_likelihood(node, logs, node.tensor(1), node.optional(2)), logs
