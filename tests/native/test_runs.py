"""Runs as tasks: in parallel, submitted, ordered, stopped, and failing, with hand-made programs."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from machine import ARGUMENT, F32, OUTPUT, WORKSPACE, Refused, make_add, make_program

from nova import _native
from nova.artifact.tables import TaskSpec

BIG = 10**9
"""Operations that make a program one that is not run inline."""
LONG = 100_000
"""Tiles of a slow program that a test stops: seconds of work on any processor."""


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    _native.configure(4, 0, False)
    yield
    _native.reap()
    _native.configure(len(os.sched_getaffinity(0)), 0, False)


def tiles(count: int, launch: int = 0, waits: int = 0, successors: tuple[int, ...] = ()):
    """Tasks of one tile each."""
    return [TaskSpec(launch, waits, i, i + 1, successors) for i in range(count)]


def slow_program(kernels, count: int = 40, report=None) -> _native.Program:
    """y = x + 1, a task an element. No test may assume that it takes long: `held_program` does."""
    image, at = kernels
    return make_program(
        image,
        [((count,), F32, False)],
        [((count,), F32, -1)],
        [(ARGUMENT, 0), (OUTPUT, 0)],
        [(at["slow"], count, (0, 1))],
        tasks=tiles(count),
        flops=BIG,
        report=report,
    )


def held_program(kernels, count: int = 2, report=None) -> _native.Program:
    """y = x + gate, whose tasks end only when the test has written a number to the gate."""
    image, at = kernels
    return make_program(
        image,
        [((count,), F32, False), ((1,), F32, False)],
        [((count,), F32, -1)],
        [(ARGUMENT, 0), (ARGUMENT, 1), (OUTPUT, 0)],
        [(at["held"], count, (0, 1, 2))],
        tasks=tiles(count),
        flops=BIG,
        report=report,
    )


def accumulating(kernels, count: int = 20) -> _native.Program:
    """w += x, where w is donated, and takes some milliseconds before it writes."""
    image, at = kernels
    return make_program(
        image,
        [((count,), F32, False), ((count,), F32, True)],
        [((count,), F32, 1)],
        [(ARGUMENT, 0), (ARGUMENT, 1), (WORKSPACE, 0, 4 * count)],
        [(at["slow"], count, (0, 2)), (at["accumulate"], count, (0, 1))],
        workspace_size=128,
        tasks=[
            *tiles(count, 0, 0, (count,)),
            TaskSpec(1, count, 0, 0, (count + 1,)),  # a join
            TaskSpec(1, 1, 0, count, ()),
        ],
        flops=BIG,
    )


class Told(Exception):
    """What `tell` makes; `args` are those it was called with."""


def tell(*given: object) -> Told:
    return Told(*given)


# --- in parallel ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_tasks_run_once_each(kernels, count, policy):
    _native.configure(count, policy, False)
    program = slow_program(kernels)
    assert not program.is_inline
    x = np.arange(40, dtype="f4")
    np.testing.assert_array_equal(program(x), x + 1)


def test_a_join_orders_all_before_all(kernels):
    program = accumulating(kernels)
    x, w = np.arange(20, dtype="f4"), np.ones(20, "f4")
    for round_ in range(5):
        assert program(x, w) is w
        np.testing.assert_array_equal(w, 1 + (round_ + 1) * x)


def test_small_programs_are_inline(kernels):
    assert make_add(kernels).is_inline


def test_pinned_threads_work(kernels):
    _native.configure(2, 0, True)
    x = np.ones(40, "f4")
    np.testing.assert_array_equal(slow_program(kernels)(x), x + 1)


@pytest.mark.parametrize(
    "given", [(0, 0, False), (2, 3, False), (2, -1, False), (_native.MAX_THREADS + 1, 0, False)]
)
def test_wrong_settings_are_refused(given):
    with pytest.raises(ValueError):
        _native.configure(*given)


def test_an_override_is_of_one_thread(kernels):
    program, x = slow_program(kernels), np.ones(40, "f4")
    _native.override(1, 1, False)
    try:
        other = threading.Thread(target=program, args=(x,))
        other.start()
        np.testing.assert_array_equal(program(x), x + 1)
        other.join()
    finally:
        _native.override(0, -1, False)


# --- submitted ------------------------------------------------------------------------------------


def test_submit_and_wait(kernels):
    program, x, gate = held_program(kernels), np.arange(2, dtype="f4"), np.zeros(1, "f4")
    run = program.submit([x, gate])
    assert not run.wait(0) and not run.wait(0.01) and not run.done()
    gate[0] = 1
    assert run.wait(30) and run.done()
    result, error = run.outcome()
    assert error is None
    np.testing.assert_array_equal(result, x + 1)
    assert not run.cancel(), "it has ended"
    assert run.outcome()[0] is result


def test_outcome_needs_an_end(kernels):
    gate = np.zeros(1, "f4")
    run = held_program(kernels).submit([np.ones(2, "f4"), gate])
    with pytest.raises(RuntimeError, match="not ended"):
        run.outcome()
    gate[0] = 1
    run.wait(None)


def test_a_small_program_can_be_submitted(kernels):
    x = np.arange(8, dtype="f4")
    run = make_add(kernels).submit((x, x))
    run.wait(None)
    np.testing.assert_array_equal(run.outcome()[0], 2 * x)


def test_a_program_without_launches_can_be_submitted(kernels):
    program = make_program(kernels[0], [], [])
    run = program.submit(())
    assert run.wait(10) and run.outcome() == ((), None)
    assert program.run([], timeout=10) == ()


def test_a_dropped_run_is_reaped(kernels):
    program, x = slow_program(kernels, 4), np.ones(4, "f4")
    alive = weakref.ref(x)
    program.submit([x])
    del x
    until = time.monotonic() + 10
    while alive() is not None and time.monotonic() < until:
        time.sleep(0.01)
        _native.reap()
    assert alive() is None


@pytest.fixture
def gate(kernels) -> Iterator[_native.Stream]:
    """A stream that is busy for the time of a test: what is submitted to it stays in flight."""
    stream, closed = _native.Stream(), np.zeros(1, "f4")
    run = held_program(kernels).submit([np.ones(2, "f4"), closed], None, stream)
    yield stream
    closed[0] = 1
    run.wait(None)


def test_what_a_run_in_flight_writes_is_refused(kernels, gate):
    program, x, w = accumulating(kernels), np.ones(20, "f4"), np.zeros(20, "f4")
    program.submit([x, w], None, gate)
    for again in (lambda: program.submit([x, w]), lambda: program(x, w), lambda: program(w, x)):
        with pytest.raises(Refused) as caught:
            again()
        assert caught.value.args[0] == -4
    with pytest.raises(Refused):
        program.submit([x, w], None, _native.Stream())
    reader = make_add(kernels, (20,))
    with pytest.raises(Refused) as caught:
        reader(x, w[:])
    assert caught.value.args[:2] == (-4, 1)
    with pytest.raises(Refused) as caught:
        reader(x, x, out=w)
    assert caught.value.args == (-4, 0, True)
    np.testing.assert_array_equal(reader(x, x), 2 * x)


def test_arrays_and_program_live_until_the_end(kernels):
    stream, gate = _native.Stream(), np.zeros(1, "f4")
    held_program(kernels).submit([np.ones(2, "f4"), gate], None, stream)
    program = slow_program(kernels)
    x = np.ones(40, "f4")
    alive = weakref.ref(x)
    run = program.submit([x], None, stream)
    del x, program
    gc.collect()
    assert alive() is not None
    gate[0] = 1
    run.wait(None)
    assert alive() is None, "it holds the result only"
    np.testing.assert_array_equal(run.outcome()[0], np.full(40, 2, "f4"))


def test_what_has_ended_is_free(kernels):
    program, x, w = accumulating(kernels), np.ones(20, "f4"), np.zeros(20, "f4")
    run = program.submit([x, w])
    run.wait(None)
    program(x, w)
    np.testing.assert_array_equal(w, 2 * x)


@pytest.mark.parametrize("policy", [0, 1, 2])
def test_a_stream_orders_runs(kernels, policy):
    _native.configure(4, policy, False)
    program, x, w = accumulating(kernels), np.ones(20, "f4"), np.zeros(20, "f4")
    stream = _native.Stream()
    runs = [program.submit([x, w], None, stream) for _ in range(10)]
    runs[-1].wait(None)
    assert all(run.done() for run in runs)
    np.testing.assert_array_equal(w, 10 * x)
    assert stream.take_error() is None


def test_many_threads_and_programs(kernels):
    programs = [slow_program(kernels, count) for count in (3, 8, 20, 40)]
    wrong = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(10):
            program, count = programs[number % 4], (3, 8, 20, 40)[number % 4]
            x = rng.random(count, "f4")
            if number % 2:
                run = program.submit([x])
                run.wait(None)
                result = run.outcome()[0]
            else:
                result = program(x)
            if not np.array_equal(result, x + 1):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


# --- stopped --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 4])
def test_timeout(kernels, count):
    _native.configure(count, 0, False)
    program, x = slow_program(kernels, LONG, tell), np.ones(LONG, "f4")
    with pytest.raises(Told) as caught:
        program.run([x], timeout=0.02)
    status, task, running, states, _, cause, _ = caught.value.args
    assert (status, task, states, cause) == (_native.TIMEOUT, -1, None, None)
    assert 1 <= len(running) <= count and all(0 <= task < LONG for task in running)
    small = slow_program(kernels, 40, tell)
    np.testing.assert_array_equal(small.run([x[:40]], timeout=60), x[:40] + 1)


def test_a_submitted_run_has_a_timeout_too(kernels):
    run = slow_program(kernels, LONG, tell).submit([np.ones(LONG, "f4")], timeout=0.02)
    assert run.wait(30)
    assert run.outcome()[1].args[0] == _native.TIMEOUT


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1"])
def test_a_timeout_is_a_number_of_seconds(kernels, timeout):
    error = TypeError if isinstance(timeout, str) else ValueError
    with pytest.raises(error):
        slow_program(kernels).run([np.ones(40, "f4")], timeout=timeout)


def test_cancel(kernels):
    program, x = slow_program(kernels, LONG, tell), np.ones(LONG, "f4")
    run = program.submit([x])
    time.sleep(0.01)
    assert run.cancel()
    assert run.wait(30)
    assert run.outcome()[1].args[0] == _native.CANCELLED
    small = slow_program(kernels)
    np.testing.assert_array_equal(small(x[:40]), x[:40] + 1)


def test_a_failed_run_takes_along_those_behind_it(kernels):
    program, x = slow_program(kernels, LONG, tell), np.ones(LONG, "f4")
    stream = _native.Stream()
    first, second, third = [program.submit([x], None, stream) for _ in range(3)]
    assert first.cancel() and third.wait(30)
    assert first.outcome()[1].args[0] == _native.CANCELLED
    for later in (second, third):
        status, task, *_ = later.outcome()[1].args
        assert (status, task) == (_native.CANCELLED, -2)
    assert stream.take_error() is None, "each was seen"
    again = program.submit([x], None, stream, 0.01)
    again.wait(None)
    assert stream.take_error() is again.outcome()[1]


@pytest.mark.parametrize("count", [1, 4])
def test_a_signal_handler_stops_a_run(kernels, count):
    _native.configure(count, 0, False)
    program, x = slow_program(kernels, LONG, tell), np.ones(LONG, "f4")

    def ring(*_: object) -> None:
        raise LookupError("rang")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Told) as caught:
            program(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    status, _, running, _, _, cause, _ = caught.value.args
    assert status == _native.CANCELLED and running and isinstance(cause, LookupError)
    np.testing.assert_array_equal(slow_program(kernels)(x[:40]), x[:40] + 1)


# --- failing --------------------------------------------------------------------------------------


def reporting(kernels, report=None) -> _native.Program:
    image, at = kernels
    return make_program(
        image,
        [((40,), F32, False)],
        [((40,), F32, -1)],
        [(ARGUMENT, 0), (OUTPUT, 0)],
        [(at["refuse_negative"], 40, (0, 1))],
        tasks=tiles(40),
        reports=True,
        report=report,
    )


@pytest.mark.parametrize("count", [1, 4])
def test_a_kernel_reports_an_error(kernels, count):
    _native.configure(count, 0, False)
    program, x = reporting(kernels, tell), np.ones(40, "f4")
    assert not program.is_inline
    np.testing.assert_array_equal(program(x), x)
    x[17] = -1
    with pytest.raises(Told) as caught:
        program(x)
    status, task, _, _, number, _, _ = caught.value.args
    assert (status, task, number) == (_native.TASK_REPORTED, 17, 7)
    run = program.submit([x])
    run.wait(None)
    assert run.outcome()[1].args[1] == 17


def test_without_a_report_it_is_a_plain_error(kernels):
    with pytest.raises(RuntimeError, match="reported"):
        reporting(kernels)(np.full(40, -1, "f4"))


# --- other processes ------------------------------------------------------------------------------

_SCRIPT = """
import os, signal, sys, time
sys.path.insert(0, {folder!r})
import numpy as np
from pathlib import Path
from machine import build_image, compile_text
from test_runs import accumulating, held_program, slow_program, tell
from nova import _native
text, at = compile_text(Path({temporary!r}))
kernels = build_image(text), at
_native.configure(4, 0, False)
x = np.ones(40, "f4")
"""


def run_script(tmp_path: Path, body: str) -> str:
    """Output of a process that runs `body` behind the imports above."""
    head = _SCRIPT.format(folder=str(Path(__file__).parent), temporary=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", head + body], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_fork_after_use(tmp_path):
    out = run_script(
        tmp_path,
        """
