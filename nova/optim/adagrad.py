"""`Adagrad` (Duchi et al.) and `Adadelta` (Zeiler), as in torch.optim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from nova.core.dtypes import TensorType, f64
from nova.core.records import record
from nova.errors import AttributeValueError
from nova.graph.build import cast
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.optimizer import Optimizer, Options, as_type, not_negative
from nova.optim.schedules import Rate, Schedule, as_schedule


@record
class AdagradOptions(Options):
    """Options of Adagrad."""

    lr_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lr_decay", "initial_accumulator_value", "eps"):
            not_negative(getattr(self, name), name)

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("sum",)

    def initial(self, slot: str, param: TensorType) -> np.ndarray:
        return np.full(param.shape, self.initial_accumulator_value, param.dtype.numpy)


class Adagrad(Optimizer):
    """Gradients divided by the root of the sum of all their squares."""

    options_class: ClassVar[type[Options]] = AdagradOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **common: Any,
    ):
        super().__init__(
            params,
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
            **common,
        )

    def rates(self, options: Any, step: Tensor) -> Rate:
        lr = as_schedule(options.lr)(step)
        return lr / (cast(step, f64) * options.lr_decay + 1.0) if options.lr_decay else lr

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: Rate
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if options.weight_decay:
            grad = grad + param * options.weight_decay
        total = slots["sum"] + grad * grad
        step_size = as_type(rates, param.dtype)
        return param - grad * step_size / (F.sqrt(total) + options.eps), {"sum": total}


@record
class AdadeltaOptions(Options):
    """Options of Adadelta."""

    rho: float = 0.9
    eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self.eps, "eps")
        if not 0 <= self.rho <= 1:
            raise AttributeValueError(f"rho is {self.rho!r}", hint="it is a number in 0..1")

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")


class Adadelta(Optimizer):
    """Steps scaled by the ratio of the sizes of past updates and past gradients."""

    options_class: ClassVar[type[Options]] = AdadeltaOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        **common: Any,
    ):
        super().__init__(params, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, **common)

    def rates(self, options: Any, step: Tensor) -> Rate:
        return as_schedule(options.lr)(step)

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: Rate
    ) -> tuple[Tensor, dict[str, Tensor]]:
        rho, eps = options.rho, options.eps
        if options.weight_decay:
            grad = grad + param * options.weight_decay
        square = slots["square_avg"] * rho + grad * grad * (1.0 - rho)
        past = slots["acc_delta"]
        delta = F.sqrt(past + eps) / F.sqrt(square + eps) * grad
        changed = {"square_avg": square, "acc_delta": past * rho + delta * delta * (1.0 - rho)}
        return param - delta * as_type(rates, param.dtype), changed
