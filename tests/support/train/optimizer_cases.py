"""Every option of every optimizer, as (name, ours, torch's); shared by the tests of this folder."""

from __future__ import annotations

from typing import Any

import torch

from nova import optim

SGD_OPTIONS: list[dict[str, Any]] = [
    {},
    {"weight_decay": 0.1},
    {"maximize": True},
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.3},
    {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05, "maximize": True},
    {"momentum": 0.8, "nesterov": True},
    {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1, "maximize": True},
]
ADAM_OPTIONS: list[dict[str, Any]] = [
    {},
    {"betas": (0.8, 0.95), "eps": 1e-6},
    {"weight_decay": 0.1},
    {"maximize": True},
    {"amsgrad": True},
    {"amsgrad": True, "weight_decay": 0.05, "maximize": True},
]
RMSPROP_OPTIONS: list[dict[str, Any]] = [
    {},
    {"alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1},
    {"momentum": 0.9},
    {"centered": True, "eps": 1e-3},
    {"centered": True, "eps": 1e-3, "momentum": 0.5, "weight_decay": 0.05, "maximize": True},
]
ASGD_OPTIONS: list[dict[str, Any]] = [
    {},
    {"lambd": 0.05, "alpha": 0.6, "t0": 20.0, "weight_decay": 0.1, "maximize": True},
]
RPROP_OPTIONS: list[dict[str, Any]] = [
    {},
    {"etas": (0.6, 1.4), "step_sizes": (1e-3, 0.1), "maximize": True},
]
ADAGRAD_OPTIONS: list[dict[str, Any]] = [
    {},
    {"lr_decay": 0.1, "weight_decay": 0.1},
    {"initial_accumulator_value": 0.5, "eps": 1e-3, "maximize": True},
]
ADADELTA_OPTIONS: list[dict[str, Any]] = [
    {},
    {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
]
DECOUPLED: list[dict[str, Any]] = [
    {"weight_decay": 0.1, "decoupled_weight_decay": True},
    {"weight_decay": 0.1, "maximize": True},
]
NADAM_OPTIONS: list[dict[str, Any]] = [
    {},
    {"betas": (0.8, 0.95), "eps": 1e-6, "momentum_decay": 0.1},
    *DECOUPLED,
]
RADAM_OPTIONS: list[dict[str, Any]] = [
    {},
    {"betas": (0.8, 0.95), "eps": 1e-6},
    *DECOUPLED,
]
ADAMAX_OPTIONS: list[dict[str, Any]] = [
    {},
    {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "maximize": True},
]
ADAFACTOR_OPTIONS: list[dict[str, Any]] = [
    {},
    {"beta2_decay": -0.5, "eps": (1e-6, 1e-2), "d": 1.5, "weight_decay": 0.1},
    {"maximize": True},
]


def _cases(name: str, lr: float, options: list[dict[str, Any]]) -> list[tuple[str, Any, Any, Any]]:
    ours, theirs = getattr(optim, name), getattr(torch.optim, name)
    return [(name.lower(), ours, theirs, {"lr": lr, **o}) for o in options]


CASES = [
    *[("sgd", optim.SGD, torch.optim.SGD, {"lr": 0.05, **o}) for o in SGD_OPTIONS],
    *[("adam", optim.Adam, torch.optim.Adam, {"lr": 0.02, **o}) for o in ADAM_OPTIONS],
    *[("adamw", optim.AdamW, torch.optim.AdamW, {"lr": 0.02, **o}) for o in ADAM_OPTIONS],
    (
        "adam",
        optim.Adam,
        torch.optim.Adam,
        {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True},
    ),
    *_cases("RMSprop", 0.01, RMSPROP_OPTIONS),
    *_cases("Adagrad", 0.05, ADAGRAD_OPTIONS),
    *_cases("Adadelta", 0.5, ADADELTA_OPTIONS),
    *_cases("Adamax", 0.02, ADAMAX_OPTIONS),
    *_cases("NAdam", 0.02, NADAM_OPTIONS),
    *_cases("RAdam", 0.02, RADAM_OPTIONS),
    *_cases("Adafactor", 0.05, ADAFACTOR_OPTIONS),
    *_cases("ASGD", 0.05, ASGD_OPTIONS),
    *_cases("Rprop", 0.02, RPROP_OPTIONS),
]
IDS = [f"{name}-{'-'.join(map(str, sorted(options)))}" for name, _, _, options in CASES]
