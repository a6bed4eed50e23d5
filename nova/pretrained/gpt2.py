"""GPT-2: learned positions, layer norms before each part, a head tied to the embedding."""

from __future__ import annotations

from typing import Any

from nova.errors import ShapeError
from nova.nn import Module, ModuleList
from nova.ops import F
from nova.pretrained.config import ModelConfig
from nova.pretrained.generation import Caches, Decoder
from nova.pretrained.layers import (
    ACTIVATIONS,
    Cache,
    LayerNorm,
    Projection,
    attend,
    causal_mask,
    split_heads,
    update_cache,
)
from nova.pretrained.weights import Weights


class GPT2Layer(Module):
    """Attention and a feed-forward part, each after a layer norm, with residual connections."""

    def __init__(self, config: ModelConfig, weights: Weights, index: int):
        width = config.size("n_embd")
        inner = config.size("n_inner", 4 * width)
        eps = config.number("layer_norm_epsilon", 1e-5)
        self.heads = config.size("n_head")
        self.activation = config.choice("activation_function", "gelu_new", ACTIVATIONS)
        self.scale = _scale(config, width // self.heads, index)

        def projection(name: str, inputs: int, outputs: int) -> Projection:
            return Projection(weights.scope(name), inputs, outputs, bias=True, transposed=True)

        self.norm1 = LayerNorm(weights.scope("ln_1"), width, eps)
        self.qkv = projection("attn.c_attn", width, 3 * width)
        self.out = projection("attn.c_proj", width, width)
        self.norm2 = LayerNorm(weights.scope("ln_2"), width, eps)
        self.up = projection("mlp.c_fc", width, inner)
        self.down = projection("mlp.c_proj", inner, width)

    def forward(self, x: Any, start: Any, visible: Any, cache: Cache | None) -> tuple[Any, Cache]:
        """New rows of x at positions from `start` on, and the cache with their keys and values."""
        parts = F.split(self.qkv(self.norm1(x)), 3, axis=-1)
        q, k, v = (split_heads(part, self.heads) for part in parts)
        k, v = update_cache(cache, k, v, start)
        x = x + self.out(attend(q, k, v, visible, self.scale))
        return x + self.down(self.activation(self.up(self.norm2(x)))), (k, v)


def _scale(config: ModelConfig, width: int, index: int) -> float:
    scale = width**-0.5 if config.flag("scale_attn_weights", True) else 1.0
    inverse = config.flag("scale_attn_by_inverse_layer_idx", False)
    return scale / (index + 1) if inverse else scale


class GPT2Model(Decoder):
    """GPT-2 with its language head."""

    def __init__(self, config: ModelConfig, weights: Weights):
        config.require("add_cross_attention", False)
        self.width, self.longest = config.size("n_embd"), config.size("n_positions", 1024)
        self.heads = config.size("n_head")
        if self.width % self.heads:
            raise config.error("n_head", f"a width of {self.width} is not {self.heads} heads")
        vocabulary, eps = config.size("vocab_size"), config.number("layer_norm_epsilon", 1e-5)
        # The files of OpenAI's models have no prefix.
        inner = weights if "wte.weight" in weights else weights.scope("transformer")
        self.vocabulary = vocabulary
        self.embedding = inner.parameter("wte.weight", (vocabulary, self.width))
        self.positions = inner.parameter("wpe.weight", (self.longest, self.width))
        self.layers = ModuleList(
            [GPT2Layer(config, inner.scope(f"h.{i}"), i) for i in range(config.size("n_layer"))]
        )
        self.norm = LayerNorm(inner.scope("ln_f"), self.width, eps)
        self.dtype = self.embedding.dtype
        self.head = None
        if config.flag("tie_word_embeddings", True):
            weights.ignore("lm_head.weight")
        else:
            self.head = weights.parameter("lm_head.weight", (vocabulary, self.width))

    def caches(self, context: int) -> Caches:
        """Empty caches of one sequence."""
        shape = (self.heads, context, self.width // self.heads)
        return [self.empty_cache(shape) for _ in self.layers]

    def rows(self, tokens: Any, start: Any, caches: Caches | None) -> tuple[Any, Caches]:
        """The hidden rows of tokens at positions from `start` on, and the caches with them."""
        keys = tokens.shape[-1] if caches is None else caches[0][0].shape[1]
        count = tokens.shape[-1]
        if isinstance(start, int) and isinstance(count, int) and start + count > self.longest:
            raise ShapeError(
                f"{start + count} tokens, and the model has {self.longest} positions",
                hint="shorten the sequence",
            )
        positions = start + F.arange(count)
        visible = causal_mask(positions, keys)
        x = F.embedding(self.embedding, tokens) + F.embedding(self.positions, positions)
        updated = []
        for i, layer in enumerate(self.layers):
            x, cache = layer(x, start, visible, None if caches is None else caches[i])
            updated.append(cache)
        return x, updated

    def scores(self, x: Any) -> Any:
        """The logits of hidden rows, in f32."""
        head = self.embedding if self.head is None else self.head
        return F.cast(F.matmul(self.norm(x), F.swapaxes(head, 0, 1)), dtype="f32")