program = slow_program(kernels)
program(x)
held, gate = held_program(kernels, 4, tell), np.zeros(1, "f4")
run = held.submit([np.ones(4, "f4"), gate])
child = os.fork()
if child == 0:
    assert run.wait(10) and run.outcome()[1].args[0] == _native.CANCELLED
    gate[0] = 1
    assert (program(x) == 2).all() and (held(np.ones(4, "f4"), gate) == 2).all()
    again = program.submit([x])
    assert again.wait(30) and (again.outcome()[0] == 2).all()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
gate[0] = 1
assert run.wait(60) and (run.outcome()[0] == 2).all()
print("both")
""",
    )
    assert out == "both\n"


def test_exit_with_runs_in_flight(tmp_path):
    out = run_script(
        tmp_path,
        """
import atexit
atexit.register(lambda: print(run.done(), flush=True))
atexit.register(_native.drain)
run = slow_program(kernels, 200).submit([np.ones(200, "f4")])
""",
    )
    assert out == "True\n"


def test_await_finished_gives_watched_runs(tmp_path):
    """In a process of its own: the thread behind futures waits there as well."""
    out = run_script(
        tmp_path,
        """
watched = slow_program(kernels, 400).submit([np.ones(400, "f4")])
assert watched.watch()
while watched not in _native.await_finished():
    pass
print(watched.done(), watched.watch())
""",
    )
    assert out == "True False\n"


def test_nothing_is_submitted_after_drain(tmp_path):
    out = run_script(
        tmp_path,
        """
_native.drain()
try:
    slow_program(kernels).submit([x])
except RuntimeError as error:
    print(error)
print(slow_program(kernels)(x)[0])
""",
    )
    assert "interpreter exits" in out and out.endswith("2.0\n")


def test_an_idle_process_uses_no_cpu(tmp_path):
    out = run_script(
        tmp_path,
        """
slow_program(kernels)(x)
run = slow_program(kernels).submit([x]); run.wait(None)
time.sleep(0.1)
before = time.process_time()
time.sleep(1.0)
print(time.process_time() - before)
""",
    )
    assert float(out) < 0.2, "a thread that polls takes a second"
