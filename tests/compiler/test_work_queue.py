"""The work queue of a compile: results, errors, knobs, and systems without another thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nova import knobs
from nova.compiler.stages import StageClock
from nova.compiler.work_queue import WorkQueue


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_result_belongs_to_its_work(threads: int) -> None:
    with WorkQueue(threads) as queue:
        pending = [queue.submit(lambda i=i: i * i) for i in range(20)]
        assert [work.result() for work in pending] == [i * i for i in range(20)]


def test_work_runs_concurrently_with_the_caller() -> None:
    started, go_on = threading.Event(), threading.Event()

    def work() -> bool:
        started.set()
        return go_on.wait(60)

    with WorkQueue(2) as queue:
        pending = queue.submit(work)
        assert started.wait(60)
        go_on.set()
        assert pending.result()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_is_raised_where_the_result_is_taken(threads: int) -> None:
    def fail() -> None:
        raise ValueError("no code today")

    with WorkQueue(threads) as queue:
        pending = queue.submit(fail)
        with pytest.raises(ValueError, match="no code today"):
            pending.result()


def test_threads_have_the_knobs_of_the_caller() -> None:
    with WorkQueue(2) as queue, knobs.override(threads=7):
        assert queue.submit(lambda: knobs.get("threads")).result() == 7


def test_without_another_thread_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    with WorkQueue(3) as queue:
        assert queue.submit(threading.get_ident).result() == threading.get_ident()


def test_time_in_a_nested_stage_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("nova.compiler.stages.time.perf_counter", lambda: now)
    clock = StageClock()
    with clock.measure("loops"):
        now += 1
        with clock.measure("llvm"):
            now += 2
            with clock.measure("ll"):
                now += 4
            now += 8
        now += 16
    with clock.measure("llvm"):
        now += 32
    assert clock.seconds == {"ll": 4, "llvm": 42, "loops": 17}
