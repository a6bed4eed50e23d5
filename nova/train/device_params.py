"""Arrays of a training step that live on a device, and their copies on the host.

Comes in: the tensors that a step changes (parameters, state). A `DeviceParams` has an array on the
device for each, which programs of the step update in place; the arrays of the tensors follow when
somebody looks at them. `nova.train.step` makes one when a step is compiled for a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from nova import _native
from nova.graph.tensor import Tensor
from nova.nn.parameter import Parameter


class DeviceParams:
    """The arrays of tensors on one device; `changed` says that a run was made since the last pull.

    A parameter asks for a pull whenever its array is looked at.
    """

    def __init__(self, device: _native.Device):
        self.device = device
        self.changed = False
        self._arrays: dict[Tensor, _native.DeviceArray] = {}

    def place(self, tensors: Iterable[Tensor]) -> tuple[Any, ...]:
        """The arrays of `tensors` on the device; those that are not there are copied."""
        return tuple(self._placed(tensor) for tensor in tensors)

    def _placed(self, tensor: Tensor) -> _native.DeviceArray:
        if tensor not in self._arrays:
            self._arrays[tensor] = _native.DeviceArray.of(self.device, _contiguous(tensor.data))
            if isinstance(tensor, Parameter):
                tensor.follow(self.pull)
        return self._arrays[tensor]

    def pull(self) -> None:
        """Copy what runs have changed to the host."""
        if not self.changed:
            return
        self.changed = False  # first: a parameter's array is looked at below
        for tensor, array in self._arrays.items():
            if tensor.data is not None:
                np.copyto(tensor.data, array.numpy())

    def push(self) -> None:
        """Take the values of the host, which somebody has written; programs need `place` again."""
        self.changed = False
        for tensor in self._arrays:
            self._arrays[tensor] = _native.DeviceArray.of(self.device, _contiguous(tensor.data))


def _contiguous(array: np.ndarray | None) -> np.ndarray:
    if array is None:
        raise AssertionError("a tensor that a step changes has data")
    return np.asarray(array, order="C")
