"""T5: an encoder and a decoder with relative position biases; scores are not scaled."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np

from nova.api.compile import compile
from nova.core.dtypes import i64
from nova.core.user_facing import user_facing
from nova.graph import input
from nova.nn import Module, ModuleList
from nova.ops import F
from nova.pretrained.config import ModelConfig
from nova.pretrained.generation import (
    Caches,
    Sampling,
    check_prompt,
    choose_context,
    generate,
    scalar_inputs,
    write_tokens,
)
from nova.pretrained.layers import (
    ACTIVATIONS,
    Cache,
    Projection,
    RMSNorm,
    attend,
    causal_mask,
    constant,
    split_heads,
    update_cache,
)
from nova.pretrained.weights import Weights

_FORWARD_PARTS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gated-gelu": ("gelu_new", True),
    "gated-silu": ("silu", True),
}
# Relative positions have no end: programs are limited by their context only.
_LONGEST = 1 << 20


class T5Attention(Module):
    """Attention to the own rows, or to the rows of the encoder."""

    def __init__(self, config: ModelConfig, weights: Weights):
        width, self.heads = config.size("d_model"), config.size("num_heads")
        self.width = self.heads * config.size("d_kv")
        self.q, self.k, self.v = (
            Projection(weights.scope(name), width, self.width) for name in "qkv"
        )
        self.out = Projection(weights.scope("o"), self.width, width)

    def keys(self, x: Any) -> Cache:
        """The keys and values of rows."""
        return split_heads(self.k(x), self.heads), split_heads(self.v(x), self.heads)

    def forward(self, x: Any, keys: Cache, bias: Any) -> Any:
        """The rows that x reads from keys and values; `bias` is added to the scores."""
        q = split_heads(self.q(x), self.heads)
        return self.out(attend(q, *keys, bias, scale=1.0))


class T5Forward(Module):
    """The feed-forward part, gated or not."""

    def __init__(self, config: ModelConfig, weights: Weights):
        width, inner = config.size("d_model"), config.size("d_ff")
        name, self.gated = config.choice("feed_forward_proj", "relu", _FORWARD_PARTS)
        self.activation = ACTIVATIONS[name]
        first = "wi_0" if self.gated else "wi"
        self.wi = Projection(weights.scope(first), width, inner)
        self.gate = Projection(weights.scope("wi_1"), width, inner) if self.gated else None
        self.wo = Projection(weights.scope("wo"), inner, width)

    def forward(self, x: Any) -> Any:
        y = self.activation(self.wi(x))
        return self.wo(y if self.gate is None else y * self.gate(x))


class T5Block(Module):
    """Self-attention, in a decoder attention to the encoder, and the feed-forward part."""

    def __init__(self, config: ModelConfig, weights: Weights, decodes: bool):
        width, eps = config.size("d_model"), config.number("layer_norm_epsilon", 1e-6)
        parts = [weights.scope(f"layer.{i}") for i in range(3 if decodes else 2)]
        self.norms = ModuleList([RMSNorm(p.scope("layer_norm"), width, eps) for p in parts])
        self.attention = T5Attention(config, parts[0].scope("SelfAttention"))
        self.cross = T5Attention(config, parts[1].scope("EncDecAttention")) if decodes else None
        self.forward_part = T5Forward(config, parts[-1].scope("DenseReluDense"))

    def forward(
        self, x: Any, bias: Any, start: Any = 0, cache: Cache | None = None, encoded: Any = None
    ) -> tuple[Any, Cache]:
        """New rows, and the cache. `encoded` has keys, values and the mask of the encoder."""
        rows = self.norms[0](x)
        keys = update_cache(cache, *self.attention.keys(rows), start)
        x = x + self.attention(rows, keys, bias)
        if self.cross is not None:
            *encoder_keys, mask = encoded
            x = x + self.cross(self.norms[1](x), tuple(encoder_keys), mask)
        return x + self.forward_part(self.norms[-1](x)), keys


class T5Stack(Module):
    """The blocks of the encoder or of the decoder, with their position bias and last norm."""

    def __init__(self, config: ModelConfig, weights: Weights, decodes: bool):
        count = config.size("num_layers")
        if decodes:
            count = config.size("num_decoder_layers", count)
        self.decodes = decodes
        self.blocks = ModuleList(
            [T5Block(config, weights.scope(f"block.{i}"), decodes) for i in range(count)]
        )
        buckets = config.size("relative_attention_num_buckets", 32)
        distance = config.size("relative_attention_max_distance", 128)
        self.table = bucket_table(buckets, distance, decodes)
        self.offset = 0 if decodes else buckets // 2
        self.bias = weights.scope("block.0.layer.0.SelfAttention").parameter(
            "relative_attention_bias.weight", (buckets, config.size("num_heads"))
        )
        eps = config.number("layer_norm_epsilon", 1e-6)
        self.norm = RMSNorm(weights.scope("final_layer_norm"), config.size("d_model"), eps)

    def position_bias(self, positions: Any, keys: int) -> Any:
        """(heads, rows, keys): the bias of the bucket of each distance."""
        relative = F.arange(keys) - F.unsqueeze(positions, 1)
        distance = -relative if self.decodes else F.abs(relative)
        table = constant(self.table)
        bucket = F.take(table, F.clamp(distance, min=0, max=len(self.table) - 1))
        if not self.decodes:
            bucket = bucket + F.where(relative > 0, self.offset, 0)
        return F.transpose(F.embedding(self.bias, bucket), (2, 0, 1))


def bucket_table(buckets: int, longest: int, decodes: bool) -> np.ndarray:
    """The bucket of each distance: exact for the near half, logarithmic for the others."""
    count = buckets if decodes else buckets // 2
    exact = count // 2
    distances = np.arange(max(longest, exact) + 1)
    # In f32, as the models were trained: a bucket begins where f32 says so.
    ratio = np.log(np.maximum(distances, 1).astype(np.float32) / np.float32(exact))
    steps = ratio / np.float32(log(longest / exact)) * np.float32(count - exact)
    far = np.minimum(exact + steps.astype(np.int64), count - 1)
    return np.where(distances < exact, distances, far)


class T5Model(Module):
    """T5 with its language head: source tokens and target tokens -> logits of the next ones."""

    def __init__(self, config: ModelConfig, weights: Weights):
        self.width = config.size("d_model")
        self.heads, self.head_width = config.size("num_heads"), config.size("d_kv")
        self.vocabulary = vocabulary = config.size("vocab_size")
        self.embedding = weights.parameter("shared.weight", (vocabulary, self.width))
        for stack in ("encoder", "decoder"):
            weights.ignore(f"{stack}.embed_tokens.weight")
        self.encoder = T5Stack(config, weights.scope("encoder"), decodes=False)
        self.decoder = T5Stack(config, weights.scope("decoder"), decodes=True)
        tied = config.flag("tie_word_embeddings", True)
        # T5 1.1 has a head of its own and does not scale; old files say so by the tie.
        self.scales = config.flag("scale_decoder_outputs", tied)
        self.head = None
        if "lm_head.weight" in weights:
            self.head = weights.parameter("lm_head.weight", (vocabulary, self.width))
        self.start = config.get("decoder_start_token_id") or 0
        self.stop = config.get("eos_token_id")
        self.dtype = self.embedding.dtype

    def encode(self, tokens: Any, mask: Any = None) -> Any:
        """The encoder's rows of (..., tokens); `mask` is nonzero for tokens that take part."""
        size = tokens.shape[-1]
        bias = self.encoder.position_bias(F.arange(size), size)
        if mask is not None:
            bias = bias + self._added(mask)
        x = F.embedding(self.embedding, tokens)
        for block in self.encoder.blocks:
            x, _ = block(x, bias)
        return self.encoder.norm(x)

    def encoder_keys(self, x: Any, mask: Any = None) -> list[Any]:
        """What each decoder block reads of the encoder: keys, values and a mask."""
        added = None if mask is None else self._added(mask)
        blocks: list[Any] = list(self.decoder.blocks)
        return [(*block.cross.keys(x), added) for block in blocks]

    def decode(
        self, tokens: Any, start: Any, caches: Caches | None, encoded: list[Any]
    ) -> tuple[Any, Caches]:
        """The decoder's rows of tokens at positions from `start` on, and the caches with them."""
        keys = tokens.shape[-1] if caches is None else caches[0][0].shape[1]
        positions = start + F.arange(tokens.shape[-1])
        bias = self.decoder.position_bias(positions, keys)
        visible = causal_mask(positions, keys)
        bias = F.where(visible, bias, F.cast(float("-inf"), dtype=bias.dtype))
        x = F.embedding(self.embedding, tokens)
        updated = []
        for i, block in enumerate(self.decoder.blocks):
            x, cache = block(x, bias, start, None if caches is None else caches[i], encoded[i])
            updated.append(cache)
        return x, updated

    def scores(self, x: Any) -> Any:
        """The logits of the decoder's rows, in f32."""
        x = self.decoder.norm(x)
        if self.scales:
            x = x * self.width**-0.5
        head = self.embedding if self.head is None else self.head
        return F.cast(F.matmul(x, F.swapaxes(head, 0, 1)), dtype="f32")

    def forward(self, source: Any, target: Any, mask: Any = None) -> Any:
        """(..., tokens) of the source and of the target -> (..., target tokens, vocabulary)."""
        encoded = self.encoder_keys(self.encode(source, mask), mask)
        return self.scores(self.decode(target, 0, None, encoded)[0])

    def _added(self, mask: Any) -> Any:
        """A mask of keys as numbers that are added to scores, for all heads and rows."""
        added = F.where(mask != 0, 0.0, float("-inf"))
        return F.cast(F.unsqueeze(F.unsqueeze(added, -2), -2), dtype=self.dtype)

    @user_facing
    def generate(
        self, source: Sequence[int], new: int = 32, *, stop: int | None = None, **sampling: Any
    ) -> list[int]:
        """Up to `new` tokens for a source, until the token `stop` (by default the model's)."""
        check_prompt(source, new, self.vocabulary)
        sizes = choose_context(len(source), _LONGEST), choose_context(new + 1, _LONGEST)
        programs: dict[tuple[int, int], Any] = vars(self).setdefault("_programs", {})
        if sizes not in programs:
            programs[sizes] = compile_t5_generator(self, *sizes)
        tokens = np.zeros(sizes[0], np.int64)
        tokens[: len(source)] = source
        before = (tokens, np.int64(len(source)))
        last = stop if stop is not None else self.stop if self.stop is not None else -1
        return generate(programs[sizes], [self.start], new, stop=last, before=before, **sampling)


