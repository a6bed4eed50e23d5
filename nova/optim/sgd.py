"""`SGD`: torch.optim.SGD, with momentum, dampening, Nesterov, weight decay and maximize."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from nova.core.dtypes import TensorType
from nova.core.records import record
from nova.errors import AttributeValueError
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.optimizer import Optimizer, Options, as_type, not_negative
from nova.optim.schedules import Rate, Schedule, as_schedule


@record
class SGDOptions(Options):
    """Options of SGD."""

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self.momentum, "momentum")
        if self.nesterov and (self.momentum <= 0 or self.dampening != 0):
            raise AttributeValueError("nesterov needs momentum, and dampening 0")

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.momentum else ()


@record
class _Rates:
    lr: Rate
    first: Tensor
    """Whether this is the first update."""


class SGD(Optimizer):
    """Stochastic gradient descent."""

    options_class: ClassVar[type[Options]] = SGDOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        clip_norm: float | None = None,
        clip_norm_type: float = 2.0,
        clip_value: float | None = None,
        ema: float | None = None,
    ):
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
            clip_norm=clip_norm,
            clip_norm_type=clip_norm_type,
            clip_value=clip_value,
            ema=ema,
        )

    def rates(self, options: Any, step: Tensor) -> _Rates:
        return _Rates(as_schedule(options.lr)(step), step == 0)

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: _Rates
    ) -> tuple[Tensor, dict[str, Tensor]]:
        changed: dict[str, Tensor] = {}
        if options.weight_decay:
            grad = grad + param * options.weight_decay
        if options.momentum:
            buffer = slots["momentum_buffer"] * options.momentum
            buffer = buffer + grad * (1.0 - options.dampening)
            if options.dampening:
                # The first gradient is used undamped.
                buffer = F.where(rates.first, grad, buffer)
            changed["momentum_buffer"] = buffer
            grad = grad + buffer * options.momentum if options.nesterov else buffer
        return param - grad * as_type(rates.lr, param.dtype), changed
