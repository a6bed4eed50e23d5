"""The GPT of the examples, trained on a device: losses and weights are those of the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import nova
from nova import optim


def test_the_gpt_of_the_examples_trains_as_on_the_cpu(on_device: dict[str, Any]) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from gpt import GPT, Config

    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 32, (2, 17))
    batch = np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])
    steps = []
    for options in ({}, on_device):
        model = GPT(Config(32, 16, 24, 2, 2))
        drawn = np.random.default_rng(1)
        for _, param in model.named_parameters():
            param.data[...] = 0.1 * drawn.standard_normal(param.shape)
        optimizer = optim.AdamW(model.parameters(), 1e-2)
        step = nova.train_step(model, lambda m, x, y: m.loss(x, y), optimizer, **options)
        steps.append((model, [float(step(*batch)) for _ in range(4)]))
    (local, losses), (present, device_losses) = steps
    np.testing.assert_allclose(device_losses, losses, rtol=2e-5)
    assert losses[-1] < losses[0]
    for name, value in local.state_dict().items():
        np.testing.assert_allclose(present.state_dict()[name], value, rtol=1e-3, atol=1e-4)
