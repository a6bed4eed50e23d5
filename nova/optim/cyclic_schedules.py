"""Schedules that rise and fall: `OneCycleLR` (Smith), `CyclicLR` (Smith), warm restarts (SGDR).

And `PolynomialLR`. Each is the closed form of torch's scheduler of that name.
"""

from __future__ import annotations

from math import log, pi

from nova.core.dtypes import f64
from nova.core.records import record
from nova.core.user_facing import user_facing_class
from nova.errors import AttributeValueError
from nova.graph.build import cast
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.schedules import Constant, Rate, Scaled, Schedule, at_least_one, power


@user_facing_class
@record
class PolynomialLR(Scaled):
    """Falls to 0 in `total_iters` updates, as a polynomial of degree `power`."""

    total_iters: int = 5
    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self.total_iters, "total_iters")

    def factor_at(self, step: Tensor) -> Rate:
        progress = cast(F.minimum(step, self.total_iters), f64) / self.total_iters
        return F.pow(1.0 - progress, self.power)


@user_facing_class
@record
class CosineAnnealingWarmRestarts(Schedule):
    """Half a cosine from `lr` to `eta_min` in `t_0` updates, again and again.

    Each period is `t_mult` times as long as the previous one.
    """

    lr: float
    t_0: int
    t_mult: int = 1
    eta_min: float = 0.0

    def __post_init__(self) -> None:
        Constant(self.lr)
        at_least_one(self.t_0, "t_0")
        at_least_one(self.t_mult, "t_mult")

    def __call__(self, step: Tensor) -> Rate:
        count = cast(step, f64)
        if self.t_mult == 1:
            progress = cast(F.remainder(step, self.t_0), f64) / self.t_0
        else:
            # Period n begins at t_0 (t_mult^n - 1) / (t_mult - 1): the sum of a geometric series.
            # Half an update keeps the logarithm away from whole numbers.
            grown = (count + 0.5) * ((self.t_mult - 1) / self.t_0) + 1.0
            length = power(self.t_mult, F.floor(F.log(grown) / log(self.t_mult)))
            start = (length - 1.0) * (self.t_0 / (self.t_mult - 1))
            progress = (count - start) / (length * self.t_0)
        return (F.cos(progress * pi) + 1.0) * ((self.lr - self.eta_min) / 2) + self.eta_min


@user_facing_class
@record
class CyclicLR(Schedule):
    """Up from `base_lr` to `max_lr` in `step_size_up` updates, down in `step_size_down`.

    Mode "triangular2" halves the height with every cycle, "exp_range" multiplies it by `gamma` with
    every update. Momentum does not change: torch's `cycle_momentum=False`.
    """

    base_lr: float
    max_lr: float
    step_size_up: int = 2000
    step_size_down: int | None = None
    mode: str = "triangular"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        Constant(self.base_lr)
        Constant(self.max_lr)
        at_least_one(self.step_size_up, "step_size_up")
        at_least_one(self._down, "step_size_down")
        if self.mode not in ("triangular", "triangular2", "exp_range"):
            raise AttributeValueError(
                f"mode is {self.mode!r}", hint="it is triangular, triangular2 or exp_range"
            )

    @property
    def _down(self) -> int:
        return self.step_size_up if self.step_size_down is None else self.step_size_down

    def __call__(self, step: Tensor) -> Rate:
        up, down = self.step_size_up, self._down
        position = cast(F.remainder(step, up + down), f64)
        height = F.where(position <= up, position / up, (up + down - position) / down)
        if self.mode == "triangular2":
            height = height * power(0.5, F.floor_div(step, up + down))
        elif self.mode == "exp_range":
            height = height * power(self.gamma, step)
        return height * (self.max_lr - self.base_lr) + self.base_lr


@user_facing_class
@record
class OneCycleLR(Schedule):
    """One rise from `max_lr / div_factor` to `max_lr` and one fall, in `total_steps` updates.

    The last rate is the first one divided by `final_div_factor`. Momentum does not change: torch's
    `cycle_momentum=False`.
    """

    max_lr: float
    total_steps: int
    pct_start: float = 0.3
    anneal_strategy: str = "cos"
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    three_phase: bool = False

    def __post_init__(self) -> None:
        Constant(self.max_lr)
        at_least_one(self.total_steps, "total_steps")
        if not 0 <= self.pct_start <= 1:
            raise AttributeValueError(f"pct_start is {self.pct_start!r}", hint="it is in 0..1")
        if self.anneal_strategy not in ("cos", "linear"):
            raise AttributeValueError(
                f"anneal_strategy is {self.anneal_strategy!r}", hint="it is cos or linear"
            )
        for name in ("div_factor", "final_div_factor"):
            if not getattr(self, name) > 0:
                raise AttributeValueError(
                    f"{name} is {getattr(self, name)!r}", hint="it is a positive number"
                )

    def __call__(self, step: Tensor) -> Rate:
        first, top = self.max_lr / self.div_factor, self.max_lr
        low = first / self.final_div_factor
        rise, end = self.pct_start * self.total_steps - 1, self.total_steps - 1.0
        # Phases: their end, and the rates at which they begin and end.
        phases = [(rise, first, top), (end, top, low)]
        if self.three_phase:
            fall = 2 * self.pct_start * self.total_steps - 2
            phases = [(rise, first, top), (fall, top, first), (end, first, low)]
        count = cast(step, f64)
        begins = [0.0, *(phase[0] for phase in phases[:-1])]
        rates = [
            self._annealed(count, begin, *phase)
            for begin, phase in zip(begins, phases, strict=True)
        ]
        rate = rates[-1]
        for (stop, _, _), earlier in zip(phases[-2::-1], rates[-2::-1], strict=True):
            rate = F.where(count <= stop, earlier, rate)
        return rate

    def _annealed(self, count: Tensor, begin: float, stop: float, low: float, high: float) -> Rate:
        if stop == begin:
            return count * 0.0 + high
        progress = (count - begin) * (1.0 / (stop - begin))
        if self.anneal_strategy == "linear":
            return progress * (high - low) + low
        return (F.cos(progress * pi) + 1.0) * ((low - high) / 2) + high
