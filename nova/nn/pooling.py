"""Pooling, resizing and windows as modules, with torch's names and defaults."""

from __future__ import annotations

from typing import Any

from nova.graph import Tensor
from nova.nn.module import Module
from nova.ops import F


class MaxPool1d(Module):
    """The largest element of each window of 1 spatial axes."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ):
        self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode = (
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
        )

    def forward(self, x: Any) -> Tensor:
        return F.max_pool1d(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            ceil_mode=self.ceil_mode,
        )


class MaxPool2d(Module):
    """The largest element of each window of 2 spatial axes."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ):
        self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode = (
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
        )

    def forward(self, x: Any) -> Tensor:
        return F.max_pool2d(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            ceil_mode=self.ceil_mode,
        )


class MaxPool3d(Module):
    """The largest element of each window of 3 spatial axes."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ):
        self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode = (
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
        )

    def forward(self, x: Any) -> Tensor:
        return F.max_pool3d(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            ceil_mode=self.ceil_mode,
        )


class AvgPool1d(Module):
    """The mean of each window of 1 spatial axes."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad = (
            kernel_size,
            stride,
            padding,
            ceil_mode,
            count_include_pad,
        )

    def forward(self, x: Any) -> Tensor:
        return F.avg_pool1d(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )


class AvgPool2d(Module):
    """The mean of each window of 2 spatial axes."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad = (
            kernel_size,
            stride,
            padding,
            ceil_mode,
            count_include_pad,
        )

    def forward(self, x: Any) -> Tensor:
        return F.avg_pool2d(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )


class AvgPool3d(Module):
    """The mean of each window of 3 spatial axes."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad = (
            kernel_size,
            stride,
            padding,
            ceil_mode,
            count_include_pad,
        )

    def forward(self, x: Any) -> Tensor:
        return F.avg_pool3d(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )


class AdaptiveAvgPool1d(Module):
    """The means of windows that divide 1 spatial axes."""

    def __init__(self, output_size: Any):
        self.output_size = output_size

    def forward(self, x: Any) -> Tensor:
        return F.adaptive_avg_pool1d(x, self.output_size)


class AdaptiveAvgPool2d(Module):
    """The means of windows that divide 2 spatial axes."""

    def __init__(self, output_size: Any):
        self.output_size = output_size

    def forward(self, x: Any) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size)


class AdaptiveAvgPool3d(Module):
    """The means of windows that divide 3 spatial axes."""

    def __init__(self, output_size: Any):
        self.output_size = output_size

    def forward(self, x: Any) -> Tensor:
        return F.adaptive_avg_pool3d(x, self.output_size)


class AdaptiveMaxPool1d(Module):
    """The maxima of windows that divide 1 spatial axes."""

    def __init__(self, output_size: Any):
        self.output_size = output_size

    def forward(self, x: Any) -> Tensor:
        return F.adaptive_max_pool1d(x, self.output_size)


class AdaptiveMaxPool2d(Module):
    """The maxima of windows that divide 2 spatial axes."""

    def __init__(self, output_size: Any):
        self.output_size = output_size

    def forward(self, x: Any) -> Tensor:
        return F.adaptive_max_pool2d(x, self.output_size)


class AdaptiveMaxPool3d(Module):
    """The maxima of windows that divide 3 spatial axes."""

    def __init__(self, output_size: Any):
        self.output_size = output_size

    def forward(self, x: Any) -> Tensor:
        return F.adaptive_max_pool3d(x, self.output_size)


class Upsample(Module):
    """The spatial axes resized by `interpolate`."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ):
        self.size, self.scale_factor, self.mode, self.align_corners = (
            size,
            scale_factor,
            mode,
            align_corners,
        )

    def forward(self, x: Any) -> Tensor:
        return F.interpolate(
            x,
            size=self.size,
            scale_factor=self.scale_factor,
            mode=self.mode,
            align_corners=self.align_corners,
        )


class Unfold(Module):
    """Windows of an image as columns."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        self.kernel_size, self.dilation, self.padding, self.stride = (
            kernel_size,
            dilation,
            padding,
            stride,
        )

    def forward(self, x: Any) -> Tensor:
        return F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """Columns added at their windows."""

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ):
        self.output_size, self.kernel_size, self.dilation, self.padding, self.stride = (
            output_size,
            kernel_size,
            dilation,
            padding,
            stride,
        )

    def forward(self, x: Any) -> Tensor:
        return F.fold(
            x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )
