"""Convolution layers with torch's parameter names, shapes, defaults and initial distributions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any, ClassVar

import numpy as np

from nova.core.location import user_location
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.nn import init
from nova.nn.module import Module
from nova.nn.parameter import Parameter
from nova.ops import F

Sizes = int | Sequence[int]
_MODES = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "replicate",
    "circular": "circular",
}


def spatial(layer: str, option: str, value: Any, rank: int, low: int = 1) -> tuple[int, ...]:
    """An int for every spatial axis, or one for each; an error names the layer and the line."""
    values = (value,) * rank if isinstance(value, int | np.integer) else tuple(value)
    if len(values) != rank or any(not isinstance(v, int | np.integer) or v < low for v in values):
        raise AttributeValueError(
            f"{layer}: {option} {value!r}: not {rank} sizes of at least {low}",
            where=str(user_location()),
        )
    return tuple(int(v) for v in values)


class _Convolution(Module):
    """What convolutions and their transposes share: the parameters and their initial values."""

    rank: ClassVar[int]
    bias: Parameter | None

    def _create(
        self,
        in_channels: int,
        out_channels: int,
        shape: tuple[int, ...],
        bias: bool,
        dtype: Any,
        generator: np.random.Generator | None,
    ) -> None:
        name = type(self).__name__
        if self.groups < 1:
            raise AttributeValueError(
                f"{name}: groups is {self.groups}",
                where=str(user_location()),
                hint="it is at least 1",
            )
        for option, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            if count % self.groups:
                raise AttributeValueError(
                    f"{name}: {option} {count} is not divisible by groups {self.groups}",
                    where=str(user_location()),
                    hint="groups divides in_channels and out_channels",
                )
        fan_in = prod(shape[1:])
        bound = 1.0 / sqrt(fan_in) if fan_in else 0.0
        drawn = init.uniform(shape, -bound, bound, dtype=dtype, generator=generator)
        self.weight = Parameter(drawn)
        self.bias = None
        if bias:
            values = init.uniform((out_channels,), -bound, bound, dtype=dtype, generator=generator)
            self.bias = Parameter(values)

    groups: int


class _ConvNd(_Convolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        name = type(self).__name__
        self.kernel_size = spatial(name, "kernel_size", kernel_size, self.rank)
        self.stride = spatial(name, "stride", stride, self.rank)
        self.dilation = spatial(name, "dilation", dilation, self.rank)
        self.groups = groups
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise AttributeValueError(
                f"{name}: padding {padding!r} is unknown",
                where=str(user_location()),
                hint="it is 'same', 'valid', or a size for each axis",
            )
        if padding == "same" and any(step != 1 for step in self.stride):
            raise AttributeValueError(
                f"{name}: padding 'same' needs a stride of 1, not {self.stride}",
                where=str(user_location()),
                hint="pass a size for each axis as padding",
            )
        if padding_mode not in _MODES:
            raise AttributeValueError(
                f"{name}: padding_mode {padding_mode!r} is unknown",
                where=str(user_location()),
                hint=f"it is one of {', '.join(_MODES)}",
            )
        self.padding = (
            padding if isinstance(padding, str) else spatial(name, "padding", padding, self.rank, 0)
        )
        self.padding_mode = padding_mode
        shape = (out_channels, in_channels // max(groups, 1), *self.kernel_size)
        self._create(in_channels, out_channels, shape, bias, dtype, generator)

    def forward(self, x: Any) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            x, padding = F.pad_edges(x, self._widths(), mode=_MODES[self.padding_mode]), 0
        return getattr(F, f"conv{self.rank}d")(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=padding,
            dilation=self.dilation,
            groups=self.groups,
        )

    def _widths(self) -> tuple[int, ...]:
        """The padding as `pad_edges` takes it: the last axis first."""
        if isinstance(self.padding, str):
            spans = [d * (k - 1) for k, d in zip(self.kernel_size, self.dilation, strict=True)]
            pairs = [(0, 0) if self.padding == "valid" else (n // 2, n - n // 2) for n in spans]
        else:
            pairs = [(p, p) for p in self.padding]
        return tuple(width for pair in reversed(pairs) for width in pair)


class Conv1d(_ConvNd):
    """Convolution over one spatial axis: weight (out, in / groups, size)."""

    rank = 1


class Conv2d(_ConvNd):
    """Convolution over two spatial axes: weight (out, in / groups, height, width)."""

    rank = 2


class Conv3d(_ConvNd):
    """Convolution over three spatial axes: weight (out, in / groups, depth, height, width)."""

    rank = 3


class _ConvTransposeNd(_Convolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        name = type(self).__name__
        self.kernel_size = spatial(name, "kernel_size", kernel_size, self.rank)
        self.stride = spatial(name, "stride", stride, self.rank)
        self.padding = spatial(name, "padding", padding, self.rank, 0)
        self.output_padding = spatial(name, "output_padding", output_padding, self.rank, 0)
        self.dilation = spatial(name, "dilation", dilation, self.rank)
        self.groups = groups
        shape = (in_channels, out_channels // max(groups, 1), *self.kernel_size)
        self._create(in_channels, out_channels, shape, bias, dtype, generator)

    def forward(self, x: Any) -> Tensor:
        return getattr(F, f"conv_transpose{self.rank}d")(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            output_padding=self.output_padding,
            groups=self.groups,
            dilation=self.dilation,
        )


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution over one spatial axis: weight (in, out / groups, size)."""

    rank = 1


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution over two spatial axes: weight (in, out / groups, height, width)."""

    rank = 2


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution over three spatial axes."""

    rank = 3
