"""Ctrl-C during training: the current step ends first, so that the state is consistent."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class DeferredInterrupt:
    """Inside the block the first Ctrl-C after `arm` sets `pending`; every other one acts at once.

    Only the main thread gets signals, and a handler that is not Python's is not replaced:
    in these cases nothing is deferred.
    """

    def __init__(self) -> None:
        self.pending = False
        self._armed = False
        self._before: Any = None

    def arm(self) -> None:
        """From here on an interrupt waits for the end of a step."""
        self._armed = True

    def __enter__(self) -> DeferredInterrupt:
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            self._before = handler
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._armed and not self.pending:
            self.pending = True
        else:
            self._before(number, frame)
