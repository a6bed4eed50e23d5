"""Learning-rate schedules: functions of the step counter, computed inside the program.

A schedule takes the 0-d i64 tensor that counts the updates so far (0 at the first one) and
returns the rate of the next: a number, or a 0-d f64 tensor. Each is the closed form of torch's
scheduler of that name, stepped once per update.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import isfinite, pi

import numpy as np

from nova.core.dtypes import TensorType, f64
from nova.core.records import record
from nova.core.user_facing import user_facing_class
from nova.errors import AttributeValueError
from nova.graph.build import cast, constant
from nova.graph.tensor import Tensor, as_array
from nova.ops import F

Rate = float | Tensor


class Schedule(ABC):
    """The rate as a function of the number of updates so far."""

    @abstractmethod
    def __call__(self, step: Tensor) -> Rate:
        """The rate of the update after `step` updates."""


def as_schedule(rate: float | Schedule) -> Schedule:
    """A number as a constant schedule."""
    return rate if isinstance(rate, Schedule) else Constant(rate)


@user_facing_class
@record
class Constant(Schedule):
    """Always `lr`."""

    lr: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.lr, int | float) and not isinstance(self.lr, bool)
        if not is_number or not isfinite(self.lr) or self.lr < 0:
            raise AttributeValueError(
                f"a learning rate of {self.lr!r}", hint="it is a number that is not negative"
            )

    def __call__(self, step: Tensor) -> Rate:
        return float(self.lr)


@user_facing_class
class AdjustableLR(Schedule):
    """A rate that the host sets: `rate.lr = 0.1` between two calls; nothing is compiled again.

    The rate is an argument of the program that every call reads. `step.lr` of a training step reads
    and sets it.
    """

    def __init__(self, lr: float):
        self._tensor = Tensor(TensorType((), f64), data=np.array(_checked(lr)), name="lr")

    @property
    def lr(self) -> float:
        return float(as_array(self._tensor.data))

    @lr.setter
    def lr(self, value: float) -> None:
        as_array(self._tensor.data)[...] = _checked(value)

    def __call__(self, step: Tensor) -> Rate:
        return self._tensor

    def __repr__(self) -> str:
        return f"AdjustableLR({self.lr})"


def _checked(lr: float) -> float:
    Constant(lr)
    return float(lr)


@record
class Scaled(Schedule):
    """A schedule that multiplies another one (or a number) by a factor of the step."""

    lr: float | Schedule

    def __post_init__(self) -> None:
        as_schedule(self.lr)

    @abstractmethod
    def factor_at(self, step: Tensor) -> Rate:
        """The factor of the rate."""

    def __call__(self, step: Tensor) -> Rate:
        return as_schedule(self.lr)(step) * self.factor_at(step)


@user_facing_class
@record
class StepLR(Scaled):
    """Times `gamma` after every `step_size` updates."""

    step_size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self.step_size, "step_size")

    def factor_at(self, step: Tensor) -> Rate:
        return power(self.gamma, F.floor_div(step, self.step_size))


@user_facing_class
@record
class MultiStepLR(Scaled):
    """Times `gamma` when the count of updates reaches each of `milestones`."""

    milestones: tuple[int, ...]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "milestones", tuple(sorted(self.milestones)))

    def factor_at(self, step: Tensor) -> Rate:
        result = constant(1.0, f64)
        for milestone in self.milestones:
            result = F.where(step >= milestone, result * self.gamma, result)
        return result


@user_facing_class
@record
class ExponentialLR(Scaled):
    """Times `gamma` at every update."""

    gamma: float

    def factor_at(self, step: Tensor) -> Rate:
        return power(self.gamma, step)


@user_facing_class
@record
class LinearLR(Scaled):
    """The factor changes linearly from `start_factor` to `end_factor` in `total_iters` updates."""

    start_factor: float = 1.0 / 3
    end_factor: float = 1.0
    total_iters: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self.total_iters, "total_iters")

    def factor_at(self, step: Tensor) -> Rate:
        progress = cast(F.minimum(step, self.total_iters), f64) / self.total_iters
        return progress * (self.end_factor - self.start_factor) + self.start_factor


@user_facing_class
@record
class ConstantLR(Scaled):
    """Times `factor` in the first `total_iters` updates."""

    factor: float = 1.0 / 3
    total_iters: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self.total_iters, "total_iters")

    def factor_at(self, step: Tensor) -> Rate:
        return F.where(step < self.total_iters, constant(self.factor, f64), constant(1.0, f64))


@user_facing_class
@record
class CosineAnnealing(Schedule):
    """From `lr` to `eta_min` along half a cosine in `t_max` updates, then up again."""

    lr: float
    t_max: int
    eta_min: float = 0.0

    def __post_init__(self) -> None:
        Constant(self.lr)
        at_least_one(self.t_max, "t_max")

    def __call__(self, step: Tensor) -> Rate:
        wave = F.cos(cast(step, f64) * (pi / self.t_max))
        return (wave + 1.0) * ((self.lr - self.eta_min) / 2) + self.eta_min


CosineAnnealingLR = CosineAnnealing


@user_facing_class
@record
class LambdaLR(Scaled):
    """The factor is `function(step)`, a function of tensors."""

    function: Callable[[Tensor], Rate]

    def factor_at(self, step: Tensor) -> Rate:
        value = self.function(step)
        return cast(value, f64) if isinstance(value, Tensor) else value


@user_facing_class
@record
class SequentialLR(Schedule):
    """`schedules[i]` from update `milestones[i - 1]` on, each counting from 0."""

    schedules: tuple[float | Schedule, ...]
    milestones: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedules", tuple(self.schedules))
        object.__setattr__(self, "milestones", tuple(self.milestones))
        if len(self.schedules) != len(self.milestones) + 1:
            raise AttributeValueError(
                f"{len(self.schedules)} schedules and {len(self.milestones)} milestones",
                hint="there is one milestone between two schedules",
            )
        if list(self.milestones) != sorted(set(self.milestones)):
            raise AttributeValueError(f"milestones {self.milestones} do not ascend")

    def __call__(self, step: Tensor) -> Rate:
        rate = as_schedule(self.schedules[0])(step)
        for start, schedule in zip(self.milestones, self.schedules[1:], strict=True):
            later = as_schedule(schedule)(F.maximum(step - start, 0))
            rate = F.where(step >= start, _tensor(later), _tensor(rate))
        return rate


@user_facing_class
@record
class ChainedScheduler(Schedule):
    """One rate times the factors of all `schedules`, which are of that rate.

    The same as schedules inside of each other: `StepLR(ExponentialLR(lr, 0.9), 10)`. Those that set
    a rate, as `LambdaLR` and cosines do in torch, are no factors of another one.
    """

    schedules: Sequence[Scaled]

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedules", tuple(self.schedules))
        for schedule in self.schedules:
            if not isinstance(schedule, Scaled) or isinstance(schedule, LambdaLR):
                raise AttributeValueError(
                    f"ChainedScheduler: {schedule!r} does not multiply a rate",
                    hint="make it the lr of another schedule",
                )
        if len({schedule.lr for schedule in self.schedules}) != 1:
            raise AttributeValueError(
                f"ChainedScheduler: rates {[schedule.lr for schedule in self.schedules]}",
                hint="all schedules have the same lr",
            )

    def __call__(self, step: Tensor) -> Rate:
        rate = as_schedule(self.schedules[0].lr)(step)
        for schedule in self.schedules:
            rate = rate * schedule.factor_at(step)
        return rate


@user_facing_class
@record
class LinearWarmup(Schedule):
    """Linear warmup to the first rate of `lr` in `steps` updates; then `lr` from its start."""

    lr: float | Schedule
    steps: int
    start_factor: float = 1.0 / 3

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        at_least_one(self.steps, "steps")

    def __call__(self, step: Tensor) -> Rate:
        after = as_schedule(self.lr)
        first = after(constant(0, step.dtype))
        factor = LinearLR(1.0, self.start_factor, 1.0, self.steps).factor_at(step)
        later = after(F.maximum(step - self.steps, 0))
        return F.where(step < self.steps, factor * first, _tensor(later))


def _tensor(rate: Rate) -> Tensor:
    return rate if isinstance(rate, Tensor) else constant(rate, f64)


def power(base: float, exponent: Tensor) -> Tensor:
    """A power of a number, in f64."""
    return F.pow(constant(base, f64), cast(exponent, f64))


def at_least_one(value: int, name: str) -> None:
    """Check a count of updates."""
    if not isinstance(value, int) or value < 1:
        raise AttributeValueError(f"{name} is {value!r}", hint="it is an integer of at least 1")
