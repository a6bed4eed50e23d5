"""Rings: batches and calls that a resident kernel takes while it runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import nova
from nova import nn, optim
from nova.codegen.gpu.persistent import kernel
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    DeviceCallError,
    GraphError,
    PersistentLaunchError,
    RunTimeoutError,
    SimulationError,
)
from nova.knobs import SIM_SCHEDULES
from nova.runtime import ring as ring_module

DEVICE = {"target": "cuda:sm_90a", "run_mode": "sim", "launch": "persistent"}
COUNT = 11  # more than the slots
generator = np.random.default_rng(0)
xs = generator.standard_normal((COUNT, 8, 16), np.float32)
ys = generator.integers(0, 4, (COUNT, 8)).astype(np.int64)


def make_step(size: int = 16, **options: Any) -> Any:
    model = nn.Linear(size, 4)
    values = np.random.default_rng(1)
    for param in model.parameters():
        param.data[...] = 0.1 * values.standard_normal(param.shape, np.float32)
    return nova.train_step(
        model,
        lambda m, x, y: nova.cross_entropy(m(x), y),
        optim.SGD(model.parameters(), lr=0.1),
        **{**DEVICE, **options},
    )


def weights_of(step: Any) -> list[np.ndarray]:
    return [param.numpy().copy() for param in step.model.parameters()]


def assert_same(step: Any, other: Any) -> None:
    for a, b in zip(weights_of(step), weights_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


# --- batches of an iterable -----------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_batches_of_a_generator(schedule: str) -> None:
    """The same bits as step by step, in one launch, and the ring can be used again."""
    with nova.knobs.override(sim_schedule=schedule):
        step, single = make_step(), make_step()
        expected = [single(x, y) for x, y in zip(xs, ys, strict=True)]
        losses = step.run_many((x, y) for x, y in zip(xs, ys, strict=True))
        np.testing.assert_array_equal(losses, expected)
        assert_same(step, single)
        expected = [single(x, y) for x, y in zip(xs[:2], ys[:2], strict=True)]
        again = step.run_many([(x, y) for x, y in zip(xs[:2], ys[:2], strict=True)])
        np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_large_batches_are_copied_beside_the_kernel(schedule: str) -> None:
    """An input of more than 8 KiB is copied by the host, and so is a large result."""
    x = generator.standard_normal((COUNT, 64, 64), np.float32)
    with nova.knobs.override(sim_schedule=schedule):
        step, single = (
            nova.train_step(
                model,
                lambda m, v: ((m(v) ** 2).mean(), {"all": m(v), "sum": v.sum()}),
                optim.SGD(model.parameters(), lr=0.1),
                has_aux=True,
                **DEVICE,
            )
            for model in (_linear(64), _linear(64))
        )
        losses, aux = step.run_many(iter(x))
        for i in range(COUNT):
            loss, expected = single(x[i])
            np.testing.assert_array_equal(losses[i], loss)
            np.testing.assert_array_equal(aux["all"][i], expected["all"])
            np.testing.assert_array_equal(aux["sum"][i], expected["sum"])


def _linear(size: int) -> Any:
    model = nn.Linear(size, size)
    for param in model.parameters():
        param.data[...] = np.linspace(-0.2, 0.2, param.data.size).reshape(param.shape)
    return model


def test_the_device_follows_the_host() -> None:
    """A generator that waits until the device has run what it got: no batch is needed ahead."""
    step = make_step()
    counted: list[int] = []
    native: list[Any] = []
    start = ring_module.Ring.start

    def noted(self: Any, *arrays: Any) -> None:
        native.append(self._program)
        start(self, *arrays)

    def batches() -> Iterator[Any]:
        for i in range(COUNT):
            if i > 0:
                assert native[0].ring_wait(i - 1, 60.0)
                counted.append(i)
            yield xs[i], ys[i]

    ring_module.Ring.start = noted  # type: ignore[method-assign]
    try:
        losses = step.run_many(batches())
    finally:
        ring_module.Ring.start = start  # type: ignore[method-assign]
    assert counted == list(range(1, COUNT)) and len(losses) == COUNT


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_of_the_iterable(error: type[BaseException]) -> None:
    """The batches before it have run, the error names the batch, and the device is free."""

    def batches() -> Iterator[Any]:
        yield from zip(xs[:3], ys[:3], strict=True)
        raise error("no more data")

    step, single = make_step(), make_step()
    with pytest.raises(error, match="no more data") as caught:
        step.run_many(batches())
    assert caught.value.__notes__ == ["run_many: in batch 3; the steps of those before it have run"]
    for x, y in zip(xs[:3], ys[:3], strict=True):
        single(x, y)
    assert_same(step, single)
    np.testing.assert_array_equal(step(xs[3], ys[3]), single(xs[3], ys[3]))


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ((xs[0, :5], ys[0, :5]), ArgumentShapeError, r"batch 2: 'x0' has the shape \(5, 16\)"),
        ((xs[0], ys[0].astype("i4")), ArgumentDTypeError, r"batch 2: 'x1' is of dtype int32"),
        ((xs[0],), ArgumentCountError, "batch 2 has 1 arrays, and the program takes 2"),
    ],
)
def test_a_batch_of_another_type(batch: Any, error: type[Exception], message: str) -> None:
    step, single = make_step(), make_step()
    with pytest.raises(error, match=message):
        step.run_many(iter([(xs[0], ys[0]), (xs[1], ys[1]), batch]))
    for x, y in zip(xs[:2], ys[:2], strict=True):
        single(x, y)
    assert_same(step, single)


def test_a_signal_stops_the_kernel() -> None:
    """Ctrl-C while the host waits for the device: the run ends after the batches that it has."""
    step = make_step()
    main = threading.main_thread().ident
    assert main is not None

    def batches() -> Iterator[Any]:
        for i in range(10_000):
            if i == 20:
                signal.pthread_kill(main, signal.SIGINT)
            yield xs[i % COUNT], ys[i % COUNT]

    with pytest.raises(KeyboardInterrupt):
        step.run_many(batches())
    assert np.isfinite(step(xs[0], ys[0]))


def test_other_work_for_the_device_is_refused() -> None:
    """It would wait for the resident kernel, which waits for the batch: an error, not a hang."""
    step, other = make_step(), compiled()
    array = np.ones((ROWS, 16), np.float32)

    def batches() -> Iterator[Any]:
        yield xs[0], ys[0]
        yield xs[1], other(array)

    with pytest.raises(DeviceCallError, match=r"a resident program has .* until it ends") as caught:
        step.run_many(batches())
    assert "batch 1" in caught.value.__notes__[0]
    with other.serve() as server:
        with pytest.raises(DeviceCallError, match="a resident program has"):
            other(array)
        with pytest.raises(DeviceCallError, match="a resident program has"):
            other.serve()
        assert server(array)[1] == 16 * ROWS
    assert other(array)[1] == 16 * ROWS


def test_without_a_ring_steps_run_one_by_one() -> None:
    step, single = make_step(launch="graph"), make_step(launch="graph")
    losses = step.run_many(iter([(xs[0], ys[0]), (xs[1], ys[1])]))
    np.testing.assert_array_equal(
        losses, [single(x, y) for x, y in zip(xs[:2], ys[:2], strict=True)]
    )
    with pytest.raises(GraphError, match="without batches"):
        step.run_many(iter([]))


# --- servers --------------------------------------------------------------------------------------

ROWS = 4


def compiled(size: int = 16, **options: Any) -> Any:
    x = nova.input((ROWS, size))
    return nova.compile(
        [nova.softmax(nova.tanh(x @ x.T), -1), x.sum()], inputs=[x], **{**DEVICE, **options}
    )


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_a_server_answers_calls(schedule: str) -> None:
    with nova.knobs.override(sim_schedule=schedule):
        program = compiled()
        values = [generator.standard_normal((ROWS, 16), np.float32) for _ in range(COUNT)]
        expected = [program(value) for value in values]
        with program.serve(slots=2) as server:
            for value, results in zip(values, expected, strict=True):
                for a, b in zip(server(value, timeout=100), results, strict=True):
                    np.testing.assert_array_equal(a, b)
    with pytest.raises(GraphError, match="the server is closed"):
        server(values[0])
    np.testing.assert_array_equal(program(values[0])[0], expected[0][0])  # the device is free


def test_several_threads_call_a_server() -> None:
    program = compiled()
    values = [np.full((ROWS, 16), i, np.float32) for i in range(40)]
    with program.serve(slots=4) as server, ThreadPoolExecutor(6) as pool:
        for value, (_, total) in zip(values, pool.map(server, values), strict=True):
            assert total == value.sum()


def test_a_server_is_launched_again_before_its_numbers_end() -> None:
    program = compiled()
    with program.serve(slots=2) as server:
        server._most = 3
        for i in range(8):
            assert server(np.full((ROWS, 16), i, np.float32))[1] == 16 * ROWS * i
        assert server._ring.pushed == 2  # of the third launch


def test_a_late_call_of_a_server() -> None:
    program = compiled()
    with program.serve() as server:
        with pytest.raises(RunTimeoutError, match="within its time limit of 0 s"):
            server(np.ones((ROWS, 16), np.float32), timeout=0)
        # The device answers it all the same, and then the next ones.
        for i in range(20):
            assert server(np.full((ROWS, 16), i, np.float32))[1] == 16 * ROWS * i


def test_wrong_calls_of_a_server() -> None:
    with compiled().serve() as server:
        with pytest.raises(ArgumentShapeError, match=r"a call: .* has the shape \(2, 2\)"):
            server(np.ones((2, 2), np.float32))
        with pytest.raises(ArgumentCountError, match="a call has 0 arrays"):
            server()
        assert server(np.ones((ROWS, 16), np.float32))[1] == 16 * ROWS


def test_programs_that_cannot_serve() -> None:
    x = nova.input((ROWS, 16))
    odd = nova.input((3,))
    loop = nova.while_loop(lambda v: v.max() < 100, lambda v: v * 2, x)
    cases = {
        "it was not compiled with launch='persistent'": compiled(launch="graph"),
        "it does not run on a device": nova.compile(x * 2, inputs=[x]),
        "it has loops or branches": nova.compile(loop, inputs=[x], **DEVICE),
        "an array has neither 1, 2, 4 or 8 bytes": nova.compile(odd * 2, inputs=[odd], **DEVICE),
    }
    for message, program in cases.items():
        with pytest.raises(PersistentLaunchError, match=message):
            program.serve()


def test_a_fault_ends_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that does not acquire what it reads: the simulator reports it, to all calls."""
    instructions = dict(kernel._INSTRUCTIONS)
    instructions["acquire"] = instructions["acquire"].replace(".acquire", ".relaxed")
    monkeypatch.setattr(kernel, "_INSTRUCTIONS", instructions)
    x = nova.input((64, 16))
    with nova.knobs.override(cache=False, sim_schedule="late"):
        program = nova.compile(nova.tanh(x) * 2, inputs=[x], **DEVICE)
    with program.serve() as server:
        for _ in range(2):
            with pytest.raises(SimulationError, match="nothing orders the two"):
                for _ in range(3):
                    server(np.ones((64, 16), np.float32), timeout=60)
