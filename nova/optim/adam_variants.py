"""Relatives of Adam, as in torch.optim: `Adamax`, `NAdam` and `RAdam`.

Adamax (Kingma and Ba) scales by the largest gradient, NAdam (Dozat) has Nesterov momentum, RAdam
(Liu et al.) rectifies the variance of the first steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from nova.core.dtypes import TensorType, f64
from nova.core.records import record
from nova.graph.build import cast
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.adam import MomentOptions
from nova.optim.optimizer import Optimizer, Options, as_type, not_negative
from nova.optim.schedules import Rate, Schedule, as_schedule, power


def _decayed(options: MomentOptions, param: Tensor, grad: Tensor, lr: Rate) -> tuple[Any, Any]:
    """The parameter and the gradient after weight decay of either form."""
    if not options.weight_decay:
        return param, grad
    if options.decoupled:
        return param * as_type(1.0 - lr * options.weight_decay, param.dtype), grad
    return param, grad + param * options.weight_decay


# --- Adamax ---------------------------------------------------------------------------------------


@record
class AdamaxOptions(MomentOptions):
    """Options of Adamax."""

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf")


class Adamax(Optimizer):
    """Adam with the infinity norm in place of the second moment."""

    options_class: ClassVar[type[Options]] = AdamaxOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **common: Any,
    ):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **common)

    def rates(self, options: Any, step: Tensor) -> Rate:
        lr = as_schedule(options.lr)(step)
        return lr / (1.0 - power(options.betas[0], cast(step + 1, f64)))

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: Rate
    ) -> tuple[Tensor, dict[str, Tensor]]:
        beta1, beta2 = options.betas
        if options.weight_decay:
            grad = grad + param * options.weight_decay
        average = slots["exp_avg"] + (grad - slots["exp_avg"]) * (1.0 - beta1)
        largest = F.maximum(slots["exp_inf"] * beta2, F.abs(grad) + options.eps)
        new = param - average * as_type(rates, param.dtype) / largest
        return new, {"exp_avg": average, "exp_inf": largest}


# --- NAdam ----------------------------------------------------------------------------------------


@record
class NAdamOptions(MomentOptions):
    """Options of NAdam; `momentum_decay` is psi of its momentum schedule."""

    momentum_decay: float = 4e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self.momentum_decay, "momentum_decay")

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "mu_product")

    def initial(self, slot: str, param: TensorType) -> np.ndarray:
        return np.array(1.0) if slot == "mu_product" else super().initial(slot, param)


@record
class _NAdamRates:
    """Scalars of one update, in f64."""

    lr: Rate
    momentum: Tensor
    next_momentum: Tensor
    correction: Tensor


class NAdam(Optimizer):
    """Adam with Nesterov momentum."""

    options_class: ClassVar[type[Options]] = NAdamOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        **common: Any,
    ):
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            momentum_decay=momentum_decay,
            decoupled=decoupled_weight_decay,
            **common,
        )

    def rates(self, options: Any, step: Tensor) -> _NAdamRates:
        beta1, beta2 = options.betas
        count = cast(step + 1, f64)

        def momentum(at: Tensor) -> Tensor:
            return (1.0 - power(0.96, at * options.momentum_decay) * 0.5) * beta1

        return _NAdamRates(
            as_schedule(options.lr)(step),
            momentum(count),
            momentum(count + 1.0),
            1.0 - power(beta2, count),
        )

    def update(
        self,
        options: Any,
        param: Tensor,
        grad: Tensor,
        slots: dict[str, Tensor],
        rates: _NAdamRates,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        beta1, beta2 = options.betas
        param, grad = _decayed(options, param, grad, rates.lr)
        average = slots["exp_avg"] + (grad - slots["exp_avg"]) * (1.0 - beta1)
        square = slots["exp_avg_sq"] * beta2 + grad * grad * (1.0 - beta2)
        product = slots["mu_product"] * rates.momentum
        grad_rate = rates.lr * (1.0 - rates.momentum) / (1.0 - product)
        average_rate = rates.lr * rates.next_momentum / (1.0 - product * rates.next_momentum)
        scale = F.sqrt(square / as_type(rates.correction, param.dtype)) + options.eps
        direction = grad * as_type(grad_rate, param.dtype)
        direction = direction + average * as_type(average_rate, param.dtype)
        changed = {"exp_avg": average, "exp_avg_sq": square, "mu_product": product}
        return param - direction / scale, changed


# --- RAdam ----------------------------------------------------------------------------------------


@record
class _RAdamRates:
    """Scalars of one update, in f64; `rectification` is 0 while the variance is unknown."""

    lr: Rate
    step_size: Rate
    rectification: Tensor
    is_rectified: Tensor


class RAdam(Optimizer):
    """Adam whose first steps, of unknown variance, are plain momentum."""

    options_class: ClassVar[type[Options]] = MomentOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        **common: Any,
    ):
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            decoupled=decoupled_weight_decay,
            **common,
        )

    def rates(self, options: Any, step: Tensor) -> _RAdamRates:
        beta1, beta2 = options.betas
        lr = as_schedule(options.lr)(step)
        count = cast(step + 1, f64)
        decay = power(beta2, count)
        longest = 2 / (1 - beta2) - 1
        length = longest - count * decay * 2.0 / (1.0 - decay)
        is_rectified = length > 5.0
        variance = (length - 4.0) * (length - 2.0) * longest / length
        variance = F.where(is_rectified, variance / ((longest - 4) * (longest - 2)), 0.0)
        return _RAdamRates(
            lr,
            lr / (1.0 - power(beta1, count)),
            F.sqrt(variance * (1.0 - decay)),
            is_rectified,
        )

    def update(
        self,
        options: Any,
        param: Tensor,
        grad: Tensor,
        slots: dict[str, Tensor],
        rates: _RAdamRates,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        beta1, beta2 = options.betas
        param, grad = _decayed(options, param, grad, rates.lr)
        average = slots["exp_avg"] + (grad - slots["exp_avg"]) * (1.0 - beta1)
        square = slots["exp_avg_sq"] * beta2 + grad * grad * (1.0 - beta2)
        adaptive = as_type(rates.rectification, param.dtype) / (F.sqrt(square) + options.eps)
        factor = F.where(rates.is_rectified, adaptive, 1.0)
        new = param - average * as_type(rates.step_size, param.dtype) * factor
        return new, {"exp_avg": average, "exp_avg_sq": square}
