"""Launches that do not depend on each other run as one launch, with the results of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim

DEVICE = {"target": "cuda:sm_90a", "run_mode": "sim"}


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def launched(program: Any) -> list[str]:
    return [launch.kernel.name for launch in program.simulate(device="h200").launches]


def compiled(function: Any, *shapes: tuple[int, ...]) -> Any:
    inputs = [nova.input(shape) for shape in shapes]
    return nova.compile(function(*inputs), inputs=inputs, **DEVICE)


def test_branches_of_one_level_are_one_launch() -> None:
    weights = [array(40, n, seed=n) for n in (24, 56, 72)]

    def function(x: Any) -> Any:
        return [nova.tanh(x @ nova.tensor(w)) @ nova.tensor(w.T.copy()) for w in weights]

    program = compiled(function, (48, 40))
    names = launched(program)
    assert len(names) == 2 and all(name.startswith("kernels_") for name in names), names
    x = torch.from_numpy(array(48, 40))
    for result, w in zip(program(x.numpy()), map(torch.from_numpy, weights), strict=True):
        np.testing.assert_allclose(result, torch.tanh(x @ w) @ w.T, rtol=2e-5, atol=2e-5)


def test_a_chain_is_not_fused() -> None:
    program = compiled(lambda x: nova.tanh(x @ x.T) @ x, (48, 20))
    assert len(launched(program)) == 2


def test_large_launches_are_not_fused() -> None:
    program = compiled(lambda x, y: (x @ x, y @ y), (640, 640), (640, 640))
    assert len(launched(program)) == 2


def test_a_launch_that_writes_what_another_reads_stays_after_it() -> None:
    model = nn.Sequential(nn.Linear(120, 96), nn.Tanh(), nn.Linear(96, 6))
    weights = [np.array(p.data) for p in model.parameters()]
    step = nova.train_step(
        model,
        lambda m, x, y: nova.cross_entropy(m(x), y),
        optim.SGD(model.parameters(), lr=0.5),
        **DEVICE,
    )
    x, y = array(64, 120), np.arange(64) % 6
    losses = [float(np.asarray(step(x, y))) for _ in range(4)]
    step.sync()
    assert any(name.startswith("kernels_") for name in launched(step.compiled))

    reference = torch.nn.Sequential(
        torch.nn.Linear(120, 96), torch.nn.Tanh(), torch.nn.Linear(96, 6)
    )
    for param, weight in zip(reference.parameters(), weights, strict=True):
        param.data = torch.from_numpy(weight)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
    for loss in losses:
        optimizer.zero_grad()
        expected = torch.nn.functional.cross_entropy(
            reference(torch.from_numpy(x)), torch.from_numpy(y)
        )
        expected.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
    for param, other in zip(model.parameters(), reference.parameters(), strict=True):
        np.testing.assert_allclose(param.data, other.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_results_have_the_same_bits_as_separate_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return [nova.tanh(x * k).sum(axis) for k, axis in ((1, 0), (2, 1), (3, 0), (4, 1))]

    fused = compiled(lambda x: [*function(x), x], (64, 64))
    monkeypatch.setattr("nova.passes.gpu.fuse_launches._MOST_MEMBERS", 1)
    separate = compiled(function, (64, 64))  # another program: the cache has the first one
    assert len(launched(fused)) < len(launched(separate))
    for result, other in zip(fused(array(64, 64)), separate(array(64, 64)), strict=False):
        np.testing.assert_array_equal(result, other)
