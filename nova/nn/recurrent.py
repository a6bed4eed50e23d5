"""Recurrent layers with torch's parameter names, shapes, gate order and initial distributions.

A layer is one `nova.scan` over time: the products with the inputs of all steps are one matmul
before it. In a `PackedSequence` states are held from the end of each sequence on; in the reverse
direction, until its last element. Cells are single steps.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from nova.core.location import user_location
from nova.errors import AttributeValueError, ShapeError
from nova.graph import Tensor, scan
from nova.nn import init
from nova.nn.layers import flags, sizes
from nova.nn.module import Module
from nova.nn.parameter import Parameter
from nova.nn.seeds import next_seed
from nova.nn.utils.rnn import PackedSequence
from nova.ops import F

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State, Tensor, Any], State]
"""(gates of the input, state, recurrent weight as (hidden, gates), recurrent bias) -> state."""


def _rnn_step(activation: Callable[[Tensor], Tensor]) -> Step:
    def step(gates: Tensor, state: State, weight: Tensor, bias: Any) -> State:
        return (activation(gates + _recurrent(state[0], weight, bias)),)

    return step


_RNN_STEPS = {"tanh": _rnn_step(lambda x: F.tanh(x)), "relu": _rnn_step(lambda x: F.relu(x))}


def _nonlinearity(layer: str, name: str) -> str:
    """The name of an activation; an error names the layer."""
    if name not in _RNN_STEPS:
        raise AttributeValueError(
            f"{layer}: nonlinearity is {name!r}",
            where=str(user_location()),
            hint='"tanh" or "relu"',
        )
    return name


def _lstm_step(gates: Tensor, state: State, weight: Tensor, bias: Any) -> State:
    hidden, cell = state
    i, f, g, o = F.split(gates + _recurrent(hidden, weight, bias), 4, axis=-1)
    cell = F.sigmoid(f) * cell + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(cell), cell


def _gru_step(gates: Tensor, state: State, weight: Tensor, bias: Any) -> State:
    (hidden,) = state
    r, z, n = F.split(gates, 3, axis=-1)
    recurrent_r, recurrent_z, recurrent_n = F.split(_recurrent(hidden, weight, bias), 3, axis=-1)
    z = F.sigmoid(z + recurrent_z)
    new = F.tanh(n + F.sigmoid(r + recurrent_r) * recurrent_n)
    return ((hidden - new) * z + new,)


def _recurrent(hidden: Tensor, weight: Tensor, bias: Any) -> Tensor:
    product = hidden @ weight
    return product if bias is None else product + bias


class _Recurrent(Module):
    """Layers of a recurrent network; subclasses have the gates, the states and the step."""

    gates = 1
    states = 1
    step: Step
    weight_hh_l0: Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        title = type(self).__name__
        sizes(title, (input_size, hidden_size, num_layers, proj_size))
        flags(title, bias=bias, batch_first=batch_first, bidirectional=bidirectional)
        if num_layers < 1:
            raise AttributeValueError(
                f"{title}: num_layers is {num_layers}",
                where=str(user_location()),
                hint="a recurrent network has at least one layer",
            )
        if not 0.0 <= dropout < 1.0:
            raise AttributeValueError(
                f"{title}: dropout is {dropout}",
                where=str(user_location()),
                hint="0 <= dropout < 1",
            )
        self._check_projection(title, hidden_size, proj_size)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.proj_size = proj_size
        self.has_bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.directions = ("", "_reverse") if bidirectional else ("",)
        bound = 1.0 / sqrt(hidden_size) if hidden_size else 0.0
        rows = self.gates * hidden_size

        def drawn(*shape: int) -> Parameter:
            return Parameter(init.uniform(shape, -bound, bound, dtype=dtype, generator=generator))

        for layer in range(num_layers):
            outputs = proj_size or hidden_size
            width = input_size if layer == 0 else outputs * len(self.directions)
            for direction in self.directions:
                suffix = f"l{layer}{direction}"
                setattr(self, f"weight_ih_{suffix}", drawn(rows, width))
                setattr(self, f"weight_hh_{suffix}", drawn(rows, outputs))
                if bias:
                    setattr(self, f"bias_ih_{suffix}", drawn(rows))
                    setattr(self, f"bias_hh_{suffix}", drawn(rows))
                if proj_size:
                    setattr(self, f"weight_hr_{suffix}", drawn(proj_size, hidden_size))

    def _check_projection(self, title: str, hidden_size: int, proj_size: int) -> None:
        if not proj_size:
            return
        if self.states != 2 or proj_size >= hidden_size:
            raise AttributeValueError(
                f"{title}: proj_size is {proj_size} for hidden_size {hidden_size}",
                where=str(user_location()),
                hint="LSTM projects its hidden state to fewer features",
            )

    def _run(self, x: Any, state: State | None) -> tuple[Any, State]:
        """The outputs of the last layer, and the last state of every layer and direction."""
        packed = x if isinstance(x, PackedSequence) else None
        x = F.cast(x if packed is None else packed.data, dtype=self.weight_hh_l0.dtype)
        title = type(self).__name__
        ranks = (2, 3) if packed is None else (3,)
        if x.ndim not in ranks or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{title}: the input has shape {x.shape}, must be (time, batch, {self.input_size})",
                where=str(user_location()),
                hint="(batch, time, features) with batch_first=True; or (time, features)",
            )
        is_batch = x.ndim == 3
        if not is_batch:
            x = F.unsqueeze(x, 1)
        elif self.batch_first and packed is None:
            x = F.permute(x, (1, 0, 2))
        mask = None if packed is None else packed.mask
        count = self.num_layers * len(self.directions)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: self.states]
        shapes = [(count, x.shape[1], width) for width in widths]
        if state is None:
            state = tuple(F.zeros(shape, dtype=x.dtype) for shape in shapes)
        elif not is_batch:
            state = tuple(F.unsqueeze(part, 1) for part in state)
        for part, shape in zip(state, shapes, strict=True):
            if part.shape != shape:
                raise ShapeError(
                    f"{title}: the state has shape {part.shape}, must be {shape}",
                    where=str(user_location()),
                )
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = F.dropout(x, next_seed(), p=self.dropout)
            outputs = []
            for direction in self.directions:
                initial = tuple(part[len(last)] for part in state)
                suffix = f"l{layer}{direction}"
                final, output = self._layer(x, mask, initial, suffix, bool(direction))
                last.append(final)
                outputs.append(output)
            x = outputs[0] if len(outputs) == 1 else F.concat(outputs, axis=-1)
        stacked = tuple(F.stack(list(parts)) for parts in zip(*last, strict=True))
        if packed is not None:
            return packed.with_data(x), stacked
        if not is_batch:
            return F.squeeze(x, 1), tuple(F.squeeze(part, 1) for part in stacked)
        return (F.permute(x, (1, 0, 2)) if self.batch_first else x), stacked

    def _layer(
        self, x: Tensor, mask: Tensor | None, state: State, suffix: str, reverse: bool
    ) -> tuple[State, Tensor]:
        bias = getattr(self, f"bias_ih_{suffix}") if self.has_bias else None
        gates = F.linear(x, getattr(self, f"weight_ih_{suffix}"), bias)
        weight = F.permute(getattr(self, f"weight_hh_{suffix}"), (1, 0))
        recurrent_bias = getattr(self, f"bias_hh_{suffix}") if self.has_bias else None
        advance = self._projected(self.step, suffix)

        def step(carry: State, row: Tensor) -> tuple[State, Tensor]:
            new = advance(row, carry, weight, recurrent_bias)
            return new, new[0]

        def masked(carry: State, row: tuple[Tensor, Tensor]) -> tuple[State, Tensor]:
            new = advance(row[0], carry, weight, recurrent_bias)
            is_inside = F.unsqueeze(row[1], 1)
            new = tuple(F.where(is_inside, a, b) for a, b in zip(new, carry, strict=True))
            return new, new[0]

        if mask is not None:
            return scan(masked, state, (gates, mask), reverse=reverse)
        final, outputs = scan(step, state, gates, reverse=reverse)
        return final, outputs

    def _projected(self, step: Step, suffix: str) -> Step:
        """`step` with a product of the hidden state, if the layer has a projection."""
        if not self.proj_size:
            return step
        projection = F.permute(getattr(self, f"weight_hr_{suffix}"), (1, 0))

        def advance(gates: Tensor, state: State, weight: Tensor, bias: Any) -> State:
            hidden, *others = step(gates, state, weight, bias)
            return (hidden @ projection, *others)

        return advance


class RNN(_Recurrent):
    """h = tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh), over time; or relu."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        options = {"dtype": dtype, "generator": generator}
        layers = (input_size, hidden_size, num_layers)
        super().__init__(*layers, bias, batch_first, dropout, bidirectional, **options)
        self.nonlinearity = _nonlinearity("RNN", nonlinearity)

    @property
    def step(self) -> Step:  # type: ignore[override]
        return _RNN_STEPS[self.nonlinearity]

    def forward(self, x: Any, hx: Any = None) -> tuple[Any, Tensor]:
        output, (hidden,) = self._run(x, None if hx is None else (hx,))
        return output, hidden


