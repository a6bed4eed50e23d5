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
]
IDS = [f"{name}-{'-'.join(map(str, sorted(options)))}" for name, _, _, options in CASES]
