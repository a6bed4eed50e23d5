"""`ASGD`: averaged stochastic gradient descent (Polyak and Juditsky, 1992), as in torch.optim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from nova.core.dtypes import TensorType, f64
from nova.core.records import record
from nova.graph.build import cast
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.optimizer import Optimizer, Options, as_type, not_negative
from nova.optim.schedules import Rate, Schedule, as_schedule


@record
class ASGDOptions(Options):
    """Options of ASGD."""

    lambd: float = 1e-4
    alpha: float = 0.75
    t0: float = 1e6

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self.lambd, "lambd")

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("ax",)


class ASGD(Optimizer):
    """SGD with decay `lambd`, and the average of the parameters from update `t0` on.

    The state `ax` of a parameter is the average.
    """

    options_class: ClassVar[type[Options]] = ASGDOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        **common: Any,
    ):
        options = {"lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        super().__init__(params, lr=lr, **options, **common)

    def rates(self, options: Any, step: Tensor) -> tuple[Rate, Tensor]:
        lr, count = as_schedule(options.lr)(step), cast(step, f64)
        rate = lr / F.pow(count * (lr * options.lambd) + 1.0, options.alpha)
        return rate, 1.0 / F.maximum(count - options.t0, 1.0)

    def update(
        self,
        options: Any,
        param: Tensor,
        grad: Tensor,
        slots: dict[str, Tensor],
        rates: tuple[Rate, Tensor],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if options.weight_decay:
            grad = grad + param * options.weight_decay
        rate, share = (as_type(value, param.dtype) for value in rates)
        new = param * (1.0 - rate * options.lambd) - grad * rate
        average = slots["ax"]
        return new, {"ax": F.where(F.eq(share, 1.0), new, average + (new - average) * share)}
