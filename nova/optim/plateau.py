"""`ReduceLROnPlateau`: a rate that falls when a metric stops improving, as torch's scheduler."""

from __future__ import annotations

from math import inf

from nova.core.user_facing import user_facing_class
from nova.errors import AttributeValueError
from nova.optim.schedules import AdjustableLR

_MODES = ("min", "max")
_THRESHOLD_MODES = ("rel", "abs")


@user_facing_class
class ReduceLROnPlateau(AdjustableLR):
    """Multiplies the rate by `factor` after more than `patience` calls without a better metric.

    Pass it as `lr=` of an optimizer, and call `rate.step(metric)` after each validation.
    """

    def __init__(
        self,
        lr: float,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ):
        super().__init__(lr)
        if not 0 < factor < 1:
            raise AttributeValueError(f"factor is {factor!r}", hint="it is between 0 and 1")
        for name, value, allowed in (
            ("mode", mode, _MODES),
            ("threshold_mode", threshold_mode, _THRESHOLD_MODES),
        ):
            if value not in allowed:
                raise AttributeValueError(
                    f"{name} is {value!r}", hint=f"it is one of {', '.join(allowed)}"
                )
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.eps = eps
        self.best = inf if mode == "min" else -inf
        self.bad_calls = 0
        self.cooldown_left = 0

    def step(self, metric: float) -> None:
        """Take the metric of one validation."""
        value = float(metric)
        if self._is_better(value):
            self.best, self.bad_calls = value, 0
        else:
            self.bad_calls += 1
        if self.cooldown_left > 0:
            self.cooldown_left -= 1
            self.bad_calls = 0
        if self.bad_calls > self.patience:
            lower = max(self.lr * self.factor, self.min_lr)
            if self.lr - lower > self.eps:
                self.lr = lower
            self.cooldown_left, self.bad_calls = self.cooldown, 0

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        margin = self.threshold
        if self.threshold_mode == "rel":
            return sign * value > sign * self.best * (1 + sign * margin)
        return sign * value > sign * self.best + margin
