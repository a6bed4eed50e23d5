"""Submitted runs, streams, timeouts and Ctrl-C, on compiled programs; threads change no bit."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from task_counts import count_tasks

import nova
from nova import _native, errors, knobs
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables, TaskSpec
from nova.runtime.failures import describe_stall, describe_task, make_reporter

N = 256


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    knobs.threads = 4
    yield
    knobs.reset()


@pytest.fixture(scope="module")
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((N, N), "f4"), rng.random((N, N), "f4")


@nova.jit
def chains(a, b):
    """Two chains that nothing orders, and their sum."""
    x, y = a, b
    for _ in range(4):
        x, y = nova.tanh(x @ a * 0.01), nova.tanh(y @ b * 0.01)
    return x + y


@nova.jit
def long(a):
    """Some seconds."""
    for _ in range(60):
        a = nova.tanh(a @ a * 0.001)
    return a


@pytest.fixture(scope="module")
def big() -> np.ndarray:
    return np.ones((2048, 2048), "f4")


@pytest.fixture
def step() -> nova.Compiled:
    """w <- w + x, where w is donated."""
    x, w = nova.tensor(np.zeros((N, N), "f4")), nova.tensor(np.zeros((N, N), "f4"))
    return nova.compile([], inputs=[x], params=[w], updates={w: w + x})


# --- futures --------------------------------------------------------------------------------------


def test_submit_gives_what_a_call_gives(arrays):
    expected = chains(*arrays)
    program = chains.lower(*arrays)
    assert count_tasks(program) >= 8
    futures = [program.submit(*arrays) for _ in range(4)] + [chains.submit(*arrays)]
    for future in futures:
        np.testing.assert_array_equal(future.result(), expected)
        assert future.done() and not future.cancelled() and future.exception() is None
        assert "finished" in repr(future)


def test_submit_of_nested_arguments():
    @nova.jit
    def f(pair, scale):
        return {"sum": (pair[0] + pair[1]) * scale}

    x = np.arange(4, dtype="f4")
    np.testing.assert_array_equal(f.submit((x, x), scale=2.0).result()["sum"], 4 * x)


def test_out_and_params(step):
    x, w = np.ones((N, N), "f4"), np.zeros((N, N), "f4")
    step.submit(x, w).result()
    assert (w == 1).all()
    a = nova.tensor(x)
    program = nova.compile(a * 3, inputs=[a])
    out = np.zeros_like(x)
    assert program.submit(x, out=out).result() is out
    assert (out == 3).all()


def test_a_callback_may_run_programs(arrays):
    expected, actual, completed = chains(*arrays), [], threading.Event()

    def nested(future: nova.runtime.futures.RunFuture) -> None:
        first = chains(*arrays)
        second = chains.submit(*arrays).result()
        actual.extend([future.result(), first, second])
        completed.set()

    chains.submit(*arrays).add_done_callback(nested)
    assert completed.wait(60)
    for result in actual:
        np.testing.assert_array_equal(result, expected)


def test_callbacks_of_a_run_that_ended_come_at_once(arrays):
    future = chains.submit(*arrays)
    future.result()
    called = []
    until = time.monotonic() + 10
    future.add_done_callback(called.append)
    while not called and time.monotonic() < until:
        time.sleep(0.001)
    assert called == [future]


@pytest.mark.parametrize("error", [LookupError, SystemExit])
@pytest.mark.parametrize("ended", [False, True])
def test_a_callback_that_fails_is_logged(arrays, caplog, ended, error):
    """One that exits does not end the thread that calls them all."""
    completed = threading.Event()

    def fail(_: object) -> None:
        raise error("oh")

    future = chains.submit(*arrays)
    if ended:
        future.result()
    future.add_done_callback(fail)
    future.add_done_callback(lambda _: completed.set())
    assert completed.wait(30)
    assert "oh" in caplog.text or "oh" in str(caplog.records)


def test_await(arrays):
    async def both() -> list[np.ndarray]:
        return await asyncio.gather(*(_await(chains.submit(*arrays)) for _ in range(3)))

    async def _await(future):
        return await future

    for result in asyncio.run(both()):
        np.testing.assert_array_equal(result, chains(*arrays))


def test_a_cancelled_task_cancels_its_run(big):
    async def stop() -> nova.runtime.futures.RunFuture:
        future = long.submit(big)

        async def wait() -> None:
            await future

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 0.05)
        return future

    long.lower(big)
    with pytest.raises(errors.RunCancelled):
        asyncio.run(stop()).result()


def test_result_has_a_timeout(big):
    long.lower(big)
    future = long.submit(big)
    with pytest.raises(errors.ResultTimeoutError, match="not finished") as caught:
        future.result(timeout=0.02)
    assert isinstance(caught.value, TimeoutError) and __file__ in caught.value.where
    assert not future.done() and future.cancel()
    with pytest.raises(errors.RunCancelled, match="stopped"):
        future.result()
    assert future.cancelled() and not future.cancel()


def test_arrays_live_and_are_let_go(arrays):
    a, b = (array.copy() for array in arrays)
    expected = chains(a, b)
    count = sys.getrefcount(a)
    future = chains.submit(a, b)
    result = future.result()
    gc.collect()
    assert sys.getrefcount(a) == count
    np.testing.assert_array_equal(result, expected)


def test_a_program_that_is_gone_still_ends_its_runs(arrays):
    a = nova.tensor(arrays[0])
    program = nova.compile(nova.exp(a) @ nova.exp(a), inputs=[a])
    expected = program(arrays[0])
    future = program.submit(arrays[0])
    del program
    gc.collect()
    np.testing.assert_array_equal(future.result(), expected)


def test_unknown_keywords_are_named(step):
    with pytest.raises(errors.UnknownKeywordError, match="timeuot"):
        step.submit(timeuot=1)


def test_a_checked_program_can_be_submitted(arrays):
    with knobs.override(check="1"):
        x = nova.tensor(arrays[0])
        program = nova.compile(x + 1, inputs=[x])
        future = program.submit(arrays[0])
    assert future.done()
    np.testing.assert_array_equal(future.result(), arrays[0] + 1)


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_orders_updates(step):
    x, w = np.ones((N, N), "f4"), np.zeros((N, N), "f4")
    with nova.NovaStream() as stream:
        for _ in range(20):
            step.submit(x, w)
    step.submit(x, w, stream=stream)
    stream.synchronize()
    assert stream.done() and (w == 21).all()


def test_donated_arrays_in_flight_are_refused(step, big):
    x, w = np.ones((N, N), "f4"), np.zeros((N, N), "f4")
    long.lower(big)
    with nova.NovaStream() as stream:
        gate = long.submit(big)
        step.submit(x, w)
    for again in (lambda: step.submit(x, w), lambda: step(x, w), lambda: step.run([x], [w])):
        with pytest.raises(errors.ArrayInUseError, match="another run") as caught:
            again()
        assert "NovaStream" in caught.value.hint and __file__ in caught.value.where
    gate.cancel()
    with pytest.raises(errors.RunCancelled):
        stream.synchronize()
    assert (w == 0).all(), "the run behind a cancelled one is dropped"
    step(x, w)
    assert (w == 1).all()


def test_synchronize_raises_what_nobody_saw(big):
    long.lower(big)
    stream = nova.NovaStream()
    stream.synchronize()
    first = long.lower(big).submit(big, stream=stream)
    second = long.lower(big).submit(big, stream=stream)
    with pytest.raises(errors.ResultTimeoutError):
        stream.synchronize(timeout=0.01)
    first.cancel()
    with pytest.raises(errors.RunCancelled, match="stopped"):
        stream.synchronize()
    with pytest.raises(errors.RunCancelled, match="before it in its stream") as caught:
        second.result()
    assert isinstance(caught.value.__cause__, errors.RunCancelled)


# --- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
def test_a_run_has_a_timeout(arrays, big, threads):
    knobs.threads = threads
    program = long.lower(big)
    started = time.monotonic()
    with pytest.raises(errors.RunTimeoutError, match="kernel") as caught:
        program.run([big], timeout=0.05)
    assert time.monotonic() - started < 60
    assert "tiles" in str(caught.value) and __file__ in caught.value.what
    np.testing.assert_array_equal(chains(*arrays), chains(*arrays))


def test_ctrl_c_stops_a_run():
    script = """
