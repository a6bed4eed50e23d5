"""The loss of a small GPT, its gradients and AdamW in numpy: the oracle of `workloads.train_gpt`.

Weights come by the names of `examples/gpt.py`, with linear ones as (in, out), in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
Back = Callable[[Array], Array]


class _Layers:
    """Each method gives a value and a function from its gradient to that of the input.

    Those functions leave the gradients of weights in `grads`.
    """

    def __init__(self, params: dict[str, Array]):
        self.params = params
        self.grads: dict[str, Array] = {}

    def norm(self, name: str, x: Array) -> tuple[Array, Back]:
        scale, shift = self.params[f"{name}.weight"], self.params[f"{name}.bias"]
        centred = x - x.mean(-1, keepdims=True)
        inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        unit = centred * inverse

        def back(g: Array) -> Array:
            self.grads[f"{name}.weight"] = (g * unit).sum(0)
            self.grads[f"{name}.bias"] = g.sum(0)
            g = g * scale
            parallel = unit * (g * unit).mean(-1, keepdims=True)
            return inverse * (g - g.mean(-1, keepdims=True) - parallel)

        return unit * scale + shift, back

    def linear(self, name: str, x: Array) -> tuple[Array, Back]:
        weight = self.params[f"{name}weight"]

        def back(g: Array) -> Array:
            self.grads[f"{name}weight"] = x.T @ g
            self.grads[f"{name}bias"] = g.sum(0)
            return g @ weight.T

        return x @ weight + self.params[f"{name}bias"], back

    def attend(self, qkv: Array, batch: int, heads: int) -> tuple[Array, Back]:
        rows, width = qkv.shape[0], qkv.shape[1] // 3
        length = rows // batch
        split = qkv.reshape(batch, length, 3, heads, width // heads)
        q, k, v = split.transpose(2, 0, 3, 1, 4)
        scale = 1 / math.sqrt(width // heads)
        scores = np.where(np.tri(length, dtype=bool), q @ k.swapaxes(-1, -2) * scale, -np.inf)
        exps = np.exp(scores - scores.max(-1, keepdims=True))
        weights = exps / exps.sum(-1, keepdims=True)

        def back(g: Array) -> Array:
            g = g.reshape(batch, length, heads, width // heads).swapaxes(1, 2)
            dweights = g @ v.swapaxes(-1, -2)
            inner = (dweights * weights).sum(-1, keepdims=True)
            dscores = weights * (dweights - inner) * scale
            parts = [dscores @ k, dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g]
            return np.stack(parts).transpose(1, 3, 0, 2, 4).reshape(rows, 3 * width)

        return (weights @ v).swapaxes(1, 2).reshape(rows, width), back

    def gelu(self, x: Array) -> tuple[Array, Back]:
        c = math.sqrt(2 / math.pi)
        t = np.tanh(c * (x + 0.044715 * x**3))

        def back(g: Array) -> Array:
            slope = (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)
            return g * 0.5 * (1 + t + x * slope)

        return 0.5 * x * (1 + t), back


def loss_and_gradients(
    params: dict[str, Array], tokens: Array, following: Array, *, layers: int, heads: int
) -> tuple[float, dict[str, Array]]:
    """The mean cross entropy of the following tokens, and a gradient for every weight."""
    ops = _Layers(params)
    table = params["tokens.weight"]
    batch, length = tokens.shape
    x = (table[tokens] + params["positions.weight"][:length]).reshape(batch * length, -1)
    branches: list[list[Back]] = []
    for i in range(layers):
        b = f"blocks.{i}"
        h, norm1 = ops.norm(f"{b}.norm1", x)
        h, project = ops.linear(f"{b}.attention.in_proj_", h)
        h, attend = ops.attend(h, batch, heads)
        h, out = ops.linear(f"{b}.attention.out_proj.", h)
        x = x + h
        branches.append([norm1, project, attend, out])
        h, norm2 = ops.norm(f"{b}.norm2", x)
        h, up = ops.linear(f"{b}.up.", h)
        h, gelu = ops.gelu(h)
        h, down = ops.linear(f"{b}.down.", h)
        x = x + h
        branches.append([norm2, up, gelu, down])
    x, last = ops.norm("norm", x)
    scores = x @ table.T
    shifted = scores - scores.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    positions = np.arange(batch * length), following.reshape(-1)
    loss = float(-logs[positions].mean())

    g = np.exp(logs)
    g[positions] -= 1
    g /= batch * length
    dtable = g.T @ x
    g = last(g @ table)
    for branch in reversed(branches):
        inner = g
        for back in reversed(branch):
            inner = back(inner)
        g = g + inner
    np.add.at(dtable, tokens.reshape(-1), g)
    dpositions = g.reshape(batch, length, -1).sum(0)
    return loss, ops.grads | {"tokens.weight": dtable, "positions.weight": dpositions}


def adamw(
    params: dict[str, Array],
    grads: dict[str, Array],
    state: dict[str, Any],
    step: int,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> None:
    """Update the weights and the moments in `state`; `step` counts from 1."""
    for name, g in grads.items():
        m, v = state.get(name, (0.0, 0.0))
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        state[name] = m, v
        divisor = np.sqrt(v / (1 - betas[1] ** step)) + eps
        params[name] = params[name] * (1 - rate * decay) - (
            rate / (1 - betas[0] ** step) * m / divisor
        )
