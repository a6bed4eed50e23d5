"""Transformer layers (Vaswani et al.) with torch's names, defaults and `state_dict` layout.

Sequences are (length, batch, features), or (batch, length, features) with `batch_first`. Masks are
torch's: True in a bool mask hides a key, a float mask is added to the scores.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np

from nova.core.dtypes import bool_
from nova.core.location import user_location
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.nn import init
from nova.nn.attention import MultiheadAttention
from nova.nn.containers import ModuleList
from nova.nn.layers import Dropout, LayerNorm, Linear
from nova.nn.module import Module
from nova.ops import F

Activation = str | Callable[[Tensor], Tensor]
_ACTIVATIONS = ("relu", "gelu")


def _activation(layer: str, activation: Activation) -> Any:
    if callable(activation):
        return activation
    if activation not in _ACTIVATIONS:
        raise AttributeValueError(
            f"{layer}: activation {activation!r}",
            where=str(user_location()),
            hint=f"it is a function, or one of {', '.join(_ACTIVATIONS)}",
        )
    return getattr(F, activation)


def _merged(mask: Any, padding: Any) -> Any:
    """The mask that attention takes of the two that torch's layers take."""
    parts = [] if mask is None else [mask]
    if padding is not None:
        parts.append(F.unsqueeze(F.unsqueeze(padding, 1), 1))  # (batch, 1, 1, keys)
    if not parts:
        return None
    if all(part.dtype is bool_ for part in parts):
        hidden = parts[0] if len(parts) == 1 else F.logical_or(*parts)
        return F.logical_not(hidden)
    added = [F.where(p, -np.inf, 0.0) if p.dtype is bool_ else p for p in parts]
    return added[0] if len(added) == 1 else added[0] + added[1]


class _Layer(Module):
    """The parts that encoder and decoder layers share, in the order of torch's `state_dict`."""

    reads_memory: ClassVar[bool]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = "f32",
    ):
        self.batch_first, self.norm_first = batch_first, norm_first
        self.activation = _activation(type(self).__name__, activation)
        options: dict[str, Any] = {"bias": bias, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, **options)
        if self.reads_memory:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, **options)
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, **options)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, **options)
        if self.reads_memory:
            self.norm3 = LayerNorm(d_model, layer_norm_eps, **options)

    def _attend(
        self, attention: MultiheadAttention, x: Tensor, memory: Tensor, mask: Any, padding: Any
    ) -> Tensor:
        """Attention with torch's masks."""
        if mask is not None and len(mask.shape) == 3:
            mask = F.reshape(mask, (-1, attention.heads, *mask.shape[1:]))
        return self.dropout(attention(x, memory, memory, mask=_merged(mask, padding)))

    def _feed(self, x: Tensor) -> Tensor:
        """The two linear layers."""
        hidden = self.dropout(self.activation(self.linear1(x)))
        return self.dropout(self.linear2(hidden))

    def _apply_blocks(
        self, x: Any, *blocks: tuple[LayerNorm, Callable[[Tensor], Tensor]]
    ) -> Tensor:
        """Blocks with residual connections, each normalized before or after."""
        x = _batch_first(self, x)
        for norm, block in blocks:
            x = x + block(norm(x)) if self.norm_first else norm(x + block(x))
        return _batch_first(self, x)


class TransformerEncoderLayer(_Layer):
    """Self-attention and two linear layers, each with a residual connection and a layer norm."""

    reads_memory = False

    def forward(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self._attend(self.self_attn, x, x, src_mask, src_key_padding_mask)

        return self._apply_blocks(src, (self.norm1, attend), (self.norm2, self._feed))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to a memory and two linear layers."""

    reads_memory = True

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
    ) -> Tensor:
        memory = _batch_first(self, memory)

        def attend(x: Tensor) -> Tensor:
            return self._attend(self.self_attn, x, x, tgt_mask, tgt_key_padding_mask)

        def attend_memory(x: Tensor) -> Tensor:
            masks = (memory_mask, memory_key_padding_mask)
            return self._attend(self.multihead_attn, x, memory, *masks)

        return self._apply_blocks(
            tgt, (self.norm1, attend), (self.norm2, attend_memory), (self.norm3, self._feed)
        )


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer, and a norm after the last."""

    norm: Module | None

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None
    ):
        self.layers = _copies("TransformerEncoder", encoder_layer, num_layers)
        self.norm = norm

    def forward(self, src: Any, mask: Any = None, src_key_padding_mask: Any = None) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer, and a norm after the last."""

    norm: Module | None

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ):
        self.layers = _copies("TransformerDecoder", decoder_layer, num_layers)
        self.norm = norm

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
    ) -> Tensor:
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder that attends to its result."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = "f32",
    ):
        args = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        options: dict[str, Any] = {
            "batch_first": batch_first,
            "norm_first": norm_first,
            "bias": bias,
            "dtype": dtype,
        }
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype) for _ in range(2)]
        self.encoder = TransformerEncoder(
            TransformerEncoderLayer(*args, **options), num_encoder_layers, norms[0]
        )
        self.decoder = TransformerDecoder(
            TransformerDecoderLayer(*args, **options), num_decoder_layers, norms[1]
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                parameter.data[...] = init.xavier_uniform(parameter.shape, dtype=dtype)

    def forward(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        )

    @staticmethod
    def generate_square_subsequent_mask(size: int) -> Tensor:
        """A float mask that hides later keys: 0 up to the diagonal, -inf after it."""
        past = F.unsqueeze(F.arange(size), 1) >= F.arange(size)
        return F.where(past, 0.0, -np.inf).cast("f32")


def _batch_first(layer: Any, x: Any) -> Tensor:
    """(batch, length, features) of either order of axes, and back."""
    return x if layer.batch_first or len(x.shape) == 2 else F.swapaxes(x, 0, 1)


def _copies(name: str, layer: Module, count: int) -> ModuleList:
    if type(count) is not int or count < 1:
        raise AttributeValueError(
            f"{name}: {count!r} layers", where=str(user_location()), hint="at least 1"
        )
    return ModuleList(deepcopy(layer) for _ in range(count))
