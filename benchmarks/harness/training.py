"""A contender that trains: its call is one step, loading included, and changes its weights.

`workloads.train_mlp` and `workloads.train_gpt` build them; `harness.worker` checks and times them
as any other `Case`. The check compares the losses of the first steps, from the initial weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from harness.case import THREADS, Case

Batch = tuple[np.ndarray, ...]


class Training(Protocol):
    """One library's loop: `restart` goes back to the first weights and the first batch."""

    def restart(self) -> None: ...

    def step(self) -> Any:
        """Load a batch and train on it; the loss before the update, once the step is done."""


class TrainingCase(Case):
    """Times `training.step`; its result is the losses of the first `steps` steps."""

    def __init__(self, training: Training, steps: int):
        super().__init__(training.step)
        object.__setattr__(self, "training", training)
        object.__setattr__(self, "steps", steps)

    def result(self) -> list[np.ndarray]:
        self.training.restart()
        return [np.array([self.read(self.function())[0].item() for _ in range(self.steps)])]


class NovaTraining:
    """`nova.train_step` over batches that `load` starts from the first."""

    def __init__(self, program: Any, load: Any):
        self.program, self.load = program, load
        self.first = {name: array.copy() for name, array in program.state_dict().items()}
        self.batches: Iterator[Batch] = load()

    def restart(self) -> None:
        self.program.load_state_dict(self.first)
        self.batches = self.load()

    def step(self) -> Any:
        return self.program(*next(self.batches))


class TorchTraining:
    """torch. `loss(params, *batch)`, eager or compiled; `make(params)` is the optimizer."""

    def __init__(
        self,
        weights: dict[str, np.ndarray],
        loss: Any,
        make: Any,
        load: Any,
        compiled: bool = False,
    ):
        import torch

        torch.set_num_threads(THREADS)
        loss = torch.compile(loss) if compiled else loss
        self.weights, self.loss, self.make, self.load = weights, loss, make, load
        self.restart()

    def restart(self) -> None:
        import torch

        self.params = {n: torch.tensor(a, requires_grad=True) for n, a in self.weights.items()}
        self.optimizer = self.make(list(self.params.values()))
        self.batches = self.load()

    def step(self) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(self.params, *next(self.batches))
        loss.backward()
        self.optimizer.step()
        return loss


class TorchWholeStep:
    """torch.compile of loss, gradients and update as one graph; `update` changes params in place.

    `torch.func` gives the gradients, because a call of `backward` would cut the graph in two.
    """

    def __init__(self, weights: dict[str, np.ndarray], loss: Any, update: Any, load: Any):
        import torch

        torch.set_num_threads(THREADS)

        def step(params: Any, *batch: Any) -> Any:
            grads, value = torch.func.grad_and_value(loss)(params, *batch)
            update(params, grads)
            return value

        self.compiled = torch.compile(step, fullgraph=True)
        self.weights, self.load = weights, load
        self.restart()

    def restart(self) -> None:
        import torch

        self.params = {n: torch.tensor(a) for n, a in self.weights.items()}
        self.batches = self.load()

    def step(self) -> Any:
        return self.compiled(self.params, *next(self.batches))


class JaxTraining:
    """`jax.jit` of loss, gradients and update, with the state donated.

    `update(state, grads)` gives the new state; `state["params"]` are the weights.
    """

    def __init__(self, state: dict[str, Any], loss: Any, update: Any, load: Any):
        import jax

        def step(state: Any, *batch: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(state["params"], *batch)
            return update(state, grads), value

        self.compiled = jax.jit(step, donate_argnums=0)
        self.first, self.load = state, load
        self.restart()

    def restart(self) -> None:
        import jax

        # A copy: a numpy array may be used in place, and donated.
        self.state = jax.block_until_ready(jax.tree.map(jax.numpy.array, self.first))
        self.batches = self.load()

    def step(self) -> Any:
        import jax

        self.state, loss = jax.block_until_ready(self.compiled(self.state, *next(self.batches)))
        return loss
