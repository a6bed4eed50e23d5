"""Random programs for hypothesis: graphs of 5 to 50 ops over a few leaves, values kept bounded.

Every step picks an op family and operands that fit it. Functions that grow fast are squashed, so
that compiled results and the oracle can be compared with one tolerance.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import nova
from nova.graph import Tensor

_SIZES = st.sampled_from([1, 2, 3, 5, 8, 17])
_UNARY = ("tanh", "sin", "sigmoid", "relu", "abs", "neg", "gelu", "erf", "atan", "silu", "square")
_BINARY = ("add", "sub", "mul", "minimum", "maximum", "atan2")
_REDUCE = ("sum", "mean", "max", "min", "logsumexp", "prod")
_ROWWISE = ("softmax", "log_softmax", "layer_norm", "rms_norm")


@st.composite
def programs(draw, dtype=np.float64, min_ops=5, max_ops=50):
    """(leaves, outputs): float leaves with data, and one to three tensors computed from them."""
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(_SIZES) for _ in range(rank))
    leaves = []
    for i in range(draw(st.integers(1, 3))):
        part = tuple(n if draw(st.booleans()) else 1 for n in shape)[draw(st.integers(0, rank)) :]
        leaves.append(nova.tensor(rng.uniform(-1, 1, part).astype(dtype), name=f"leaf{i}"))
    pool: list[Tensor] = list(leaves)
    for _ in range(draw(st.integers(min_ops, max_ops))):
        value = _step(draw, pool)
        if value is not None and value.size <= 4096:
            pool.append(value)
    outputs = [pool[-1]] + [_pick(draw, pool) for _ in range(draw(st.integers(0, 2)))]
    return leaves, outputs


def _pick(draw, items):
    # By index: hypothesis would compare tensors, and comparing tensors builds graph.
    return items[draw(st.integers(0, len(items) - 1))]


def _step(draw, pool: list[Tensor]) -> Tensor | None:
    x = _pick(draw, pool)
    kind = draw(st.sampled_from(_STEPS))
    return kind(draw, pool, x)


def _unary(draw, pool, x):
    return nova.FUNCTIONS[draw(st.sampled_from(_UNARY))](x)


def _binary(draw, pool, x):
    fitting = [t for t in pool if _broadcasts(t.shape, x.shape)]
    other = _pick(draw, fitting)
    value = nova.FUNCTIONS[draw(st.sampled_from(_BINARY))](x, other)
    return nova.tanh(value) if draw(st.booleans()) else value


def _reduce(draw, pool, x):
    if x.ndim == 0:
        return None
    axes = draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True))
    name = draw(st.sampled_from(_REDUCE))
    value = nova.FUNCTIONS[name](x, axis=tuple(axes), keepdims=draw(st.booleans()))
    return nova.tanh(value)


def _rowwise(draw, pool, x):
    if x.ndim == 0:
        return None
    return nova.FUNCTIONS[draw(st.sampled_from(_ROWWISE))](x)


def _matmul(draw, pool, x):
    fitting = [t for t in pool if t.ndim >= 1 and x.ndim >= 2 and _contracts(x.shape, t.shape)]
    if not fitting:
        return nova.tanh(x @ x.transpose(*_swapped(x.ndim))) if x.ndim >= 2 else None
    return nova.tanh(x @ _pick(draw, fitting))


def _shape(draw, pool, x):
    choice = draw(st.sampled_from(["flatten", "unsqueeze", "permute", "slice", "flip", "pad"]))
    if choice == "flatten":
        return x.reshape((x.size,))
    if choice == "unsqueeze":
        return nova.unsqueeze(x, draw(st.integers(0, x.ndim)))
    if x.ndim == 0:
        return None
    axis = draw(st.integers(0, x.ndim - 1))
    if choice == "permute":
        return nova.permute(x, tuple(draw(st.permutations(range(x.ndim)))))
    if choice == "flip":
        return nova.flip(x, axis)
    if choice == "pad":
        before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        low = tuple(before if i == axis else 0 for i in range(x.ndim))
        high = tuple(after if i == axis else 0 for i in range(x.ndim))
        return nova.pad(x, low, high, value=0.5)
    step = draw(st.sampled_from([1, 2, -1]))
    start = draw(st.integers(0, x.shape[axis] - 1)) if x.shape[axis] else 0
    key = [slice(None)] * x.ndim
    key[axis] = slice(start, None, step)
    return x[tuple(key)]


def _concat(draw, pool, x):
    if x.ndim == 0:
        return None
    same = [t for t in pool if t.shape == x.shape]
    return nova.concat([x, _pick(draw, same)], axis=draw(st.integers(0, x.ndim - 1)))


def _where(draw, pool, x):
    fitting = [t for t in pool if _broadcasts(t.shape, x.shape)]
    other = _pick(draw, fitting)
    return nova.where(x > 0.1, x, other)


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
