"""Dropout of elements and of whole channels, with torch's names."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.location import user_location
from nova.errors import AttributeValueError, ShapeError
from nova.graph import Tensor
from nova.nn.layers import Dropout, probability
from nova.nn.module import Module
from nova.nn.seeds import next_seed
from nova.ops import F


class _ChannelDropout(Dropout):
    """In training each channel of each sample is zeroed with probability p, others are scaled."""

    axes: ClassVar[int]

    def forward(self, x: Any) -> Any:
        if not self.training or self.p == 0:
            return x
        rank = len(x.shape)
        if rank not in (self.axes + 1, self.axes + 2):
            raise ShapeError(
                f"{type(self).__name__}: {x.shape} is not (batch, channels) or (channels) and "
                f"{self.axes} axes",
                where=str(user_location()),
            )
        batched = x if rank == self.axes + 2 else F.unsqueeze(x, 0)
        dropped = F.feature_dropout(batched, next_seed(), p=self.p)
        return dropped if rank == self.axes + 2 else F.squeeze(dropped, 0)


class Dropout1d(_ChannelDropout):
    """Dropout of whole channels of (batch, channels, size)."""

    axes = 1


class Dropout2d(_ChannelDropout):
    """Dropout of whole channels of (batch, channels, height, width)."""

    axes = 2


class Dropout3d(_ChannelDropout):
    """Dropout of whole channels of (batch, channels, depth, height, width)."""

    axes = 3


class AlphaDropout(Module):
    """Dropout that keeps mean and variance, for networks of SELU."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        self.p, self.inplace = probability(type(self).__name__, p), inplace

    def forward(self, x: Any) -> Any:
        if not self.training or self.p == 0:
            return x
        return F.alpha_dropout(x, next_seed(), p=self.p)


class FeatureAlphaDropout(AlphaDropout):
    """`AlphaDropout` of whole channels of (batch, channels, ...)."""

    def forward(self, x: Any) -> Any:
        if not self.training or self.p == 0:
            return x
        return F.feature_alpha_dropout(x, next_seed(), p=self.p)


class RReLU(Module):
    """x above 0; below, x times a slope drawn from lower..upper in training, else their mean."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False):
        if not 0 <= lower <= upper:
            raise AttributeValueError(
                f"RReLU: slopes from {lower!r} to {upper!r}", where=str(user_location())
            )
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, x: Any) -> Tensor:
        seed = next_seed() if self.training else None
        result: Tensor = F.rrelu(x, seed, self.lower, self.upper, training=self.training)
        return result
