"""Submitted runs and time limits on devices: a libcuda that can be held back, and the simulator."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from device_samples import SIZE, FakeCuda, chain_contents, model_of, step_contents

import nova
from nova import _native, errors
from nova._native import DeviceArray
from nova.runtime.futures import RunFuture

x = np.arange(SIZE, dtype="f4") - 40
A_WHILE = 30.0  # seconds in which everything here has happened


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + A_WHILE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# --- results --------------------------------------------------------------------------------------


def test_arrays_of_the_host(device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    futures = [model.submit(x + number) for number in range(20)]
    for number, future in enumerate(futures):
        assert isinstance(future, RunFuture)
        found = future.result(A_WHILE)
        assert isinstance(found, np.ndarray) and future.done()
        np.testing.assert_array_equal(found, 6 * (x + number))
    out = np.empty_like(x)
    assert model.submit(x, out=out).result() is out
    np.testing.assert_array_equal(out, 6 * x)
    assert isinstance(model.submit(x, outputs="device").result(), DeviceArray)


def test_arrays_of_the_device(device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    there = DeviceArray.of(device, x)
    found = [model.submit(there) for _ in range(20)]
    for future in found:
        np.testing.assert_array_equal(future.result().numpy(), 6 * x)
    np.testing.assert_array_equal(model.submit(there, outputs="host").result(), 6 * x)
    with pytest.raises(errors.AttributeValueError, match="outputs is 'gpu'"):
        model.submit(there, outputs="gpu")
    with pytest.raises(errors.ArgumentShapeError):
        model.submit(DeviceArray.of(device, x[:8]))


def test_submitting_enqueues_and_does_not_wait(fake: FakeCuda, device: _native.Device) -> None:
    """A run on arrays of the device is enqueued by the caller, with an event behind it."""
    model = model_of(chain_contents(), device)
    there = DeviceArray.of(device, x)
    for _ in range(3):
        model(there)
    with fake.held():
        fake.forget()
        future = model.submit(there)
        launched = fake.history.index("cuGraphLaunch")
        assert "cuEventRecord" in fake.history[launched:]
        wait_until(lambda: fake.count("cuEventSynchronize") == 1)  # by a thread of its own
        assert not future.done()
        with pytest.raises(errors.ResultTimeoutError):
            future.result(0.01)
    np.testing.assert_array_equal(future.result(A_WHILE).numpy(), 6 * x)
    assert fake.count("cuStreamSynchronize") == 0


def test_runs_of_the_host_overlap(fake: FakeCuda, device: _native.Device) -> None:
    """Each has a thread and a stream: all are waited for at once."""
    model = model_of(chain_contents(), device)
    with fake.held():
        fake.forget()
        futures = [model.submit(x + number) for number in range(4)]
        wait_until(lambda: fake.count("cuStreamSynchronize") == 4)
        assert not any(future.done() for future in futures)
    for number, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(A_WHILE), 6 * (x + number))


def test_more_runs_than_threads(fake: FakeCuda, device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    with fake.held():
        futures = [model.submit(x + number) for number in range(50)]
    for number, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(A_WHILE), 6 * (x + number))


def test_callbacks_and_await(fake: FakeCuda, device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    called, there = threading.Event(), DeviceArray.of(device, x)
    with fake.held():
        future = model.submit(there)
        future.add_done_callback(lambda given: given is future and called.set())
        assert not called.is_set()
    assert called.wait(A_WHILE)

    async def ask() -> np.ndarray:
        return await model.submit(x)

    np.testing.assert_array_equal(asyncio.run(ask()), 6 * x)


def test_a_steady_state_allocates_nothing(fake: FakeCuda, device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    there, out = DeviceArray.of(device, x), DeviceArray.of(device, x)
    for _ in range(5):
        model.submit(there, out=out).result()
    fake.forget()
    for _ in range(20):
        model.submit(there, out=out).result()
    for name in ("cuMemAlloc", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate"):
        assert fake.count(name) == 0


# --- order ----------------------------------------------------------------------------------------


def test_a_stream_of_the_device_runs_ahead(fake: FakeCuda, device: _native.Device) -> None:
    """Steps on arrays of the device are enqueued one behind the other, before the first has
    ended."""
    model = model_of(step_contents(), device)
    there, w = DeviceArray.of(device, x), DeviceArray.of(device, np.ones(SIZE, "f4"))
    model.run([there], [w])
    with fake.held():
        fake.forget()
        with nova.NovaStream() as stream:
            futures = [model.submit(there, w) for _ in range(10)]
        enqueued = fake.count("cuLaunchKernel") // 2 + fake.count("cuGraphLaunch")
        assert enqueued == 10 and not any(future.done() for future in futures)
    stream.synchronize(A_WHILE)
    assert all(future.done() for future in futures)
    np.testing.assert_array_equal(w.numpy(), 1 + 11 * x)


def test_a_stream_orders_what_is_on_the_host(fake: FakeCuda, device: _native.Device) -> None:
    model = model_of(step_contents(), device)
    w = np.ones(SIZE, "f4")
    with nova.NovaStream() as stream:
        for _ in range(10):
            model.submit(x, w)
    stream.synchronize(A_WHILE)
    np.testing.assert_array_equal(w, 1 + 10 * x)
    with fake.held():
        first = model.submit(x, w)
        with pytest.raises(errors.ArrayInUseError, match="param 'w' shares memory"):
            model.submit(x, w)
        with pytest.raises(errors.ArrayInUseError):
            model.run([x], [w])
    first.result(A_WHILE)


def test_a_stream_of_cores_and_a_device(device: _native.Device) -> None:
    step = model_of(step_contents(), device)
    a = nova.tensor(x, name="a")
    on_cores = nova.compile([], params=[a], updates={a: a * 2})
    w, there = np.ones(SIZE, "f4"), DeviceArray.of(device, x)
    with nova.NovaStream() as stream:
        on_cores.submit(w)  # 2
        step.submit(x, w)  # 2 + x
        on_cores.submit(w)  # 4 + 2 x
        step.submit(there, w)  # 4 + 3 x
    stream.synchronize(A_WHILE)
    np.testing.assert_array_equal(w, 4 + 3 * x)


# --- cancelling -----------------------------------------------------------------------------------


def test_what_a_device_has_cannot_be_cancelled(fake: FakeCuda, device: _native.Device) -> None:
    model = model_of(step_contents(), device)
    w, there = np.ones(SIZE, "f4"), DeviceArray.of(device, x)
    weights = DeviceArray.of(device, w)
    with fake.held():
        enqueued = model.submit(there, weights)
        assert not enqueued.cancel()
        fake.forget()
        with nova.NovaStream() as stream:
            going, waiting, behind = (model.submit(x, w) for _ in range(3))
        wait_until(lambda: fake.count("cuStreamSynchronize") == 1)
        assert not going.cancel() and waiting.cancel()
    enqueued.result(A_WHILE)
    going.result(A_WHILE)
    with pytest.raises(errors.RunCancelled, match="before the device was given it"):
        waiting.result(A_WHILE)
    with pytest.raises(errors.RunCancelled, match="a run before it in its stream") as caught:
        behind.result(A_WHILE)
    assert waiting.cancelled() and behind.cancelled() and not going.cancelled()
    assert isinstance(caught.value.__cause__, errors.RunCancelled)
    np.testing.assert_array_equal(w, 1 + x)
    stream.synchronize()


# --- time limits ----------------------------------------------------------------------------------


def test_a_run_in_time(device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    for given in (x, DeviceArray.of(device, x)):
        np.testing.assert_array_equal(np.asarray(model.run([given], timeout=A_WHILE)), 6 * x)
    assert isinstance(model.run([x], timeout=A_WHILE, outputs="device"), DeviceArray)
    with pytest.raises(errors.ArgumentTypeError):
        model.run(x, timeout=1)
    with pytest.raises(ValueError, match="a timeout of"):
        model.run([x], timeout=-1)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_run_that_takes_too_long_goes_on(
    fake: FakeCuda, device: _native.Device, on_device: bool
) -> None:
    """The error comes in time; the arrays are the run's until it has ended, then they are let
    go."""
    model = model_of(step_contents(), device)
    w = np.ones(SIZE, "f4")
    weights = DeviceArray.of(device, w) if on_device else w
    given = DeviceArray.of(device, x) if on_device else x.copy()
    alive = weakref.ref(given) if not on_device else None
    used = device.usage()[1]
    with fake.held():
        with pytest.raises(errors.RunTimeoutError, match="longer than its timeout") as caught:
            model.run([given], [weights], timeout=0.01)
        assert isinstance(caught.value, TimeoutError)
        assert "goes on, and its arrays are in use" in str(caught.value)
        assert __file__ in str(caught.value)
        with pytest.raises(errors.ArrayInUseError):
            model.run([given], [weights])
        with nova.NovaStream(), pytest.raises(errors.ArrayInUseError):
            model.submit(given, weights)
        del given, caught
        assert device.usage()[1] >= used
        assert alive is None or alive() is not None
    # A thread of Nova lets go of them, whoever calls.
    wait_until(lambda: alive() is None if alive is not None else device.usage()[1] < used)
    _native.reap()
    np.testing.assert_array_equal(np.asarray(weights), 1 + x)
    model.run([x], [weights])


def test_a_future_with_a_time_limit(fake: FakeCuda, device: _native.Device) -> None:
    """It ends without anybody who waits; those behind it in its stream end with it."""
    model = model_of(chain_contents(), device)
    called = threading.Event()
    with fake.held():
        with nova.NovaStream() as stream:
            late = model.submit(x, timeout=0.01)
            behind = model.submit(x)
        late.add_done_callback(lambda future: called.set())
        assert called.wait(A_WHILE)
        with pytest.raises(errors.RunTimeoutError):
            late.result(0)
        with pytest.raises(errors.RunCancelled, match="a run before it"):
            behind.result(A_WHILE)
        assert late.done() and not late.cancel()
        other = model.submit(x, timeout=A_WHILE)
        assert not other.done()
        again = model.submit(x, stream=stream)
    for future in (other, again):
        np.testing.assert_array_equal(future.result(A_WHILE), 6 * x)
    stream.synchronize()  # the futures have given their errors


def test_one_of_many_that_ran_ahead(fake: FakeCuda, device: _native.Device) -> None:
    """Its time is over, and the device has those behind it already: they count as dropped."""
    model = model_of(step_contents(), device)
    there, w = DeviceArray.of(device, x), DeviceArray.of(device, np.ones(SIZE, "f4"))
    with fake.held():
        with nova.NovaStream():
            first = model.submit(there, w)
            late = model.submit(there, w, timeout=0.01)
            last = model.submit(there, w)
        assert isinstance(late.exception(A_WHILE), errors.RunTimeoutError)
        assert not first.done() and not last.done()
    assert first.exception(A_WHILE) is None
    assert isinstance(last.exception(A_WHILE), errors.RunCancelled)
    np.testing.assert_array_equal(w.numpy(), 1 + 3 * x)


def test_limits_that_pass_at_random(device: _native.Device) -> None:
    """Whatever is first, the end or the limit: a result or the error, and nothing is left."""
    model = model_of(chain_contents(), device)
    model.submit(x).result(A_WHILE)
    used = device.usage()[1]
    rng = np.random.default_rng(0)
    ended = 0
    for number in range(300):
        given = DeviceArray.of(device, x) if number % 2 else x
        future = model.submit(given, timeout=float(rng.uniform(0, 2e-4)))
        error = future.exception(A_WHILE)
        ended += error is None
        assert error is None or isinstance(error, errors.RunTimeoutError)
        if error is None:
            np.testing.assert_array_equal(np.asarray(future.result()), 6 * x)
    del future, given
    # A run that starts before the last one has ended keeps a frame of its own: a few, not 300.
    wait_until(lambda: device.usage()[1] <= 4 * used)
    np.testing.assert_array_equal(model(x), 6 * x)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_device", [False, True])
def test_a_fault(fake: FakeCuda, device: _native.Device, on_device: bool) -> None:
    model = model_of(chain_contents(), device)
    given = DeviceArray.of(device, x) if on_device else x
    with fake.held():
        fake.forget()
        with nova.NovaStream() as stream:
            first = model.submit(given)
            second = model.submit(given)
        waits = "cuEventSynchronize" if on_device else "cuStreamSynchronize"
        wait_until(lambda: fake.count(waits) > 0)
        fake.library.fake_fault(700)
    with pytest.raises(errors.DeviceFaultError, match="a kernel failed on Fake 0"):
        first.result(A_WHILE)
    assert isinstance(second.exception(A_WHILE), errors.DeviceFaultError | errors.RunCancelled)
    stream.synchronize(A_WHILE)
    later = model.submit(x).exception(A_WHILE)
    assert isinstance(later, errors.DeviceFaultError)


def test_what_cannot_be_enqueued(fake: FakeCuda, device: _native.Device) -> None:
    """The error is the future's, as it is for those that a thread enqueues."""
    for given in (DeviceArray.of(device, x), x):
        model = model_of(chain_contents(), device)
        fake.fail("cuLaunchKernel", 999)
        future = model.submit(given)
        with pytest.raises(errors.DeviceCallError, match="a kernel cannot be launched"):
            future.result(A_WHILE)
        fake.fail("cuLaunchKernel", 0)
        np.testing.assert_array_equal(np.asarray(model.submit(given).result()), 6 * x)


