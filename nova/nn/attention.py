"""Multi-head attention with the parameters of torch's, batch first."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from nova.core.dtypes import bool_
from nova.core.location import user_location
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.nn import init
from nova.nn.layers import Linear, probability, sizes
from nova.nn.module import Module
from nova.nn.parameter import Parameter
from nova.nn.seeds import next_seed
from nova.ops import F
from nova.ops.nn import as_type, widened


class MultiheadAttention(Module):
    """Attention of (..., T, features) queries to (..., S, features) keys and values.

    `mask` broadcasts to (..., heads, T, S): True in a bool mask lets a key take part, a float mask
    is added to the scores. `causal` masks the future. In training, dropout applies to the weights.
    """

    in_proj_bias: Parameter | None

    def __init__(
        self,
        features: int,
        heads: int,
        causal: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        (features, heads) = sizes("MultiheadAttention", (features, heads))
        if not heads or not features or features % heads:
            raise AttributeValueError(
                f"MultiheadAttention: {features} features for {heads} heads",
                where=str(user_location()),
                hint="features is a multiple of heads",
            )
        self.features, self.heads, self.causal = features, heads, causal
        self.dropout = probability("MultiheadAttention", dropout)
        shape = (3 * features, features)
        self.in_proj_weight = Parameter(
            init.xavier_uniform(shape, dtype=dtype, generator=generator)
        )
        self.in_proj_bias = None
        self.out_proj = Linear(features, features, bias, dtype=dtype, generator=generator)
        if self.out_proj.bias is not None:
            self.in_proj_bias = Parameter(np.zeros(3 * features), dtype=dtype)
            self.out_proj.bias.data[...] = 0

    def forward(self, query: Any, key: Any = None, value: Any = None, mask: Any = None) -> Tensor:
        """key defaults to query (self-attention), value defaults to key."""
        q, k, v = (self._split_heads(x) for x in self._project(query, key, value))
        if self.training and self.dropout:
            result = self._dropped_out(q, k, v, mask)
        else:
            result = F.scaled_dot_product_attention(q, k, v, mask, causal=self.causal)
        return self.out_proj(F.flatten(F.swapaxes(result, -2, -3), -2, -1))

    def _project(self, query: Any, key: Any, value: Any) -> tuple[Tensor, Tensor, Tensor]:
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if key is None and value is None:
            return F.split(F.linear(query, weight, bias), 3, axis=-1)
        key = query if key is None else key
        inputs = (query, key, key if value is None else value)
        weights = F.split(weight, 3)
        biases = (None,) * 3 if bias is None else F.split(bias, 3)
        q, k, v = (F.linear(*each) for each in zip(inputs, weights, biases, strict=True))
        return q, k, v

    def _split_heads(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], self.heads, self.features // self.heads)
        return F.swapaxes(F.reshape(x, shape), -2, -3)

    def _dropped_out(self, q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
        """As the op, statistics in f32, with dropout between softmax and the second matmul."""
        wide_q, wide_k, wide_v = widened(F, q, k, v)
        scores = F.matmul(wide_q, F.swapaxes(wide_k, -1, -2)) * (1.0 / sqrt(q.shape[-1]))
        if mask is not None:
            added = F.where(mask, 0.0, -np.inf) if mask.dtype is bool_ else mask
            scores = scores + as_type(F, added, scores.dtype)
        if self.causal:
            past = F.unsqueeze(F.arange(q.shape[-2]), 1) >= F.arange(k.shape[-2])
            scores = F.where(past, scores, -np.inf)
        is_visible = F.max(scores, axis=-1, keepdims=True) > -np.inf
        # A fully masked row gives zeros, not the NaN of its softmax.
        weights = F.where(is_visible, F.softmax(F.where(is_visible, scores, 0.0)), 0.0)
        dropped = F.dropout(weights, next_seed(), p=self.dropout)
        return as_type(F, F.matmul(dropped, wide_v), q.dtype)
