"""A GPT in Nova's layers: token and position embeddings, blocks of attention and MLP, tied output.

`examples/char_gpt.py` trains it; the tests compare it with the same model in torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import nova
from nova import nn


@dataclass(frozen=True)
class Config:
    """The sizes of a model."""

    vocabulary: int = 1024
    context: int = 128
    width: int = 256
    heads: int = 4
    layers: int = 4
    dropout: float = 0.0


class Block(nn.Module):
    """Attention and an MLP, each after a layer norm, with residual connections."""

    def __init__(self, config: Config):
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = nn.MultiheadAttention(config.width, config.heads, causal=True)
        self.norm2 = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: nova.Tensor) -> nova.Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        hidden = nova.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.dropout(self.down(hidden))


class GPT(nn.Module):
    """Scores of the next token, for every position of a batch of token sequences."""

    def __init__(self, config: Config):
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        # A normal distribution of width 1 would make the tied output far too sure of itself.
        for table in (self.tokens, self.positions):
            table.weight.data *= 0.02

    def forward(self, tokens: nova.Tensor) -> nova.Tensor:
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions.weight[:length]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T

    def loss(self, tokens: nova.Tensor, following: nova.Tensor) -> nova.Tensor:
        scores = self.forward(tokens)
        batch, length, vocabulary = scores.shape
        return nova.cross_entropy(
            scores.reshape((batch * length, vocabulary)), following.reshape((batch * length,))
        )
