"""Resident programs: the host fills a ring with the data of their repetitions while they run.

In: the native program of `DeviceExecutable.ring`, and its params. Out: the results of each
repetition. `TrainStep.run_many` fills it with the batches of an iterable, `Server` with the
arrays of calls from any number of threads: no call launches anything. docs/persistent-kernels.md
has the protocol.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from nova import _native
from nova.artifact.manifest import TensorSpec
from nova.core.dtypes import array_dtype
from nova.core.location import user_location
from nova.core.records import record
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    GraphError,
    RunTimeoutError,
)
from nova.runtime.futures import RunFuture, submit

SLOTS = 8
"""Repetitions that the host may be ahead of the device."""
MOST_REPETITIONS = 1 << 30
"""Repetitions of one launch: the kernel counts them in 31 bits."""
_LOOK_SECONDS = 0.05
"""A wait for the device looks this often whether the run has failed."""


@record
class RingProgram:
    """A native program with a ring, and its values that have a part in each slot."""

    program: _native.Program
    slots: int
    inputs: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]


class Ring:
    """One launch of a program with a ring. One thread at a time pushes; any may wait and read."""

    def __init__(self, of: RingProgram):
        self.slots = of.slots
        self._program = of.program
        self._inputs, self._results = of.inputs, of.results
        self._lock = threading.Lock()
        self._run: RunFuture | None = None
        self._results_on_device: Any = None
        self._failure: BaseException | None = None
        self.pushed = 0
        """Slots that were filled."""

    def arrays(self) -> tuple[Any, ...]:
        """The arrays of the inputs on the device, which `start` takes first."""
        device = self._program.device
        assert device is not None
        return tuple(
            _native.DeviceArray.of(device, np.zeros((self.slots, *t.shape), _numpy_dtype(t)))
            for t in self._inputs
        )

    def start(self, *arrays: Any) -> None:
        """Launch the program with its arrays: those of the ring, then the params."""
        self.pushed = 0
        self._results_on_device = None
        self._run = submit(self._program, arrays, None, None, None, "device")
        while not self._program.ring_is_running():
            self._check()
            time.sleep(1e-4)

    def check(self, arrays: Sequence[Any], label: str) -> tuple[np.ndarray, ...]:
        """The arrays of a slot, dense and of the right type; an error names them by the label."""
        if len(arrays) != len(self._inputs):
            raise ArgumentCountError(
                f"{label} has {len(arrays)} arrays, and the program takes {len(self._inputs)}",
                where=str(user_location()),
            )
        return tuple(
            _conforming(np.asarray(array), spec, label)
            for array, spec in zip(arrays, self._inputs, strict=True)
        )

    def push(self, arrays: tuple[np.ndarray, ...]) -> int:
        """Fill the next slot, which is free; returns the number of its repetition."""
        self._program.ring_push(arrays)
        self.pushed += 1
        return self.pushed - 1

    def wait(self, number: int, deadline: float | None = None) -> bool:
        """Wait until a repetition is complete, or it is later than `deadline`."""
        left = _LOOK_SECONDS
        while True:
            if deadline is not None:
                left = min(_LOOK_SECONDS, max(deadline - time.monotonic(), 0.0))
            if self._program.ring_wait(number, left):
                return True
            self._check()
            if left == 0:
                return False

    def read(self, number: int) -> tuple[np.ndarray, ...]:
        """The results of a repetition that is complete."""
        results = tuple(np.empty(t.shape, _numpy_dtype(t)) for t in self._results)
        self._program.ring_read(number, results)
        return results

    def close(self) -> None:
        """End the run after the slots that are filled; raises its error if it has failed."""
        with self._lock:
            run, self._run = self._run, None
            if run is None:
                return
            try:
                self._program.ring_end()
                self._results_on_device = run.result()
            except BaseException as error:
                self._failure = error
                raise
            finally:
                self._program.ring_release()

    def _check(self) -> None:
        """Raise the error of a run that has failed."""
        run = self._run
        if run is not None and run.done():
            self.close()
        if self._failure is not None:
            raise self._failure


def _numpy_dtype(spec: TensorSpec) -> np.dtype:
    return array_dtype(spec.dtype).numpy


def _conforming(array: np.ndarray, spec: TensorSpec, label: str) -> np.ndarray:
    expected = _numpy_dtype(spec)
    if array.shape != tuple(spec.shape):
        raise ArgumentShapeError(
            f"{label}: {spec.name!r} has the shape {array.shape}, and the program was compiled for "
            f"{tuple(spec.shape)}",
            where=str(user_location()),
            hint="all batches of a ring, and all calls of a server, have the same shapes",
        )
    if array.dtype != expected:
        raise ArgumentDTypeError(
            f"{label}: {spec.name!r} is of dtype {array.dtype}, and the program was compiled for "
            f"{expected}",
            where=str(user_location()),
        )
    return np.ascontiguousarray(array).reshape(array.shape)


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
