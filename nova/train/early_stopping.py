"""`EarlyStopping`: ends `fit` when a metric of the epochs stops improving."""

from __future__ import annotations

from math import inf

from nova.core.user_facing import user_facing_class
from nova.errors import AttributeValueError


@user_facing_class
class EarlyStopping:
    """Stop after `patience` epochs without an improvement of more than `min_delta`.

    The metric is the validation loss if `fit` has one, else the mean loss of the epoch; lower is
    better.
    """

    def __init__(self, patience: int = 3, min_delta: float = 0.0):
        if type(patience) is not int or patience < 1:
            raise AttributeValueError(
                f"patience is {patience!r}", hint="it is a number of epochs, at least 1"
            )
        if not min_delta >= 0:
            raise AttributeValueError(f"min_delta is {min_delta!r}", hint="it is at least 0")
        self.patience = patience
        self.min_delta = min_delta

    def should_stop(self, metrics: list[float]) -> bool:
        """Whether to stop after these epochs; a function of them alone, so that runs resume."""
        best, waited = inf, 0
        for metric in metrics:
            if metric < best - self.min_delta:
                best, waited = metric, 0
            else:
                waited += 1
        return waited >= self.patience
