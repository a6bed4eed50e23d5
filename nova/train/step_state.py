"""The state of a training step besides the parameters, and the graph of one update.

In: an optimizer, a loss scaler, and a loss that was traced. Out: the arrays that a run changes, as
leaves of the graph, and the new value of every parameter and of each of these arrays. Called by
`nova.train.step` when it traces a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, dtype, f32
from nova.errors import GradientError
from nova.graph.autodiff import gradients
from nova.graph.build import cast
from nova.graph.order import reached_by_gradients
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.clipping import global_norm
from nova.optim.scaler import LossScaler, all_finite

# The stride of seeds between runs: they stay far from each other for any number of random ops per
# run (2**64 / golden ratio, as a signed number).
_SEED_STEP = 0x9E3779B97F4A7C15 - 2**64


class StepState:
    """The arrays other than the parameters that a step changes: `leaves`, by name.

    They are the seed of random ops, the state of the optimizer and of the loss scaler, the norm of
    the gradients, and the gradients that are accumulated over calls.
    """

    def __init__(
        self,
        optimizer: Any,
        scaler: LossScaler | None,
        grad_norm: bool,
        accumulate: int,
        seed: int,
    ):
        self._optimizer, self._scaler = optimizer, scaler
        self._grad_norm, self._accumulate = grad_norm, accumulate
        self.leaves = {
            name: Tensor(TensorType(a.shape, dtype(a.dtype)), data=a, name=name)
            for name, a in self._fresh_state(seed).items()
        }

    def _fresh_state(self, seed: int) -> dict[str, np.ndarray]:
        drawn = np.random.SeedSequence(seed).generate_state(1, np.uint64).view(np.int64)
        state = {"seed": drawn.reshape(()).copy()}
        state.update((f"optimizer.{n}", a) for n, a in self._optimizer.init_state().items())
        if self._scaler is not None:
            state.update((f"scaler.{n}", a) for n, a in self._scaler.init_state().items())
        if self._grad_norm:
            state["grad_norm"] = np.array(0, np.float32)
        if self._accumulate > 1:
            state["accumulated"] = np.array(0, np.int64)
            for entry in self._optimizer.entries:
                type_ = entry.param.type
                state[f"gradient.{entry.name}"] = np.zeros(type_.shape, type_.dtype.numpy)
        return state

    def _group(self, prefix: str) -> dict[str, Tensor]:
        start = len(prefix) + 1
        return {n[start:]: t for n, t in self.leaves.items() if n.startswith(prefix + ".")}

    def updates(self, loss: Tensor) -> dict[Tensor, Tensor]:
        """The new value of every parameter and state array that changes."""
        entries = self._optimizer.entries
        reached = reached_by_gradients(loss)
        trained = [e for e in entries if e.param.requires_grad and id(e.param) in reached]
        if not trained:
            raise GradientError(
                "the loss depends on no parameter that the optimizer may change",
                hint="are all of them frozen, or is it the optimizer of another model?",
            )
        scaler, scaling = self._scaler, self._group("scaler")
        start = loss if scaler is None else scaler.scaled(loss, scaling)
        grads = gradients(start, [e.param for e in trained])
        if scaler is not None:
            grads = scaler.unscaled(grads, scaling)
        updates = {self.leaves["seed"]: self.leaves["seed"] + _SEED_STEP}
        commit: Tensor | None = None
        if self._accumulate > 1:
            commit, grads = self._accumulated([e.name for e in trained], grads, updates)
        if scaler is not None:
            finite = all_finite(grads)
            for name, value in scaler.update(finite, scaling).items():
                updates[scaling[name]] = _select(commit, value, scaling[name])
            commit = finite if commit is None else F.logical_and(commit, finite)
        if self._grad_norm:
            norm = cast(global_norm(grads), f32)
            updates[self.leaves["grad_norm"]] = _select(commit, norm, self.leaves["grad_norm"])
        by_name = dict(zip([e.name for e in trained], grads, strict=True))
        state = self._group("optimizer")
        params = [e.param for e in entries]
        entry_grads = [by_name.get(e.name) for e in entries]
        new_params, new_state = self._optimizer.apply(params, entry_grads, state)
        changes = [*zip(params, new_params, strict=True)]
        changes += [(state[name], value) for name, value in new_state.items()]
        updates.update((old, _select(commit, new, old)) for old, new in changes if new is not old)
        return updates

    def _accumulated(
        self, names: Sequence[str], grads: Sequence[Tensor], updates: dict[Tensor, Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Whether this call updates, and the gradients averaged so far; an update resets them."""
        count = self.leaves["accumulated"]
        last = count + 1 >= self._accumulate
        updates[count] = F.where(last, 0, count + 1)
        totals = []
        for name, grad in zip(names, grads, strict=True):
            leaf = self.leaves[f"gradient.{name}"]
            total = leaf + grad * (1.0 / self._accumulate)
            updates[leaf] = F.where(last, 0.0, total)
            totals.append(total)
        return last, totals


def _select(condition: Tensor | None, new: Tensor, old: Tensor) -> Tensor:
    return new if condition is None else F.where(condition, new, old)
