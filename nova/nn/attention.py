"""Multi-head attention with the parameters of torch's, batch first."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import bool_
from nova.core.dtypes import dtype as dtype_of
from nova.core.location import user_location
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.graph.spelling import takes_torch_keywords
from nova.nn import init
from nova.nn.layers import Linear, probability, sizes
from nova.nn.module import Module
from nova.nn.parameter import Parameter
from nova.nn.seeds import next_seed
from nova.ops import F
from nova.ops.functional.common import as_tensor


class MultiheadAttention(Module):
    """Attention of (..., T, features) queries to (..., S, features) keys and values.

    `mask` broadcasts to (..., heads, T, S): True in a bool mask lets a key take part, a float mask
    is added to the scores. `attn_mask` is the mask of torch's module: True in a bool mask hides a
    key. `causal` masks the future. In training, dropout applies to the weights. Without
    `batch_first` the first two axes are (T, batch). torch's `embed_dim` and `num_heads` are
    `features` and `heads`.
    """

    in_proj_bias: Parameter | None

    @takes_torch_keywords
    def __init__(
        self,
        features: int,
        heads: int,
        causal: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        batch_first: bool = True,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        if not isinstance(causal, bool | np.bool_):
            raise AttributeValueError(
                f"MultiheadAttention: causal is {causal!r}, not a bool",
                where=str(user_location()),
                hint="the third argument is causal, where torch has dropout: write dropout=0.1",
            )
        (features, heads) = sizes("MultiheadAttention", (features, heads))
        if not heads or not features or features % heads:
            raise AttributeValueError(
                f"MultiheadAttention: {features} features for {heads} heads",
                where=str(user_location()),
                hint="features is a multiple of heads",
            )
        self.features, self.heads, self.causal = features, heads, causal
        self.batch_first = batch_first
        self.dropout = probability("MultiheadAttention", dropout)
        shape = (3 * features, features)
        self.in_proj_weight = Parameter(
            init.xavier_uniform(shape, dtype=dtype, generator=generator)
        )
        self.in_proj_bias = None
        self.out_proj = Linear(features, features, bias, dtype=dtype, generator=generator)
        if self.out_proj.bias is not None:
            self.in_proj_bias = Parameter(np.zeros(3 * features, dtype_of(dtype).numpy))
            self.out_proj.bias.data[...] = 0

    @takes_torch_keywords
    def forward(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        mask: Any = None,
        segment_ids: Any = None,
        *,
        attn_mask: Any = None,
    ) -> Tensor:
        """key defaults to query (self-attention), value defaults to key.

        True in a bool `mask` lets a key take part, True in a bool `attn_mask` hides it, as in
        torch. Packed sequences have `segment_ids`, as in `nova.attention`.
        """
        if attn_mask is not None:
            mask = _mask_of_torch(mask, attn_mask)
        query = as_tensor(F, query)
        if self.batch_first or len(query.shape) < 3:
            return self._attend(query, key, value, mask, segment_ids)
        query, key, value = (
            None if x is None else F.swapaxes(x, 0, 1) for x in (query, key, value)
        )
        return F.swapaxes(self._attend(query, key, value, mask, segment_ids), 0, 1)

    def _attend(self, query: Any, key: Any, value: Any, mask: Any, segment_ids: Any) -> Tensor:
        q, k, v = (self._split_heads(x) for x in self._project(query, key, value))
        options: dict[str, Any] = {"causal": self.causal, "segment_ids": segment_ids}
        if self.training and self.dropout:
            options |= {"dropout": self.dropout, "seed": next_seed()}
        result = F.attention(q, k, v, mask, **options)
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


def _mask_of_torch(mask: Any, attn_mask: Any) -> Tensor:
    """`attn_mask` with the meaning of `mask`: bools are negated, floats stay as they are."""
    if mask is not None:
        raise AttributeValueError(
            "MultiheadAttention: mask and attn_mask are both present",
            where=str(user_location()),
            hint="pass one: True in a bool mask lets a key take part, True in attn_mask hides it",
        )
    hidden: Tensor = as_tensor(F, attn_mask)
    return F.logical_not(hidden) if hidden.dtype is bool_ else hidden
