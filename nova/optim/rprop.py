"""`Rprop`: resilient backpropagation (Riedmiller and Braun, 1993), as in torch.optim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from nova.core.dtypes import TensorType
from nova.core.records import record
from nova.errors import AttributeValueError
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.optimizer import Optimizer, Options


@record
class RpropOptions(Options):
    """Options of Rprop."""

    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "etas", tuple(self.etas))
        object.__setattr__(self, "step_sizes", tuple(self.step_sizes))
        if isinstance(self.lr, bool) or not isinstance(self.lr, int | float):
            raise AttributeValueError(
                f"Rprop: lr is {self.lr!r}",
                hint="it is the first size of all steps, a number: a schedule would not change it",
            )
        if len(self.etas) != 2 or not 0.0 < self.etas[0] < 1.0 < self.etas[1]:
            raise AttributeValueError(
                f"Rprop: etas are {self.etas!r}", hint="one in 0..1 and one above 1"
            )
        if len(self.step_sizes) != 2 or not 0.0 < self.step_sizes[0] <= self.step_sizes[1]:
            raise AttributeValueError(
                f"Rprop: step_sizes are {self.step_sizes!r}", hint="the smallest and the largest"
            )

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("prev", "step_size")

    def initial(self, slot: str, param: TensorType) -> np.ndarray:
        value = self.lr if slot == "step_size" else 0.0
        return np.full(param.shape, value, param.dtype.numpy)


class Rprop(Optimizer):
    """Steps by the sign of each gradient, whose size grows while the sign stays the same."""

    options_class: ClassVar[type[Options]] = RpropOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        **common: Any,
    ):
        super().__init__(params, lr=lr, etas=etas, step_sizes=step_sizes, **common)

    def rates(self, options: Any, step: Tensor) -> None:
        """The sizes of steps are state: there is no rate."""

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        smaller, larger = (F.full((), eta, param.dtype) for eta in options.etas)
        agreement = grad * slots["prev"]
        factor = F.where(agreement > 0.0, larger, F.where(agreement < 0.0, smaller, 1.0))
        low, high = options.step_sizes
        size = F.clamp(slots["step_size"] * factor, min=low, max=high)
        # After a change of sign an element waits for one step.
        grad = F.where(agreement < 0.0, F.zeros_like(grad), grad)
        return param - F.sign(grad) * size, {"prev": grad, "step_size": size}
