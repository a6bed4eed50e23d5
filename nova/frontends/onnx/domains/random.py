"""Rows of random numbers, drawn by Philox from a seed that is fixed at import.

ONNX leaves the generator open: the numbers are not those of another runtime. A program draws the
same numbers in every run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import f32
from nova.frontends.onnx.element_types import constant, dtype_of
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast
from nova.frontends.onnx.table import row
from nova.ops import F


def _seed(node: Node) -> Any:
    """The attribute `seed`, or the number of the node: equal nodes draw different numbers."""
    seed = node.attrs.get("seed")
    number = node.importer.nodes if seed is None else int(np.float32(seed).view(np.int32))
    return constant(np.asarray(number, np.int64))


def _target(node: Node, like: Any = None) -> Any:
    element = node.attr("dtype", None)
    if element is not None:
        return dtype_of(element)
    return f32 if like is None or not like.dtype.is_float else like.dtype


def _uniform(node: Node, shape: tuple[int, ...], dtype: Any) -> Any:
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return cast(F.uniform(_seed(node), shape=shape) * (high - low) + low, dtype)


def _normal(node: Node, shape: tuple[int, ...], dtype: Any) -> Any:
    mean, scale = node.attr("mean", 0.0), node.attr("scale", 1.0)
    return cast(F.normal(_seed(node), shape=shape) * scale + mean, dtype)


@row("RandomUniform", random=True)
def _random_uniform(node: Node) -> Any:
    return _uniform(node, tuple(node.attr("shape")), _target(node))


@row("RandomUniformLike", random=True)
def _random_uniform_like(node: Node) -> Any:
    x = node.tensor(0)
    return _uniform(node, x.shape, _target(node, x))


@row("RandomNormal", random=True)
def _random_normal(node: Node) -> Any:
    return _normal(node, tuple(node.attr("shape")), _target(node))


@row("RandomNormalLike", random=True)
def _random_normal_like(node: Node) -> Any:
    x = node.tensor(0)
    return _normal(node, x.shape, _target(node, x))


@row("Bernoulli", since=15, random=True)
def _bernoulli(node: Node) -> Any:
    x = node.tensor(0)
    element = node.attr("dtype", None)
    dtype = x.dtype if element is None else dtype_of(element)
    return cast(F.lt(F.uniform(_seed(node), shape=x.shape), cast(x, f32)), dtype)


@row("Multinomial", random=True)
def _multinomial(node: Node) -> Any:
    logits = node.tensor(0)
    count, dtype = node.attr("sample_size", 1), dtype_of(node.attr("dtype", 6))
    batch, classes = logits.shape
    # Gumbel-max: one draw of all classes per sample.
    noise = F.uniform(_seed(node), shape=(batch, count, classes))
    gumbel = F.neg(F.log(F.neg(F.log(F.maximum(noise, 1e-20)))))
    return cast(F.argmax(F.unsqueeze(cast(logits, f32), 1) + gumbel, axis=2), dtype)
