"""Optimizers, learning-rate schedules and gradient clipping: graph to graph, torch's semantics."""

from typing import TYPE_CHECKING, Any

from nova.core.suggest import unknown_name
from nova.optim.adam import Adam, AdamW
from nova.optim.clipping import clip_grad_norm, clip_grad_value, global_norm
from nova.optim.optimizer import Optimizer
from nova.optim.scaler import LossScaler
from nova.optim.schedules import (
    Constant,
    CosineAnnealing,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LinearWarmup,
    MultiStepLR,
    Schedule,
    SequentialLR,
    StepLR,
)
from nova.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Constant",
    "CosineAnnealing",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "LinearWarmup",
    "LossScaler",
    "MultiStepLR",
    "Optimizer",
    "Schedule",
    "SequentialLR",
    "StepLR",
    "clip_grad_norm",
    "clip_grad_value",
    "global_norm",
]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        raise unknown_name("module 'nova.optim'", name, __all__)
