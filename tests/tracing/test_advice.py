"""What a trace advises is true: following it changes the simulated figure."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nova
from nova.codegen.common.cost_model import estimate_ns
from nova.codegen.cpu import schedule
from nova.tracing.advice import Finding, find_advice
from nova.tracing.costs import PRODUCT_TILE_WORK, planned_ns
from nova.tracing.schedule_sim import Simulation

CORES = 64


def matmul(x: nova.Tensor) -> nova.Tensor:
    return x @ x.transpose()


def matmul_after_softmax(x: nova.Tensor) -> nova.Tensor:
    return nova.softmax(nova.sin(x)) @ x.transpose()


PROGRAMS = {
    "matmul": (matmul, (512, 1024)),
    "elementwise": (lambda x: nova.exp(x) + nova.sin(x), (300, 1000)),
    "rows": (lambda x: nova.softmax(nova.tanh(x)), (400, 300)),
    "both": (matmul_after_softmax, (512, 512)),
}


def played(name: str, **knobs: int) -> tuple[Simulation, tuple[Finding, ...]]:
    function, shape = PROGRAMS[name]
    X = nova.tensor(np.ones(shape, "f4"), name="X")
    with nova.knobs.override(**knobs):
        program = nova.compile(function(X), inputs=[X], target="x86_64")
    simulation = program.simulate(CORES)
    path = simulation.critical_path
    return simulation, find_advice(simulation.timeline, path, simulation.critical_cost)


def settings(finding: Finding) -> dict[str, int]:
    return {n.lower(): int(v) for n, v in re.findall(r"NOVA_(\w+)=(\d+)", finding.text)}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("task_ns", [20_000, 400_000])
def test_following_an_advice_changes_the_figure(name: str, task_ns: int) -> None:
    before, advice = played(name, task_ns=task_ns)
    followed = [settings(finding) for finding in advice if settings(finding)]
    assert followed or before.timeline.utilisation > 0.5, [f.text for f in advice]
    for changes in followed:
        after, _ = played(name, **{"task_ns": task_ns, **changes})
        assert len(after.graph.specs) > len(before.graph.specs)
        assert after.makespan < before.makespan, changes


def test_a_matmul_of_few_tiles_is_cut() -> None:
    """The tile of a product follows the setting too: it did not."""
    before, advice = played("matmul")
    [changes] = [settings(f) for f in advice if "tile_work" in settings(f)]
    after, _ = played("matmul", **changes)
    assert after.graph.tables.kernels[-1].grid >= 2 * before.graph.tables.kernels[-1].grid
    assert after.makespan < before.makespan


def test_what_cannot_be_shared_gets_no_advice() -> None:
    """The sum of everything is one result: no setting gives it more tiles."""
    X = nova.tensor(np.ones((600, 600), "f4"), name="X")
    program = nova.compile([nova.sum(X), nova.exp(X)], inputs=[X], target="x86_64")
    simulation = program.simulate(CORES)
    advice = find_advice(simulation.timeline, simulation.critical_path, simulation.critical_cost)
    texts = [f.text for f in advice if "1 task for" in f.text]
    assert texts and all("no more results to share" in text for text in texts), advice
    assert not any(settings(f) for f in advice if "1 task for" in f.text)


def test_more_cores_help_where_that_is_said() -> None:
    simulation, _ = played("elementwise", task_ns=2_000, tile_work=2_000)
    few = simulation.curve((2, 4))
    assert few[1].makespan < few[0].makespan


def test_smaller_tiles_compute_the_same() -> None:
    x = np.random.default_rng(0).standard_normal((200, 300), np.float32)
    X = nova.tensor(x, name="X")
    usual = nova.compile(matmul(X), inputs=[X])(x)
    for tile_work in (1, 500, 8_192):
        with nova.knobs.override(tile_work=tile_work, task_ns=1_000):
            small = nova.compile(matmul(X), inputs=[X])(x)
        np.testing.assert_allclose(small, usual, rtol=1e-5, atol=1e-4)


def test_the_compilers_numbers() -> None:
    """The trace does not load the compiler: it has copies of its numbers."""
    assert PRODUCT_TILE_WORK == 2 * schedule._LARGE_TILE / schedule._USUAL_TILE_WORK
    assert nova.knobs.KNOBS["tile_work"].default == schedule._USUAL_TILE_WORK
    simulation, _ = played("both")
    for kernel in simulation.graph.tables.kernels:
        expected = estimate_ns(kernel.core, kernel.flops, kernel.bytes)
        assert planned_ns(kernel) == pytest.approx(expected)
