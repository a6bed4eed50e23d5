"""Flat buffers: schedules address every buffer as one dimension."""

from __future__ import annotations

from math import prod
from typing import Any

from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root, reinterpret


def flatten(value: Any) -> Any:
    """A buffer as one dimension; scalars unchanged."""
    if not isinstance(value.type, ir.MemRefType):
        return value
    size = prod(value.type.shape)
    return reinterpret(value, ir.MemRefType.get([size], value.type.element_type))


def flatten_root(value: Any, cache: dict[Any, Any]) -> Any:
    """The flat form of the root buffer of `value`, cached in `cache`; scalars unchanged."""
    if not isinstance(value.type, ir.MemRefType):
        return value
    root = buffer_root(value)
    if root not in cache:
        cache[root] = flatten(root)
    return cache[root]
