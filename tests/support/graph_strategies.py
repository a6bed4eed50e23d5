"""Random programs: graphs of 5 to 50 ops over a few leaves, values kept bounded.

Every step picks an op family and operands that fit it. Functions that grow fast are squashed, so
that compiled results and the oracle can be compared with one tolerance. All choices are integers:
those of hypothesis, which makes failures small, or those of a seed, which are as even as can be.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import nova
from nova.graph import Tensor

_SIZES = (1, 2, 3, 5, 8, 17)
_UNARY = ("tanh", "sin", "sigmoid", "relu", "abs", "neg", "gelu", "erf", "atan", "silu", "square")
_BINARY = ("add", "sub", "mul", "minimum", "maximum", "atan2")
_REDUCE = ("sum", "mean", "max", "min", "logsumexp", "prod")
_ROWWISE = ("softmax", "log_softmax", "layer_norm", "rms_norm")


Draw = Callable[[int, int], int]
"""An integer from the first number to the second."""


@st.composite
def programs(draw, dtype=np.float64, min_ops=5, max_ops=50):
    """(leaves, outputs): float leaves with data, and one to three tensors computed from them."""
    return make_program(lambda low, high: draw(st.integers(low, high)), dtype, min_ops, max_ops)


def make_program(
    draw: Draw,
    dtype: Any,
    min_ops: int,
    max_ops: int,
    sizes: Sequence[int] = _SIZES,
    ranks: tuple[int, int] = (0, 3),
    largest: int = 4096,
    broadcast: bool = True,
) -> tuple[list[Tensor], list[Tensor]]:
    """The same; dimensions are among `sizes`, and no value has more than `largest` elements.

    With `broadcast`, leaves may lack dimensions, or have 1 in their place.
    """
    rng = np.random.default_rng(draw(0, 2**31))
    rank = draw(*ranks)
    shape = tuple(_pick(draw, sizes) for _ in range(rank))
    leaves = []
    for i in range(draw(1, 3)):
        part = shape
        if broadcast:
            part = tuple(n if draw(0, 1) else 1 for n in shape)[draw(0, rank) :]
        leaves.append(nova.tensor(rng.uniform(-1, 1, part).astype(dtype), name=f"leaf{i}"))
    pool: list[Tensor] = list(leaves)
    for _ in range(draw(min_ops, max_ops)):
        value = _step(draw, pool)
        if value is not None and value.size <= largest:
            pool.append(value)
    outputs = [pool[-1]] + [_pick(draw, pool) for _ in range(draw(0, 2))]
    return leaves, outputs


def seeded(seed: int) -> Draw:
    """The choices of a seed."""
    return random.Random(seed).randint


def _pick(draw: Draw, items):
    # By index: comparing tensors builds graph.
    return items[draw(0, len(items) - 1)]


def _shuffled(draw: Draw, items):
    remaining = list(items)
    return [remaining.pop(draw(0, len(remaining) - 1)) for _ in range(len(remaining))]


def _step(draw, pool: list[Tensor]) -> Tensor | None:
    x = _pick(draw, pool)
    mode = _pick(draw, _STEPS)
    return mode(draw, pool, x)


def _unary(draw, pool, x):
    return nova.FUNCTIONS[_pick(draw, _UNARY)](x)


def _binary(draw, pool, x):
    fitting = [t for t in pool if _broadcasts(t.shape, x.shape)]
    second = _pick(draw, fitting)
    value = nova.FUNCTIONS[_pick(draw, _BINARY)](x, second)
    return nova.tanh(value) if draw(0, 1) else value


def _reduce(draw, pool, x):
    if x.ndim == 0:
        return None
    axes = _shuffled(draw, range(x.ndim))[: draw(1, x.ndim)]
    name = _pick(draw, _REDUCE)
    value = nova.FUNCTIONS[name](x, axis=tuple(axes), keepdims=draw(0, 1) == 1)
    return nova.tanh(value)


def _rowwise(draw, pool, x):
    if x.ndim == 0:
        return None
    return nova.FUNCTIONS[_pick(draw, _ROWWISE)](x)


def _matmul(draw, pool, x):
    fitting = [t for t in pool if t.ndim >= 1 and x.ndim >= 2 and _contracts(x.shape, t.shape)]
    if not fitting:
        return nova.tanh(x @ x.transpose(*_swapped(x.ndim))) if x.ndim >= 2 else None
    return nova.tanh(x @ _pick(draw, fitting))


def _shape(draw, pool, x):
    choice = _pick(draw, ["flatten", "unsqueeze", "permute", "slice", "flip", "pad"])
    if choice == "flatten":
        return x.reshape((x.size,))
    if choice == "unsqueeze":
        return nova.unsqueeze(x, draw(0, x.ndim))
    if x.ndim == 0:
        return None
    axis = draw(0, x.ndim - 1)
    if choice == "permute":
        return nova.permute(x, tuple(_shuffled(draw, range(x.ndim))))
    if choice == "flip":
        return nova.flip(x, axis)
    if choice == "pad":
        before, after = draw(0, 2), draw(0, 2)
        low = tuple(before if i == axis else 0 for i in range(x.ndim))
        high = tuple(after if i == axis else 0 for i in range(x.ndim))
        return nova.pad(x, low, high, value=0.5)
    step = _pick(draw, [1, 2, -1])
    start = draw(0, x.shape[axis] - 1) if x.shape[axis] else 0
    key = [slice(None)] * x.ndim
    key[axis] = slice(start, None, step)
    return x[tuple(key)]


def _concat(draw, pool, x):
    if x.ndim == 0:
        return None
    identical = [t for t in pool if t.shape == x.shape]
    return nova.concat([x, _pick(draw, identical)], axis=draw(0, x.ndim - 1))


def _where(draw, pool, x):
    fitting = [t for t in pool if _broadcasts(t.shape, x.shape)]
    second = _pick(draw, fitting)
    return nova.where(x > 0.1, x, second)


_STEPS = (_unary, _binary, _reduce, _rowwise, _matmul, _shape, _concat, _where)


def _broadcasts(a, b) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def _contracts(a, b) -> bool:
    try:
        np.matmul(np.zeros(a), np.zeros(b))
    except ValueError:
        return False
    return True


def _swapped(rank: int) -> tuple[tuple[int, ...]]:
    return ((*range(rank - 2), rank - 1, rank - 2),)
