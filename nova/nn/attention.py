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
    `features` and `heads`. `kdim` and `vdim` are the features of keys and values, if others;
    `add_bias_kv` adds a trained key and value to each sequence, `add_zero_attn` zeros.
    """

    in_proj_bias: Parameter | None
    in_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    @takes_torch_keywords
    def __init__(
        self,
        features: int,
        heads: int,
        causal: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
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
        self.kdim, self.vdim = (features if n is None else n for n in (kdim, vdim))
        sizes("MultiheadAttention", (self.kdim, self.vdim))
        options: dict[str, Any] = {"dtype": dtype, "generator": generator}
        if (self.kdim, self.vdim) == (features, features):
            shape = (3 * features, features)
            self.in_proj_weight = Parameter(init.xavier_uniform(shape, **options))
        else:
            self.in_proj_weight = None
            for letter, width in (("q", features), ("k", self.kdim), ("v", self.vdim)):
                drawn = init.xavier_uniform((features, width), **options)
                setattr(self, f"{letter}_proj_weight", Parameter(drawn))
        self.in_proj_bias = self.bias_k = self.bias_v = None
        self.out_proj = Linear(features, features, bias, dtype=dtype, generator=generator)
        if self.out_proj.bias is not None:
            self.in_proj_bias = Parameter(np.zeros(3 * features, dtype_of(dtype).numpy))
            self.out_proj.bias.data[...] = 0
        self.add_zero_attn = add_zero_attn
        if add_bias_kv:
            spread = (2.0 / (1 + features)) ** 0.5
            self.bias_k, self.bias_v = (
                Parameter(init.normal((1, 1, features), 0.0, spread, **options)) for _ in range(2)
            )

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
        key_padding_mask: Any = None,
        need_weights: bool = False,
        average_attn_weights: bool = True,
    ) -> Any:
        """key defaults to query (self-attention), value defaults to key.

        True in a bool `mask` lets a key take part, True in a bool `attn_mask` hides it, as in
        torch; True in (batch, S) `key_padding_mask` hides a key from all queries. Packed sequences
        have `segment_ids`, as in `nova.attention`. With `need_weights` the result is a pair with
        the weights (batch, T, S), the mean over the heads unless `average_attn_weights` is False.
        """
        query = as_tensor(F, query)
        if attn_mask is not None:
            mask = _mask_of_torch(mask, attn_mask, len(query.shape) == 3, self.heads)
        if key_padding_mask is not None:
            mask = _with_padding(mask, key_padding_mask)
        is_swapped = not self.batch_first and len(query.shape) >= 3
        if is_swapped:
            query, key, value = (
                None if x is None else F.swapaxes(x, 0, 1) for x in (query, key, value)
            )
        q, k, v = self._project(query, key, value)
        k, v, mask = self._with_added_keys(k, v, mask)
        q, k, v = (self._split_heads(x) for x in (q, k, v))
        result = self._attend(q, k, v, mask, segment_ids)
        result = F.swapaxes(result, 0, 1) if is_swapped else result
        if not need_weights:
            return result
        if segment_ids is not None:
            raise AttributeValueError(
                "MultiheadAttention: need_weights with segment_ids", where=str(user_location())
            )
        weights = self._weights(q, k, mask)
        return result, F.mean(weights, axis=-3) if average_attn_weights else weights

    def _weights(self, q: Tensor, k: Tensor, mask: Any) -> Tensor:
        """The weights that each query has for each key, (..., heads, T, S)."""
        scores = F.matmul(q, F.swapaxes(k, -1, -2)) * (q.shape[-1] ** -0.5)
        if self.causal:
            future = F.triu(F.ones(scores.shape[-2:], dtype=scores.dtype), k=1) > 0
            scores = F.where(future, -np.inf, scores)
        if mask is not None:
            mask = as_tensor(F, mask)
            is_bool = mask.dtype is bool_
            scores = F.where(mask, scores, -np.inf) if is_bool else scores + mask
        return F.softmax(scores, axis=-1)

    def _with_added_keys(self, k: Tensor, v: Tensor, mask: Any) -> tuple[Tensor, Tensor, Any]:
        """The added key and value rows at the end of each sequence; no mask hides them."""
        lead = k.shape[:-2]
        added = []
        if self.bias_k is not None:
            added.append((self.bias_k, self.bias_v))
        if self.add_zero_attn:
            added.append((F.zeros((1, 1, self.features), dtype=k.dtype),) * 2)
        for key, value in added:
            row = (*lead, 1, self.features)
            key, value = (F.expand(F.reshape(x, (1, self.features)), row) for x in (key, value))
            k, v = F.concat([k, key], axis=-2), F.concat([v, value], axis=-2)
        if added and mask is not None:
            mask = as_tensor(F, mask)
            shape = (*mask.shape[:-1], len(added))
            visible = F.full(shape, True if mask.dtype is bool_ else 0.0, mask.dtype)
            mask = F.concat([mask, visible], axis=-1)
        if added and self.causal:
            raise AttributeValueError(
                "MultiheadAttention: causal with added keys",
                where=str(user_location()),
                hint="pass the mask of the future as attn_mask",
            )
        return k, v, mask

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, segment_ids: Any) -> Tensor:
        options: dict[str, Any] = {"causal": self.causal, "segment_ids": segment_ids}
        if self.training and self.dropout:
            options |= {"dropout": self.dropout, "seed": next_seed()}
        result = F.attention(q, k, v, mask, **options)
        return self.out_proj(F.flatten(F.swapaxes(result, -2, -3), -2, -1))

    def _project(self, query: Any, key: Any, value: Any) -> tuple[Tensor, Tensor, Tensor]:
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if key is None and value is None and weight is not None:
            return F.split(F.linear(query, weight, bias), 3, axis=-1)
        key = query if key is None else key
        inputs = (query, key, key if value is None else value)
        weights = (
            [getattr(self, f"{letter}_proj_weight") for letter in "qkv"]
            if weight is None
            else F.split(weight, 3)
        )
        biases = (None,) * 3 if bias is None else F.split(bias, 3)
        q, k, v = (F.linear(*each) for each in zip(inputs, weights, biases, strict=True))
        return q, k, v

    def _split_heads(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], self.heads, self.features // self.heads)
        return F.swapaxes(F.reshape(x, shape), -2, -3)


def _with_padding(mask: Any, padding: Any) -> Tensor:
    """`mask` without the keys that torch's (batch, S) `key_padding_mask` hides."""
    padding = as_tensor(F, padding)
    lead = padding.shape[:-1]
    padding = F.reshape(padding, (*lead, 1, 1, padding.shape[-1]))
    visible = F.logical_not(padding) if padding.dtype is bool_ else padding
    if mask is None:
        return visible
    mask = as_tensor(F, mask)
    if (mask.dtype is bool_) and (visible.dtype is bool_):
        return F.logical_and(mask, visible)
    floats = [F.where(m, 0.0, -np.inf) if m.dtype is bool_ else m for m in (mask, visible)]
    return floats[0] + floats[1]


def _mask_of_torch(mask: Any, attn_mask: Any, is_batch: bool, heads: int) -> Tensor:
    """`attn_mask` with the meaning of `mask`: bools are negated, floats stay as they are.

    torch's (batch * heads, T, S) becomes (batch, heads, T, S).
    """
    if mask is not None:
        raise AttributeValueError(
            "MultiheadAttention: mask and attn_mask are both present",
            where=str(user_location()),
            hint="pass one: True in a bool mask lets a key take part, True in attn_mask hides it",
        )
    hidden: Tensor = as_tensor(F, attn_mask)
    if is_batch and len(hidden.shape) == 3:
        rows = hidden.shape[0]
        hidden = F.reshape(hidden, (rows // heads, heads, *hidden.shape[1:]))
    return F.logical_not(hidden) if hidden.dtype is bool_ else hidden
