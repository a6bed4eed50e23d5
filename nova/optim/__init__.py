"""Optimizers, learning-rate schedules and gradient clipping: graph to graph, torch's semantics."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nova.graph.other_names import OPTIM, no_attribute
from nova.optim.adafactor import Adafactor
from nova.optim.adagrad import Adadelta, Adagrad
from nova.optim.adam import Adam, AdamW
from nova.optim.adam_variants import Adamax, NAdam, RAdam
from nova.optim.asgd import ASGD
from nova.optim.clipping import clip_grad_norm, clip_grad_value, global_norm
from nova.optim.cyclic_schedules import (
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
    PolynomialLR,
)
from nova.optim.optimizer import Optimizer
from nova.optim.plateau import ReduceLROnPlateau
from nova.optim.rmsprop import RMSprop
from nova.optim.rprop import Rprop
from nova.optim.scaler import LossScaler
from nova.optim.schedules import (
    AdjustableLR,
    ChainedScheduler,
    Constant,
    ConstantLR,
    CosineAnnealing,
    CosineAnnealingLR,
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
from nova.optim.sign_and_matrix import Lion, Muon

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "AdjustableLR",
    "ChainedScheduler",
    "Constant",
    "ConstantLR",
    "CosineAnnealing",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "LinearWarmup",
    "Lion",
    "LossScaler",
    "MultiStepLR",
    "Muon",
    "NAdam",
    "OneCycleLR",
    "Optimizer",
    "PolynomialLR",
    "RAdam",
    "RMSprop",
    "ReduceLROnPlateau",
    "Rprop",
    "Schedule",
    "SequentialLR",
    "StepLR",
    "clip_grad_norm",
    "clip_grad_value",
    "global_norm",
]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        if name == "LBFGS":  # it compiles, which this folder does not
            return import_module("nova.train.lbfgs").LBFGS
        raise no_attribute("module 'nova.optim'", name, __all__, OPTIM)
