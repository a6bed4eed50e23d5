"""Rows of reductions over axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import bool_, f32
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, number
from nova.frontends.onnx.table import row
from nova.ops import F


def _sum(x: Any, **where: Any) -> Any:
    return cast(F.sum(x, **where), x.dtype)


def _mean(x: Any, **where: Any) -> Any:
    return cast(F.mean(x, **where), x.dtype)


def _log_sum_exp(x: Any, **where: Any) -> Any:
    return cast(F.logsumexp(x if x.dtype.is_float else cast(x, f32), **where), x.dtype)


def _root_of_squares(x: Any, **where: Any) -> Any:
    squares = F.sum(F.square(x if x.dtype.is_float else cast(x, f32)), **where)
    return cast(F.sqrt(squares), x.dtype)


def _extreme(fold: Any, empty: float) -> Any:
    def reduce(x: Any, **where: Any) -> Any:
        if x.size:
            return fold(x, **where)
        shape = np.empty(x.shape).sum(axis=where["axis"], keepdims=where["keepdims"]).shape
        if x.dtype is bool_:
            return F.full(shape=shape, value=empty > 0, dtype=bool_)
        info = None if x.dtype.is_float else np.iinfo(x.dtype.numpy)
        limit = empty if info is None else int(info.max if empty > 0 else info.min)
        return F.expand(number(limit, x.dtype), shape)

    return reduce


_REDUCTIONS: dict[str, Any] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _extreme(lambda x, **where: F.max(x, **where), -np.inf),
    "ReduceMin": _extreme(lambda x, **where: F.min(x, **where), np.inf),
    "ReduceProd": lambda x, **where: cast(F.prod(x, **where), x.dtype),
    "ReduceL1": lambda x, **where: _sum(F.abs(x), **where),
    "ReduceL2": _root_of_squares,
    "ReduceLogSum": lambda x, **where: cast(F.log(_sum(x, **where)), x.dtype),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, **where: _sum(F.square(x), **where),
}


@row(*_REDUCTIONS)
def _reduce(node: Node) -> Any:
    x = node.tensor(0)
    axes = node.axes(1)
    if not axes:
        if node.attr("noop_with_empty_axes", 0):
            # No axis: the elementwise part of the op stays.
            axes = ()
        else:
            axes = tuple(range(x.ndim))
    axes = tuple(node.resolve(a, x.ndim) for a in axes)
    if x.ndim == 0:
        axes = ()
    keep = bool(node.attr("keepdims", 1))
    if not axes:
        # A reduction over an axis of one element has the same result.
        return F.squeeze(_REDUCTIONS[node.op](F.unsqueeze(x, 0), axis=(0,), keepdims=True), 0)
    return _REDUCTIONS[node.op](x, axis=axes, keepdims=keep)