class _Writer:
    """The decoder with the results of the encoder, for `write_tokens`."""

    def __init__(self, model: T5Model, encoded: list[Any]):
        self.model, self.encoded = model, encoded
        self.width, self.dtype = model.width, model.dtype

    def caches(self, context: int) -> Caches:
        empty = F.zeros((self.model.heads, context, self.model.head_width), dtype=self.dtype)
        return [(empty, empty) for _ in self.model.decoder.blocks]

    def rows(self, tokens: Any, start: Any, caches: Caches) -> tuple[Any, Caches]:
        return self.model.decode(tokens, start, caches, self.encoded)

    def scores(self, x: Any) -> Any:
        return self.model.scores(x)


def compile_t5_generator(model: T5Model, source: int, context: int) -> Any:
    """One program: source, source_length, tokens and how to go on -> tokens and their end."""
    words = input((source,), i64, name="source")
    count = input((), i64, name="source_length")
    tokens = input((context,), i64, name="tokens")
    scalars = scalar_inputs()
    length, limit, *sampling, stop = scalars
    mask = F.arange(source) < count
    writer = _Writer(model, model.encoder_keys(model.encode(words, mask), mask))
    outputs = write_tokens(writer, tokens, length, limit, Sampling(*sampling), stop, chunk=1)
    inputs = [words, count, tokens, *scalars]
    return compile(list(outputs), inputs=inputs, params=list(model.parameters()))
