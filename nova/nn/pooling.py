"""Pooling, resizing and windows as modules, with torch's names and defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from nova.core.location import user_location
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.nn.module import Module
from nova.nn.seeds import next_seed
from nova.ops import F


class _MaxPool(Module):
    function: ClassVar[str]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode, self.return_indices = dilation, ceil_mode, return_indices

    def forward(self, x: Any) -> Any:
        pool: Callable[..., Any] = getattr(F, self.function)
        return pool(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class MaxPool1d(_MaxPool):
    """The largest element of each window of one spatial axis."""

    function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """The largest element of each window of two spatial axes."""

    function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """The largest element of each window of three spatial axes."""

    function = "max_pool3d"


class _FractionalMaxPool(Module):
    function: ClassVar[str]

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ):
        if (output_size is None) == (output_ratio is None):
            raise AttributeValueError(
                f"{type(self).__name__}: needs output_size or output_ratio, not both",
                where=str(user_location()),
            )
        self.kernel_size, self.return_indices = kernel_size, return_indices
        self.output_size, self.output_ratio = output_size, output_ratio
        self._random_samples = _random_samples

    def forward(self, x: Any) -> Any:
        pool: Callable[..., Any] = getattr(F, self.function)
        samples = self._random_samples
        return pool(
            x,
            self.kernel_size,
            output_size=self.output_size,
            output_ratio=self.output_ratio,
            return_indices=self.return_indices,
            _random_samples=samples,
            seed=next_seed() if samples is None else None,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest element of windows of two spatial axes, whose starts are drawn."""

    function = "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest element of windows of three spatial axes, whose starts are drawn."""

    function = "fractional_max_pool3d"


class _MaxUnpool(Module):
    function: ClassVar[str]

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Any, indices: Any, output_size: Any = None) -> Tensor:
        unpool: Callable[..., Tensor] = getattr(F, self.function)
        return unpool(
            x,
            indices,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            output_size=output_size,
        )


class MaxUnpool1d(_MaxUnpool):
    """The inverse of `MaxPool1d`: each element at its index, 0 elsewhere."""

    function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """The inverse of `MaxPool2d`: each element at its index, 0 elsewhere."""

    function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """The inverse of `MaxPool3d`: each element at its index, 0 elsewhere."""

    function = "max_unpool3d"


class _AvgPool(Module):
    function: ClassVar[str]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, x: Any) -> Tensor:
        pool: Callable[..., Tensor] = getattr(F, self.function)
        return pool(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
            divisor_override=self.divisor_override,
        )


class AvgPool1d(_AvgPool):
    """The mean of each window of one spatial axis."""

    function = "avg_pool1d"

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)


class AvgPool2d(_AvgPool):
    """The mean of each window of two spatial axes."""

    function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """The mean of each window of three spatial axes."""

    function = "avg_pool3d"


class _AdaptivePool(Module):
    function: ClassVar[str]

    def __init__(self, output_size: Any):
        self.output_size = output_size

    def forward(self, x: Any) -> Tensor:
        pool: Callable[..., Tensor] = getattr(F, self.function)
        return pool(x, self.output_size)


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Any) -> Any:
        pool: Callable[..., Any] = getattr(F, self.function)
        return pool(x, self.output_size, return_indices=self.return_indices)


class AdaptiveAvgPool1d(_AdaptivePool):
    """The means of windows that divide one spatial axis."""

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptivePool):
    """The means of windows that divide two spatial axes."""

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptivePool):
    """The means of windows that divide three spatial axes."""

    function = "adaptive_avg_pool3d"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maxima of windows that divide one spatial axis."""

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maxima of windows that divide two spatial axes."""

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maxima of windows that divide three spatial axes."""

    function = "adaptive_max_pool3d"


class _LPPool(Module):
    function: ClassVar[str]

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ):
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, x: Any) -> Tensor:
        pool: Callable[..., Tensor] = getattr(F, self.function)
        return pool(
            x, self.norm_type, self.kernel_size, stride=self.stride, ceil_mode=self.ceil_mode
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of one spatial axis."""

    function = "lp_pool1d"


class LPPool2d(_LPPool):
    """The p-norm of each window of two spatial axes."""

    function = "lp_pool2d"


class LPPool3d(_LPPool):
    """The p-norm of each window of three spatial axes."""

    function = "lp_pool3d"


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


class UpsamplingNearest2d(Upsample):
    """Two spatial axes resized by repeating elements."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Two spatial axes resized by bilinear interpolation with aligned corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "bilinear", align_corners=True)
