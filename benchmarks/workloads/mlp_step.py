"""A training step's forward and backward: MLP 784-512-512-10 with relu, batch 64, cross entropy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from harness.case import Case
from harness.peers import iree_case, jax_case, torch_step_case
from harness.rates import Work, matmul_work

TITLE = "MLP 64x[784, 512, 512, 10], forward and backward"
MODE = "loop"
UNIT = "ms"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1, 2)
TOLERANCE = 1e-5

BATCH, WIDTHS = 64, (784, 512, 512, 10)
PARAMS = tuple(range(2, 2 + 2 * (len(WIDTHS) - 1)))
Arrays = list[np.ndarray]


def arrays() -> Arrays:
    """x, one-hot targets, then a weight and a bias a layer."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((BATCH, WIDTHS[0])).astype(np.float32)
    targets = np.eye(WIDTHS[-1], dtype=np.float32)[generator.integers(0, WIDTHS[-1], BATCH)]
    layers = []
    for fan_in, fan_out in pairwise(WIDTHS):
        weight = generator.standard_normal((fan_in, fan_out)) * (2 / fan_in) ** 0.5
        layers += [weight.astype(np.float32), np.zeros(fan_out, np.float32)]
    return [x, targets, *layers]


def work() -> Work:
    """The matmuls: forward, and backward to the weights and to all inputs but the first."""
    shapes = [(BATCH, fan_in, fan_out) for fan_in, fan_out in pairwise(WIDTHS)]
    return matmul_work(*shapes, *shapes, *shapes[1:])


def oracle(data: Arrays) -> Arrays:
    x, targets, *layers = (a.astype(np.float64) for a in data)
    return _by_hand(x, targets, *layers)


def _by_hand(x: Any, targets: Any, *layers: Any) -> list[Any]:
    weights, biases = layers[0::2], layers[1::2]
    inputs = [x]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        inputs.append(np.maximum(inputs[-1] @ weight + bias, 0))
    logits = inputs[-1] @ weights[-1] + biases[-1]
    shifted = logits - logits.max(1, keepdims=True)
    exps = np.exp(shifted)
    total = exps.sum(1, keepdims=True)
    loss = -((shifted - np.log(total)) * targets).sum() / len(x)
    g = (exps / total - targets) / len(x)
    grads: list[Any] = []
    for i in reversed(range(len(weights))):
        grads[:0] = [inputs[i].T @ g, g.sum(0)]
        if i:
            g = (g @ weights[i].T) * (inputs[i] > 0)
    return [loss, *grads]


def _forward(relu: Any, x: Any, layers: Any) -> Any:
    for i in range(0, len(layers), 2):
        x = x @ layers[i] + layers[i + 1]
        if i + 2 < len(layers):
            x = relu(x)
    return x


def nova_run(data: Arrays) -> Case:
    import nova

    x, targets = (nova.tensor(a, name=n) for a, n in zip(data[:2], ("x", "t"), strict=True))
    layers = [nova.tensor(a, requires_grad=True, name=f"p{i}") for i, a in enumerate(data[2:])]
    loss = nova.cross_entropy(_forward(nova.relu, x, layers), targets)
    step = nova.compile(loss, inputs=[x, targets], params=layers, include_backward=True)
    return Case(step.run, [data[:2], data[2:]])


def numpy_by_hand(data: Arrays) -> Case:
    return Case(_by_hand, data)


def _torch_loss(x: Any, targets: Any, *layers: Any) -> Any:
    from torch.nn import functional

    return functional.cross_entropy(_forward(functional.relu, x, layers), targets)


def torch_eager(data: Arrays) -> Case:
    return torch_step_case(_torch_loss, data, PARAMS)


def torch_compiled(data: Arrays) -> Case:
    return torch_step_case(_torch_loss, data, PARAMS, compiled=True)


def _jax_loss(x: Any, targets: Any, *layers: Any) -> Any:
    import jax

    logits = _forward(jax.nn.relu, x, layers)
    return -(jax.nn.log_softmax(logits) * targets).sum() / x.shape[0]


def _jax_step(*args: Any) -> Any:
    import jax

    return jax.value_and_grad(_jax_loss, PARAMS)(*args)


def jax_jit(data: Arrays) -> Case:
    return jax_case(_jax_step, data)


def iree(data: Arrays) -> Case:
    return iree_case(_jax_step, data)


CONTENDERS = {
    "Nova": ("nova", nova_run),
    "numpy by hand": ("numpy", numpy_by_hand),
    "torch": ("torch", torch_eager),
    "torch.compile": ("torch", torch_compiled),
    "jax.jit": ("jax", jax_jit),
    "IREE": ("iree", iree),
}
