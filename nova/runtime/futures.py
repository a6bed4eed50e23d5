"""`RunFuture`: a submitted run and its result.

`Model.submit` creates one. Waiting is native; the single thread of this module only runs callbacks,
and releases the arrays of runs that nobody waits for.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

from nova import _native
from nova.core.location import user_location
from nova.errors import NovaError, ResultTimeoutError, RunCancelled, SubmitError

_watched: dict[Any, RunFuture] = {}
_lock = threading.Lock()
_server: list[threading.Thread] = []


class RunFuture:
    """The future result of a run, as `concurrent.futures.Future`; it can also be awaited."""

    def __init__(self, run: Any, finish: Callable[[Any], Any] | None = None):
        self._run = run
        self._finish = finish
        self._callbacks: list[Callable[[RunFuture], Any]] = []

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the run; return its result, or raise its error.

        ResultTimeoutError after `timeout` seconds: the run continues.
        """
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del self, error  # the run holds the error, whose traceback holds this frame
        value = self._run.outcome()[0]
        return value if self._finish is None else self._finish(value)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the run; the error that ended it, or None."""
        if not self._run.wait(timeout):
            raise ResultTimeoutError(
                f"the run has not finished after {timeout} s",
                where=str(user_location()),
                hint="it goes on: ask again, or cancel() it",
            )
        error: BaseException | None = self._run.outcome()[1]
        return error

    def done(self) -> bool:
        """Whether the run has ended for any reason."""
        return bool(self._run.done())

    def cancel(self) -> bool:
        """Ask the run to stop between two tasks; False if it has already ended.

        Also False for a run that was enqueued on a device, which cannot be stopped, unless it has
        host regions between the device kernels.
        """
        return bool(self._run.cancel())

    def cancelled(self) -> bool:
        """Whether the run has ended because it was cancelled."""
        return self.done() and isinstance(self._run.outcome()[1], RunCancelled)

    def add_done_callback(self, function: Callable[[RunFuture], Any]) -> None:
        """Call `function(self)` after the run: at once if it has ended, else in a thread of Nova.

        Callbacks run one after the other.
        """
        with _lock:
            if self._run.watch():
                self._callbacks.append(function)
                _watched[self._run] = self
                return
            pending = self._run in _watched
            if pending:  # just ended: after the callbacks that are still queued
                self._callbacks.append(function)
        if not pending:
            self._call(function)

    def _call_back(self) -> None:
        for function in self._callbacks:
            self._call(function)
        self._callbacks.clear()

    def _call(self, function: Callable[[RunFuture], Any]) -> None:
        """Call back, and log errors, because no waiter of the run has asked for them.

        An exit would end the thread that calls them all.
        """
        try:
            function(self)
        except (Exception, SystemExit):
            import logging  # only for errors

            logging.getLogger("nova").exception("a callback of a future failed")

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio  # a caller that awaits has imported it

        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        self.add_done_callback(lambda _: loop.call_soon_threadsafe(wake))
        try:
            yield from waiter
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.result()

    def __repr__(self) -> str:
        state = "finished" if self.done() else "running"
        return f"<RunFuture {state}>"


class EndedRun:
    """The interface that a `RunFuture` needs of a run, for a finished run, e.g. a checked one."""

    def __init__(self, result: Any, error: BaseException | None):
        self._outcome = result, error

    def wait(self, timeout: float | None) -> bool:
        return True

    def done(self) -> bool:
        return True

    def cancel(self) -> bool:
        return False

    def watch(self) -> bool:
        return False

    def outcome(self) -> tuple[Any, BaseException | None]:
        return self._outcome


def submit(
    program: Any,
    arrays: Sequence[Any],
    out: Any,
    stream: Any,
    timeout: float | None,
    outputs: str | None = None,
) -> RunFuture:
    """Start a run of a program, after those of `stream` (a native one, or None).

    `outputs` is where a device stores results without memory from the caller.
    """
    if not _server:
        _start_server()
    placement = () if outputs is None else (outputs,)
    try:
        return RunFuture(program.submit(arrays, out, stream, timeout, *placement))
    except RuntimeError as error:
        if isinstance(error, NovaError):
            raise
        raise SubmitError(str(error), where=str(user_location())) from None


def _start_server() -> None:
    with _lock:
        if _server:
            return
        # Runs in flight use memory that the interpreter frees at exit.
        atexit.register(_native.drain)
        thread = threading.Thread(target=_serve, name="nova-futures", daemon=True)
        thread.start()
        _server.append(thread)


def _serve() -> None:
    while True:
        _dispatch(_native.await_finished())


def _dispatch(runs: list[Any]) -> None:
    for run in runs:
        with _lock:
            future = _watched.pop(run, None)
        if future is not None:
            future._call_back()


def _renew() -> None:
    """In a forked child: the thread does not exist, and runs of the parent count as cancelled."""
    global _lock
    _lock = threading.Lock()
    _server.clear()
    _watched.clear()


os.register_at_fork(after_in_child=_renew)
