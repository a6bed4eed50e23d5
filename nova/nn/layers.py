"""Layers with torch's parameter names, shapes, defaults and initial distributions.

Each takes `dtype` (f32) and, if values are drawn, `generator` (a numpy Generator; the default is
that of `manual_seed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from nova.core.dtypes import dtype as dtype_of
from nova.core.location import user_location
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.nn import init
from nova.nn.module import Module
from nova.nn.parameter import Parameter
from nova.nn.seeds import next_seed
from nova.ops import F


class Linear(Module):
    """x @ weight.T + bias; weight is (out_features, in_features)."""

    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        shape = sizes("Linear", (out_features, in_features))
        self.weight = Parameter(init.kaiming_uniform(shape, dtype=dtype, generator=generator))
        self.bias = None
        if bias:
            bound = 1.0 / sqrt(in_features) if in_features else 0.0
            drawn = init.uniform(shape[:1], -bound, bound, dtype=dtype, generator=generator)
            self.bias = Parameter(drawn)

    def forward(self, x: Any) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Embedding(Module):
    """The rows of a (count, features) weight that integer indices select."""

    def __init__(
        self,
        count: int,
        features: int,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        shape = sizes("Embedding", (count, features))
        self.weight = Parameter(init.normal(shape, dtype=dtype, generator=generator))

    def forward(self, index: Any) -> Tensor:
        return F.embedding(self.weight, index)


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes, of sizes `shape`; then times weight plus bias."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: Any = "f32",
    ):
        self.shape = sizes("LayerNorm", shape)
        self.eps = eps
        self.weight = _unit_parameter(self.shape, dtype) if elementwise_affine else None
        self.bias = _zeros(self.shape, dtype) if elementwise_affine and bias else None

    def forward(self, x: Any) -> Tensor:
        return F.layer_norm(x, self.weight, self.bias, ndim=len(self.shape), eps=self.eps)


class RMSNorm(Module):
    """Divided by the root mean square over the last axes, of sizes `shape`; then times weight.

    `eps` None is the machine epsilon of the compute dtype, as in torch.
    """

    weight: Parameter | None

    def __init__(
        self,
        shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: Any = "f32",
    ):
        self.shape = sizes("RMSNorm", shape)
        self.eps = eps
        self.weight = _unit_parameter(self.shape, dtype) if elementwise_affine else None

    def forward(self, x: Any) -> Tensor:
        return F.rms_norm(x, self.weight, ndim=len(self.shape), eps=self.eps)


class Dropout(Module):
    """In training each element is zeroed with probability p and the rest scaled by 1 / (1 - p)."""

    def __init__(self, p: float = 0.5):
        self.p = probability("Dropout", p)

    def forward(self, x: Any) -> Any:
        # If nothing is dropped no seed is drawn: the seeds of other layers do not change.
        if not self.training or self.p == 0:
            return x
        return F.dropout(x, next_seed(), p=self.p)


def sizes(layer: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """Sizes as a tuple; an error names the layer and the user's line."""
    values = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise AttributeValueError(f"{layer}: a size of {value!r}", where=str(user_location()))
    return tuple(int(v) for v in values)


def probability(layer: str, p: float) -> float:
    """p as a float in 0..1; an error names the layer and the user's line."""
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
        raise AttributeValueError(
            f"{layer}: a probability of {p!r}", where=str(user_location()), hint="it is in 0..1"
        )
    return float(p)


def _unit_parameter(shape: tuple[int, ...], dtype: Any) -> Parameter:
    return Parameter(np.ones(shape, dtype_of(dtype).numpy))


def _zeros(shape: tuple[int, ...], dtype: Any) -> Parameter:
    return Parameter(np.zeros(shape, dtype_of(dtype).numpy))