import os, signal, threading, time
import numpy as np
import nova
from nova import errors

@nova.jit
def long(a):
    for _ in range(60):
        a = nova.tanh(a @ a * 0.001)
    return a

@nova.jit
def short(a):
    return nova.tanh(a @ a)

nova.knobs.threads = 4
a = np.ones((2048, 2048), "f4")
program = long.lower(a)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    program(a)
except KeyboardInterrupt as error:
    assert isinstance(error, errors.RunInterrupted), error
    assert "kernel" in str(error) and "tiles" in str(error)
    assert short(a[:64, :64]).shape == (64, 64)
    print("stopped")
"""
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=280
    )
    assert completed.stdout == "stopped\n", completed.stderr


# --- what went wrong ------------------------------------------------------------------------------

TABLES = Tables(
    buffers=(BufferSpec("arg", 0, 4),),
    kernels=(KernelSpec("matmul_0", "matmul_0", 4, "matrix", 1, 1, "train.py:12"),),
    launches=(LaunchSpec(0, (0,)),),
    workspace_size=0,
    work=1,
    tasks=(TaskSpec(0, 0, 0, 2, (1,)), TaskSpec(0, 1, 2, 4, ())),
)


class _Artifact:
    def tables(self, variant: int) -> Tables:
        return TABLES


report = make_reporter(_Artifact(), 0)  # type: ignore[arg-type]


def test_a_task_is_named_by_kernel_tiles_and_line():
    assert describe_task(TABLES, 1) == "kernel matmul_0, tiles 2 to 4 of 4 (train.py:12)"
    assert describe_task(TABLES, 7) == "task 7"


def test_a_failed_task_is_reported():
    error = report(_native.TASK_REPORTED, 1, (), None, 7, None)
    assert isinstance(error, errors.TaskError)
    assert "matmul_0, tiles 2 to 4 of 4 (train.py:12) reported error 7" in str(error)


def test_a_stall_shows_the_states():
    error = report(_native.STALLED, -1, (), bytes([2, 0]), 0, None)
    assert isinstance(error, errors.StalledError)
    assert "1 waiting, 1 done" in str(error) and "task 1: waiting" in str(error)
    assert "and 92 more" in describe_stall(TABLES, bytes(100))


def test_an_exception_of_a_signal_handler_gets_a_note():
    error = report(_native.CANCELLED, -1, (0,), None, 0, LookupError("rang"))
    assert isinstance(error, LookupError) and "matmul_0" in error.__notes__[0]
    assert isinstance(
        report(_native.CANCELLED, -1, (), None, 0, KeyboardInterrupt()), errors.RunInterrupted
    )


def test_other_failures_have_a_class():
    assert isinstance(report(5, -1, (), None, 0, None), errors.RunError)


def test_nothing_is_submitted_at_exit():
    script = """
