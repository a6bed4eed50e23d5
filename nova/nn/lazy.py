"""Lazy modules: layers that take the number of their input features from the first call.

The first call outside of a traced function creates the parameters, and the module becomes the
ordinary one (`LazyLinear` becomes `Linear`), as in torch. Before that it has no parameters: asking
for them is an error, so that no optimizer is created without them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.location import user_location
from nova.core.user_facing import check_call
from nova.errors import ModuleError, ShapeError
from nova.graph.capture import current_capture
from nova.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from nova.nn.layers import Linear
from nova.nn.module import Module
from nova.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)


class _LazyModule(Module):
    """A module that becomes one of class `becomes` at its first call.

    The size of axis `axis` of the input is the first argument of that class.
    """

    is_initialized = False
    becomes: ClassVar[type[Module]]
    axis: ClassVar[int]

    def __init__(self, *args: Any, **kwargs: Any):
        check_call(self.becomes.__init__, type(self).__name__, (self, 1, *args), kwargs)
        self._arguments = args, kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = type(self).__name__
        if current_capture() is not None:
            raise ModuleError(
                f"{name} has no parameters yet, and the function is compiled",
                where=str(user_location()),
                hint="call the model once on an example before nova.jit or a training step",
            )
        shape = getattr(args[0], "shape", ()) if args else ()
        if len(shape) < (-self.axis if self.axis < 0 else self.axis + 1):
            raise ShapeError(
                f"{name}: an input of shape {tuple(shape)} has no axis {self.axis}",
                where=str(user_location()),
            )
        positional, keywords = self._arguments
        module = self.becomes(shape[self.axis], *positional, **keywords)
        del self._arguments
        # A class variable of another type, which mypy does not assign to an instance's class.
        self.__class__ = self.becomes  # type: ignore[assignment]
        for attribute, value in vars(module).items():
            setattr(self, attribute, value)
        return self(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, not initialized>"


class LazyLinear(_LazyModule):
    """`Linear` whose in_features is the last size of its first input."""

    becomes, axis = Linear, -1


class LazyConv1d(_LazyModule):
    """`Conv1d` whose in_channels is that of its first input."""

    becomes, axis = Conv1d, -2


class LazyConv2d(_LazyModule):
    """`Conv2d` whose in_channels is that of its first input."""

    becomes, axis = Conv2d, -3


class LazyConv3d(_LazyModule):
    """`Conv3d` whose in_channels is that of its first input."""

    becomes, axis = Conv3d, -4


class LazyConvTranspose1d(_LazyModule):
    """`ConvTranspose1d` whose in_channels is that of its first input."""

    becomes, axis = ConvTranspose1d, -2


class LazyConvTranspose2d(_LazyModule):
    """`ConvTranspose2d` whose in_channels is that of its first input."""

    becomes, axis = ConvTranspose2d, -3


class LazyConvTranspose3d(_LazyModule):
    """`ConvTranspose3d` whose in_channels is that of its first input."""

    becomes, axis = ConvTranspose3d, -4


class LazyBatchNorm1d(_LazyModule):
    """`BatchNorm1d` whose num_features is that of its first input."""

    becomes, axis = BatchNorm1d, 1


class LazyBatchNorm2d(_LazyModule):
    """`BatchNorm2d` whose num_features is that of its first input."""

    becomes, axis = BatchNorm2d, 1


class LazyBatchNorm3d(_LazyModule):
    """`BatchNorm3d` whose num_features is that of its first input."""

    becomes, axis = BatchNorm3d, 1


class LazyInstanceNorm1d(_LazyModule):
    """`InstanceNorm1d` whose num_features is that of its first input."""

    becomes, axis = InstanceNorm1d, -2


class LazyInstanceNorm2d(_LazyModule):
    """`InstanceNorm2d` whose num_features is that of its first input."""

    becomes, axis = InstanceNorm2d, -3


class LazyInstanceNorm3d(_LazyModule):
    """`InstanceNorm3d` whose num_features is that of its first input."""

    becomes, axis = InstanceNorm3d, -4
