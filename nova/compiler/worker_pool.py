"""Threads that compile concurrently with the caller, if the system can create them.

`Workers.start` starts work and returns a function that waits for its result. If the system has no
thread left, or no address space for its stack, the caller does the work at once: the compile
continues serially. Called by `session.py` and `llvm.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

_T = TypeVar("_T")


class Workers:
    """Up to `count` threads; with one, the caller runs all work when it is started."""

    def __init__(self, count: int):
        self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def start(self, work: Callable[[], _T]) -> Callable[[], _T]:
        """Start `work`, and return a function that waits for its result."""
        once = _Once(work)
        if self._pool is None:
            once.run()
            return once.result
        try:
            # A thread inherits the knobs of its creator.
            self._pool.submit(copy_context().run, once.run)
        except RuntimeError:  # no new thread; an existing thread may already have taken the work
            once.run()
        return once.result

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class _Once:
    """Work that two threads may both start: the first one runs it."""

    def __init__(self, work: Callable[[], Any]):
        self._work = work
        self._claim = threading.Lock()
        self._future: Future[Any] = Future()

    def run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._future.set_result(self._work())
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> Any:
        return self._future.result()
