"""Random graphs with their gradients on every level that runs here, for 1, 2 and 8 threads.

Each graph is compiled for a level and run with each number of threads: all runs have the same bits,
and these are what the interpreter computes in f64, as far as the graph is well conditioned. Graphs
are made of seeds: number n is the same graph everywhere. `CAMPAIGN_GRAPHS=10000 pytest -m slow -n
16 tests/programs/test_graph_campaign.py` runs so many on every level.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest
from graph_strategies import make_program, seeded
from processors import runnable

import nova
from nova.graph.interpret import evaluate

GRAPHS = int(os.environ.get("CAMPAIGN_GRAPHS", "200"))
CHUNK = 20
"""Graphs of one test: processes share the chunks out."""
THREADS = (1, 2, 8)
SMALL = {"min_ops": 5, "max_ops": 25}
LARGE = {
    "min_ops": 5,
    "max_ops": 14,
    "sizes": (1, 4, 33, 64, 130),
    "ranks": (1, 3),
    "largest": 40_000,
}
SMALL_TASKS = {"serial_work": 0, "tile_work": 500, "task_ns": 500}
RTOL = {np.float32: 2e-3, np.float64: 1e-7}
NOISE = 50
"""How many times the error of numpy in the same type a result may have."""


LEVELS = runnable("cpu", "x86_64", "x86_64-v2", "x86_64-v3", "x86_64-v4", "aarch64")


def check_graph(number: int, level: str) -> None:
    dtype, large = (np.float32, np.float64)[number % 2], number % 4 >= 2
    leaves, outputs = _graph(number, dtype, large)
    knobs = SMALL_TASKS if number % 8 >= 4 or large else {}
    with nova.knobs.override(**knobs):
        program = nova.compile(outputs, inputs=leaves, target=level)
    arguments = [leaf.data for leaf in leaves]
    runs = []
    for threads in THREADS:
        with nova.knobs.override(threads=threads):
            results = program.run(arguments)
        runs.append(results if isinstance(results, tuple) else (results,))
    for second, threads in zip(runs[1:], THREADS[1:], strict=True):
        for k, (a, b) in enumerate(zip(runs[0], second, strict=True)):
            identical = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            assert identical, f"graph {number}: result {k} differs on {threads} threads"
    check_values(number, dtype, runs[0], outputs, arguments, large)


def check_values(
    number: int,
    dtype: type,
    actual: Sequence[np.ndarray],
    outputs: Sequence[nova.Tensor],
    arguments: Sequence[np.ndarray],
    large: bool,
) -> None:
    """Against f64: no further off than the tolerance, or than numpy in the same type is."""
    wide_leaves, wide = _graph(number, np.float64, large)
    exact = dict(zip(wide_leaves, (a.astype(np.float64) for a in arguments), strict=True))
    # Kinks, where results jump: the same graph a rounding away from its leaves.
    near = {leaf: value * (1 + np.finfo(dtype).eps) for leaf, value in exact.items()}
    expected, moved, noisy = evaluate(wide, exact), evaluate(wide, near), evaluate(outputs)
    for k, (a, want, second, rough) in enumerate(zip(actual, expected, moved, noisy, strict=True)):
        assert a.dtype == rough.dtype and a.shape == want.shape, f"graph {number}: result {k}"
        assert np.isnan(a).tolist() == np.isnan(rough).tolist(), f"graph {number}: result {k}"
        with np.errstate(invalid="ignore"):
            error = np.abs(a - want)
            noise = np.maximum(np.abs(rough - want), np.abs(second - want))
        allowed = RTOL[dtype] * (1 + np.abs(want)) + NOISE * noise
        wrong = ~((error <= allowed) | np.isnan(a) | (a == want))
        assert not wrong.any(), (
            f"graph {number}: result {k} is {a[wrong][:3]} instead of {want[wrong][:3]}, and "
            f"{rough[wrong][:3]} by numpy"
        )


def _graph(number: int, dtype: type, large: bool) -> tuple[list[nova.Tensor], list[nova.Tensor]]:
    """A graph's leaves, and its outputs with the gradients of their sum."""
    sizes = LARGE if large else SMALL
    leaves, outputs = make_program(seeded(number), dtype, **sizes)
    loss = sum((o.sum() for o in outputs[1:]), outputs[0].sum())
    return leaves, [*outputs, *nova.graph.gradients(loss, leaves)]


@pytest.mark.parametrize("level", LEVELS)
def test_some_graphs(level):
    for number in range(8):
        check_graph(number, level)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(8, GRAPHS, CHUNK))
@pytest.mark.parametrize("level", LEVELS)
def test_graphs(level, first):
    for number in range(first, min(first + CHUNK, GRAPHS)):
        check_graph(number, level)
