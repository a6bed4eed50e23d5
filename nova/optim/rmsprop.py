"""`RMSprop` (Hinton; Graves for the centered form), as torch.optim.RMSprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from nova.core.dtypes import TensorType
from nova.core.records import record
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.optimizer import Optimizer, Options, as_type, not_negative
from nova.optim.schedules import Rate, Schedule, as_schedule


@record
class RMSpropOptions(Options):
    """Options of RMSprop; `centered` divides by the deviation of the gradient, not its size."""

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "eps", "momentum"):
            not_negative(getattr(self, name), name)

    def slots(self, param: TensorType) -> tuple[str, ...]:
        centered = ("grad_avg",) if self.centered else ()
        momentum = ("momentum_buffer",) if self.momentum else ()
        return ("square_avg", *centered, *momentum)


class RMSprop(Optimizer):
    """Gradients divided by a running average of their size."""

    options_class: ClassVar[type[Options]] = RMSpropOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        **common: Any,
    ):
        super().__init__(
            params,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            **common,
        )

    def rates(self, options: Any, step: Tensor) -> Rate:
        return as_schedule(options.lr)(step)

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: Rate
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if options.weight_decay:
            grad = grad + param * options.weight_decay
        square = slots["square_avg"] * options.alpha + grad * grad * (1.0 - options.alpha)
        changed = {"square_avg": square}
        variance = square
        if options.centered:
            mean = slots["grad_avg"] + (grad - slots["grad_avg"]) * (1.0 - options.alpha)
            changed["grad_avg"] = mean
            variance = square - mean * mean
        direction = grad / (F.sqrt(variance) + options.eps)
        if options.momentum:
            direction = slots["momentum_buffer"] * options.momentum + direction
            changed["momentum_buffer"] = direction
        return param - direction * as_type(rates, param.dtype), changed
