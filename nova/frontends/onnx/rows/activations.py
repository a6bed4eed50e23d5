"""Rows of activation functions."""

from __future__ import annotations

from math import prod
from typing import Any

from nova.errors import OnnxError
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, number
from nova.frontends.onnx.table import row
from nova.ops import F


@row("Relu")
def _relu(node: Node) -> Any:
    return F.relu(node.tensor(0))


@row("LeakyRelu")
def _leaky_relu(node: Node) -> Any:
    return F.leaky_relu(node.tensor(0), negative_slope=node.attr("alpha", 0.01))


@row("PRelu")
def _prelu(node: Node) -> Any:
    x, slope = node.tensor(0), node.tensor(1)
    if node.version < 7 and slope.size > 1:
        slope = F.reshape(slope, (-1, *(1,) * (x.ndim - 2)))  # one slope per channel
    return F.where(F.lt(x, 0), x * slope, x)


@row("Elu")
def _elu(node: Node) -> Any:
    return F.elu(node.tensor(0), alpha=node.attr("alpha", 1.0))


@row("Celu", since=12)
def _celu(node: Node) -> Any:
    return F.celu(node.tensor(0), alpha=node.attr("alpha", 1.0))


@row("Selu")
def _selu(node: Node) -> Any:
    x = node.tensor(0)
    alpha = node.attr("alpha", 1.67326319217681884765625)
    gamma = node.attr("gamma", 1.05070102214813232421875)
    return F.where(F.gt(x, 0), x, F.expm1(F.minimum(x, 0.0)) * alpha) * gamma


@row("HardSigmoid")
def _hard_sigmoid(node: Node) -> Any:
    x = node.tensor(0) * node.attr("alpha", 0.2) + node.attr("beta", 0.5)
    return F.clamp(x, min=0.0, max=1.0)


@row("HardSwish", since=14)
def _hard_swish(node: Node) -> Any:
    x = node.tensor(0)
    return x * F.clamp(x * (1 / 6) + 0.5, min=0.0, max=1.0)


@row("Mish", since=18)
def _mish(node: Node) -> Any:
    return F.mish(node.tensor(0))


@row("Gelu", since=20)
def _gelu(node: Node) -> Any:
    return F.gelu(node.tensor(0), approximate=node.attr("approximate", "none"))


@row("Swish", since=24)
def _swish(node: Node) -> Any:
    x = node.tensor(0)
    return x * F.sigmoid(x * node.attr("alpha", 1.0))


@row("Shrink")
def _shrink(node: Node) -> Any:
    x = node.tensor(0)
    bias, limit = node.attr("bias", 0.0), node.attr("lambd", 0.5)
    zero = number(0, x.dtype)
    above = F.where(F.gt(x, limit), cast(x - bias, x.dtype), zero)
    return F.where(F.lt(x, -limit), cast(x + bias, x.dtype), above)


@row("Softplus")
def _softplus(node: Node) -> Any:
    # Without torch's threshold: above 20 the results differ in the last bits.
    x = node.tensor(0)
    return F.relu(x) + F.log1p(F.exp(F.neg(F.abs(x))))


@row("Softsign")
def _softsign(node: Node) -> Any:
    return F.softsign(node.tensor(0))


@row("ThresholdedRelu")
def _thresholded_relu(node: Node) -> Any:
    x = node.tensor(0)
    return F.where(F.gt(x, node.attr("alpha", 1.0)), x, number(0, x.dtype))


def _along_axis(node: Node, function: Any) -> Any:
    """Softmax and its relatives: before opset 13 the axes from `axis` on are one."""
    x = node.tensor(0)
    if node.version >= 13:
        return function(x, node.axis(x.ndim, -1))
    axis = node.attr("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise OnnxError(f"{node.op}: axis {axis} of {x.shape}")
    axis = axis + x.ndim if axis < 0 else axis
    flat = F.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    return F.reshape(function(flat, 1), x.shape)


@row("Softmax")
def _softmax(node: Node) -> Any:
    return _along_axis(node, lambda x, axis: F.softmax(x, axis=axis))


@row("LogSoftmax")
def _log_softmax(node: Node) -> Any:
    return _along_axis(node, lambda x, axis: F.log_softmax(x, axis=axis))


@row("Hardmax")
def _hardmax(node: Node) -> Any:
    return _along_axis(node, _first_largest)


def _first_largest(x: Any, axis: int) -> Any:
    at = F.argmax(x, axis=axis, keepdims=True)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return cast(F.eq(at, F.reshape(F.arange(x.shape[axis]), tuple(shape))), x.dtype)
