"""`Several`: optimizers of disjoint sets of parameters as one, such as Muon and AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nova.errors import GraphError, OptionTypeError
from nova.graph.capture import Holder
from nova.graph.tensor import Tensor
from nova.optim.optimizer import Optimizer


class Several(Holder):
    """What a training step needs of an optimizer, by several of them.

    The state of optimizer number i has the prefix `i.`: `step.state["optimizer.1.step"]`.
    """

    def __init__(self, optimizers: Sequence[Optimizer]):
        if not optimizers or not all(isinstance(o, Optimizer) for o in optimizers):
            raise GraphError(
                f"{optimizers!r} are not optimizers", hint="pass one, or a list of optimizers"
            )
        self.optimizers = tuple(optimizers)
        self.options = self.optimizers[0].options
        self.entries = tuple(
            replace(entry, name=f"{i}.{entry.name}")
            for i, optimizer in enumerate(self.optimizers)
            for entry in optimizer.entries
        )
        visited: set[int] = set()
        for entry in self.entries:
            if id(entry.param) in visited:
                raise GraphError(
                    f"two optimizers have the parameter {entry.name.partition('.')[2]!r}",
                    hint="give each parameter to one of them",
                )
            visited.add(id(entry.param))

    @property
    def params(self) -> list[Tensor]:
        """All parameters, in the order of the optimizers."""
        return [entry.param for entry in self.entries]

    def init_state(self) -> dict[str, np.ndarray]:
        """Fresh state of all optimizers."""
        return {
            f"{i}.{name}": array
            for i, optimizer in enumerate(self.optimizers)
            for name, array in optimizer.init_state().items()
        }

    def apply(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor | None],
        state: dict[str, Tensor],
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """New parameters and new state, each by its optimizer."""
        new_params: list[Tensor] = []
        new_state: dict[str, Tensor] = {}
        for i, optimizer in enumerate(self.optimizers):
            first, count, prefix = len(new_params), len(optimizer.entries), f"{i}."
            own = {n[len(prefix) :]: t for n, t in state.items() if n.startswith(prefix)}
            params_of, state_of = optimizer.apply(
                params[first : first + count], grads[first : first + count], own
            )
            new_params += params_of
            new_state.update((prefix + name, value) for name, value in state_of.items())
        return new_params, new_state

    def __repr__(self) -> str:
        return f"<Several: {', '.join(map(repr, self.optimizers))}>"


def as_optimizer(optimizer: Any) -> Any:
    """An optimizer, or a list of them as one; OptionTypeError for anything else."""
    if isinstance(optimizer, list | tuple) and len(optimizer) > 1:
        return Several(optimizer)
    single = optimizer[0] if isinstance(optimizer, list | tuple) and optimizer else optimizer
    if isinstance(single, Optimizer | Several):
        return single
    name = "an empty list" if single == [] or single == () else f"of type {type(single).__name__}"
    hint = "give one of nova.optim, such as optim.AdamW(model.parameters(), lr=1e-3)"
    if type(single).__name__ == "LBFGS":
        hint = "LBFGS evaluates the loss several times a step: call its own step(loss, *batch)"
    raise OptionTypeError(f"train_step: the optimizer is {name}", hint=hint)
