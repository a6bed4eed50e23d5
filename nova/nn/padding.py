"""Padding of the last axes as modules, with torch's names: constant, reflect, replicate, circular.

`padding` is one width for all sides, or a pair (low, high) for each axis, the last axis first.
"""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.location import user_location
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.nn.module import Module
from nova.ops import F


class _Pad(Module):
    axes: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: int | tuple[int, ...]):
        widths = (padding,) * (2 * self.axes) if isinstance(padding, int) else tuple(padding)
        if len(widths) != 2 * self.axes or not all(type(w) is int for w in widths):
            raise AttributeValueError(
                f"{type(self).__name__}: padding {padding!r}",
                where=str(user_location()),
                hint=f"it is one width, or {2 * self.axes}",
            )
        self.padding = widths

    def forward(self, x: Any) -> Tensor:
        return F.pad_edges(x, self.padding, mode=self.mode)


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: int | tuple[int, ...], value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, x: Any) -> Tensor:
        return F.pad_edges(x, self.padding, mode=self.mode, value=self.value)


class _ZeroPad(_Pad):
    mode = "constant"


class _ReflectionPad(_Pad):
    mode = "reflect"


class _ReplicationPad(_Pad):
    mode = "replicate"


class _CircularPad(_Pad):
    mode = "circular"


class ConstantPad1d(_ConstantPad):
    """The last axis padded with `value`."""

    axes = 1


class ConstantPad2d(_ConstantPad):
    """The last two axes padded with `value`."""

    axes = 2


class ConstantPad3d(_ConstantPad):
    """The last three axes padded with `value`."""

    axes = 3


class ZeroPad1d(_ZeroPad):
    """The last axis padded with zeros."""

    axes = 1


class ZeroPad2d(_ZeroPad):
    """The last two axes padded with zeros."""

    axes = 2


class ZeroPad3d(_ZeroPad):
    """The last three axes padded with zeros."""

    axes = 3


class ReflectionPad1d(_ReflectionPad):
    """The last axis padded by reflection, without the edge."""

    axes = 1


class ReflectionPad2d(_ReflectionPad):
    """The last two axes padded by reflection, without the edge."""

    axes = 2


class ReflectionPad3d(_ReflectionPad):
    """The last three axes padded by reflection, without the edge."""

    axes = 3


class ReplicationPad1d(_ReplicationPad):
    """The last axis padded with the edge."""

    axes = 1


class ReplicationPad2d(_ReplicationPad):
    """The last two axes padded with the edge."""

    axes = 2


class ReplicationPad3d(_ReplicationPad):
    """The last three axes padded with the edge."""

    axes = 3


class CircularPad1d(_CircularPad):
    """The last axis padded with the other end."""

    axes = 1


class CircularPad2d(_CircularPad):
    """The last two axes padded with the other end."""

    axes = 2


class CircularPad3d(_CircularPad):
    """The last three axes padded with the other end."""

    axes = 3
