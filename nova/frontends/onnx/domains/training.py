"""Rows of ai.onnx.preview.training: optimizers, and gradients of a part of the graph."""

from __future__ import annotations

from typing import Any

from nova.errors import OnnxError
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast
from nova.frontends.onnx.table import TRAINING, row
from nova.graph.autodiff import gradients
from nova.ops import F


def _groups(node: Node, states: int) -> tuple[Any, Any, list[tuple[Any, ...]]]:
    """The rate, the step count, and (param, gradient, states...) of each param."""
    tensors = node.tensors()[2:]
    count, remainder = divmod(len(tensors), 2 + states)
    if remainder or not count:
        raise OnnxError(f"{node.op}: {len(tensors)} tensors")
    columns = [tensors[i * count : (i + 1) * count] for i in range(2 + states)]
    return node.tensor(0), node.tensor(1), list(zip(*columns, strict=True))


def _ordered(results: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """All new params, then each state of all params."""
    return tuple(value for column in zip(*results, strict=True) for value in column)


@row("Adagrad", domain=TRAINING)
def _adagrad(node: Node) -> Any:
    rate, step, groups = _groups(node, 1)
    rate = rate / (1.0 + cast(step, rate.dtype) * node.attr("decay_factor", 0.0))
    results = []
    for param, gradient, total in groups:
        gradient = gradient + param * node.attr("norm_coefficient", 0.0)
        total = total + F.square(gradient)
        scaled = gradient / (F.sqrt(total) + node.attr("epsilon", 1e-6))
        results.append((param - rate * scaled, total))
    return _ordered(results)


@row("Momentum", domain=TRAINING)
def _momentum(node: Node) -> Any:
    rate, step, groups = _groups(node, 1)
    alpha, beta = node.attr("alpha"), node.attr("beta")
    mode = node.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise OnnxError(f"Momentum: mode {mode!r}")
    # The first step takes the gradient itself.
    factor = F.where(F.gt(step, 0), beta, 1.0)
    results = []
    for param, gradient, speed in groups:
        gradient = gradient + param * node.attr("norm_coefficient")
        speed = speed * alpha + gradient * factor
        move = gradient + speed * alpha if mode == "nesterov" else speed
        results.append((param - rate * move, speed))
    return _ordered(results)


@row("Adam", domain=TRAINING)
def _adam(node: Node) -> Any:
    rate, step, groups = _groups(node, 2)
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    count = cast(step, rate.dtype)
    corrected = F.sqrt(1.0 - F.pow(beta, count)) / (1.0 - F.pow(alpha, count))
    rate = F.where(F.gt(step, 0), rate * corrected, rate)
    results = []
    for param, gradient, first, second in groups:
        gradient = gradient + param * node.attr("norm_coefficient", 0.0)
        first = first * alpha + gradient * (1 - alpha)
        second = second * beta + F.square(gradient) * (1 - beta)
        new = param - rate * first / (F.sqrt(second) + node.attr("epsilon", 1e-6))
        after = node.attr("norm_coefficient_post", 0.0)
        results.append((new * (1 - after), first, second))
    return _ordered(results)


@row("Gradient", domain=TRAINING)
def _gradient(node: Node) -> Any:
    """The gradients of the value named by `y` for the values named by `xs`."""
    output = node.scope.get(node.attr("y"))
    names = [*node.attr("xs"), *(node.attr("zs", None) or [])]
    sources = [node.scope.get(name) for name in names]
    for value, operand in zip(sources, node.tensors(), strict=True):
        if value is not operand:
            raise node.refused("gradients at other values than those of the graph")
    return tuple(gradients(F.sum(output), sources[: len(node.attr("xs"))]))
