"""A sample of the device suites with launch="persistent", in three orders of blocks.

`make nightly` runs all of them in this way: `tests/support/gpusim/persistent_runs.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_cases import build
from op_programs import compile_all, run, run_all
from op_reference import check, reference
from op_samples import SAMPLES
from persistent_runs import SUITES

import nova
from nova import knobs, nn, optim
from nova.core.dtypes import DType, f32
from nova.knobs import SIM_SCHEDULES

ROOT = Path(__file__).parents[3]
DEVICE: dict[str, Any] = {"target": "cuda:sm_80", "run_mode": "sim"}
NAMES = sorted(SAMPLES)[::9]


def dtype_of(name: str) -> DType:
    """f32, or the first type of an operation without floats."""
    dtypes = SAMPLES[name].dtypes
    return f32 if f32 in dtypes else dtypes[0]


def test_operations() -> None:
    """All in one program: most of its tasks are independent, and run concurrently."""
    built = [build(name, SAMPLES[name].cases[0], dtype_of(name)) for name in NAMES]
    inputs = [t for b in built for t in b.inputs]
    outputs = [t for b in built for t in b.outputs]
    arrays = [a for b in built for a in b.arrays]
    results: list[Any] = []
    for schedule in SIM_SCHEDULES:
        with knobs.override(sim_schedule=schedule):
            program = compile_all(inputs, outputs, launch="persistent", **DEVICE)
        computed = run(program, arrays)
        results = results or computed
        for mine, theirs in zip(computed, results, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    remaining = iter(results)
    for name, b in zip(NAMES, built, strict=True):
        for want in reference(SAMPLES[name], b):
            check(next(remaining), want, b.title, rounds=SAMPLES[name].rounds)


class Block(nn.Module):
    """A norm, attention, a feed-forward block and a loop over its rows."""

    def __init__(self) -> None:
        self.norm, self.project = nn.LayerNorm(16), nn.Linear(16, 48)
        self.feed, self.back = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        q, k, v = nova.split(self.project(self.norm(x)), 3, -1)
        h = x + nova.scaled_dot_product_attention(q, k, v)
        h = h + self.back(nova.gelu(self.feed(h)))
        _, rows = nova.scan(
            lambda c, r: (nova.tanh(c + r), c * r), h[:, 0], nova.transpose(h, (1, 0, 2))
        )
        return rows.sum(0)


def test_steps_of_a_model() -> None:
    """Gradients and an optimizer. A graph has larger blocks for matmuls, which sum differently."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 8, 16), np.float32), rng.standard_normal((2, 16), np.float32)
    computed = []
    for launch, schedule in (("graph", "late"), *(("persistent", s) for s in SIM_SCHEDULES)):
        model = Block()
        for i, param in enumerate(model.parameters()):
            values = np.random.default_rng(i).standard_normal(param.shape)
            param.data[...] = 0.3 * values
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        with knobs.override(sim_schedule=schedule):
            step = nova.train_step(
                model, lambda m, x, y: ((m(x) - y) ** 2).mean(), optimizer, launch=launch, **DEVICE
            )
            computed.append([float(step(x, y)) for _ in range(2)])
    graph, *persistent = computed
    assert persistent == [persistent[0]] * 3 and graph[1] < graph[0]
    np.testing.assert_allclose(persistent[0], graph, rtol=1e-5)


def test_blocks_that_run_alone_are_not_a_deadlock() -> None:
    """Other blocks have left: a random round of the simulator may choose only those."""
    sample = SAMPLES["mean"]
    built = [
        build("mean", case, dtype)
        for dtype in sample.dtypes
        for i, case in enumerate(sample.cases)
        if dtype == f32 or i < sample.typed
    ]
    with knobs.override(sim_schedule="random"):
        computed = run_all(built, launch="persistent", **DEVICE)
    for b, results in zip(built, computed, strict=True):
        for actual, want in zip(results, reference(sample, b), strict=True):
            check(actual, want, b.title, rounds=sample.rounds)


@pytest.mark.parametrize("suite", SUITES)
def test_the_suites_exist(suite: str) -> None:
    assert (ROOT / suite).exists()
