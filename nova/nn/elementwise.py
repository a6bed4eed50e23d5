"""Modules without parameters that apply one function, with torch's names and defaults."""

from __future__ import annotations

from typing import Any

from nova.graph import Tensor
from nova.nn.module import Module
from nova.ops import F


class _Activation(Module):
    """Takes torch's `inplace`, which changes nothing: a tensor is a value."""

    def __init__(self, inplace: bool = False):
        self.inplace = inplace


class GELU(Module):
    """x times the normal distribution's cdf at x; `approximate="tanh"` is the tanh form."""

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def forward(self, x: Any) -> Tensor:
        return F.gelu(x, approximate=self.approximate)


class ReLU(_Activation):
    """max(x, 0)."""

    def forward(self, x: Any) -> Tensor:
        return F.relu(x)


class SiLU(_Activation):
    """x * sigmoid(x)."""

    def forward(self, x: Any) -> Tensor:
        return F.silu(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Any) -> Tensor:
        return F.tanh(x)


class ReLU6(_Activation):
    """x limited to 0..6."""

    def forward(self, x: Any) -> Tensor:
        return F.relu6(x)


class LeakyReLU(_Activation):
    """x above 0, negative_slope * x below."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, x: Any) -> Tensor:
        return F.leaky_relu(x, negative_slope=self.negative_slope)


class ELU(_Activation):
    """x above 0, alpha * (exp(x) - 1) below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, x: Any) -> Tensor:
        return F.elu(x, alpha=self.alpha)


class CELU(_Activation):
    """x above 0, alpha * (exp(x / alpha) - 1) below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, x: Any) -> Tensor:
        return F.celu(x, alpha=self.alpha)


class SELU(_Activation):
    """The scaled elu of self-normalizing networks."""

    def forward(self, x: Any) -> Tensor:
        return F.selu(x)


class Mish(_Activation):
    """x * tanh(softplus(x))."""

    def forward(self, x: Any) -> Tensor:
        return F.mish(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Any) -> Tensor:
        return F.sigmoid(x)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, x: Any) -> Tensor:
        return F.logsigmoid(x)


class Hardsigmoid(_Activation):
    """x / 6 + 0.5 limited to 0..1."""

    def forward(self, x: Any) -> Tensor:
        return F.hardsigmoid(x)


class Hardswish(_Activation):
    """x * hardsigmoid(x)."""

    def forward(self, x: Any) -> Tensor:
        return F.hardswish(x)


class Hardtanh(_Activation):
    """x limited to min_val..max_val."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        super().__init__(inplace)
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Any) -> Tensor:
        return F.hardtanh(x, min_val=self.min_val, max_val=self.max_val)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Any) -> Tensor:
        return F.softplus(x, beta=self.beta, threshold=self.threshold)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, x: Any) -> Tensor:
        return F.softsign(x)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, x: Any) -> Tensor:
        return F.tanhshrink(x)


class Softshrink(Module):
    """x moved by lambd toward 0."""

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd

    def forward(self, x: Any) -> Tensor:
        return F.softshrink(x, lambd=self.lambd)


class Hardshrink(Module):
    """x, but 0 in -lambd..lambd."""

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd

    def forward(self, x: Any) -> Tensor:
        return F.hardshrink(x, lambd=self.lambd)


class Threshold(_Activation):
    """x above the threshold, else value."""

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        super().__init__(inplace)
        self.threshold, self.value = threshold, value

    def forward(self, x: Any) -> Tensor:
        return F.threshold(x, threshold=self.threshold, value=self.value)


class GLU(Module):
    """The first half of an axis times the sigmoid of the second."""

    def __init__(self, dim: int = -1):
        self.dim = dim

    def forward(self, x: Any) -> Tensor:
        return F.glu(x, axis=self.dim)


class Softmax(Module):
    """exp(x) divided by its sum along an axis."""

    def __init__(self, dim: int = -1):
        self.dim = dim

    def forward(self, x: Any) -> Tensor:
        return F.softmax(x, axis=self.dim)


class LogSoftmax(Module):
    """The logarithm of the softmax along an axis."""

    def __init__(self, dim: int = -1):
        self.dim = dim

    def forward(self, x: Any) -> Tensor:
        return F.log_softmax(x, axis=self.dim)


class Identity(Module):
    """x itself."""

    def forward(self, x: Any) -> Tensor:
        return x


class Flatten(Module):
    """The axes from start_dim to end_dim joined into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Any) -> Tensor:
        return F.flatten(x, self.start_dim, self.end_dim)


class Unflatten(Module):
    """One axis split into several."""

    def __init__(self, dim: int, unflattened_size: Any):
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, x: Any) -> Tensor:
        return F.unflatten(x, self.dim, self.unflattened_size)


class PixelShuffle(Module):
    """(..., C r r, H, W) as (..., C, H r, W r)."""

    def __init__(self, upscale_factor: int):
        self.upscale_factor = upscale_factor

    def forward(self, x: Any) -> Tensor:
        return F.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """The inverse of PixelShuffle."""

    def __init__(self, downscale_factor: int):
        self.downscale_factor = downscale_factor

    def forward(self, x: Any) -> Tensor:
        return F.pixel_unshuffle(x, self.downscale_factor)


class CosineSimilarity(Module):
    """The cosine of the angle of x and y along an axis."""

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        self.dim, self.eps = dim, eps

    def forward(self, x: Any, y: Any) -> Tensor:
        return F.cosine_similarity(x, y, axis=self.dim, eps=self.eps)


class Softmin(Module):
    """The softmax of -x along an axis."""

    def __init__(self, dim: int = -1):
        self.dim = dim

    def forward(self, x: Any) -> Tensor:
        return F.softmax(-x, axis=self.dim)


class Softmax2d(Module):
    """The softmax over the channels of (..., channels, height, width)."""

    def forward(self, x: Any) -> Tensor:
        return F.softmax(x, axis=-3)


class ChannelShuffle(Module):
    """The channels of `groups` interleaved."""

    def __init__(self, groups: int):
        self.groups = groups

    def forward(self, x: Any) -> Tensor:
        return F.channel_shuffle(x, self.groups)


class PairwiseDistance(Module):
    """The p-norm of x - y + eps along the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x: Any, y: Any) -> Tensor:
        return F.pairwise_distance(x, y, p=self.norm, eps=self.eps, keepdims=self.keepdim)
