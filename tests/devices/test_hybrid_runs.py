"""Runs of programs on both sides: graphs, events, threads of the host, and what goes wrong.

On a libcuda that counts calls, and on `sim`, where work is done only when somebody waits for it: a
kernel of the host that does not wait reads what is not there yet.
"""

from __future__ import annotations

import _thread
import gc
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_samples import SIZE, FakeCuda, model_of
from hybrid_samples import compile_host, hybrid_contents, make_ptx

import nova
from nova import _native, errors
from nova._native import DeviceArray
from nova.runtime.devices import open_device
from nova.runtime.model import Model

x = np.arange(SIZE, dtype="f4")
STEADY = (
    *("cuMemcpyHtoDAsync", "cuLaunchKernel", "cuMemcpyDtoHAsync", "cuEventRecord"),
    *("cuGraphLaunch", "cuEventSynchronize"),  # the device is at work, then the host region waits
    *("cuMemcpyHtoDAsync", "cuEventRecord", "cuGraphLaunch", "cuEventRecord"),
    *("cuMemcpyDtoHAsync", "cuStreamSynchronize"),
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_host(tmp_path_factory.mktemp("host"))


@pytest.fixture
def model(host: bytes, device: _native.Device) -> Model:
    return model_of(hybrid_contents(host), device)


@pytest.fixture
def simulated(host: bytes) -> Model:
    return model_of(hybrid_contents(host), open_device("sim"))


def counts(model: Model) -> dict[str, int]:
    names = ("runs", "launches", "graphs", "graph_launches", "graph_updates")
    return dict(zip(names, model._executable.program.counts(), strict=True))


# --- graphs and order -----------------------------------------------------------------------------


def test_results(model: Model, simulated: Model) -> None:
    for program in (model, simulated):
        for number in range(6):
            np.testing.assert_array_equal(program(x + number), 18 * (x + number))


def test_the_device_has_its_work_before_the_host_waits(fake: FakeCuda, model: Model) -> None:
    for _ in range(3):
        model(x)
    fake.forget()
    np.testing.assert_array_equal(model(x), 18 * x)
    assert tuple(fake.history) == STEADY


def test_kernels_between_host_regions_are_graphs(fake: FakeCuda, model: Model) -> None:
    """Two steps of two launches each, and one of one launch, which needs no graph."""
    model(x)
    assert counts(model)["launches"] == fake.count("cuLaunchKernel") == 5
    assert fake.count("cuGraphInstantiate") == 0
    for _ in range(4):
        model(x)
    assert fake.count("cuGraphInstantiate") == 2
    assert fake.count("cuGraphLaunch") == 8
    assert fake.count("cuLaunchKernel") == 5 + 4


def test_other_pointers_change_the_graphs(
    fake: FakeCuda, device: _native.Device, model: Model
) -> None:
    out = DeviceArray.of(device, np.zeros_like(x))
    arrays = [DeviceArray.of(device, x + number) for number in range(12)]
    for array in arrays:
        model(array, out=out)
    assert counts(model)["graphs"] == 8  # four pairs, then they are changed
    fake.forget()
    for number, array in enumerate(arrays):
        model(array, out=out)
        np.testing.assert_array_equal(out.numpy(), 18 * (x + number))
    assert fake.count("cuGraphInstantiate") == 0
    assert fake.count("cuGraphExecKernelNodeSetParams") == 0  # x is read by the single launch
    for _ in range(2):
        for array in arrays:
            model(array, out=DeviceArray.of(device, np.zeros_like(x)))
    assert fake.count("cuGraphExecKernelNodeSetParams") > 0


def test_arrays_of_the_device_are_copied_early(
    fake: FakeCuda, device: _native.Device, model: Model
) -> None:
    """The host region waits for one event, and the run returns before the device has ended."""
    there = DeviceArray.of(device, x)
    for _ in range(3):
        model(there)
    fake.forget()
    found = model(there)
    assert tuple(fake.history) == (*("cuMemcpyDtoHAsync", "cuEventRecord", *STEADY[1:-2]),)
    np.testing.assert_array_equal(found.numpy(), 18 * x)


def test_runs_in_sequence_share_the_host_shadow(simulated: Model) -> None:
    """No caller waits for the first runs: the host shadow of one is not overwritten by the next."""
    device = open_device("sim")
    given = [DeviceArray.of(device, x + number) for number in range(8)]
    found = [simulated(array) for array in given]
    for number, array in enumerate(found):
        np.testing.assert_array_equal(array.numpy(), 18 * (x + number))
    hybrid = [simulated(x + number, outputs="device") for number in range(4)]
    for number, array in enumerate(hybrid):
        np.testing.assert_array_equal(array.numpy(), 18 * (x + number))


def test_a_steady_state_allocates_nothing(fake: FakeCuda, model: Model) -> None:
    for _ in range(4):
        model(x)
    fake.forget()
    for _ in range(20):
        model(x)
    for name in ("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate"):
        assert fake.count(name) == 0


# --- threads --------------------------------------------------------------------------------------


def test_host_regions_run_on_several_threads(host: bytes, device: _native.Device) -> None:
    """The kernel writes which stack it ran on: y = 2 (6 x + stack + x)."""
    model = model_of(hybrid_contents(host, first="stacks"), device)

    def stacks(threads: int) -> set[int]:
        with nova.knobs.override(threads=threads):
            return {int(stack) for _ in range(20) for stack in model(0 * x) / 2}

    def stacks_of_submitted(threads: int) -> set[int]:
        with nova.knobs.override(threads=threads):
            return {int(stack) for stack in model.submit(0 * x).result() / 2}

    assert len(stacks(1)) == 1
    assert len(stacks(2)) > 1
    assert all(len(stacks_of_submitted(1)) == 1 for _ in range(20))
    assert any(len(stacks_of_submitted(2)) > 1 for _ in range(20))


# --- stopping -------------------------------------------------------------------------------------


@pytest.fixture(params=["cuda", "sim"])
def slower(request: pytest.FixtureRequest, host: bytes, device: _native.Device) -> Model:
    """A program whose kernels of the host take seconds."""
    where = device if request.param == "cuda" else open_device("sim")
    return model_of(hybrid_contents(host, first="slower"), where)


def wait_for_its_host_region() -> None:
    """Nothing else takes that much of the processors."""
    start = time.process_time()
    while time.process_time() < start + 0.1:
        time.sleep(0.001)


def check_that_it_was_stopped(model: Model) -> None:
    """Kernels before the host region were launched, those after it were not. The model goes on."""
    while counts(model)["runs"] < 1:
        time.sleep(0.001)
    assert counts(model)["launches"] == 3
    np.testing.assert_array_equal(model(x), 18 * x)
    assert (counts(model)["runs"], counts(model)["graph_launches"]) == (2, 2)


def test_a_time_limit_stops_kernels_of_the_host(slower: Model) -> None:
    with pytest.raises(errors.RunTimeoutError):
        slower.run([x], timeout=0.05)
    check_that_it_was_stopped(slower)


def test_a_time_limit_stops_a_run_that_nobody_waits_for(slower: Model) -> None:
    future = slower.submit(x, timeout=0.05)
    check_that_it_was_stopped(slower)
    with pytest.raises(errors.RunTimeoutError):
        future.result()


def test_a_cancelled_run_stops_between_kernels_of_the_host(slower: Model) -> None:
    future = slower.submit(x)
    wait_for_its_host_region()
    assert future.cancel()
    with pytest.raises(errors.RunCancelled, match="between kernels of the host"):
        future.result()
    assert future.cancelled() and not future.cancel()
    check_that_it_was_stopped(slower)


@pytest.mark.parametrize("limit", [None, 60.0])
def test_ctrl_c_stops_kernels_of_the_host(slower: Model, limit: float | None) -> None:
    def interrupt() -> None:
        wait_for_its_host_region()
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        slower.run([x], timeout=limit)
    thread.join()
    assert (limit is None) == isinstance(caught.value, errors.RunInterrupted)
    check_that_it_was_stopped(slower)


def test_a_signal_handler_that_raises_stops_kernels_of_the_host(slower: Model) -> None:
    class Alarm(Exception):
        pass

    def ring(number: int, frame: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Alarm) as caught:
            slower(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert "the run was stopped" in caught.value.__notes__[0]
    check_that_it_was_stopped(slower)


def test_results_do_not_depend_on_threads(simulated: Model) -> None:
    found = []
    for threads in (1, 2, 4):
        with nova.knobs.override(threads=threads):
            found.append(simulated(x / 3).tobytes())
    assert len(set(found)) == 1


@pytest.mark.parametrize("where", ["cuda", "sim"])
def test_threads_share_a_program(model: Model, simulated: Model, where: str) -> None:
    program = model if where == "cuda" else simulated
    start = threading.Barrier(4)

    def work(number: int) -> bool:
        start.wait()
        given = [x + 100 * number + i for i in range(25)]
        return all(np.array_equal(program(a), 18 * a) for a in given)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert counts(program)["runs"] == 100


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["cuda", "sim"])
def test_a_kernel_of_the_host_that_reports(model: Model, simulated: Model, where: str) -> None:
    program = model if where == "cuda" else simulated
    wrong = x.copy()
    wrong[50] = -1
    for _ in range(3):
        with pytest.raises(errors.TaskError) as caught:
            program(wrong)
        assert "kernel refuse_negative, tiles 48 to 60 of 96, model.py:9 reported error 7" in str(
            caught.value
        )
        np.testing.assert_array_equal(program(x), 18 * x)


def test_a_fault_of_the_device_while_the_host_waits(fake: FakeCuda, model: Model) -> None:
    model(x)
    fake.fail("cuEventSynchronize", 700)
    with pytest.raises(errors.DeviceFaultError, match="a kernel failed on Fake 0: an illegal"):
        model(x)
    fake.fail("cuEventSynchronize", 0)
    with pytest.raises(errors.DeviceFaultError, match="an illegal memory access"):
        model(x)
    a = nova.tensor(x, name="a")
    np.testing.assert_array_equal(nova.compile(a * 2, inputs=[a])(x), x * 2)


def test_a_fault_of_the_simulated_device(host: bytes, simulated: Model) -> None:
    """It is in the graph that the host region does not wait for, and told all the same."""
    wrong = model_of(hybrid_contents(host, make_ptx(first=4)), open_device("sim"))
    for _ in range(3):
        with pytest.raises(errors.SimulationError) as caught:
            wrong(x)
        assert (caught.value.fault.kernel, caught.value.fault.kind) == ("add", "bounds")
        np.testing.assert_array_equal(simulated(x), 18 * x)


@pytest.mark.usefixtures("only_new_objects")
def test_any_call_may_fail(fake: FakeCuda, host: bytes) -> None:
    """Whatever the driver refuses, and when: an error, nothing left, and the next goes well."""
    contents = hybrid_contents(host)

    def run_all() -> None:
        model = model_of(contents, fake.device())
        for _ in range(3):
            model(x)

    run_all()
    gc.collect()
    used = fake.library.fake_used()
    # What the driver does not free is lost, also for the tests after this one.
    names = sorted(set(fake.history) - {"cuInit", "cuDevicePrimaryCtxRelease", "cuMemFree"})
    for name in names:
        for after in (1, 2, 4):
            fake.reset()
            fake.fail(name, 999, after)
            try:
                run_all()
            except errors.DeviceCallError as error:
                assert "something else" in str(error)
            fake.fail(name, 0)
            gc.collect()
            assert fake.library.fake_depth() == 0
            assert fake.library.fake_used() == used
            run_all()
            gc.collect()
            assert fake.library.fake_used() == used


def test_code_of_the_host_that_is_not_there(
    host: bytes, device: _native.Device, tmp_path: Path
) -> None:
    from nova.artifact.format import read_artifact
    from nova.artifact.write import write_artifact

    artifact = read_artifact(write_artifact(hybrid_contents(host)))
    block = artifact.file.tables(0)
    row = [((SIZE,), np.dtype("f4"), 0)], [((SIZE,), np.dtype("f4"), -1)]
    with pytest.raises(errors.NovaError, match="pinned to the host, and their code is not there"):
        _native.Program.on_device(
            device, block, "ptx", "sm_80", b".entry scale .entry add", b"", *row, None, 1, None
        )


def test_a_branch_on_the_host_may_return_its_operand() -> None:
    """The gradient of a branch there: one of its cases returns what it gets."""

    def gradient(x: Any) -> Any:
        with nova.device("cpu"):
            scale = nova.cond(x.sum() > 0, lambda v: v + 1, lambda v: v * 2, x)
        return nova.grad(lambda v: (v * scale).sum())(x)

    run, expected = nova.jit(gradient, target="cuda:sm_80", run_mode="sim"), nova.jit(gradient)
    for sign in (1, -1):
        x = np.full(64, sign, "f4")
        np.testing.assert_allclose(run(x), expected(x), rtol=1e-6)