# --- the simulator --------------------------------------------------------------------------------


def simulated(pin: bool = False) -> nova.Compiled:
    X = nova.tensor(np.zeros((32, 32), "f4"), name="X")
    h = nova.tanh(X @ X)
    with nova.device("cpu" if pin else "cuda"):
        h = nova.softmax(h)
    return nova.compile(h @ X, inputs=[X], target="cuda:sm_80", run_mode="sim")


@pytest.mark.parametrize("pin", [False, True])
def test_on_the_simulator(pin: bool) -> None:
    program = simulated(pin)
    given = np.random.default_rng(1).standard_normal((32, 32)).astype("f4")
    wanted = program(given)
    there = nova.to_device(given, "sim")
    futures = [program.submit(given), program.submit(there), program.submit(given)]
    for future in futures:
        np.testing.assert_array_equal(np.asarray(future.result(A_WHILE)), wanted)
    np.testing.assert_array_equal(program.run([given], timeout=A_WHILE), wanted)
    late = program.submit(given, timeout=1e-6)  # or not: it may have ended before anybody looked
    assert isinstance(late.exception(A_WHILE), errors.RunTimeoutError | None)
    np.testing.assert_array_equal(program(given), wanted)


@pytest.mark.parametrize("pin", [False, True])
def test_submitted_runs_are_traced(pin: bool) -> None:
    program = simulated(pin)
    given = np.ones((32, 32), "f4")
    there = nova.to_device(given, "sim")
    kernels = [kernel.name for kernel in program.kernels if kernel.core == "device"]
    with nova.trace() as trace:
        for array in (given, there):
            program.submit(array).result(A_WHILE)
    assert len(trace.runs) == 2
    for run in trace.runs:
        assert sorted(span.name for span in run.lanes["kernels"]) == sorted(kernels)
        assert run.lost == 0


