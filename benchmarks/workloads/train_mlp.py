"""Training steps of an MLP 784-512-512-10 with relu, batch 64, SGD; loading is part of a step.

The rows are shuffled in memory: every contender sees the same batches in the same order, starts
from the same weights, and has the same losses. `train_compile_cold` and `train_compile_disk`
compile the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import numpy as np
from harness.case import Case
from harness.rates import Work
from harness.training import (
    JaxTraining,
    NovaTraining,
    TorchTraining,
    TorchWholeStep,
    TrainingCase,
)

TITLE = "Training step of an MLP 64x[784, 512, 512, 10] with SGD, loading included"
MODE = "loop"
UNIT = "ms"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1, 2)
TOLERANCE = 1e-5

ROWS, BATCH, WIDTHS, RATE, STEPS = 4096, 64, (784, 512, 512, 10), 0.05, 5
LAYERS = range(len(WIDTHS) - 1)
Data = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]


def arrays() -> Data:
    """x, labels, and the weights (in, out) and biases of every layer by name."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((ROWS, WIDTHS[0])).astype(np.float32)
    labels = generator.integers(0, WIDTHS[-1], ROWS)
    weights = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(WIDTHS)):
        weight = generator.standard_normal((fan_in, fan_out)) * (2 / fan_in) ** 0.5
        weights[f"{i}.weight"] = weight.astype(np.float32)
        weights[f"{i}.bias"] = np.zeros(fan_out, np.float32)
    return x, labels, weights


def work() -> Work:
    from workloads import mlp_step

    return mlp_step.work()


def _order(epoch: int) -> np.ndarray:
    """The order of the rows in `nova.data.Batches`, so that all losses can be compared."""
    bits = np.random.PCG64(np.random.SeedSequence((0, epoch)))
    return np.argsort(bits.random_raw(ROWS))


def _batches(x: Any, labels: Any, convert: Any = np.asarray) -> Iterator[tuple[Any, ...]]:
    """Batches by an index, in the arrays of the library that `convert` makes the index of."""
    for epoch in count():
        order = convert(_order(epoch))
        for start in range(0, ROWS, BATCH):
            rows = order[start : start + BATCH]
            yield x[rows], labels[rows]


def oracle(data: Data, steps: int = STEPS) -> list[np.ndarray]:
    from workloads.mlp_step import _by_hand

    x, labels, weights = data
    batches = _batches(x.astype(np.float64), np.eye(WIDTHS[-1])[labels])
    layers = [a.astype(np.float64) for a in weights.values()]
    losses = []
    for _ in range(steps):
        loss, *grads = _by_hand(*next(batches), *layers)
        layers = [a - RATE * g for a, g in zip(layers, grads, strict=True)]
        losses.append(loss)
    return [np.array(losses)]


def _rows_first(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights as (out, in), which the layers of Nova and torch have."""
    return {n: np.ascontiguousarray(a.T) for n, a in weights.items()}


def nova_training(data: Data, target: str | None = None) -> NovaTraining:
    import nova
    from nova import nn, optim
    from nova.data import Batches

    x, labels, weights = data
    layers = [nn.Linear(*sizes) for sizes in pairwise(WIDTHS)]
    for i, layer in enumerate(layers):
        named = {n: a for n, a in _rows_first(weights).items() if n.startswith(f"{i}.")}
        layer.load_state_dict({n.split(".")[1]: a for n, a in named.items()})
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    program = nova.train_step(
        model,
        lambda m, rows, labels: nova.cross_entropy(m(rows), labels),
        optim.SGD(model.parameters(), lr=RATE),
        target=target,
    )
    return NovaTraining(
        program, lambda: Batches(x, labels, batch_size=BATCH, seed=0).stream(1_000_000)
    )


def _torch_loss(p: Any, rows: Any, labels: Any) -> Any:
    from torch.nn import functional

    for i in LAYERS:
        rows = functional.linear(rows, p[f"{i}.weight"], p[f"{i}.bias"])
        rows = functional.relu(rows) if i < LAYERS[-1] else rows
    return functional.cross_entropy(rows, labels)


def _torch_load(data: Data) -> Any:
    import torch

    x, labels = (torch.from_numpy(a) for a in data[:2])
    return lambda: _batches(x, labels, torch.from_numpy)


def torch_training(data: Data, compiled: bool = False) -> TorchTraining:
    import torch

    return TorchTraining(
        _rows_first(data[2]),
        _torch_loss,
        lambda params: torch.optim.SGD(params, lr=RATE),
        _torch_load(data),
        compiled,
    )


def torch_whole(data: Data) -> TorchWholeStep:
    def update(params: Any, grads: Any) -> None:
        for name, param in params.items():
            param.sub_(grads[name], alpha=RATE)

    return TorchWholeStep(_rows_first(data[2]), _torch_loss, update, _torch_load(data))


def jax_training(data: Data) -> JaxTraining:
    import jax

    x, labels, weights = data

    def loss(p: Any, rows: Any, labels: Any) -> Any:
        for i in LAYERS:
            rows = rows @ p[f"{i}.weight"] + p[f"{i}.bias"]
            rows = jax.nn.relu(rows) if i < LAYERS[-1] else rows
        chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(rows), labels[:, None], 1)
        return -chosen.mean()

    def update(state: Any, grads: Any) -> Any:
        return {"params": jax.tree.map(lambda p, g: p - RATE * g, state["params"], grads)}

    return JaxTraining({"params": weights}, loss, update, lambda: _batches(x, labels))


def nova_steps(data: Data) -> Case:
    return TrainingCase(nova_training(data), STEPS)


def torch_steps(data: Data) -> Case:
    return TrainingCase(torch_training(data), STEPS)


def torch_compiled(data: Data) -> Case:
    return TrainingCase(torch_training(data, compiled=True), STEPS)


def torch_whole_steps(data: Data) -> Case:
    return TrainingCase(torch_whole(data), STEPS)


def jax_steps(data: Data) -> Case:
    return TrainingCase(jax_training(data), STEPS)


CONTENDERS = {
    "Nova, train_step and Batches": ("nova", nova_steps),
    "torch": ("torch", torch_steps),
    "torch.compile": ("torch", torch_compiled),
    "torch.compile, the whole step": ("torch", torch_whole_steps),
    "jax.jit, donated": ("jax", jax_steps),
}
