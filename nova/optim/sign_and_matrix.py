"""Optimizers whose steps have a fixed size: `Lion` (Chen et al.) and `Muon` (Jordan et al.).

Lion steps by the sign of a momentum. Muon steps by an orthogonal matrix near the momentum, found by
the quintic Newton-Schulz iteration; it is for the matrices of hidden layers, as torch.optim.Muon.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any, ClassVar

from nova.core.dtypes import TensorType, bf16
from nova.core.records import record
from nova.errors import AttributeValueError, GraphError
from nova.graph.build import cast
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.optimizer import Optimizer, Options, as_type, check_betas, not_negative
from nova.optim.schedules import Rate, Schedule, as_schedule


@record
class LionOptions(Options):
    """Options of Lion; weight decay is decoupled."""

    betas: tuple[float, float] = (0.9, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "betas", check_betas(self.betas))

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("exp_avg",)


class Lion(Optimizer):
    """Steps of the sign of an interpolation between momentum and gradient."""

    options_class: ClassVar[type[Options]] = LionOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **common: Any,
    ):
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay, **common)

    def rates(self, options: Any, step: Tensor) -> Rate:
        return as_schedule(options.lr)(step)

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: Rate
    ) -> tuple[Tensor, dict[str, Tensor]]:
        beta1, beta2 = options.betas
        average = slots["exp_avg"]
        direction = F.sign(average * beta1 + grad * (1.0 - beta1))
        if options.weight_decay:
            direction = direction + param * options.weight_decay
        new = param - direction * as_type(rates, param.dtype)
        return new, {"exp_avg": average * beta2 + grad * (1.0 - beta2)}


_ADJUSTMENTS = ("original", "match_rms_adamw")


@record
class MuonOptions(Options):
    """Options of Muon; `ns_*` are those of the Newton-Schulz iteration."""

    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr_fn: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "ns_coefficients", tuple(self.ns_coefficients))
        not_negative(self.momentum, "momentum")
        not_negative(self.eps, "eps")
        if len(self.ns_coefficients) != 3:
            raise AttributeValueError(
                f"ns_coefficients are {self.ns_coefficients!r}", hint="they are three numbers"
            )
        if type(self.ns_steps) is not int or not 0 <= self.ns_steps < 100:
            raise AttributeValueError(
                f"ns_steps is {self.ns_steps!r}", hint="it is an integer from 0 to 99"
            )
        if self.adjust_lr_fn not in (None, *_ADJUSTMENTS):
            raise AttributeValueError(
                f"adjust_lr_fn is {self.adjust_lr_fn!r}",
                hint=f"it is None or one of {', '.join(_ADJUSTMENTS)}",
            )

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("momentum_buffer",)


class Muon(Optimizer):
    """Momentum, orthogonalized; for matrices. Weight decay is decoupled."""

    options_class: ClassVar[type[Options]] = MuonOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        **common: Any,
    ):
        super().__init__(
            params,
            lr=lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_coefficients=ns_coefficients,
            eps=eps,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
            **common,
        )
        for entry in self.entries:
            if len(entry.param.shape) != 2:
                raise GraphError(
                    f"Muon got the parameter {entry.name!r} of type {entry.param.type}",
                    hint="it takes matrices: give the other parameters to AdamW",
                )

    def rates(self, options: Any, step: Tensor) -> Rate:
        return as_schedule(options.lr)(step)

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: Rate
    ) -> tuple[Tensor, dict[str, Tensor]]:
        buffer = slots["momentum_buffer"]
        buffer = buffer + (grad - buffer) * (1.0 - options.momentum)
        direction = grad + (buffer - grad) * options.momentum if options.nesterov else buffer
        direction = cast(_orthogonalized(options, direction), param.dtype)
        rows, columns = param.shape
        ratio = sqrt(max(1.0, rows / columns))
        if options.adjust_lr_fn == "match_rms_adamw":
            ratio = 0.2 * sqrt(max(rows, columns))
        decayed = param * as_type(1.0 - rates * options.weight_decay, param.dtype)
        new = decayed - direction * as_type(rates * ratio, param.dtype)
        return new, {"momentum_buffer": buffer}


def _orthogonalized(options: MuonOptions, matrix: Tensor) -> Tensor:
    """A matrix with the singular vectors of `matrix` and singular values near 1, in bf16."""
    a, b, c = options.ns_coefficients
    x = cast(matrix, bf16)
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = F.transpose(x) if is_tall else x
    x = x / F.maximum(F.sqrt(F.sum(x * x)), options.eps)
    for _ in range(options.ns_steps):
        gram = x @ F.transpose(x)
        x = x * a + (gram * b + (gram @ gram) * c) @ x
    return F.transpose(x) if is_tall else x