def test_a_submitted_function() -> None:
    @nova.jit(target="cuda:sm_80", run_mode="sim")
    def double(a):
        return {"twice": a + a}

    np.testing.assert_array_equal(double.submit(x).result(A_WHILE)["twice"], 2 * x)


# --- processes ------------------------------------------------------------------------------------

AT_EXIT = """
import numpy as np, nova
from nova import errors
X = nova.tensor(np.zeros((64, 64), "f4"), name="X")
program = nova.compile(nova.tanh(X @ X) @ X, inputs=[X], target="cuda:sm_80", run_mode="sim")
given = np.ones((64, 64), "f4")
futures = [program.submit(given, timeout=limit) for limit in (None, 1e-6)]
print(type(futures[1].exception()).__name__, flush=True)
del futures, given  # the interpreter exits with both in flight
"""

FORKED = """
import os, sys
import numpy as np, nova
from nova import errors
X = nova.tensor(np.zeros((64, 64), "f4"), name="X")
program = nova.compile(nova.tanh(X @ X) @ X, inputs=[X], target="cuda:sm_80", run_mode="sim")
given = np.ones((64, 64), "f4")
futures = [program.submit(given, timeout=limit) for limit in (None, 1e-6)]
late = futures[1].exception()
child = os.fork()
if child == 0:
    stopped = isinstance(futures[0].exception(5), (errors.RunCancelled, type(None)))
    os._exit(0 if stopped else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
futures[0].result()
print(type(late).__name__)
"""


@pytest.mark.parametrize("program", [AT_EXIT, FORKED])
def test_exit_and_fork(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("RunTimeoutError\n", "NoneType\n")  # it may have ended in time
