"""Batch, group and instance normalization with torch's parameter names and state.

Running statistics are buffers: in `state_dict`, not trained. In training mode every call sets them,
also in a compiled step; `update_bn` computes them from batches, as torch's function of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, ClassVar

import numpy as np

from nova.core.dtypes import DType, accumulator
from nova.core.dtypes import dtype as dtype_of
from nova.core.location import user_location
from nova.core.sizes import Size
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError, ModuleError, ShapeError
from nova.graph import Tensor, no_grad
from nova.graph.build import cast
from nova.graph.capture import capturing, current_capture
from nova.nn.layers import flags
from nova.nn.module import Module
from nova.nn.parameter import Buffer, Parameter, has_values
from nova.ops import F
from nova.ops.rules import size_number


def _filled(size: int, value: float, dtype: Any) -> np.ndarray:
    return np.full(size, value, dtype_of(dtype).numpy)


def _bessel_correction(points: Size, dtype: DType) -> Any:
    """n / (n - 1), the factor from the biased to the unbiased variance."""
    if isinstance(points, int):
        return points / max(1, points - 1)
    others = F.maximum(size_number(F, points - 1, dtype), 1.0)
    return size_number(F, points, dtype) / others


def _channels(layer: str, count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise AttributeValueError(f"{layer}: {count!r} channels", where=str(user_location()))
    return int(count)


class _BatchNorm(Module):
    ranks: ClassVar[tuple[int, ...]]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Buffer | None
    running_var: Buffer | None
    num_batches_tracked: Buffer | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: Any = "f32",
    ):
        title = type(self).__name__
        size = _channels(title, num_features)
        flags(title, affine=affine, track_running_stats=track_running_stats)
        self.num_features, self.eps, self.momentum = size, eps, momentum
        self.weight = Parameter(_filled(size, 1, dtype)) if affine else None
        self.bias = Parameter(_filled(size, 0, dtype)) if affine else None
        tracked = track_running_stats
        self.running_mean = Buffer(_filled(size, 0, dtype)) if tracked else None
        self.running_var = Buffer(_filled(size, 1, dtype)) if tracked else None
        self.num_batches_tracked = Buffer(np.zeros((), np.int64)) if tracked else None

    def forward(self, x: Any) -> Tensor:
        if len(x.shape) not in self.ranks or x.shape[1] != self.num_features:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(
                f"{type(self).__name__}: {x.shape} is not of rank {ranks} with "
                f"{self.num_features} channels",
                where=str(user_location()),
            )
        if self.training:
            self._track(x)
        if self.training or self.running_mean is None:
            return self._normalized(x)
        if self._is_outdated():
            raise ModuleError(
                f"{type(self).__name__}: the running statistics are those from before training",
                where=str(user_location()),
                hint="call nova.nn.update_bn(batches, model)",
            )
        return F.batch_norm(
            x,
            self.running_mean.latest,
            self.running_var.latest if self.running_var is not None else None,
            self.weight,
            self.bias,
            training=False,
            eps=self.eps,
        )

    def _normalized(self, x: Tensor) -> Tensor:
        """By the statistics of the batch."""
        return F.batch_norm(x, weight=self.weight, bias=self.bias, training=True, eps=self.eps)

    def _track(self, x: Tensor) -> None:
        """Set the running statistics: those of the batch blended with the ones before."""
        mean, variance, count = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is None or variance is None or count is None or not x.size:
            return
        if current_capture() is None and not has_values(x):
            # A graph built by hand: nothing runs it with this module.
            count.data[...] = -1
            return
        batch_mean, batch_variance = self._statistics(cast(x, accumulator(x.dtype)))
        batches = F.maximum(count.latest, 0) + 1
        share: Any = self.momentum
        if share is None:
            share = self._share(batches, mean.dtype)
        for buffer, batch in ((mean, batch_mean), (variance, batch_variance)):
            buffer.assign(buffer.latest + (cast(batch, buffer.dtype) - buffer.latest) * share)
        count.assign(batches)

    def _share(self, batches: Tensor, dtype: DType) -> Any:
        """The share of a batch without momentum: that of a mean over all batches."""
        return 1.0 / cast(batches, dtype)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the unbiased variance of each channel."""
        axes = (0, *range(2, len(x.shape)))
        correction = _bessel_correction(x.size // self.num_features, x.dtype)
        return F.mean(x, axis=axes), F.var(x, axis=axes, correction=0) * correction

    def _is_outdated(self) -> bool:
        """A count below 0, which is saved with the model, says that training came after it."""
        count = self.num_batches_tracked
        return count is not None and int(count.data) < 0

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches."""
        for buffer, value in (
            (self.running_mean, 0),
            (self.running_var, 1),
            (self.num_batches_tracked, 0),
        ):
            if buffer is not None:
                buffer.data[...] = value


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (batch, channels) or (batch, channels, size)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of (batch, channels, height, width)."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of (batch, channels, depth, height, width)."""

    ranks = (5,)


@user_facing
def update_bn(batches: Iterable[Any], model: Module, *, cumulative: bool = True) -> None:
    """Compute the running statistics of all batch norms from the inputs in `batches`.

    The statistics are reset and averaged over the batches; with `cumulative=False` they are
    updated by the momentum of each layer, as torch's training does. A batch is an input of the
    model, or a tuple whose first item is.
    """
    layers = [
        m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None
    ]
    modes = {module: module.training for module in model.modules()}
    momenta = {layer: layer.momentum for layer in layers}
    try:
        model.train()
        for layer in layers:
            if cumulative:
                layer.reset_running_stats()
                layer.momentum = None
        for batch in batches:
            with no_grad(), capturing() as capture:
                model(batch[0] if isinstance(batch, tuple | list) else batch)
            values = [(buffer, value.numpy()) for buffer, value in capture.assigned.values()]
            for buffer, value in values:
                assert buffer.data is not None
                buffer.data[...] = value
    finally:
        for module, mode in modes.items():
            module.training = mode
        for layer in layers:
            layer.momentum = momenta[layer]


class GroupNorm(Module):
    """Mean 0 and variance 1 over groups of channels; then times weight plus bias per channel."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        dtype: Any = "f32",
    ):
        size, groups = _channels("GroupNorm", num_channels), _channels("GroupNorm", num_groups)
        if size % groups:
            raise AttributeValueError(
                f"GroupNorm: num_channels {size} is not divisible by num_groups {groups}",
                where=str(user_location()),
                hint="the arguments are GroupNorm(num_groups, num_channels)",
            )
        self.num_groups, self.num_channels, self.eps = groups, size, eps
        self.weight = Parameter(_filled(size, 1, dtype)) if affine else None
        self.bias = Parameter(_filled(size, 0, dtype)) if affine else None

    def forward(self, x: Any) -> Tensor:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, eps=self.eps)


class _InstanceNorm(_BatchNorm):
    """Normalizes each channel of each example; running statistics are those of an average one."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        dtype: Any = "f32",
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype=dtype)

    def _normalized(self, x: Tensor) -> Tensor:
        return F.instance_norm(x, self.weight, self.bias, eps=self.eps)

    def _share(self, batches: Tensor, dtype: DType) -> Any:
        return 0.0  # as in torch: without momentum the statistics stay as they are

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        axes = tuple(range(2, len(x.shape)))
        correction = _bessel_correction(prod(x.shape[2:]), x.dtype)
        variance = F.var(x, axis=axes, correction=0) * correction
        return F.mean(F.mean(x, axis=axes), axis=0), F.mean(variance, axis=0)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of (batch, channels, size)."""

    ranks = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of (batch, channels, height, width)."""

    ranks = (4,)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of (batch, channels, depth, height, width)."""

    ranks = (5,)


class LocalResponseNorm(Module):
    """x divided by a power of the mean square of adjacent channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Any) -> Tensor:
        return F.local_response_norm(x, self.size, alpha=self.alpha, beta=self.beta, k=self.k)
