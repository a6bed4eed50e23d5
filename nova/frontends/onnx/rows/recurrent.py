"""Rows of recurrent layers: RNN, GRU and LSTM.

The products with the inputs of all steps are one matmul. The steps are a `nova.scan`, or unrolled
if they are few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova.core.dtypes import i64
from nova.errors import OnnxError
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast
from nova.frontends.onnx.rows.control import LEAST_LOOP
from nova.frontends.onnx.table import row
from nova.graph.control.functions import scan
from nova.ops import F

Activation = Callable[[Any], Any]
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {
    "RNN": ["Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
}


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    def scale(default: float) -> float:
        return default if alpha is None else alpha

    table: dict[str, Activation] = {
        "relu": F.relu,
        "tanh": F.tanh,
        "sigmoid": F.sigmoid,
        "affine": lambda x: x * scale(1.0) + (beta or 0.0),
        "leakyrelu": lambda x: F.leaky_relu(x, negative_slope=scale(0.01)),
        "thresholdedrelu": lambda x: F.where(F.gt(x, scale(1.0)), x, 0.0),
        "scaledtanh": lambda x: F.tanh(x * (1.0 if beta is None else beta)) * scale(1.0),
        "hardsigmoid": lambda x: F.clamp(
            x * scale(0.2) + (0.5 if beta is None else beta), min=0.0, max=1.0
        ),
        "elu": lambda x: F.elu(x, alpha=scale(1.0)),
        "softsign": F.softsign,
        "softplus": F.softplus,
    }
    if name.lower() not in table:
        raise OnnxError(f"there is no activation {name!r}")
    return table[name.lower()]


class _Layer:
    """One direction of a recurrent layer: its weights and activations."""

    def __init__(self, node: Node, number: int, size: int):
        def part(position: int) -> Any:
            value = node.optional(position)
            return None if value is None else value[number]

        self.node, self.size = node, size
        self.weight, self.recurrent = part(1), part(2)
        bias = part(3)
        gates = _GATES[node.op]
        self.bias = self.recurrent_bias = None
        if bias is not None:
            self.bias, self.recurrent_bias = bias[: gates * size], bias[gates * size :]
        self.peephole = part(7) if node.op == "LSTM" else None
        names = list(node.attr("activations", None) or [])
        each = len(_DEFAULTS[node.op])
        names = names[number * each : (number + 1) * each] or _DEFAULTS[node.op]
        alphas, betas = (list(node.attr(f"activation_{a}", None) or []) for a in ("alpha", "beta"))
        first = number * each
        self.activations = [
            _activation(
                name,
                alphas[first + i] if first + i < len(alphas) else None,
                betas[first + i] if first + i < len(betas) else None,
            )
            for i, name in enumerate(names)
        ]
        self.limit = node.attr("clip", None)

    def activate(self, which: int, x: Any) -> Any:
        if self.limit is not None:
            x = F.clamp(x, min=-self.limit, max=self.limit)
        return self.activations[which](x)

    def gates(self, value: Any) -> list[Any]:
        count = value.shape[-1] // self.size
        return [value[..., i * self.size : (i + 1) * self.size] for i in range(count)]

    def project(self, x: Any) -> Any:
        """The inputs of all steps times the weights of all gates."""
        product = F.matmul(x, F.transpose(self.weight))
        return product if self.bias is None else product + self.bias

    def hidden(self, state: Any, weight: Any = None, bias: Any = None) -> Any:
        product = F.matmul(state, F.transpose(self.recurrent if weight is None else weight))
        bias = self.recurrent_bias if weight is None else bias
        return product if bias is None else product + bias

    def step(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """The state after one step; `x` is the projected input."""
        return {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.node.op](x, state)

    def _rnn(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.activate(0, x + self.hidden(state[0])),)

    def _gru(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        [h] = state
        size = self.size
        update, reset, candidate = self.gates(x)
        weight, bias = self.recurrent, self.recurrent_bias
        both = self.gates(
            self.hidden(h, weight[: 2 * size], None if bias is None else bias[: 2 * size])
        )
        z, r = self.activate(0, update + both[0]), self.activate(0, reset + both[1])
        last = None if bias is None else bias[2 * size :]
        if self.node.attr("linear_before_reset", 0):
            inner = r * self.hidden(h, weight[2 * size :], last)
        else:
            inner = self.hidden(r * h, weight[2 * size :], last)
        return ((1.0 - z) * self.activate(1, candidate + inner) + z * h,)

    def _lstm(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        h, c = state
        i, o, f, g = self.gates(x + self.hidden(h))
        peep_i = peep_o = peep_f = None
        if self.peephole is not None:
            peep_i, peep_o, peep_f = self.gates(self.peephole)
            i, f = i + peep_i * c, f + peep_f * c
        i, f = self.activate(0, i), self.activate(0, f)
        f = 1.0 - i if self.node.attr("input_forget", 0) else f
        cell = f * c + i * self.activate(1, g)
        o = o if peep_o is None else o + peep_o * cell
        return (self.activate(0, o) * self.activations[2](cell), cell)


@row("RNN", "GRU", "LSTM")
def _recurrent(node: Node) -> Any:
    x = node.tensor(0)
    batch_first = bool(node.attr("layout", 0))
    x = F.swapaxes(x, 0, 1) if batch_first else x
    batch = x.shape[1]
    direction = node.attr("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise OnnxError(f"{node.op}: direction {direction!r}")
    count = 2 if direction == "bidirectional" else 1
    size = node.tensor(2).shape[-1]
    lengths = None if node.optional(4) is None else cast(node.tensor(4), i64)
    states = 2 if node.op == "LSTM" else 1
    sequences, finals = [], []
    for number in range(count):
        layer = _Layer(node, number, size)
        initial = []
        for position in (5, 6)[:states]:
            value = node.optional(position)
            if value is None:
                initial.append(F.zeros((batch, size), dtype=x.dtype))
            else:
                initial.append(value[:, number] if batch_first else value[number])
        backward = direction == "reverse" or number == 1
        outputs, final = _run(layer, x, tuple(initial), lengths, backward)
        sequences.append(outputs)
        finals.append(final)
    sequence = F.stack(sequences, axis=1)
    last = [F.stack([final[i] for final in finals], axis=0) for i in range(states)]
    if batch_first:
        sequence = F.permute(sequence, axes=(2, 0, 1, 3))
        last = [F.swapaxes(value, 0, 1) for value in last]
    return (sequence, *last)


def _run(
    layer: _Layer, x: Any, state: tuple[Any, ...], lengths: Any, backward: bool
) -> tuple[Any, tuple[Any, ...]]:
    """The hidden states of all steps, and the last state of each sequence."""
    steps = x.shape[0]
    projected = layer.project(x)

    def advance(state: tuple[Any, ...], item: tuple[Any, Any]) -> tuple[tuple[Any, ...], Any]:
        inputs, at = item
        new = layer.step(inputs, state)
        output = new[0]
        if lengths is not None:
            # Beyond its length a sequence keeps its state, and its output is 0.
            inside = F.reshape(F.gt(lengths, at), (-1, 1))
            new = tuple(F.where(inside, a, b) for a, b in zip(new, state, strict=True))
            output = F.where(inside, output, 0.0)
        return new, output

    if steps >= LEAST_LOOP:
        last, outputs = scan(advance, state, (projected, F.arange(steps)), reverse=backward)
        return outputs, last
    rows: list[Any] = [None] * steps
    for at in reversed(range(steps)) if backward else range(steps):
        state, rows[at] = advance(state, (projected[at], at))
    return F.stack(rows, axis=0), state
