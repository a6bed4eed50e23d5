"""`NovaStream`: runs that are submitted to it run one after the other.

`Model.submit` uses the stream of the enclosing `with` block. Runs of different streams, and runs
without one, overlap.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any

from nova import _native
from nova.core.location import user_location
from nova.core.user_facing import user_facing_class
from nova.errors import ResultTimeoutError
from nova.runtime.futures import RunFuture

_current: ContextVar[NovaStream | None] = ContextVar("nova_stream", default=None)


@user_facing_class
class NovaStream:
    """An order between submitted runs.

        with nova.NovaStream() as stream:
            step.submit(x, w)      # or step.submit(x, w, stream=stream)
            step.submit(y, w)      # starts after the first has ended
        stream.synchronize()

    If a run fails or is cancelled, the later runs of the stream that were submitted by then
    end with it. Leaving the block does not wait.
    """

    def __init__(self) -> None:
        self._native = _native.Stream()
        self._last: RunFuture | None = None
        self._tokens: list[Token[NovaStream | None]] = []

    def __enter__(self) -> NovaStream:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *exception: Any) -> None:
        _current.reset(self._tokens.pop())

    def note(self, future: RunFuture) -> RunFuture:
        """Remember the newest run; `Model.submit` calls this."""
        self._last = future
        return future

    def done(self) -> bool:
        """Whether all runs of the stream have ended."""
        return self._last is None or self._last.done()

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait for all runs; raises the first error that no future has reported yet."""
        last = self._last
        if last is not None and not last._run.wait(timeout):
            raise ResultTimeoutError(
                f"the runs of the stream have not finished after {timeout} s",
                where=str(user_location()),
            )
        error = self._native.take_error()
        if error is not None:
            raise error


def current_stream() -> NovaStream | None:
    """The stream of the enclosing `with` block of the caller."""
    return _current.get()
