"""A ring: the data of a resident program's repetitions, which the host fills while it runs.

In: the native program of `DeviceExecutable.ring`, and its params. Out: the results of each
repetition. `TrainStep.run_many` fills it with the batches of an iterable, `Server` with the
arrays of calls. docs/persistent-kernels.md has the protocol.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from nova import _native
from nova.artifact.manifest import TensorSpec
from nova.core.dtypes import array_dtype
from nova.core.location import user_location
from nova.core.records import record
from nova.errors import ArgumentCountError, ArgumentDTypeError, ArgumentShapeError
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

    def check(self, arrays: Sequence[Any], what: str) -> tuple[np.ndarray, ...]:
        """The arrays of a slot, dense and of the right type; an error names `what` they are."""
        if len(arrays) != len(self._inputs):
            raise ArgumentCountError(
                f"{what} has {len(arrays)} arrays, and the program takes {len(self._inputs)}",
                where=str(user_location()),
            )
        return tuple(
            _conforming(np.asarray(array), spec, what)
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


def _conforming(array: np.ndarray, spec: TensorSpec, what: str) -> np.ndarray:
    expected = _numpy_dtype(spec)
    if array.shape != tuple(spec.shape):
        raise ArgumentShapeError(
            f"{what}: {spec.name!r} has the shape {array.shape}, and the program was compiled for "
            f"{tuple(spec.shape)}",
            where=str(user_location()),
            hint="all arrays of a run on a ring have the same shapes: leave a smaller batch out",
        )
    if array.dtype != expected:
        raise ArgumentDTypeError(
            f"{what}: {spec.name!r} is of dtype {array.dtype}, and the program was compiled for "
            f"{expected}",
            where=str(user_location()),
        )
    return np.ascontiguousarray(array).reshape(array.shape)
