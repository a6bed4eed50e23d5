"""Decoders with rotary positions, RMS norms and SwiGLU: Llama, Mistral, Qwen2 and Qwen3.

`LlamaSizes` is all that distinguishes them: biases, norms of queries and keys, sliding windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.records import record
from nova.nn import Module, ModuleList
from nova.ops import F
from nova.pretrained.config import ModelConfig
from nova.pretrained.generation import Caches, Decoder
from nova.pretrained.layers import (
    ACTIVATIONS,
    Cache,
    Matrix,
    Projection,
    RMSNorm,
    attend,
    causal_mask,
    constant,
    split_heads,
    update_cache,
)
from nova.pretrained.rope import rope_frequencies
from nova.pretrained.weights import Weights


@record
class LlamaSizes:
    """The sizes and variants of a decoder. `windows` has the window of each layer, None for all."""

    vocabulary: int
    width: int
    inner: int
    heads: int
    key_heads: int
    head_width: int
    eps: float
    longest: int
    frequencies: np.ndarray
    windows: tuple[int | None, ...]
    tied: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    interleaved: bool = False
    activation: str = "silu"


def read_sizes(config: ModelConfig, variant: str) -> LlamaSizes:
    """The sizes of a configuration of `llama`, `mistral`, `qwen2` or `qwen3`."""
    heads = config.size("num_attention_heads")
    width = config.size("hidden_size")
    head_width = config.size("head_dim", width // heads)
    key_heads = config.size("num_key_value_heads", heads)
    if heads % key_heads:
        raise config.error("num_key_value_heads", f"{heads} heads are not groups of {key_heads}")
    if head_width % 2:
        raise config.error("head_dim", f"rotary positions need an even width, not {head_width}")
    config.choice("hidden_act", "silu", ACTIVATIONS)
    bias = config.flag("attention_bias", False)
    return LlamaSizes(
        vocabulary=config.size("vocab_size"),
        width=width,
        inner=config.size("intermediate_size"),
        heads=heads,
        key_heads=key_heads,
        head_width=head_width,
        eps=config.number("rms_norm_eps", 1e-6),
        longest=config.size("max_position_embeddings", 2048),
        frequencies=rope_frequencies(config, head_width),
        windows=_windows(config, variant),
        tied=config.flag("tie_word_embeddings", False),
        qkv_bias=variant == "qwen2" or bias,
        out_bias=variant != "qwen2" and bias,
        mlp_bias=variant == "llama" and config.flag("mlp_bias", False),
        qk_norm=variant == "qwen3",
        activation=config.get("hidden_act") or "silu",
    )


def _windows(config: ModelConfig, variant: str) -> tuple[int | None, ...]:
    """The sliding window of each layer."""
    count = config.size("num_hidden_layers")
    types = config.get("layer_types")
    uses = variant == "mistral" or config.flag("use_sliding_window", False)
    if variant == "llama" or not uses or config.get("sliding_window") is None:
        if types is not None and set(types) != {"full_attention"}:
            raise config.error("layer_types", f"{types!r} without sliding_window")
        return (None,) * count
    window = config.size("sliding_window")
    if types is None:
        first = 0 if variant == "mistral" else config.get("max_window_layers") or 0
        return tuple(window if layer >= first else None for layer in range(count))
    table = {"full_attention": None, "sliding_attention": window}
    if not isinstance(types, list) or len(types) != count or not set(types) <= set(table):
        raise config.error(
            "layer_types", f"{types!r} for {count} layers", f"supported: {', '.join(table)}"
        )
    return tuple(table[name] for name in types)


class LlamaLayer(Module):
    """Attention over the cache and SwiGLU, each after an RMS norm, with residual connections."""

    def __init__(self, sizes: LlamaSizes, weights: Weights):
        self.sizes = sizes
        width, inner = sizes.width, sizes.inner
        queries, keys = sizes.heads * sizes.head_width, sizes.key_heads * sizes.head_width
        attention, mlp = weights.scope("self_attn"), weights.scope("mlp")
        self.input_norm = RMSNorm(weights.scope("input_layernorm"), width, sizes.eps)
        self.q, self.k, self.v = (
            Projection(attention.scope(f"{name}_proj"), width, outputs, sizes.qkv_bias)
            for name, outputs in (("q", queries), ("k", keys), ("v", keys))
        )
        self.out = Projection(attention.scope("o_proj"), queries, width, sizes.out_bias)
        if sizes.qk_norm:
            self.q_norm, self.k_norm = (
                RMSNorm(attention.scope(f"{name}_norm"), sizes.head_width, sizes.eps)
                for name in "qk"
            )
        self.mlp_norm = RMSNorm(weights.scope("post_attention_layernorm"), width, sizes.eps)
        self.gate, self.up = (
            Projection(mlp.scope(f"{name}_proj"), width, inner, sizes.mlp_bias)
            for name in ("gate", "up")
        )
        self.down = Projection(mlp.scope("down_proj"), inner, width, sizes.mlp_bias)

    def forward(
        self, x: Any, start: Any, angles: tuple[Any, Any], visible: Any, cache: Cache | None
    ) -> tuple[Any, Cache]:
        """New rows of x at positions from `start` on, and the cache with their keys and values."""
        sizes = self.sizes
        rows = self.input_norm(x)
        q = split_heads(self.q(rows), sizes.heads)
        k = split_heads(self.k(rows), sizes.key_heads)
        v = split_heads(self.v(rows), sizes.key_heads)
        if sizes.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = (F.rope(part, *angles, interleaved=sizes.interleaved) for part in (q, k))
        k, v = update_cache(cache, k, v, start)
        x = x + self.out(attend(q, k, v, visible))
        rows = self.mlp_norm(x)
        activation = ACTIVATIONS[sizes.activation]
        return x + self.down(activation(self.gate(rows)) * self.up(rows)), (k, v)


class LlamaModel(Decoder):
    """A decoder with weights by the names of Hugging Face."""

    def __init__(self, sizes: LlamaSizes, weights: Weights):
        self.sizes = sizes
        inner = weights.scope("model")
        self.embedding = Matrix(inner.scope("embed_tokens"), sizes.vocabulary, sizes.width)
        self.layers = ModuleList(
            [LlamaLayer(sizes, inner.scope(f"layers.{i}")) for i in range(len(sizes.windows))]
        )
        self.norm = RMSNorm(inner.scope("norm"), sizes.width, sizes.eps)
        if sizes.tied:
            weights.ignore("lm_head.weight")
            self.head = None
        else:
            self.head = Projection(weights.scope("lm_head"), sizes.width, sizes.vocabulary)
        self.width, self.longest, self.dtype = sizes.width, sizes.longest, self.embedding.dtype
        self.vocabulary = sizes.vocabulary

    def caches(self, context: int) -> Caches:
        """Empty caches of one sequence."""
        shape = (self.sizes.key_heads, context, self.sizes.head_width)
        return [self.empty_cache(shape) for _ in self.layers]

    def rows(self, tokens: Any, start: Any, caches: Caches | None) -> tuple[Any, Caches]:
        """The hidden rows of tokens at positions from `start` on, and the caches with them."""
        keys = tokens.shape[-1] if caches is None else caches[0][0].shape[1]
        positions = start + F.arange(tokens.shape[-1])
        phases = F.unsqueeze(F.cast(positions, dtype="f32"), 1) * constant(self.sizes.frequencies)
        angles = (F.cos(phases), F.sin(phases))
        masks = {w: causal_mask(positions, keys, w) for w in set(self.sizes.windows)}
        x = self.embedding.pick(tokens)
        updated = []
        for i, layer in enumerate(self.layers):
            cache = None if caches is None else caches[i]
            x, cache = layer(x, start, angles, masks[self.sizes.windows[i]], cache)
            updated.append(cache)
        return x, updated

    def scores(self, x: Any) -> Any:
        """The logits of hidden rows, in f32."""
        project = self.embedding.times if self.head is None else self.head
        return F.cast(project(self.norm(x)), dtype="f32")
