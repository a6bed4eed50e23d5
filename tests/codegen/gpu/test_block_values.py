"""Kernels of a single block: values in shared memory, fills without memory, and few barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.knobs import SIM_SCHEDULES

DEVICE = {"target": "cuda:sm_90a", "run_mode": "sim"}


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def cross_entropy(model: nn.Module, x: Any, y: Any) -> Any:
    return nova.cross_entropy(model(x), y)


def train(schedule: str, launch: str, rows: int = 8) -> tuple[list[float], list[Any]]:
    model = nn.Linear(16, 10)
    model.weight.data[...], model.bias.data[...] = array(10, 16) / 4, array(10, seed=1)
    with nova.knobs.override(sim_schedule=schedule):
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        step = nova.train_step(model, cross_entropy, optimizer, launch=launch, **DEVICE)
        losses = [float(np.asarray(step(*batch))) for batch in batches(rows)]
    step.sync()
    return losses, [np.array(p.data) for p in model.parameters()]


def batches(rows: int) -> list[tuple[Any, Any]]:
    labels = np.random.default_rng(3).integers(0, 10, (3, rows)).astype(np.int64)
    labels[:, 0] = -100  # ignored
    return [(array(rows, 16, seed=5 + i), labels[i]) for i in range(3)]


def train_in_torch(rows: int) -> tuple[list[float], list[Any]]:
    params = [torch.tensor(array(10, 16) / 4), torch.tensor(array(10, seed=1))]
    weight, bias = (p.requires_grad_() for p in params)
    losses = []
    for x, y in batches(rows):
        logits = torch.nn.functional.linear(torch.tensor(x), weight, bias)
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(y))
        losses.append(loss.item())
        for p, gradient in zip(params, torch.autograd.grad(loss, params), strict=True):
            p.data -= 0.1 * gradient
    return losses, [p.detach().numpy() for p in params]


@pytest.mark.parametrize("rows", [8, 45])
@pytest.mark.parametrize("launch", ["graph", "persistent"])
@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_a_step_in_one_block_equals_torch(schedule: str, launch: str, rows: int) -> None:
    losses, params = train(schedule, launch, rows)
    expected_losses, expected = train_in_torch(rows)
    np.testing.assert_allclose(losses, expected_losses, rtol=2e-6)
    for value, other in zip(params, expected, strict=True):
        np.testing.assert_allclose(value, other, atol=2e-6)


def launch_text(*roots: Any, inputs: list[Any]) -> str:
    program = nova.compile(list(roots), inputs=inputs, target="cuda:sm_90a")
    text = str(program.stages["device"])
    assert text.count("gpu.launch ") == 1 and "nova.launch = array<i64: 1, " in text
    return text[text.index("gpu.launch ") :]


def test_a_fill_before_a_reduction_is_its_initial_value() -> None:
    x = nova.input((4, 8))
    text = launch_text(x.sum(-1), nova.exp(x).sum(), inputs=[x])
    assert "arith.addf" in text
    assert "memref.store %cst" not in text


def test_ops_at_the_same_points_need_no_barrier() -> None:
    """The sums of rows, their logarithms and their squares: each thread has a row."""
    x = nova.input((6, 8))
    sums = nova.exp(x).sum(-1)
    text = launch_text(nova.log(sums), sums * sums, x.sum(), inputs=[x])
    # Two of the sum over all threads, and one before a result that is read again is copied.
    assert text.count("gpu.barrier") == 3


def test_a_result_that_the_kernel_reads_is_copied_from_shared_memory() -> None:
    x = nova.input((6, 8))
    scores = nova.softmax(x, -1)
    program = nova.compile([scores, scores.sum(0)], inputs=[x], **DEVICE)
    value = array(6, 8)
    expected = torch.softmax(torch.tensor(value), -1).numpy()
    actual, total = program(value)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    np.testing.assert_allclose(total, expected.sum(0), rtol=2e-6)


def test_elements_at_computed_positions_are_in_shared_memory() -> None:
    x, chosen = nova.input((6, 8)), nova.input((6,), "i64")
    logs = nova.log_softmax(x, -1)
    picked = nova.gather(logs, chosen.reshape((6, 1)), 1)
    program = nova.compile(picked.sum(), inputs=[x, chosen], **DEVICE)
    value, numbers = array(6, 8), np.arange(6, dtype=np.int64)
    expected = torch.log_softmax(torch.tensor(value), -1)[np.arange(6), numbers].sum()
    np.testing.assert_allclose(program(value, numbers), expected, rtol=2e-6)
