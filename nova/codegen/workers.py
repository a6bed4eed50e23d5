"""Threads that compile concurrently with the caller, as far as the system gives any.

`Workers.start` begins some work and gives a function that waits for its result. Where the system
has no thread left, or no address space for its stack, the work is done by the caller at once: a
compile goes on serially. `require_room` refuses to begin a compile where LLVM would end the process
for want of memory. Called by `road.py`, `llvm.py` and `compile.py`.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any, TypeVar

from nova.errors import CompileMemoryError

_T = TypeVar("_T")
# Address space that a small compile needs on top: LLVM aborts the process without it.
_ROOM = 96 << 20


class Workers:
    """Up to `count` threads; with one, everything is done by the caller when it is started."""

    def __init__(self, count: int):
        self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def start(self, work: Callable[[], _T]) -> Callable[[], _T]:
        """Begin `work`, and give what waits for its result."""
        once = _Once(work)
        if self._pool is None:
            once.run()
            return once.result
        try:
            # A thread has the knobs of who started it.
            self._pool.submit(copy_context().run, once.run)
        except RuntimeError:  # no thread; one that is there may have taken the work already
            once.run()
        return once.result

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class _Once:
    """Work that two threads may both begin: the first one does it."""

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


def require_room() -> None:
    """CompileMemoryError where the limit on address space (`ulimit -v`) leaves too little."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if soft - used < _ROOM:
        raise CompileMemoryError(
            f"{max(0, soft - used) >> 20} MiB of address space are left, and a compile needs "
            f"{_ROOM >> 20} MiB or more",
            hint="raise the limit (ulimit -v), or load a program that was compiled elsewhere",
        )
