"""Vector access to adjacent elements of a flat buffer, with one instruction where aligned.

Input: a flat buffer, a position and a number of elements. Output: code at the insertion point. The
schedules of this folder load and store with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from nova.codegen.common.index_math import at, shifted
from nova.codegen.gpu.block_ops import element_bytes
from nova.core.sizes import common_factor
from nova.ir.bindings import ir, memref, vector
from nova.ir.symbolic.size_table import Extent, is_number

ACCESS = 16
"""Bytes that a thread loads or stores with one instruction."""


def widest(elements: Sequence[Any]) -> int:
    """The number of elements of the widest of these types per access."""
    return max(1, ACCESS // max(map(element_bytes, elements), default=ACCESS))


def divides(count: int, steps: Sequence[Extent]) -> int:
    """The largest power of two up to `count` that all of `steps` are multiples of."""
    common = gcd(count, *map(common_factor, steps))
    return common & -common


def load_run(buffer: Any, base: Any, count: int, stride: Extent, aligned: bool) -> list[Any]:
    """`count` elements from `base` on; `aligned` says that they are one aligned vector."""
    if is_number(stride, 0):
        return [memref.load(buffer, [at(base)])] * count
    if count == 1 or not aligned:
        return [memref.load(buffer, [shifted(base, k * stride)]) for k in range(count)]
    loaded = load_vector(buffer, base, count)
    return [extract(loaded, k) for k in range(count)]


def load_vector(buffer: Any, base: Any, count: int) -> Any:
    """`count` elements from `base` on as an aligned vector."""
    element = buffer.type.element_type
    vector_type = ir.VectorType.get([count], element)
    return vector.load(vector_type, buffer, [at(base)], alignment=_alignment(count, element))


def store_run(values: Sequence[Any], buffer: Any, base: Any, stride: Extent, aligned: bool) -> None:
    """The store that matches `load_run`."""
    count = len(values)
    if count == 1 or not aligned:
        for k, value in enumerate(values):
            memref.store(value, buffer, [shifted(base, k * stride)])
        return
    element = buffer.type.element_type
    vector_type = ir.VectorType.get([count], element)
    packed = vector.from_elements(vector_type, list(values))
    vector.store(packed, buffer, [at(base)], alignment=_alignment(count, element))


def _alignment(count: int, element: Any) -> int:
    return min(ACCESS, count * element_bytes(element))


def extract(value: Any, k: int) -> Any:
    """An element of a vector."""
    return vector.extract(value, dynamic_position=[], static_position=[k])
