"""Chains of single tasks of a persistent kernel: they stay on a block, and do not wait."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.knobs import SIM_SCHEDULES
from nova.tracing.devices.models import H200

DEVICE = {"target": "cuda:sm_90a", "run_mode": "sim"}
SIZE = 64


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32) / 8


def chained(x: Any) -> tuple[Any, ...]:
    """Two wide launches, with a chain of single tasks before, between and after them."""
    for _ in range(2):
        order = nova.argsort(x[0], 0)
        order = nova.argsort(order * (order - 40), 0)
        x = nova.tanh(x @ x) + nova.cast(order, "f32") * 0.01
    return x, x.sum()


def chained_in_torch(x: Any) -> tuple[Any, ...]:
    for _ in range(2):
        order = torch.argsort(x[0], stable=True)
        order = torch.argsort(order * (order - 40), stable=True)
        x = torch.tanh(x @ x) + order.float() * 0.01
    return x, x.sum()


def compiled(launch: str = "persistent") -> Any:
    x = nova.input((SIZE, SIZE))
    return nova.compile(chained(x), inputs=[x], launch=launch, **DEVICE)


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_results_are_those_of_a_graph_in_every_order(schedule: str) -> None:
    value = array(SIZE, SIZE)
    expected = compiled("graph")(value)
    with nova.knobs.override(sim_schedule=schedule):
        program = compiled()
        results = [program(value) for _ in range(2)]
        repeated = program._executable.repeated(3)(np.stack([value] * 3))
    for result in results:
        for actual, other in zip(result, expected, strict=True):
            np.testing.assert_array_equal(actual, other)
    for actual, other in zip(repeated, expected, strict=True):
        np.testing.assert_array_equal(actual, np.stack([other] * 3))
    for actual, other in zip(expected, chained_in_torch(torch.tensor(value)), strict=True):
        np.testing.assert_allclose(actual, other, rtol=1e-4, atol=1e-5)


def chain() -> Any:
    """Ranks of ranks: each argsort is several launches of one task."""
    source = nova.input((SIZE,), "i64")
    ranks = nova.argsort(nova.argsort(source, 0), 0)
    return nova.compile(ranks, inputs=[source], launch="persistent", **DEVICE)


def test_a_task_does_not_wait_for_the_one_before_it_on_its_block() -> None:
    program = chain()
    tables = program._executable.tables
    blocks = [tables.kernels[launch.kernel].device.grid[0] for launch in tables.launches]
    assert set(blocks) == {1} and len(blocks) > 1
    _, rows, _, waits = program._program.persistent_shape()
    assert (rows, waits) == (len(blocks), 0)
    values = np.random.default_rng(4).permutation(SIZE)
    np.testing.assert_array_equal(program(values), values.argsort().argsort())


def test_a_program_of_one_task_has_one_block_and_no_waits() -> None:
    x = nova.input((4, 8))
    program = nova.compile(nova.softmax(x, -1).sum(), inputs=[x], launch="persistent", **DEVICE)
    assert program._program.persistent_shape() == (1, 1, 1, 0)
    repeated = program._executable.repeated(5)
    assert repeated.persistent_shape() == (1, 1, 1, 0)
    values = array(5, 4, 8)
    np.testing.assert_array_equal(repeated(values), [program(value) for value in values])


def test_a_chain_has_no_hops_in_a_prediction() -> None:
    launches = chain().simulate(device="h200").launches
    assert len(launches) > 1
    for before, after in pairwise(launches):
        assert before.end <= after.start < before.end + H200.hop
