"""Random graphs of matrices whose values live for short and long times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import nova

N = 24


@dataclass
class Graph:
    """A random program: inputs, params, what it returns and what it updates."""

    inputs: list[Any]
    params: list[Any]
    outputs: list[Any]
    updates: dict[Any, Any]


def _square(value: Any) -> Any:
    return value if value.shape == (N, N) else nova.expand(value, (N, N))


STEPS = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b * 0.5,
    "matmul": lambda a, b: _square(a) @ _square(b) * (1.0 / N),
    "tanh": lambda a, b: nova.tanh(a),
    "softmax": lambda a, b: nova.softmax(_square(a)),
    "rows": lambda a, b: nova.mean(_square(a), axis=1, keepdims=True),
    "columns": lambda a, b: nova.mean(_square(a), axis=0, keepdims=True),
    "transpose": lambda a, b: _square(a).transpose(),
    "reshape": lambda a, b: _square(a).reshape((N * N,))[::-1].reshape((N, N)),
    "concat": lambda a, b: nova.concat([_square(a)[1:], _square(b)[:1]], axis=0),
    "gather": lambda a, b: nova.take(
        _square(a), nova.tensor(np.arange(N, dtype=np.int64)[::-1].copy()), axis=0
    ),
    "where": lambda a, b: nova.where(_square(a) > b, a, b),
}


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to 18 steps over matrices, rows and columns, with one to three results and updates."""
    inputs = [nova.tensor(data(i), name=f"x{i}") for i in range(2)]
    params = [nova.tensor(data(2 + i), name=f"p{i}", requires_grad=True) for i in range(2)]
    values = [*inputs, *params]
    for _ in range(draw(st.integers(1, 18))):
        step = STEPS[draw(st.sampled_from(sorted(STEPS)))]
        # Mostly recent values, so that chains grow and old buffers die.
        pick = st.integers(0, len(values) - 1)
        first = draw(st.one_of(pick, st.integers(max(0, len(values) - 3), len(values) - 1)))
        values.append(step(values[first], values[draw(pick)]))
    outputs = [
        values[draw(st.integers(0, len(values) - 1))] for _ in range(draw(st.integers(0, 2)))
    ]
    outputs.append(values[-1])
    updates = {
        p: _square(values[draw(st.integers(0, len(values) - 1))])
        for p in params
        if draw(st.booleans())
    }
    return Graph(inputs, params, outputs, updates)


def data(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((N, N)).astype(np.float32)


def with_gradients(graph: Graph) -> Graph:
    """The same with gradients of its last value, for which values wait."""
    grads = nova.graph.gradients(graph.outputs[-1].sum(), graph.params)
    return Graph(graph.inputs, graph.params, [*graph.outputs, *grads], graph.updates)
