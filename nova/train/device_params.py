"""Device arrays of a training step, and their copies on the host.

In: the tensors that a step changes (parameters, state). A `DeviceParams` has a device array
for each, which programs of the step update in place; the host arrays are updated lazily, when
they are read. `nova.train.step` creates one when a step is compiled for a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from nova import _native
from nova.graph.tensor import Tensor
from nova.nn.parameter import Parameter


class DeviceParams:
    """The arrays of tensors on one device; `changed` is set by a run and cleared by a pull.

    A parameter requests a pull whenever its array is read.
    """

    def __init__(self, device: _native.Device):
        self.device = device
        self.changed = False
        self._arrays: dict[Tensor, _native.DeviceArray] = {}

    def upload(self, tensors: Iterable[Tensor]) -> tuple[Any, ...]:
        """The arrays of `tensors` on the device; missing ones are copied there."""
        return tuple(self._upload(tensor) for tensor in tensors)

    def _upload(self, tensor: Tensor) -> _native.DeviceArray:
        if tensor not in self._arrays:
            self._arrays[tensor] = _native.DeviceArray.of(self.device, _contiguous(tensor.data))
            if isinstance(tensor, Parameter):
                tensor.follow(self.pull)
        return self._arrays[tensor]

    def pull(self) -> None:
        """Copy values that runs have changed to the host."""
        if not self.changed:
            return
        self.changed = False  # first: a parameter's array is read below
        for tensor, array in self._arrays.items():
            if tensor.data is not None:
                np.copyto(tensor.data, array.numpy())

    def push(self) -> None:
        """Take the values that the host has written; programs need `upload` again."""
        self.changed = False
        for tensor in self._arrays:
            self._arrays[tensor] = _native.DeviceArray.of(self.device, _contiguous(tensor.data))


def _contiguous(array: np.ndarray | None) -> np.ndarray:
    if array is None:
        raise AssertionError("a tensor that a step changes has data")
    return np.asarray(array, order="C")
