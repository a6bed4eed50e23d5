"""BERT: the encoder, and its heads for masked tokens and for classes of sequences."""

from __future__ import annotations

from typing import Any

from nova.nn import Module, ModuleList
from nova.ops import F
from nova.pretrained.config import ModelConfig
from nova.pretrained.layers import ACTIVATIONS, LayerNorm, Projection, attend, split_heads
from nova.pretrained.weights import Weights


class BertLayer(Module):
    """Attention and a feed-forward part, each with a residual connection and a norm after it."""

    def __init__(self, config: ModelConfig, weights: Weights):
        width, inner = config.size("hidden_size"), config.size("intermediate_size")
        eps = config.number("layer_norm_eps", 1e-12)
        self.heads = config.size("num_attention_heads")
        self.activation = config.choice("hidden_act", "gelu", ACTIVATIONS)
        attention = weights.scope("attention")
        self.q, self.k, self.v = (
            Projection(attention.scope(f"self.{name}"), width, width, bias=True)
            for name in ("query", "key", "value")
        )
        self.out = Projection(attention.scope("output.dense"), width, width, bias=True)
        self.norm1 = LayerNorm(attention.scope("output.LayerNorm"), width, eps)
        self.up = Projection(weights.scope("intermediate.dense"), width, inner, bias=True)
        self.down = Projection(weights.scope("output.dense"), inner, width, bias=True)
        self.norm2 = LayerNorm(weights.scope("output.LayerNorm"), width, eps)

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = (split_heads(part(x), self.heads) for part in (self.q, self.k, self.v))
        x = self.norm1(x + self.out(attend(q, k, v, mask)))
        return self.norm2(x + self.down(self.activation(self.up(x))))


class BertEncoder(Module):
    """Embeddings and layers: (..., tokens) -> (..., tokens, features)."""

    def __init__(self, config: ModelConfig, weights: Weights):
        for key in ("is_decoder", "add_cross_attention"):
            config.require(key, False)
        config.require("position_embedding_type", "absolute")
        width, eps = config.size("hidden_size"), config.number("layer_norm_eps", 1e-12)
        heads = config.size("num_attention_heads")
        if width % heads:
            raise config.error("num_attention_heads", f"a width of {width} is not {heads} heads")
        # A bare encoder is stored without the prefix.
        prefixed = "bert.embeddings.word_embeddings.weight" in weights
        inner = weights.scope("bert") if prefixed else weights
        tables = inner.scope("embeddings")
        self.words, self.positions, self.types = (
            tables.parameter(f"{name}_embeddings.weight", (count, width))
            for name, count in (
                ("word", config.size("vocab_size")),
                ("position", config.size("max_position_embeddings", 512)),
                ("token_type", config.size("type_vocab_size", 2)),
            )
        )
        self.norm = LayerNorm(tables.scope("LayerNorm"), width, eps)
        self.layers = ModuleList(
            [
                BertLayer(config, inner.scope(f"encoder.layer.{i}"))
                for i in range(config.size("num_hidden_layers"))
            ]
        )
        self.pooler = None
        if "pooler.dense.weight" in inner:
            self.pooler = Projection(inner.scope("pooler.dense"), width, width, bias=True)

    def forward(self, tokens: Any, mask: Any = None, types: Any = None) -> Any:
        """`mask` (..., tokens) is nonzero for tokens that take part; `types` defaults to 0."""
        x = F.embedding(self.words, tokens)
        x = x + F.narrow(self.positions, 0, 0, tokens.shape[-1])
        x = x + (F.take(self.types, 0) if types is None else F.embedding(self.types, types))
        x = self.norm(x)
        if mask is not None:
            # Every head and row of a sequence sees the same keys.
            mask = F.unsqueeze(F.unsqueeze(mask != 0, -2), -2)
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def pool(self, x: Any) -> Any:
        """The features of a sequence, of its first token."""
        assert self.pooler is not None
        return F.tanh(self.pooler(F.select(x, -2, 0)))


class BertModel(Module):
    """The encoder: hidden rows, and pooled features if the file has the weights for them."""

    def __init__(self, config: ModelConfig, weights: Weights):
        self.encoder = BertEncoder(config, weights)

    def forward(self, tokens: Any, mask: Any = None, types: Any = None) -> Any:
        x = self.encoder(tokens, mask, types)
        return x if self.encoder.pooler is None else (x, self.encoder.pool(x))


class BertForMaskedLM(Module):
    """The encoder with a head that scores the vocabulary at each token."""

    def __init__(self, config: ModelConfig, weights: Weights):
        width, vocabulary = config.size("hidden_size"), config.size("vocab_size")
        self.encoder = BertEncoder(config, weights)
        self.activation = config.choice("hidden_act", "gelu", ACTIVATIONS)
        head = weights.scope("cls.predictions")
        transform = head.scope("transform")
        self.dense = Projection(transform.scope("dense"), width, width, bias=True)
        eps = config.number("layer_norm_eps", 1e-12)
        self.norm = LayerNorm(transform.scope("LayerNorm"), width, eps)
        self.bias = head.parameter("bias", (vocabulary,))
        head.ignore("decoder.bias")
        # A file for pretraining has the head of the next-sentence task as well.
        for name in ("weight", "bias"):
            weights.ignore(f"cls.seq_relationship.{name}")
        self.head = None
        if config.flag("tie_word_embeddings", True):
            head.ignore("decoder.weight")
        else:
            self.head = head.parameter("decoder.weight", (vocabulary, width))

    def forward(self, tokens: Any, mask: Any = None, types: Any = None) -> Any:
        x = self.norm(self.activation(self.dense(self.encoder(tokens, mask, types))))
        head = self.encoder.words if self.head is None else self.head
        return F.linear(x, head, self.bias)


class BertForSequenceClassification(Module):
    """The encoder with scores of classes from the pooled features."""

    def __init__(self, config: ModelConfig, weights: Weights):
        self.encoder = BertEncoder(config, weights)
        if self.encoder.pooler is None:
            weights.take("bert.pooler.dense.weight")
        labels = config.get("id2label")
        count = len(labels) if isinstance(labels, dict) else config.size("num_labels", 2)
        self.classifier = Projection(
            weights.scope("classifier"), config.size("hidden_size"), count, bias=True
        )

    def forward(self, tokens: Any, mask: Any = None, types: Any = None) -> Any:
        return self.classifier(self.encoder.pool(self.encoder(tokens, mask, types)))
