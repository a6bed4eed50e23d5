"""Loops and branches on a real GPU, against the numpy interpreter: conditional nodes of graphs.

    python -m pytest tests/gpu/test_gpu_loops.py -q

compiles its programs for the GPU of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from control_programs import PROGRAMS, XS, Program, W, X, as_nova, random_program

import nova
from nova import knobs
from nova.core.pytree import flatten
from nova.errors import RunTimeoutError
from nova.graph.interpret import evaluate

pytestmark = pytest.mark.gpu

MANY = np.abs(np.tile(X, 8))
"""More numbers than a loop of one thread has."""


@pytest.fixture(params=knobs.DEVICE_LOOPS)
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    with knobs.override(device_loops=request.param):
        yield request.param


def on_gpu(function: Program) -> Program:
    return nova.jit(function, target="cuda")


def compare(function: Program, *arrays: Any, tolerance: float = 1e-4) -> None:
    """Three runs: the first one makes the graphs, later ones launch them."""
    expected = evaluate(flatten(function(*map(nova.tensor, arrays)))[0])
    run = on_gpu(function)
    for _ in range(3):
        for mine, theirs in zip(flatten(run(*arrays))[0], expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients(program: Program, loops: str) -> None:
    compare(nova.value_and_grad(as_nova(program), argnums=(0, 1, 2)), X, XS, W)


@pytest.mark.parametrize("seed", range(6))
def test_random_nested_programs(seed: int, loops: str) -> None:
    compare(random_program(seed), X, W)


def test_the_device_decides() -> None:
    """With a driver of CUDA 12.4 or later."""
    program = on_gpu(lambda n: nova.while_loop(lambda c: c < n, lambda c: c + 1, 0))
    assert [int(program(n)) for n in (0, 1, 5, 3000)] == [0, 1, 5, 3000]
    x = nova.tensor(MANY)
    native = nova.compile(
        nova.while_loop(lambda v: v.sum() < 1000, lambda v: v + 1, x), inputs=[x], target="cuda"
    )._executable.program
    assert not native.host_decides


def test_switches_select_by_number_and_clamp(loops: str) -> None:
    choose = on_gpu(lambda i, x: nova.switch(i, [lambda: x, lambda: -x, lambda: x * x]))
    for index, expected in ((-3, X), (0, X), (1, -X), (2, X * X), (9, X * X)):
        np.testing.assert_array_equal(choose(index, X), expected)


def test_long_loops_over_slices_of_any_size(loops: str) -> None:
    length = 1500
    rng = np.random.default_rng(1)
    odd, even = (rng.normal(size=(length, n)).astype("f4") for n in (3, 4))
    table = rng.normal(size=(300, 70)).astype("f4")
    wide = rng.normal(size=(length, 5000)).astype("f4")

    def step(carry: Any, rows: Any) -> Any:
        total, big, n = carry
        a, b, c = rows
        total = total * 0.5 + a.sum() + b
        return (total, big + a[0], n + 1), (total[:3] + a, n % 7 == 0, c * total[0])

    def run(odd: Any, even: Any, table: Any, wide: Any) -> Any:
        return nova.scan(step, (even[0], table, 0), (odd, even, wide), reverse=True)

    cpu = flatten(nova.jit(run)(odd, even, table, wide))[0]
    for mine, theirs in zip(flatten(on_gpu(run)(odd, even, table, wide))[0], cpu, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)


def test_arrays_of_the_device_and_new_addresses(loops: str) -> None:
    program = on_gpu(lambda x: nova.while_loop(lambda v: v.sum() < 1000, lambda v: v * 2, x))
    arrays = [nova.to_device(MANY * (i + 1), "cuda") for i in range(7)]
    for _ in range(3):
        results = [program(a) for a in arrays]
        for i, result in enumerate(results):
            expected = MANY * (i + 1)
            while expected.sum() < 1000:
                expected = expected * 2
            np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)


def test_the_host_stops_an_endless_loop() -> None:
    zeros = np.zeros(64, "f4")
    x = nova.tensor(zeros)
    with knobs.override(device_loops="host"):
        loop = nova.while_loop(lambda v: v[0] < 9e9, lambda v: v * 1, x)
        program = nova.compile(loop, inputs=[x], target="cuda")
    with pytest.raises(RunTimeoutError):
        program.run([zeros], timeout=0.2)
    np.testing.assert_array_equal(program(zeros + 9e9), zeros + np.float32(9e9))


@pytest.mark.graph_launch
def test_the_trace_has_one_span_for_a_loop() -> None:
    x = nova.tensor(MANY)
    loop = nova.while_loop(lambda v: v.sum() < 1000, lambda v: v * 2, x)
    program = nova.compile(loop, inputs=[x], target="cuda")
    program(MANY)
    with nova.trace() as trace:
        program(MANY)
    [span] = [s for s in trace.runs[0].spans if s.decided_by]
    assert span.decided_by == "device" and span.duration > 0
