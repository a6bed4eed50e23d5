"""Learning-rate schedules against torch.optim.lr_scheduler, all from one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

import nova
from nova import optim
from nova.errors import AttributeValueError

LR = 0.4
STEPS = 60


def _warm_cosine(optimizer: Any) -> Any:
    return lr_scheduler.SequentialLR(
        optimizer,
        [
            lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 8),
            lr_scheduler.CosineAnnealingLR(optimizer, 40, 0.01),
        ],
        [8],
    )


def _three(optimizer: Any) -> Any:
    return lr_scheduler.SequentialLR(
        optimizer,
        [
            lr_scheduler.ConstantLR(optimizer, 1.0),
            lr_scheduler.ExponentialLR(optimizer, 0.9),
            lr_scheduler.StepLR(optimizer, 4, 0.5),
        ],
        [5, 20],
    )


CASES: dict[str, tuple[Any, Any]] = {
    "step": (optim.StepLR(LR, 7, 0.3), lambda o: lr_scheduler.StepLR(o, 7, 0.3)),
    "milestones": (
        optim.MultiStepLR(LR, (30, 10, 11), 0.5),
        lambda o: lr_scheduler.MultiStepLR(o, [30, 10, 11], 0.5),
    ),
    "exponential": (
        optim.ExponentialLR(LR, 0.93),
        lambda o: lr_scheduler.ExponentialLR(o, 0.93),
    ),
    "cosine": (
        optim.CosineAnnealing(LR, 25, 0.02),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 25, 0.02),
    ),
    "linear": (
        optim.LinearLR(LR, 0.2, 0.9, 12),
        lambda o: lr_scheduler.LinearLR(o, 0.2, 0.9, 12),
    ),
    "lambda": (
        optim.LambdaLR(LR, lambda t: 1.0 / (1.0 + t.cast("f64"))),
        lambda o: lr_scheduler.LambdaLR(o, lambda t: 1.0 / (1.0 + t)),
    ),
    "warm cosine": (
        optim.LinearWarmup(optim.CosineAnnealing(LR, 40, 0.01), 8, 0.1),
        _warm_cosine,
    ),
    "sequence": (
        optim.SequentialLR((LR, optim.ExponentialLR(LR, 0.9), optim.StepLR(LR, 4, 0.5)), (5, 20)),
        _three,
    ),
    "product": (
        optim.StepLR(optim.ExponentialLR(LR, 0.95), 10, 0.5),
        lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.ExponentialLR(o, 0.95), lr_scheduler.StepLR(o, 10, 0.5)]
        ),
    ),
}


@pytest.fixture(scope="module")
def rates() -> np.ndarray:
    step = nova.tensor(np.array(0), name="step")
    program = nova.compile(
        [schedule(step) for schedule, _ in CASES.values()], params=[step], updates={step: step + 1}
    )
    counter = np.array(0)
    return np.array([program(counter) for _ in range(STEPS)])


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_as_torch(rates: np.ndarray, name: str) -> None:
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], LR)
    scheduler = CASES[name][1](optimizer)
    reference = []
    for _ in range(STEPS):
        reference.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(rates[:, list(CASES).index(name)], reference, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    "make",
    [
        lambda: optim.StepLR(LR, 0),
        lambda: optim.CosineAnnealing(LR, -1),
        lambda: optim.CosineAnnealing(float("nan"), 5),
        lambda: optim.LinearLR(LR, total_iters=0),
        lambda: optim.SequentialLR((LR, LR), ()),
        lambda: optim.SequentialLR((LR, LR, LR), (5, 5)),
        lambda: optim.LinearWarmup(-1.0, 5),
        lambda: optim.LossScaler(init_scale=0.0),
        lambda: optim.LossScaler(growth_factor=1.0),
        lambda: optim.LossScaler(backoff_factor=1.0),
        lambda: optim.LossScaler(growth_interval=0),
    ],
)
def test_values_that_mean_nothing(make: Any) -> None:
    with pytest.raises(AttributeValueError):
        make()