class LSTM(_Recurrent):
    """Long short-term memory; returns the outputs and (hidden, cell) of the last step.

    With `proj_size` the hidden state of each step is projected to that many features.
    """

    gates, states = 4, 2
    step = staticmethod(_lstm_step)

    def forward(self, x: Any, hx: Any = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        output, (hidden, cell) = self._run(x, None if hx is None else tuple(hx))
        return output, (hidden, cell)


class GRU(_Recurrent):
    """Gated recurrent units, with torch's placement of the recurrent bias of the new gate."""

    gates = 3
    step = staticmethod(_gru_step)

    def forward(self, x: Any, hx: Any = None) -> tuple[Any, Tensor]:
        output, (hidden,) = self._run(x, None if hx is None else (hx,))
        return output, hidden


# --- cells ----------------------------------------------------------------------------------------


class _Cell(Module):
    """One step of a recurrent network, for a batch or a single vector."""

    gates = 1
    states = 1
    step: Step
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        sizes(type(self).__name__, (input_size, hidden_size))
        flags(type(self).__name__, bias=bias)
        bound = 1.0 / sqrt(hidden_size) if hidden_size else 0.0
        rows = self.gates * hidden_size

        def drawn(*shape: int) -> Parameter:
            return Parameter(init.uniform(shape, -bound, bound, dtype=dtype, generator=generator))

        self.weight_ih = drawn(rows, input_size)
        self.weight_hh = drawn(rows, hidden_size)
        self.bias_ih = drawn(rows) if bias else None
        self.bias_hh = drawn(rows) if bias else None

    def _run(self, x: Any, state: State | None) -> State:
        gates = F.linear(x, self.weight_ih, self.bias_ih)
        if state is None:
            shape = (*gates.shape[:-1], self.weight_hh.shape[1])
            state = tuple(F.zeros(shape, dtype=gates.dtype) for _ in range(self.states))
        weight = F.permute(self.weight_hh, (1, 0))
        return self.step(gates, state, weight, self.bias_hh)


class RNNCell(_Cell):
    """One step of `RNN`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        super().__init__(input_size, hidden_size, bias, dtype=dtype, generator=generator)
        self.nonlinearity = _nonlinearity("RNNCell", nonlinearity)

    @property
    def step(self) -> Step:  # type: ignore[override]
        return _RNN_STEPS[self.nonlinearity]

    def forward(self, x: Any, hx: Any = None) -> Tensor:
        return self._run(x, None if hx is None else (hx,))[0]


class LSTMCell(_Cell):
    """One step of `LSTM`; returns (hidden, cell)."""

    gates, states = 4, 2
    step = staticmethod(_lstm_step)

    def forward(self, x: Any, hx: Any = None) -> tuple[Tensor, Tensor]:
        hidden, cell = self._run(x, None if hx is None else tuple(hx))
        return hidden, cell


class GRUCell(_Cell):
    """One step of `GRU`."""

    gates = 3
    step = staticmethod(_gru_step)

    def forward(self, x: Any, hx: Any = None) -> Tensor:
        return self._run(x, None if hx is None else (hx,))[0]
