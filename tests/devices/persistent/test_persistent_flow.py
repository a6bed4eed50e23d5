"""Loops and branches inside of a persistent kernel: one launch, with the bits of graph execution.

Values are compared with jax and the interpreter, and in three orders of blocks on the simulator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_programs import (
    PROGRAMS,
    XS,
    Asarray,
    Program,
    W,
    X,
    as_jax,
    as_nova,
    moving_cases,
    random_program,
)

import nova
from nova import knobs, nn, optim
from nova.core.pytree import flatten
from nova.graph.interpret import evaluate
from nova.knobs import SIM_SCHEDULES

DEVICE: dict[str, Any] = {"target": "cuda:sm_90a", "run_mode": "sim"}
MANY = np.abs(np.tile(X, 40)) + np.float32(0.1)
"""More numbers than a loop of one thread has, in several tasks."""


def compiled(function: Program, *arrays: Any, launch: str = "persistent") -> nova.Compiled:
    inputs = [nova.tensor(np.asarray(a)) for a in arrays]
    outputs = flatten(function(*inputs))[0]
    return nova.compile(outputs, inputs=inputs, launch=launch, **DEVICE)


def results(program: nova.Compiled, *arrays: Any) -> list[Any]:
    computed = program(*arrays)
    return list(computed) if isinstance(computed, tuple | list) else [computed]


def check_bits(function: Program, *arrays: Any) -> list[Any]:
    """The results of persistent execution, which are those of a graph, bit by bit."""
    expected = results(compiled(function, *arrays, launch="graph"), *arrays)
    program = compiled(function, *arrays)
    computed = results(program, *arrays)
    again = results(program, *arrays)  # the counters are 0 again
    for mine, theirs, second in zip(computed, expected, again, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(mine, second)
    return computed


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, marks=[] if p.__name__ == "nested" else pytest.mark.slow) for p in PROGRAMS],
)
def test_values_and_gradients_equal_those_of_jax(program: Program) -> None:
    jax = pytest.importorskip("jax")
    value, grads = jax.value_and_grad(as_jax(program), argnums=(0, 1, 2))(X, XS, W)
    function = nova.value_and_grad(as_nova(program), argnums=(0, 1, 2))
    with knobs.override(device_loops="nodes"):  # loops that are not unrolled
        computed = check_bits(function, X, XS, W)
    for mine, theirs in zip(computed, (value, *grads), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["reverse", "swap", "choice", "masked step", "outer in while"])
def test_regions_that_only_move_values(name: str) -> None:
    jax = pytest.importorskip("jax")
    stack = np.arange(12, dtype="f4").reshape(4, 3)
    arguments = (stack, stack[0] + 1)
    expected = jax.tree_util.tree_leaves(moving_cases(jax.lax, jax.numpy)[name](*arguments))
    for mine, theirs in zip(
        check_bits(moving_cases(nova, Asarray)[name], *arguments), expected, strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[] if n < 1 else pytest.mark.slow) for n in range(12)]
)
def test_random_nested_programs_equal_the_interpreter(seed: int) -> None:
    [expected] = evaluate([random_program(seed)(nova.tensor(X), nova.tensor(W))])
    [computed] = check_bits(random_program(seed), X, W)
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4)


def power(x: Any, limit: Any) -> Any:
    """A loop whose trip count depends on its argument, with several tasks in each iteration."""
    start = nova.tanh(x) + x
    return nova.while_loop(lambda v: v.sum() < limit, lambda v: v * 2 + nova.cumsum(v, 0) / 40,
                           start)  # fmt: skip


def test_every_order_of_blocks_gives_the_same_bits(tmp_path: Path) -> None:
    limit = np.float32(1000)
    program = compiled(lambda x, n: nova.cond(n > 10, power, lambda x, n: x, x, n), MANY, limit)
    program.save(tmp_path / "program.nova")
    [expected] = results(program, MANY, limit)
    for schedule in SIM_SCHEDULES:
        with knobs.override(sim_schedule=schedule):
            loaded = nova.load(tmp_path / "program.nova", device="sim")
        np.testing.assert_array_equal(loaded(MANY, limit), expected)
        np.testing.assert_array_equal(loaded(MANY, np.float32(1)), MANY)


def test_decisions_are_those_of_the_run() -> None:
    choose = compiled(
        lambda i, x: nova.switch(i, [lambda: x, lambda: -x, lambda: nova.cumsum(x, 0)]),
        np.int64(0),
        MANY,
    )
    for index, expected in ((-3, MANY), (0, MANY), (1, -MANY), (9, np.cumsum(MANY))):
        np.testing.assert_allclose(choose(np.int64(index), MANY), expected, rtol=1e-5)
    program = compiled(power, MANY, np.float32(0))
    for limit in (0.0, 500.0, 4000.0):
        x = (np.tanh(MANY) + MANY).astype(np.float64)
        while x.sum() < limit:
            x = x * 2 + np.cumsum(x) / 40
        np.testing.assert_allclose(program(MANY, np.float32(limit)), x, rtol=1e-4)


# --- how they run ---------------------------------------------------------------------------------


def test_a_run_is_one_launch() -> None:
    program = compiled(power, MANY, np.float32(0))
    native = program._executable.program
    before = native.counts()
    program(MANY, np.float32(1e5))
    after = native.counts()
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 0, 0, 0]
    assert not native.host_decides


def test_arrays_of_the_device_and_new_addresses() -> None:
    program = compiled(power, MANY, np.float32(0))
    expected = program(MANY, np.float32(900))
    arrays = [nova.to_device(MANY, "sim") for _ in range(6)]  # more than a program has bindings
    for array in [*arrays, *arrays]:
        np.testing.assert_array_equal(program(array, np.float32(900)).numpy(), expected)


def test_symbolic_sizes_and_lengths() -> None:
    rows = nova.dim("rows", min=1, max=64)
    x = nova.input((rows, 20))
    total, sums = nova.scan(lambda c, r: (c * 0.5 + r, (c * r).sum()), x.sum(0), x)
    program = nova.compile([total, sums], inputs=[x], launch="persistent", **DEVICE)
    for size in (1, 9, 33):
        value = np.random.default_rng(size).standard_normal((size, 20), np.float32)
        carry, expected = value.sum(0), []
        for row in value:
            expected.append((carry * row).sum())
            carry = carry * 0.5 + row
        computed_total, computed = program(value)
        np.testing.assert_allclose(computed_total, carry, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_more_segments_than_shared_memory_counts() -> None:
    """Visits of segments are in global memory then."""

    def run(x: Any) -> Any:
        for i in range(90):
            x = nova.cond(x.sum() > i, lambda v: nova.cumsum(v, 0) * 0.1, lambda v: v + 1, x)
        return x

    check_bits(run, MANY)


def test_run_many_of_a_step_with_a_loop_is_one_launch() -> None:
    def make_step(launch: str) -> Any:
        model = nn.Linear(12, 12)
        for i, param in enumerate(model.parameters()):
            param.data[...] = 0.2 * np.random.default_rng(i).standard_normal(param.shape)

        def loss(m: Any, x: Any, y: Any) -> Any:
            h, _ = nova.scan(lambda h, row: (nova.tanh(m(h) + row), h.sum()), x[0], x)
            return ((h - y) ** 2).mean()

        optimizer = optim.SGD(model.parameters(), lr=0.1)
        return nova.train_step(model, loss, optimizer, launch=launch, **DEVICE)

    rng = np.random.default_rng(3)
    xs = rng.standard_normal((3, 5, 4, 12), np.float32)
    ys = rng.standard_normal((3, 4, 12), np.float32)
    with knobs.override(device_loops="nodes"):
        graph, persistent = make_step("graph"), make_step("persistent")
        expected = [float(graph(x, y)) for x, y in zip(xs, ys, strict=True)]
        assert persistent.run_many(xs, ys).tolist() == expected


def test_a_trace_has_the_tasks_of_every_iteration() -> None:
    program = compiled(power, MANY, np.float32(0))
    counts = []
    for limit in (0.0, 4000.0):
        with nova.trace() as trace:
            program(MANY, np.float32(limit))
        [run] = trace.runs
        counts.append(len(run.tasks))
    assert 0 < counts[0] < counts[1] - 3
