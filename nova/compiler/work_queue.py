"""The work queue of a compile: LLVM and ptxas run in threads while the caller lowers MLIR.

MLIR modules of one context are lowered by one thread. The calls of LLVM release the GIL, so
finished units go into the queue (`put`), and up to `threads` threads compile them concurrently with
the lowering of the next units. `put` returns a `Pending`, whose `result` waits. A compile has one
queue for all of its targets: `driver.py` creates it, the stages of `stages.py` put work into it.

With one thread, or if the system cannot create another one, the caller does the work at once: the
compile continues serially. The order in which work finishes has no effect on results, because each
`Pending` belongs to one unit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """Work in the queue. Two threads may both start it: the first one runs it.

    It refers to the work until it is freed: memory of LLVM is released by the thread that frees
    the `Pending`, which is the caller's.
    """

    def __init__(self, work: Callable[[], T]):
        self._work = work
        self._claim = threading.Lock()
        self._future: Future[T] = Future()

    def run(self) -> None:
        """Do the work, unless another thread has started it."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._future.set_result(self._work())
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> T:
        """Wait for the work; its error is raised here."""
        return self._future.result()


class WorkQueue:
    """Work for up to `threads` threads; leaving the `with` waits for all of it."""

    def __init__(self, threads: int):
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def submit(self, work: Callable[[], T]) -> Pending[T]:
        """Add `work`; with one thread it is done at once."""
        pending = Pending(work)
        if self._pool is None:
            pending.run()
            return pending
        try:
            # A thread inherits the knobs of its creator.
            self._pool.submit(copy_context().run, pending.run)
        except RuntimeError:  # no new thread; an existing thread may already have taken the work
            pending.run()
        return pending

    def __enter__(self) -> WorkQueue:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
