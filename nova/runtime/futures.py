"""`RunFuture`: a run that was submitted, and its result when it is there.

`Model.submit` makes one. Waiting is native; the one thread of this module only calls back, and
lets go of the arrays of runs that nobody waits for.
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
    """The result of a run, later. As `concurrent.futures.Future`, and it can be awaited."""

    def __init__(self, run: Any, finish: Callable[[Any], Any] | None = None):
        self._run = run
        self._finish = finish
        self._callbacks: list[Callable[[RunFuture], Any]] = []

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the run; its result, or its error raised.

        ResultTimeoutError after `timeout` seconds: the run goes on then.
        """
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del self, error  # the run has the error, whose traceback has this frame
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
        """Whether the run has ended, in whatever way."""
        return bool(self._run.done())

    def cancel(self) -> bool:
        """Ask the run to stop between two tasks; False when it has ended already.

        Also False for a run that a device has been given: nobody can take that back, unless kernels
        of the host are between those of the device.
        """
        return bool(self._run.cancel())

    def cancelled(self) -> bool:
        """Whether the run has ended because it was cancelled."""
        return self.done() and isinstance(self._run.outcome()[1], RunCancelled)

    def add_done_callback(self, function: Callable[[RunFuture], Any]) -> None:
        """Call `function(self)` when the run has ended: at once if it has, else in a thread of
        Nova, one callback after the other."""
        with _lock:
            if self._run.watch():
                self._callbacks.append(function)
                _watched[self._run] = self
                return
            pending = self._run in _watched
            if pending:  # ended a moment ago: behind those that are yet to be called
                self._callbacks.append(function)
        if not pending:
            self._call(function)

    def _call_back(self) -> None:
        for function in self._callbacks:
            self._call(function)
        self._callbacks.clear()

    def _call(self, function: Callable[[RunFuture], Any]) -> None:
        """A callback's error is logged, whether the run had ended before or not: nobody who
        waits for the run has asked for it. An exit would end the thread that calls them all."""
        try:
            function(self)
        except (Exception, SystemExit):
            import logging  # only on the way to an error

            logging.getLogger("nova").exception("a callback of a future failed")

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio  # whoever awaits has it

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
    """What a `RunFuture` needs of a run, for one that has ended: e.g. a checked one."""

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
    """Start a run of a program, behind those of `stream` (a native one, or None).

    `outputs` is where a device leaves results that nobody brings memory for.
    """
    if not _server:
        _start_server()
    place = () if outputs is None else (outputs,)
    try:
        return RunFuture(program.submit(arrays, out, stream, timeout, *place))
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
    """In a child of fork: the thread is not there, and runs of the parent count as cancelled."""
    global _lock
    _lock = threading.Lock()
    _server.clear()
    _watched.clear()


os.register_at_fork(after_in_child=_renew)
