"""Flat buffers: schedules address every buffer as one dimension."""

from __future__ import annotations

from math import prod
from typing import Any

from nova.ir.bindings import ir, memref
from nova.ir.buffers import buffer_root


def flatten(value: Any) -> Any:
    """A buffer as one dimension; scalars unchanged."""
    if not isinstance(value.type, ir.MemRefType):
        return value
    size = prod(value.type.shape)
    flat = ir.MemRefType.get([size], value.type.element_type)
    return memref.ReinterpretCastOp(
        flat, value, [], [], [], static_offsets=[0], static_sizes=[size], static_strides=[1]
    ).result


def flatten_root(value: Any, cache: dict[Any, Any]) -> Any:
    """The flat form of the root buffer of `value`, cached in `cache`; scalars unchanged."""
    if not isinstance(value.type, ir.MemRefType):
        return value
    root = buffer_root(value)
    if root not in cache:
        cache[root] = flatten(root)
    return cache[root]
