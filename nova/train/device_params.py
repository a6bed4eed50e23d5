"""Device arrays of a training step, and their copies on the host.

In: the tensors that a step changes (parameters, state). A `DeviceParams` has a device array
for each, which programs of the step update in place; the host arrays are updated lazily, when
they are read. `nova.train.step` creates one when a step is compiled for a device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from nova import _native
from nova.core.location import user_location
from nova.errors import LostWriteError
from nova.graph.tensor import Tensor
from nova.nn.parameter import Parameter


class DeviceParams:
    """The arrays of tensors on one device; `changed` is set by a run and cleared by a pull.

    A parameter requests a pull whenever its array is read. Its reader may write to the array: the
    next upload compares it with a copy, and takes other values to the device. From then on the
    array is read-only, until the parameter is read again: a write to an array that a caller got
    before the run would be lost. numpy cannot make views read-only that exist already: where there
    may be some, a copy shows at the next read whether one was written to, which is an error.

    Steps on devices may share parameters: a parameter follows the step that ran last, and the
    upload of another step reads it.
    """

    def __init__(self, device: _native.Device):
        self.device = device
        self.changed = False
        self._arrays: dict[Tensor, _native.DeviceArray] = {}
        self._fetches: dict[Tensor, Callable[[], None]] = {}
        self._read: dict[Tensor, np.ndarray] = {}
        """Parameters whose arrays were read since the last run, with their values then."""
        self._locked: set[Tensor] = set()
        """Parameters whose arrays on the host are read-only: the device has the values."""
        self._locked_values: dict[Tensor, np.ndarray] = {}
        """The values at that time of those that may have writable views."""

    @property
    def was_read(self) -> bool:
        """Whether arrays were read since the last upload: programs need `upload` again."""
        return bool(self._read)

    def upload(self, tensors: Iterable[Tensor]) -> tuple[Any, ...]:
        """The arrays of `tensors` on the device; missing ones are copied there."""
        return tuple(self._upload(tensor) for tensor in tensors)

    def _upload(self, tensor: Tensor) -> _native.DeviceArray:
        self._follow(tensor)
        before = self._read.pop(tensor, None)
        if tensor not in self._arrays or (
            before is not None and before.tobytes() != _host_array(tensor).tobytes()
        ):
            self._copy_to_device(tensor)
        self._lock(tensor)
        return self._arrays[tensor]

    def _follow(self, tensor: Tensor) -> None:
        """Let reads of a parameter call `_note_read`; the host gets values of other steps first."""
        if not isinstance(tensor, Parameter):
            return
        fetch = self._fetches.setdefault(tensor, partial(self._note_read, tensor))
        if not tensor.follows(fetch):
            tensor.numpy()
            tensor.follow(fetch)

    def _lock(self, tensor: Tensor) -> None:
        host = _host_array(tensor)
        if isinstance(tensor, Parameter) and host.flags.writeable:
            host.flags.writeable = False
            self._locked.add(tensor)
            if _may_have_views(tensor):
                self._locked_values[tensor] = host.copy()

    def _was_written(self, tensor: Tensor) -> bool:
        """Whether a view was written to since the array is read-only."""
        values = self._locked_values.get(tensor)
        return values is not None and values.tobytes() != _host_array(tensor).tobytes()

    def _unlock(self, tensor: Tensor) -> None:
        if tensor in self._locked:
            self._locked.remove(tensor)
            self._locked_values.pop(tensor, None)
            _host_array(tensor).flags.writeable = True

    def _copy_to_device(self, tensor: Tensor) -> None:
        self._arrays[tensor] = _native.DeviceArray.of(self.device, _host_array(tensor))

    def _note_read(self, tensor: Tensor) -> None:
        self.pull()
        values = self._locked_values.get(tensor) if self._was_written(tensor) else None
        self._unlock(tensor)
        if values is not None:
            np.copyto(_host_array(tensor), values)
            _refuse_lost([tensor])
        if tensor not in self._read:
            self._read[tensor] = _host_array(tensor).copy()

    def pull(self) -> None:
        """Copy values that runs have changed to the host."""
        if not self.changed:
            return
        self.changed = False
        lost = [tensor for tensor in self._arrays if self._was_written(tensor)]
        for tensor, array in self._arrays.items():
            is_locked = tensor in self._locked
            self._unlock(tensor)
            np.copyto(_host_array(tensor), array.numpy())
            if is_locked:
                self._lock(tensor)
        _refuse_lost(lost)

    def push(self) -> None:
        """Take the values that the host has written; programs need `upload` again."""
        self.changed = False
        for tensor in self._arrays:
            self._follow(tensor)
            self._copy_to_device(tensor)
            self._lock(tensor)
        self._read.clear()


def _refuse_lost(tensors: list[Tensor]) -> None:
    if tensors:
        names = ", ".join(tensor.name or repr(tensor) for tensor in tensors)
        raise LostWriteError(
            f"a view of {names} was written to after a step on a device: the device has the "
            "values, and the write is lost",
            where=str(user_location()),
            hint="read parameter.data again after each step, and write to that array",
        )


def _may_have_views(tensor: Tensor) -> bool:
    """Whether other objects refer to the host array, or to the one whose part it is."""
    array = _host_array(tensor)
    # The tensor, this variable and the argument of the call refer to it.
    return array.base is not None or sys.getrefcount(array) > 3


def _host_array(tensor: Tensor) -> np.ndarray:
    """The array on the host as it is, without a pull."""
    array = tensor.host_array if isinstance(tensor, Parameter) else tensor.data
    if array is None:
        raise AssertionError("a tensor that a step changes has data")
    return np.asarray(array, order="C")
