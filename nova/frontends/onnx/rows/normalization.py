"""Rows of normalizations and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import bool_, f32, f64, i64
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import DTYPES, constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, wide
from nova.frontends.onnx.table import row
from nova.ops import F


def _per_channel(value: Any, rank: int) -> Any:
    return F.reshape(value, (-1, *(1,) * (rank - 2))) if rank >= 2 else value


@row("BatchNormalization")
def _batch_norm(node: Node) -> Any:
    x = node.tensor(0)
    scale, bias, mean, var = (node.tensor(i) for i in range(1, 5))
    eps, momentum = node.attr("epsilon", 1e-5), node.attr("momentum", 0.9)
    in_training = node.outputs > 1 or (node.version < 7 and not node.attr("is_test", 0))
    if node.version < 14 and in_training:
        raise node.refused("training before opset 14", "convert it with onnx.version_converter")
    training = bool(node.attr("training_mode", 0))
    data = wide(x)
    state: tuple[Any, ...] = ()
    if training:
        axes = tuple(i for i in range(x.ndim) if i != 1)
        batch_mean = F.mean(data, axis=axes)
        centered = data - _per_channel(batch_mean, x.ndim)
        batch_var = F.mean(F.square(centered), axis=axes)
        state = (
            cast(wide(mean) * momentum + batch_mean * (1 - momentum), mean.dtype),
            cast(wide(var) * momentum + batch_var * (1 - momentum), var.dtype),
        )
        mean, var = batch_mean, batch_var
    mean, var, scale, bias = (
        _per_channel(cast(v, data.dtype), x.ndim) for v in (mean, var, scale, bias)
    )
    out = cast((data - mean) * (scale * F.rsqrt(var + eps)) + bias, x.dtype)
    return (out, *state) if state else out


@row("InstanceNormalization")
def _instance_norm(node: Node) -> Any:
    x, scale, bias = (node.tensor(i) for i in range(3))
    return F.instance_norm(x, scale, bias, eps=node.attr("epsilon", 1e-5))


@row("LayerNormalization", since=17)
def _layer_norm(node: Node) -> Any:
    x, scale, bias = node.tensor(0), node.tensor(1), node.optional(2)
    axis = node.axis(x.ndim, -1)
    eps = node.attr("epsilon", 1e-5)
    ndim = x.ndim - axis
    if (
        node.outputs == 1
        and scale.shape == x.shape[axis:]
        and (bias is None or bias.shape == scale.shape)
    ):
        return F.layer_norm(x, scale, bias, ndim=ndim, eps=eps)
    stash = DTYPES.get(node.attr("stash_type", 1), f32)
    data = cast(x, f64 if x.dtype is f64 else stash)
    axes = tuple(range(axis, x.ndim))
    mean = F.mean(data, axis=axes, keepdims=True)
    centered = data - mean
    inverse = F.rsqrt(F.mean(F.square(centered), axis=axes, keepdims=True) + eps)
    out = cast(centered * inverse, x.dtype) * scale
    out = out if bias is None else out + bias
    return out, cast(mean, stash), cast(inverse, stash)


@row("RMSNormalization", since=23)
def _rms_norm(node: Node) -> Any:
    x, scale = node.tensor(0), node.tensor(1)
    axis = node.axis(x.ndim, -1)
    eps = node.attr("epsilon", 1e-5)
    if scale.shape == x.shape[axis:] and scale.dtype is x.dtype:
        return F.rms_norm(x, scale, ndim=x.ndim - axis, eps=eps)
    data = wide(x)
    square = F.mean(F.square(data), axis=tuple(range(axis, x.ndim)), keepdims=True)
    return cast(data * F.rsqrt(square + eps), x.dtype) * scale


@row("GroupNormalization", since=18)
def _group_norm(node: Node) -> Any:
    x, scale, bias = (node.tensor(i) for i in range(3))
    groups = node.attr("num_groups")
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise OnnxError(f"GroupNormalization: {groups} groups of {x.shape}")
    if node.version < 21:
        # One scale per group, before each channel had its own.
        each = x.shape[1] // groups
        scale, bias = (F.repeat_interleave(v, each, axis=0) for v in (scale, bias))
    return F.group_norm(x, groups, scale, bias, eps=node.attr("epsilon", 1e-5))


@row("LpNormalization")
def _lp_norm(node: Node) -> Any:
    x = node.tensor(0)
    axis, power = node.axis(x.ndim, -1), node.attr("p", 2)
    data = wide(x)
    if power == 1:
        size = F.sum(F.abs(data), axis=axis, keepdims=True)
    elif power == 2:
        size = F.sqrt(F.sum(F.square(data), axis=axis, keepdims=True))
    else:
        raise OnnxError(f"LpNormalization: p is {power}")
    zero = F.eq(size, 0)
    return cast(F.where(zero, 0.0, data / F.where(zero, 1.0, size)), x.dtype)


@row("LRN")
def _lrn(node: Node) -> Any:
    x = node.tensor(0)
    size = node.attr("size")
    alpha, beta, bias = node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)
    before = (size - 1) // 2
    square = F.square(wide(x))
    low, high = [0] * x.ndim, [0] * x.ndim
    low[1], high[1] = before, size - 1 - before
    padded = F.pad(square, low=tuple(low), high=tuple(high))
    total = None
    for i in range(size):
        part = F.narrow(padded, 1, i, x.shape[1])
        total = part if total is None else total + part
    return cast(wide(x) / F.pow(total * (alpha / size) + bias, beta), x.dtype)


@row("MeanVarianceNormalization")
def _mean_variance(node: Node) -> Any:
    x = node.tensor(0)
    axes = tuple(node.resolve(a, x.ndim) for a in (node.attr("axes", None) or (0, 2, 3)))
    data = wide(x)
    centered = data - F.mean(data, axis=axes, keepdims=True)
    deviation = F.sqrt(F.mean(F.square(centered), axis=axes, keepdims=True))
    return cast(centered / (deviation + 1e-9), x.dtype)


@row("Dropout", random=True)
def _dropout(node: Node) -> Any:
    x = node.tensor(0)
    if node.version < 12:
        ratio, training = node.attr("ratio", 0.5), False
    else:
        ratio = float(node.scalar(1)) if node.has(1) else 0.5
        training = bool(node.scalar(2)) if node.has(2) else False
    if not training or ratio == 0:
        mask = F.full(shape=x.shape, value=True, dtype=bool_)
        return x, mask
    seed = constant(np.asarray(node.attr("seed", 0), np.int64))
    mask = F.ge(F.uniform(cast(seed, i64), shape=x.shape), ratio)
    scale = 1.0 / (1.0 - ratio) if ratio < 1 else 0.0
    return F.where(mask, x * scale, 0.0), mask
