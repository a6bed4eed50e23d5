"""The layer that torch makes of `nn.LSTM` on a CPU: one layer, one direction.

The products with the inputs of all steps are one matmul, the steps are a `nova.scan`. Gradients
are those of the same graph: the backward op computes the states again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.core.dtypes import f32, u8
from nova.frontends.torch.rows.table import cast, row, unsupported
from nova.graph.control.functions import scan
from nova.graph.jacobians import vjp
from nova.ops import F

_LSTM = 2
"""The number of LSTM among the kinds of recurrent layers of oneDNN."""


def _lstm(reverse: bool, *operands: Any) -> tuple[Any, Any, Any]:
    """Outputs of all steps, and the last hidden and cell state; gates are in torch's order."""
    x, w_input, w_hidden, b_input, b_hidden, hidden, cell = operands
    projected = F.linear(x, w_input, F.add(b_input, b_hidden))
    transposed = F.transpose(w_hidden)
    size = w_hidden.shape[1]

    def step(state: tuple[Any, Any], inputs: Any) -> tuple[tuple[Any, Any], Any]:
        h, c = state
        gates = F.add(inputs, F.matmul(h, transposed))
        i, f, g, o = (gates[..., n * size : (n + 1) * size] for n in range(4))
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        h = F.sigmoid(o) * F.tanh(c)
        return (h, c), h

    state, outputs = scan(step, (hidden, cell), projected, reverse=reverse)
    return outputs, *state


def _checked_operands(
    F: Any, tensors: Sequence[Any], mode: int, layers: int, directions: bool, lengths: Any
) -> list[Any]:
    """The operands in f32, states without the axis of layers."""
    if mode != _LSTM or layers != 1 or directions or lengths:
        raise unsupported("a recurrent layer other than an LSTM of one layer and direction")
    *others, hidden, cell = (cast(F, t, f32) for t in tensors)
    shape = hidden.shape[-2:]
    return [*others, F.reshape(hidden, shape), F.reshape(cell, shape)]


def _layer(reverse: bool, has_biases: bool) -> Callable[..., tuple[Any, Any, Any]]:
    """The layer as a function of its operands; biases that it does not have are zeros."""

    def layer(*operands: Any) -> tuple[Any, Any, Any]:
        if has_biases:
            return _lstm(reverse, *operands)
        zeros = F.full(shape=(operands[1].shape[0],), value=0.0, dtype=f32)
        return _lstm(reverse, *operands[:3], zeros, zeros, *operands[5:])

    return layer


@row("mkldnn_rnn_layer.default")
def _rnn_layer(F: Any, *args: Any) -> tuple[Any, ...]:
    tensors = args[:7]
    reverse, lengths, mode, _, layers, has_biases, directions, _, _ = args[7:]
    operands = _checked_operands(F, tensors, mode, layers, directions, lengths)
    outputs, h, c = _layer(reverse, has_biases)(*operands)
    states = tensors[5].shape
    workspace = F.full(shape=(0,), value=0, dtype=u8)
    return outputs, F.reshape(h, states), F.reshape(c, states), workspace


@row("mkldnn_rnn_layer_backward.default")
def _rnn_layer_backward(F: Any, *args: Any) -> tuple[Any, ...]:
    tensors, gradients = args[:7], args[10:13]
    reverse, mode, _, layers, has_biases, _, directions, lengths, _, _ = args[13:]
    operands = _checked_operands(F, tensors, mode, layers, directions, lengths)
    results, pullback = vjp(_layer(reverse, has_biases), *operands)
    cotangents = tuple(
        F.zeros_like(r) if g is None else F.reshape(cast(F, g, f32), r.shape)
        for g, r in zip(gradients, results, strict=True)
    )
    biases = (F.full(shape=(tensors[1].shape[0],), value=0.0, dtype=f32),) * 2
    pulled = list(pullback(cotangents))
    pulled[3:5] = pulled[3:5] if has_biases else biases
    pulled[5:] = [F.reshape(g, t.shape) for g, t in zip(pulled[5:], tensors[5:], strict=True)]
    return tuple(pulled)
