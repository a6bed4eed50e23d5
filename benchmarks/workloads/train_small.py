"""Training steps of one small layer, 8x16 to 10, with SGD: the weights change in place.

The step of `small_step` and the update of its weights. Every call has the same batch, already in
the arrays of the library: what is measured is the step and its call from Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
from harness.case import Case
from harness.training import (
    JaxTraining,
    NovaTraining,
    TorchTraining,
    TorchWholeStep,
    Training,
    TrainingCase,
)

from workloads import small_step

TITLE = "A small training step: 8x16 to 10 with SGD"
MODE = "loop"
UNIT = "us"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1,)
TOLERANCE = 1e-5

RATE, STEPS = 0.05, 5
Arrays = list[np.ndarray]


def arrays() -> Arrays:
    """x, w, b, y."""
    return small_step.arrays()


def oracle(data: Arrays) -> Arrays:
    x, w, b, y = data
    losses = []
    for _ in range(STEPS):
        loss, dw, db = small_step.oracle([x, w, b, y])
        w, b = w - RATE * dw, b - RATE * db
        losses.append(loss)
    return [np.array(losses)]


class _Steady(TrainingCase):
    """Times the compiled step on a batch that is there, without an iterator around it."""

    def __init__(self, training: Training, function: Any, args: Any):
        super().__init__(training, STEPS)
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "args", args)

    def result(self) -> list[np.ndarray]:
        self.training.restart()
        return [np.array([self.read(self.function(*self.args))[0].item() for _ in range(STEPS)])]


def nova_training(data: Arrays, target: str | None = None) -> NovaTraining:
    import nova
    from nova import nn, optim

    x, w, b, y = data

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.b = nn.Parameter(w.copy()), nn.Parameter(b.copy())

        def forward(self, rows: Any) -> Any:
            return nova.gelu(rows @ self.w + self.b)

    model = Layer()
    program = nova.train_step(
        model,
        lambda m, rows, targets: nova.mse_loss(m(rows), targets),
        optim.SGD(model.parameters(), lr=RATE),
        target=target,
    )
    return NovaTraining(program, lambda: repeat((x, y)))


def nova_step(data: Arrays) -> Case:
    training = nova_training(data)
    return _Steady(training, training.program, [data[0], data[3]])


def _torch_loss(p: Any, x: Any, y: Any) -> Any:
    return small_step.torch_loss(x, p["w"], p["b"], y)


def _torch_batches(data: Arrays) -> Iterator[Any]:
    import torch

    return repeat((torch.tensor(data[0]), torch.tensor(data[3])))


def torch_training(data: Arrays) -> TorchTraining:
    import torch

    weights = {"w": data[1], "b": data[2]}
    return TorchTraining(
        weights,
        _torch_loss,
        lambda params: torch.optim.SGD(params, lr=RATE),
        lambda: _torch_batches(data),
    )


def torch_step(data: Arrays) -> Case:
    return TrainingCase(torch_training(data), STEPS)


def torch_whole(data: Arrays) -> Case:
    def update(params: Any, grads: Any) -> None:
        for name, param in params.items():
            param.sub_(grads[name], alpha=RATE)

    weights = {"w": data[1], "b": data[2]}
    training = TorchWholeStep(weights, _torch_loss, update, lambda: _torch_batches(data))
    return TrainingCase(training, STEPS)


def jax_training(data: Arrays) -> JaxTraining:
    import jax

    x, y = jax.device_put(data[0]), jax.device_put(data[3])

    def loss(p: Any, x: Any, y: Any) -> Any:
        return small_step.jax_loss(x, p["w"], p["b"], y)

    def update(state: Any, grads: Any) -> Any:
        return {"params": jax.tree.map(lambda p, g: p - RATE * g, state["params"], grads)}

    weights = {"w": data[1], "b": data[2]}
    return JaxTraining({"params": weights}, loss, update, lambda: repeat((x, y)))


def jax_step(data: Arrays) -> Case:
    return TrainingCase(jax_training(data), STEPS)


def numpy_step(data: Arrays) -> Case:
    return TrainingCase(_ByHand(data), STEPS)


class _ByHand:
    """numpy, with the gradients written out."""

    def __init__(self, data: Arrays):
        from scipy.special import erf

        self.data, self.erf = data, erf
        self.restart()

    def restart(self) -> None:
        self.w, self.b = self.data[1].copy(), self.data[2].copy()

    def step(self) -> Any:
        x, _, _, y = self.data
        loss, dw, db = small_step._by_hand(self.erf, x, self.w, self.b, y)
        self.w -= np.float32(RATE) * dw
        self.b -= np.float32(RATE) * db
        return loss


CONTENDERS = {
    "Nova, train_step": ("nova", nova_step),
    "numpy by hand": ("numpy", numpy_step),
    "torch": ("torch", torch_step),
    "torch.compile, the whole step": ("torch", torch_whole),
    "jax.jit, donated": ("jax", jax_step),
}