import atexit
import numpy as np
import nova
from nova import errors

@nova.jit
def f(a):
    return a + 1

x = np.ones(4, "f4")
f.lower(x)

def late():
    try:
        f.submit(x)
    except errors.SubmitError as error:
        print("refused:", error.what)

atexit.register(late)
f.submit(x).result()
atexit.unregister(late)
atexit.register(late)
import nova._native
nova._native.drain()
"""
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert "refused: the interpreter exits" in completed.stdout, completed.stderr


# --- threads change nothing -----------------------------------------------------------------------


def test_every_thread_count_and_policy_gives_the_same_bits(arrays):
    expected = chains(*arrays)
    for threads in range(1, 17):
        for policy in ("locality", "fifo", "critical-path"):
            knobs.threads, knobs.policy = threads, policy
            np.testing.assert_array_equal(chains(*arrays), expected)


def test_simulated_numa_nodes_give_the_same_bits(arrays):
    expected = chains(*arrays)
    for threads, nodes in ((4, "2+2"), (8, "1+3"), (3, "1+1+1"), (4, "auto")):
        knobs.threads, knobs.numa = threads, nodes
        np.testing.assert_array_equal(chains(*arrays), expected)
    with pytest.raises(nova.errors.KnobError, match="numa cannot be '2\\+0'"):
        knobs.numa = "2+0"


def test_an_override_is_of_its_block(arrays):
    expected = chains(*arrays)
    with knobs.override(threads=8, policy="fifo", affinity=True):
        np.testing.assert_array_equal(chains(*arrays), expected)
        with knobs.override(threads=1):
            np.testing.assert_array_equal(chains(*arrays), expected)
    np.testing.assert_array_equal(chains(*arrays), expected)


def test_threads_and_programs_share_the_pool(arrays, step):
    expected = chains(*arrays)
    programs = [chains.lower(*arrays).__call__, lambda a, b: chains.submit(a, b).result()]
    wrong = []

    def work(number: int) -> None:
        x, w = np.ones((N, N), "f4"), np.zeros((N, N), "f4")
        for i in range(5):
            if not np.array_equal(programs[number % 2](*arrays), expected):
                wrong.append(number)
            step(x, w)
            if w[0, 0] != i + 1:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ten_thousand_runs_leak_nothing():
    a = nova.tensor(np.zeros((32, 512), "f4"))
    program = nova.compile(nova.tanh(a) @ nova.tensor(np.ones((512, 64), "f4")), inputs=[a])
    x = np.ones((32, 512), "f4")
    stream = nova.NovaStream()

    def rounds(count: int) -> int:
        for i in range(count):
            if i % 10:
                program(x)
            else:
                program.submit(x, stream=stream)
        stream.synchronize()
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    rounds(1000)
    sizes = [rounds(1000)] + [rounds(3000) for _ in range(3)]
    growth = [later - earlier for earlier, later in pairwise(sizes)]
    assert min(growth) < 1 << 20, "a leak grows in every round"


# --- the cache of a jitted function ---------------------------------------------------------------


def test_the_cache_of_a_function_is_bounded():
    with knobs.override(jit_programs=2):

        @nova.jit
        def f(a):
            return a + 1

    for size in (1, 2, 3, 1, 1):
        f(np.ones(size, "f4"))
    info = f.cache_info()
    assert (info.hits, info.misses, info.size, info.bound, info.evictions) == (1, 4, 2, 2, 2)
