"""`Adam` (Kingma and Ba) and `AdamW` (Loshchilov and Hutter), as in torch.optim.

With amsgrad, maximize and both forms of weight decay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from nova.core.dtypes import TensorType, f64
from nova.core.records import record
from nova.graph.build import cast
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.optimizer import Optimizer, Options, as_type, check_betas, not_negative
from nova.optim.schedules import Rate, Schedule, as_schedule, power


@record
class MomentOptions(Options):
    """Options of optimizers with running averages of the gradient and of its size."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    decoupled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "betas", check_betas(self.betas))
        not_negative(self.eps, "eps")

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")


@record
class AdamOptions(MomentOptions):
    """Options of Adam; `decoupled` weight decay scales the parameter, not the gradient."""

    amsgrad: bool = False

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return (*super().slots(param), *(("max_exp_avg_sq",) if self.amsgrad else ()))


@record
class _Rates:
    """Scalars of one update, in f64: shared by all elements, and powers of betas near 1."""

    step_size: Rate
    correction: Rate
    decay: Rate


class Adam(Optimizer):
    """Adam; weight decay is added to the gradient unless `decoupled_weight_decay`."""

    options_class: ClassVar[type[Options]] = AdamOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        clip_norm: float | None = None,
        clip_norm_type: float = 2.0,
        clip_value: float | None = None,
        ema: float | None = None,
    ):
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
            decoupled=decoupled_weight_decay,
            clip_norm=clip_norm,
            clip_norm_type=clip_norm_type,
            clip_value=clip_value,
            ema=ema,
        )

    def rates(self, options: Any, step: Tensor) -> _Rates:
        lr = as_schedule(options.lr)(step)
        count = cast(step + 1, f64)
        first, second = (1.0 - power(b, count) for b in options.betas)
        # A common factor: each element is then divided once, not twice.
        return _Rates(lr / first, 1.0 / F.sqrt(second), 1.0 - lr * options.weight_decay)

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: _Rates
    ) -> tuple[Tensor, dict[str, Tensor]]:
        beta1, beta2 = options.betas
        decayed = param
        if options.weight_decay and options.decoupled:
            decayed = param * as_type(rates.decay, param.dtype)
        elif options.weight_decay:
            grad = grad + param * options.weight_decay
        average = slots["exp_avg"]
        average = average + (grad - average) * (1.0 - beta1)
        square = slots["exp_avg_sq"] * beta2 + grad * grad * (1.0 - beta2)
        changed = {"exp_avg": average, "exp_avg_sq": square}
        if options.amsgrad:
            square = F.maximum(slots["max_exp_avg_sq"], square)
            changed["max_exp_avg_sq"] = square
        scale = F.sqrt(square) * as_type(rates.correction, param.dtype) + options.eps
        return decayed - average * as_type(rates.step_size, param.dtype) / scale, changed


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **more: Any,
    ):
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, decoupled_weight_decay=True, **more
        )
