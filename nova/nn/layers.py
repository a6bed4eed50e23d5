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
from nova.graph.spelling import takes_torch_keywords
from nova.nn import init
from nova.nn.module import Module
from nova.nn.parameter import Parameter
from nova.nn.seeds import next_seed
from nova.ops import F
from nova.ops.rules import is_real


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
    """The rows of a (count, features) weight that integer indices select.

    The row `padding_idx` is 0 at first, and gets no gradient.
    """

    @takes_torch_keywords
    def __init__(
        self,
        count: int,
        features: int,
        padding_idx: int | None = None,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        shape = sizes("Embedding", (count, features))
        self.weight = Parameter(init.normal(shape, dtype=dtype, generator=generator))
        self.padding_idx = padding_idx
        if padding_idx is not None:
            self.padding_idx = _row_number("Embedding", padding_idx, shape[0])
            self.weight.data[self.padding_idx] = 0

    def forward(self, index: Any) -> Tensor:
        rows = F.embedding(self.weight, index)
        if self.padding_idx is None:
            return rows
        is_padding = F.unsqueeze(F.eq(index, self.padding_idx), -1)
        return F.where(is_padding, F.detach(rows), rows)


class EmbeddingBag(Module):
    """The sum, mean or maximum of the rows that each row of an integer (bags, size) index selects.

    A vector of indices has `offsets`, the position where each bag starts; with
    `include_last_offset` the last one is the end of the last bag. With `padding_idx`, rows of that
    index do not count. `nova.embedding_bag` has the options of a call.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        padding_idx: int | None = None,
        include_last_offset: bool = False,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        shape = sizes("EmbeddingBag", (num_embeddings, embedding_dim))
        if mode not in ("sum", "mean", "max"):
            raise AttributeValueError(
                f"EmbeddingBag: mode {mode!r}",
                where=str(user_location()),
                hint="it is sum, mean or max",
            )
        self.mode, self.padding_idx = mode, padding_idx
        self.include_last_offset = include_last_offset
        self.weight = Parameter(init.normal(shape, dtype=dtype, generator=generator))
        if padding_idx is not None:
            self.weight.data[padding_idx] = 0

    def forward(self, index: Any, offsets: Any = None, per_sample_weights: Any = None) -> Tensor:
        result: Tensor = F.embedding_bag(
            index,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
        return result


class PReLU(Module):
    """x above 0, weight * x below; the weight is trained: one, or one per channel."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = "f32"):
        shape = sizes("PReLU", (num_parameters,))
        self.weight = Parameter(np.full(shape, init, dtype_of(dtype).numpy))

    def forward(self, x: Any) -> Tensor:
        return F.prelu(x, self.weight)


class Bilinear(Module):
    """x weight y + bias for each output; weight is (out_features, in1_features, in2_features)."""

    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        shape = sizes("Bilinear", (out_features, in1_features, in2_features))
        bound = 1.0 / sqrt(in1_features) if in1_features else 0.0
        options: dict[str, Any] = {"dtype": dtype, "generator": generator}
        self.weight = Parameter(init.uniform(shape, -bound, bound, **options))
        self.bias = Parameter(init.uniform(shape[:1], -bound, bound, **options)) if bias else None

    def forward(self, x: Any, y: Any) -> Tensor:
        product = F.einsum("...i,oij,...j->...o", x, self.weight, y)
        return product if self.bias is None else product + self.bias


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes, of sizes `shape`; then times weight plus bias."""

    weight: Parameter | None
    bias: Parameter | None

    @takes_torch_keywords
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

    @takes_torch_keywords
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

    def __init__(self, p: float = 0.5, inplace: bool = False):
        # A tensor is a value: `inplace` changes nothing.
        self.p, self.inplace = probability("Dropout", p), inplace

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


def flags(layer: str, **values: Any) -> None:
    """Refuses options that are not bools: a misplaced argument must not count as True."""
    for name, value in values.items():
        if not isinstance(value, bool | np.bool_):
            raise AttributeValueError(
                f"{layer}: {name} is {value!r}, not a bool",
                where=str(user_location()),
                hint="name the options: `help` of the layer lists them in order",
            )


def _row_number(layer: str, number: Any, count: int) -> int:
    """A row of a weight as a number in 0..count-1; a negative one counts from the end."""
    is_number = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not is_number or not -count <= number < count:
        raise AttributeValueError(
            f"{layer}: padding_idx {number!r} of {count} rows", where=str(user_location())
        )
    return int(number) % count


def probability(layer: str, p: float) -> float:
    """p as a float in 0..1; an error names the layer and the user's line."""
    if not is_real(p) or not 0 <= p <= 1:
        raise AttributeValueError(
            f"{layer}: a probability of {p!r}", where=str(user_location()), hint="it is in 0..1"
        )
    return float(p)


def _unit_parameter(shape: tuple[int, ...], dtype: Any) -> Parameter:
    return Parameter(np.ones(shape, dtype_of(dtype).numpy))


def _zeros(shape: tuple[int, ...], dtype: Any) -> Parameter:
    return Parameter(np.zeros(shape, dtype_of(dtype).numpy))
