"""`program.serve()`: a program that stays on its device and answers calls through pinned memory.

In: a program with a persistent kernel. Out: a `Server`, which is called as the program is, by any
number of threads. No call launches anything: it fills a slot of a ring, and reads the results when
the device has written that they are complete.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from nova.core.location import user_location
from nova.errors import GraphError, RunTimeoutError
from nova.runtime.ring import MOST_REPETITIONS, Ring, RingProgram


class Server:
    """Answers calls until it is closed; use it in a `with` statement. Thread-safe."""

    def __init__(self, program: RingProgram, params: Callable[[], Sequence[Any]]):
        self._ring = Ring(program)
        self._params = params
        self._arrays = self._ring.arrays()
        self._most = MOST_REPETITIONS
        self._changed = threading.Condition()
        """Guards all below: pushes are in order, and a slot is filled when its results are read."""
        self._unread = [False] * program.slots
        self._is_open = False
        self._error: BaseException | None = None
        self._open()

    def __call__(self, *inputs: Any, timeout: float | None = None) -> Any:
        """The results for these inputs; RunTimeoutError after `timeout` seconds.

        A call that is late runs to its end on the device, and its results are dropped.
        """
        arrays = self._ring.check(inputs, "a call")
        deadline = None if timeout is None else time.monotonic() + timeout
        number = self._push(arrays, deadline)
        if not self._wait(number, deadline):
            dropper = threading.Thread(target=self._drop, args=(number,), daemon=True)
            dropper.start()
            raise _late(timeout)
        results = self._read(number)
        return results[0] if len(results) == 1 else results

    def close(self) -> None:
        """Stop the kernel after the calls that it has; an error of the device is raised."""
        with self._changed:
            if not self._is_open:
                return
            self._is_open = False
            self._changed.notify_all()
            self._ring.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            self.close()

    def _open(self) -> None:
        self._ring.start(*self._arrays, *self._params())
        self._is_open = True

    def _push(self, arrays: tuple[np.ndarray, ...], deadline: float | None) -> int:
        """Fill the next slot when its last results have been read."""
        with self._changed:
            while True:
                self._check_open()
                if self._ring.pushed >= self._most and not any(self._unread):
                    self._ring.close()
                    self._open()
                slot = self._ring.pushed % self._ring.slots
                if not self._unread[slot] and self._ring.pushed < self._most:
                    break
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise _late(None)
                self._changed.wait(left)
            number = self._ring.push(arrays)
            self._unread[slot] = True
            return number

    def _wait(self, number: int, deadline: float | None) -> bool:
        try:
            return self._ring.wait(number, deadline)
        except BaseException as error:
            with self._changed:  # no slot is freed any more: later calls get the same error
                if isinstance(error, Exception):
                    self._error = error
                    self._is_open = False
                    self._changed.notify_all()
            if not isinstance(error, Exception):
                threading.Thread(target=self._drop, args=(number,), daemon=True).start()
            raise

    def _read(self, number: int) -> tuple[np.ndarray, ...]:
        try:
            return self._ring.read(number)
        finally:
            with self._changed:
                self._unread[number % self._ring.slots] = False
                self._changed.notify_all()

    def _drop(self, number: int) -> None:
        """Free the slot of a call whose caller does not wait any more."""
        if self._ring.wait(number):
            self._read(number)

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if not self._is_open:
            raise GraphError(
                "the server is closed",
                where=str(user_location()),
                hint="call program.serve() again",
            )


def _late(timeout: float | None) -> RunTimeoutError:
    limit = "" if timeout is None else f" of {timeout:g} s"
    return RunTimeoutError(
        f"a call of a server was not answered within its time limit{limit}",
        where=str(user_location()),
        hint="another call may take long: the device answers calls in their order",
    )
