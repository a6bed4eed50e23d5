"""Layers that the models share: projections, norms, activations, attention with a cache.

Shapes: x is (..., rows, features). A cache belongs to one sequence: keys and values of
(key heads, context, head width), into which new rows are written.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import f32
from nova.graph import tensor
from nova.nn import Module, Parameter
from nova.ops import F
from nova.pretrained.weights import Weights

Cache = tuple[Any, Any]
"""The keys and the values of a layer."""

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": lambda x: F.gelu(x),
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": lambda x: F.relu(x),
    "silu": lambda x: F.silu(x),
    "swish": lambda x: F.silu(x),
}


class Matrix(Module):
    """A weight of (rows, columns): an array of floats, or packed blocks of a GGUF file.

    Blocks stay packed: `times` and `pick` compute from them, in f32.
    """

    def __init__(self, weights: Weights, rows: int, columns: int):
        packed = weights.packed("weight", (rows, columns))
        self.format = None if packed is None else packed.format
        if packed is None:
            self.weight = weights.parameter("weight", (rows, columns))
        else:
            self.weight = Parameter(packed.blocks, requires_grad=False, copy=False)
        self.dtype = self.weight.dtype if packed is None else f32

    def times(self, x: Any) -> Any:
        """x @ weight.T."""
        if self.format is not None:
            return F.quantized_matmul(x, self.weight, format=self.format)
        return F.matmul(x, F.swapaxes(self.weight, 0, 1))

    def pick(self, index: Any) -> Any:
        """The rows that an index of any shape names."""
        rows = F.embedding(self.weight, index)
        if self.format is None:
            return rows
        flat = F.reshape(rows, (prod(index.shape), self.weight.shape[1]))
        values = F.dequantize(flat, format=self.format)
        return F.reshape(values, (*index.shape, values.shape[1]))


class Projection(Module):
    """x @ weight.T + bias; with `transposed` the file has the weight as (inputs, outputs)."""

    def __init__(
        self,
        weights: Weights,
        inputs: int,
        outputs: int,
        bias: bool = False,
        transposed: bool = False,
    ):
        shape = (inputs, outputs) if transposed else (outputs, inputs)
        self.transposed = transposed
        self.matrix = Matrix(weights, *shape)
        self.bias = weights.parameter("bias", (outputs,)) if bias else None

    def forward(self, x: Any) -> Any:
        y = F.matmul(x, self.matrix.weight) if self.transposed else self.matrix.times(x)
        return y if self.bias is None else y + self.bias


class LayerNorm(Module):
    """Mean 0 and variance 1 of the last axis, scaled and shifted."""

    def __init__(self, weights: Weights, width: int, eps: float):
        # Files of TensorFlow's time have gamma and beta.
        names = ("gamma", "beta") if "gamma" in weights else ("weight", "bias")
        self.eps = eps
        self.weight, self.bias = (weights.parameter(name, (width,)) for name in names)

    def forward(self, x: Any) -> Any:
        return F.layer_norm(x, self.weight, self.bias, eps=self.eps)


class RMSNorm(Module):
    """The last axis divided by its root mean square, scaled."""

    def __init__(self, weights: Weights, width: int, eps: float):
        self.eps = eps
        self.weight = weights.parameter("weight", (width,))

    def forward(self, x: Any) -> Any:
        return F.rms_norm(x, self.weight, eps=self.eps)


def split_heads(x: Any, heads: int) -> Any:
    """(..., rows, heads * width) as (..., heads, rows, width)."""
    shape = (*x.shape[:-1], heads, x.shape[-1] // heads)
    return F.swapaxes(F.reshape(x, shape), -2, -3)


def join_heads(x: Any) -> Any:
    """(..., heads, rows, width) as (..., rows, heads * width)."""
    return F.flatten(F.swapaxes(x, -2, -3), -2, -1)


def attend(q: Any, k: Any, v: Any, mask: Any, scale: float | None = None) -> Any:
    """Attention of (..., heads, rows, width) to (..., key heads, keys, width), heads joined.

    With fewer key heads than heads, the heads of a group attend to the same keys: their rows are
    those of one attention (grouped-query attention, Ainslie et al., 2023). `mask` is (rows, keys)
    then.
    """
    *lead, heads, rows, width = q.shape
    key_heads = k.shape[-3]
    if heads != key_heads:
        group = heads // key_heads
        q = F.reshape(q, (*lead, key_heads, group * rows, width))
        mask = F.reshape(F.broadcast_to(mask, (group, *mask.shape)), (group * rows, mask.shape[-1]))
    y = F.scaled_dot_product_attention(q, k, v, mask, scale=scale)
    return join_heads(F.reshape(y, (*lead, heads, rows, width)))


def update_cache(cache: Cache | None, k: Any, v: Any, start: Any) -> Cache:
    """The cache with new keys and values from position `start` on; themselves without a cache."""
    if cache is None:
        return k, v
    return (
        F.dynamic_update_slice(cache[0], k, (0, start, 0)),
        F.dynamic_update_slice(cache[1], v, (0, start, 0)),
    )


def causal_mask(positions: Any, keys: int, window: int | None = None) -> Any:
    """Whether the row at each position sees each key: no later one, the last `window` ones."""
    columns, rows = F.arange(keys), F.unsqueeze(positions, 1)
    visible = columns <= rows
    return visible if window is None else visible & (columns > rows - window)


def constant(array: np.ndarray) -> Any:
    """A constant of the program."""
    return tensor(array)
