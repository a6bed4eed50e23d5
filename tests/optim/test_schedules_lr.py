"""Learning-rate schedules against torch.optim.lr_scheduler, all from one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

import nova
from nova import nn, optim
from nova.errors import AttributeValueError, SealedAttributeError

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
        optim.CosineAnnealingLR(LR, 25, 0.02),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 25, 0.02),
    ),
    "linear": (
        optim.LinearLR(LR, 0.2, 0.9, 12),
        lambda o: lr_scheduler.LinearLR(o, 0.2, 0.9, 12),
    ),
    "constant": (
        optim.ConstantLR(LR, 0.25, 9),
        lambda o: lr_scheduler.ConstantLR(o, 0.25, 9),
    ),
    "chained": (
        optim.ChainedScheduler(
            [optim.ConstantLR(LR), optim.PolynomialLR(LR, 50, 2.0), optim.MultiStepLR(LR, (8, 20))]
        ),
        lambda o: lr_scheduler.ChainedScheduler(
            [
                lr_scheduler.ConstantLR(o),
                lr_scheduler.PolynomialLR(o, 50, 2.0),
                lr_scheduler.MultiStepLR(o, [8, 20]),
            ]
        ),
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
    "polynomial": (
        optim.PolynomialLR(LR, 40, 2.0),
        lambda o: lr_scheduler.PolynomialLR(o, 40, 2.0),
    ),
    "restarts": (
        optim.CosineAnnealingWarmRestarts(LR, 9, eta_min=0.01),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 9, eta_min=0.01),
    ),
    "longer restarts": (
        optim.CosineAnnealingWarmRestarts(LR, 4, 2),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4, 2),
    ),
    "restarts of three": (
        optim.CosineAnnealingWarmRestarts(LR, 1, 3),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 1, 3),
    ),
    **{
        f"cyclic {mode}": (
            optim.CyclicLR(0.1, LR, 5, down, mode, 0.97),
            lambda o, mode=mode, down=down: lr_scheduler.CyclicLR(
                o, 0.1, LR, 5, down, mode, 0.97, cycle_momentum=False
            ),
        )
        for mode, down in (("triangular", None), ("triangular2", 8), ("exp_range", 3))
    },
    **{
        f"one cycle {strategy} {'three' if three else 'two'}": (
            optim.OneCycleLR(LR, STEPS, 0.3, strategy, 20.0, 50.0, three),
            lambda o, strategy=strategy, three=three: lr_scheduler.OneCycleLR(
                o,
                LR,
                STEPS,
                pct_start=0.3,
                anneal_strategy=strategy,
                div_factor=20.0,
                final_div_factor=50.0,
                three_phase=three,
                cycle_momentum=False,
            ),
        )
        for strategy in ("cos", "linear")
        for three in (False, True)
    },
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
        lambda: optim.ConstantLR(LR, total_iters=0),
        lambda: optim.ChainedScheduler([optim.CosineAnnealing(LR, 3)]),
        lambda: optim.ChainedScheduler([optim.LambdaLR(LR, lambda t: 1.0)]),
        lambda: optim.ChainedScheduler([optim.StepLR(LR, 3), optim.StepLR(0.1, 3)]),
        lambda: optim.ChainedScheduler(()),
        lambda: optim.LinearWarmup(-1.0, 5),
        lambda: optim.PolynomialLR(LR, 0),
        lambda: optim.CosineAnnealingWarmRestarts(LR, 0),
        lambda: optim.CosineAnnealingWarmRestarts(LR, 3, 0),
        lambda: optim.CyclicLR(0.1, LR, 5, mode="square"),
        lambda: optim.CyclicLR(-0.1, LR, 5),
        lambda: optim.OneCycleLR(LR, 0),
        lambda: optim.OneCycleLR(LR, 10, 1.5),
        lambda: optim.OneCycleLR(LR, 10, anneal_strategy="step"),
        lambda: optim.OneCycleLR(LR, 10, div_factor=0.0),
        lambda: optim.AdjustableLR(-1.0),
        lambda: optim.ReduceLROnPlateau(LR, "middle"),
        lambda: optim.ReduceLROnPlateau(LR, factor=1.0),
        lambda: optim.LossScaler(init_scale=0.0),
        lambda: optim.LossScaler(growth_factor=1.0),
        lambda: optim.LossScaler(backoff_factor=1.0),
        lambda: optim.LossScaler(growth_interval=0),
    ],
)
def test_values_that_mean_nothing(make: Any) -> None:
    with pytest.raises(AttributeValueError):
        make()


PLATEAUS: list[dict[str, Any]] = [
    {"patience": 2, "factor": 0.5},
    {"mode": "max", "patience": 1, "cooldown": 3, "min_lr": 0.01},
    {"patience": 0, "threshold": 0.3, "threshold_mode": "abs"},
    {"mode": "max", "patience": 0, "threshold": 0.3, "threshold_mode": "abs"},
]


@pytest.mark.parametrize("options", PLATEAUS, ids=range(len(PLATEAUS)))
def test_plateau_as_torch(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], LR)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **options)
    rate = optim.ReduceLROnPlateau(LR, **options)
    for i in range(40):
        metric = float(rng.uniform(0.5, 1.5)) / (1 + i / 10)
        scheduler.step(metric)
        rate.step(metric)
        assert rate.lr == optimizer.param_groups[0]["lr"], i


@pytest.mark.parametrize("target", [{}, {"target": "cuda:sm_80", "run_mode": "sim"}])
def test_a_rate_set_between_calls(target: dict[str, Any]) -> None:
    """The program reads the rate at every call; it is compiled once."""
    model = nn.ParameterList([np.array([1.0, 2.0], "f4")])
    (param,) = model.parameters()
    step = nova.train_step(
        model,
        lambda m, x: (m[0] * x).sum(),
        optim.SGD(model.parameters(), optim.AdjustableLR(0.5)),
        **target,
    )
    x = np.array([1.0, 1.0], "f4")
    step(x)
    program = step.compiled
    assert step.lr == 0.5
    step.lr = 0.25
    step(x)
    assert step.compiled is program
    step.sync()
    np.testing.assert_array_equal(param.data, np.array([0.25, 1.25], "f4"))
    with pytest.raises(AttributeValueError, match="learning rate of -1"):
        step.lr = -1.0
    fixed = nova.train_step(model, lambda m, x: (m[0] * x).sum(), optim.SGD([param], 0.1))
    with pytest.raises(SealedAttributeError, match="AdjustableLR"):
        fixed.lr = 0.2
