"""Loops and branches on a device: decided by the device, unrolled, and decided by the host.

Results are compared with jax, numpy and the interpreter; `device_loops` selects who decides.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from nova import knobs, nn
from nova.core.pytree import flatten
from nova.errors import DeviceCallError, RunTimeoutError
from nova.graph.interpret import evaluate

jax = pytest.importorskip("jax")
ON_SIM: dict[str, Any] = {"target": "cuda:sm_80", "run_mode": "sim"}
FLOWS = ("auto", "nodes")
MANY = np.abs(np.tile(X, 8))
"""More numbers than a loop of one thread has."""


@pytest.fixture(params=knobs.DEVICE_LOOPS)
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    with knobs.override(device_loops=request.param):
        yield request.param


def on_sim(function: Program) -> Program:
    return nova.jit(function, **ON_SIM)


def compiled(function: Program, *arrays: np.ndarray) -> nova.Compiled:
    inputs = [nova.tensor(a) for a in arrays]
    outputs = flatten(function(*inputs))[0]
    return nova.compile(outputs, inputs=inputs, **ON_SIM)


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients_equal_those_of_jax(program: Program, loops: str) -> None:
    value, grads = jax.value_and_grad(as_jax(program), argnums=(0, 1, 2))(X, XS, W)
    run = on_sim(nova.value_and_grad(as_nova(program), argnums=(0, 1, 2)))
    for _ in range(2):
        computed_value, computed = run(X, XS, W)
        np.testing.assert_allclose(computed_value, value, rtol=2e-5)
        for mine, theirs in zip(computed, grads, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", moving_cases(nova, Asarray))
def test_regions_that_only_move_values(name: str, loops: str) -> None:
    stack = np.arange(12, dtype="f4").reshape(4, 3)
    arguments = (stack, stack[0] + 1)
    actual = flatten(on_sim(moving_cases(nova, Asarray)[name])(*arguments))[0]
    expected = jax.tree_util.tree_leaves(moving_cases(jax.lax, jax.numpy)[name](*arguments))
    for mine, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[] if n < 3 else pytest.mark.slow) for n in range(30)]
)
def test_random_nested_programs_equal_the_interpreter(seed: int, loops: str) -> None:
    [expected] = evaluate([random_program(seed)(nova.tensor(X), nova.tensor(W))])
    computed = on_sim(random_program(seed))(X, W)
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4)


def test_conditions_are_those_of_the_run(loops: str) -> None:
    double = on_sim(lambda n, x: nova.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2),
                                                 (0, x)))  # fmt: skip
    choose = on_sim(lambda i, x: nova.switch(i, [lambda: x, lambda: -x, lambda: x * x]))
    for n in (0, 1, 6, 7):
        count, last = double(n, X)
        assert int(count) == n
        np.testing.assert_array_equal(last, X * 2**n)
    for index, expected in ((-3, X), (0, X), (1, -X), (2, X * X), (9, X * X)):
        np.testing.assert_array_equal(choose(index, X), expected)


@pytest.mark.parametrize("length", [None, 3000])
def test_branches_by_a_constant_of_the_loop(length: int | None, loops: str) -> None:
    """Such a branch is around the loop; another one of the body, by a carry, is inside of it."""

    def run(lib: Any, which: Any, other: Any, n: Any, x: Any) -> Any:
        def step(i: Any, v: Any) -> Any:
            v = lib.cond(which > 0, lambda v: v + 1, lambda v: v * 0.5, v)
            v = lib.switch(other, [lambda v: v, lambda v: v - 2], v)
            v = lib.switch(other, [lambda v: v, lambda v: v - 1, lambda v: v * 0.75], v)
            return lib.cond(v[0] > 3, lambda v: -v, lambda v: v + 0.25, v)

        if length is not None:
            return lib.fori_loop(0, length, step, x)
        return lib.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, step(s[0], s[1])), (0, x))[1]

    computed = on_sim(lambda *a: run(nova, *a))
    for which, other in ((1, 0), (0, 1), (1, 2)):
        arguments = np.int64(which), np.int64(other), np.int64(5), MANY
        expected = run(jax.lax, *arguments)
        np.testing.assert_allclose(computed(*arguments), expected, rtol=1e-5)


def test_long_loops_over_slices_of_any_size(loops: str) -> None:
    """Slices of 12 and 16 bytes and of one byte, positions, and carries larger than a block."""
    length = 700  # with two kernels an iteration: more than is unrolled
    rng = np.random.default_rng(1)
    odd, even = (rng.normal(size=(length, n)).astype("f4") for n in (3, 4))
    flags = rng.random(length) < 0.5
    table = rng.normal(size=(70, 70)).astype("f4")

    def run(lib: Any, odd: Any, even: Any, flags: Any, table: Any) -> Any:
        def step(carry: Any, rows: Any) -> Any:
            total, big, n = carry
            a, b, flag = rows
            total = total * 0.5 + a.sum() + b * (flag * 1.0)
            return (total, big + a[0], n + 1), (total[:3] + a, n % 7 == 0)

        return lib.scan(step, (even[0], table, 0), (odd, even, flags), reverse=True)

    computed = flatten(on_sim(lambda *a: run(nova, *a))(odd, even, flags, table))[0]
    expected = jax.tree_util.tree_leaves(run(jax.lax, odd, even, flags, table))
    for mine, theirs in zip(computed, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_recurrent_layers_have_the_gradients_of_torch(loops: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = nn.GRU(3, 5), torch.nn.GRU(3, 5)
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(2).normal(size=(6, 2, 3)).astype("f4")
    y, _ = theirs(torch.tensor(x))
    (y * y).sum().backward()
    names = [name for name, _ in theirs.named_parameters()]
    parameters = [dict(ours.named_parameters())[name] for name in names]
    sequence = nova.tensor(x)
    out, _ = ours(sequence)
    loss = (out * out).sum()
    loss.backward()
    results = [loss, *(p.grad for p in parameters)]
    program = nova.compile(results, inputs=[sequence], params=parameters, **ON_SIM)
    value, *computed = program.run([x], [theirs.state_dict()[name].numpy() for name in names])
    np.testing.assert_allclose(value, float((y * y).sum().detach()), rtol=1e-5)
    for mine, other in zip(computed, theirs.parameters(), strict=True):
        np.testing.assert_allclose(mine, other.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.graph_launch
def test_a_file_runs_its_loops(tmp_path: Path, loops: str) -> None:
    run = as_nova(PROGRAMS[3])
    compiled(run, X, XS, W).save(tmp_path / "p.nova")
    model = nova.load(tmp_path / "p.nova", device="sim")
    assert model._executable.program.host_decides == (loops == "host")
    np.testing.assert_allclose(model(X, XS, W), as_jax(PROGRAMS[3])(X, XS, W), rtol=1e-5)


def test_ops_of_the_host_inside_a_loop_keep_the_loop_there() -> None:
    def step(h: Any, row: Any) -> Any:
        with nova.device("cpu"):
            h = nova.tanh(h)
        return h + row, nova.cond(row[0] > 0, lambda: h, lambda: -h)

    program = compiled(lambda x, xs: nova.scan(step, x, xs), X, XS)
    assert {k.core for k in program.kernels} >= {"host", "to_host"}
    last, ys = program(X, XS)
    h = X
    for row, y in zip(XS, ys, strict=True):
        np.testing.assert_allclose(y, np.tanh(h) if row[0] > 0 else -np.tanh(h), rtol=1e-5)
        h = np.tanh(h) + row
    np.testing.assert_allclose(last, h, rtol=1e-5)


def newton(a: Any) -> Any:
    def step(state: Any) -> Any:
        new = (state[0] + a / state[0]) / 2
        return new, abs(new - state[0])

    return nova.while_loop(lambda state: state[1] > 1e-6, step, (a, a))[0]


@pytest.mark.graph_launch
@pytest.mark.parametrize(
    ("run", "argument", "expected"),
    [
        (lambda n: nova.while_loop(lambda c: c < n, lambda c: c + 1, 0), np.int64(5), 5),
        (newton, np.float32(2), np.sqrt(2)),
        (lambda x: nova.fori_loop(2, 5000, lambda i, v: v * 0.5 + i, x), np.float32(1), 9996),
        (lambda x: nova.fori_loop(0, 3, lambda i, v: (v[1], v[0] + i), (x, x * 0))[0],
         np.float32(4), 1),
    ],
)  # fmt: skip
def test_loops_over_numbers_are_code_of_one_kernel(
    run: Program, argument: Any, expected: float
) -> None:
    program = compiled(run, argument)
    assert [(k.core, k.control) for k in program.kernels] == [("device", None)]
    np.testing.assert_allclose(program(argument), expected, rtol=1e-6)


# --- how they run ---------------------------------------------------------------------------------


def power(x: Any) -> Any:
    return nova.while_loop(lambda v: v.sum() < 1000, lambda v: v * 2, x)


@pytest.mark.graph_launch
@pytest.mark.parametrize("mode", FLOWS)
def test_the_device_decides_without_the_host(mode: str) -> None:
    with knobs.override(device_loops=mode):
        program = compiled(power, MANY)
    native = program._executable.program
    assert not native.host_decides
    for runs in (1, 2, 3):
        program(MANY)
        assert native.counts()[2:4] == (1, runs), "one graph, launched once a run"


@pytest.mark.graph_launch
def test_the_host_decides_if_asked_to() -> None:
    with knobs.override(device_loops="host"):
        program = compiled(power, MANY)
    program(MANY)
    native = program._executable.program
    assert native.host_decides and native.counts()[2:4] == (0, 0)


def test_arrays_of_the_device_and_new_addresses(loops: str) -> None:
    program = compiled(power, MANY)
    arrays = [nova.to_device(MANY * (i + 1), "sim") for i in range(7)]
    for _ in range(2):
        results = [program(a) for a in arrays]
        for i, result in enumerate(results):
            expected = MANY * (i + 1)
            while expected.sum() < 1000:
                expected = expected * 2
            np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)


def test_short_loops_are_unrolled_and_long_ones_are_not() -> None:
    """Unrolled iterations have no copies: the trace has one span for all of them in any case."""
    for length in (3, 5000):
        program = compiled(lambda x, n=length: nova.fori_loop(0, n, lambda i, v: v + 1, x), MANY)
        np.testing.assert_allclose(program(MANY), MANY + length, rtol=1e-4)


@pytest.mark.graph_launch
def test_the_trace_says_who_decides(loops: str) -> None:
    program = compiled(power, MANY)
    program(MANY)
    with nova.trace() as trace:
        program(MANY)
    [run] = trace.runs
    spans = [span for span in run.spans if span.decided_by]
    if loops == "host":
        assert {span.decided_by for span in spans} == {"host"}
        assert sum(span.name.startswith("to host: condition of loop_") for span in spans) > 2
        assert "device, the host decides" in str(trace.summary())
    else:
        [span] = spans
        assert (span.decided_by, span.activity) == ("device", "kernel")
        assert span.details["decided by"] == "device"
        assert "the host decides" not in str(trace.summary())


# --- endless loops --------------------------------------------------------------------------------


def endless(x: Any) -> Any:
    return nova.while_loop(lambda v: v[0] < 9e9, lambda v: v * 1, x)


@pytest.mark.graph_launch
def test_the_host_stops_an_endless_loop() -> None:
    zeros = np.zeros(64, "f4")
    with knobs.override(device_loops="host"):
        program = compiled(endless, zeros)
    with pytest.raises(RunTimeoutError):
        program.run([zeros], timeout=0.05)
    np.testing.assert_array_equal(program(zeros + 9e9), zeros + np.float32(9e9))


@pytest.mark.graph_launch
@pytest.mark.slow
def test_the_simulator_reports_an_endless_loop() -> None:
    zeros = np.zeros(64, "f4")
    program = compiled(endless, zeros)
    with pytest.raises(DeviceCallError, match="a loop does not end"):
        program(zeros)
