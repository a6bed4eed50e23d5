"""Stores that go past the caches: for results that are too large to be found there again.

A cached store first reads the line that it overwrites; a streaming store does not, which saves a
quarter of the traffic of `a * b + c`. It needs a whole, aligned vector, and it is not ordered with
other stores until a fence. `lanes` asks `streams`; `vector_loops` emits the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.codegen.common.index_math import at, index
from nova.codegen.common.loop_nest import LoopNest
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref
from nova.ir.buffers import buffer_root, nbytes

_LEAST, _ENOUGH = 8 << 20, 32 << 20
"""Results below the first stay in a cache, those above the second in none, whatever its size."""


def streams(nest: LoopNest, target: Target, width: int) -> bool:
    """Whether the outputs of `nest`, written `width` elements at a time, go past the caches.

    They are all large, the kernel does not read them, and a vector is a whole register.
    """
    if target.arch != "x86_64" or not all(loop.parallel for loop in nest.loops):
        return False
    generic = nest.generic
    read = {buffer_root(v) for v in generic.inputs}
    limit = min(max(target.l3_bytes, _LEAST), _ENOUGH)
    return not generic.uses_output and all(
        isinstance(v.type, ir.MemRefType)
        and nbytes(v.type) >= limit
        and buffer_root(v) not in read
        and vector_bytes(v, width) == target.vector_bits // 8
        for v in generic.outputs
    )


def vector_bytes(buffer: Any, width: int) -> int:
    """The bytes of a vector of `width` elements of a buffer."""
    return width * int(buffer.type.element_type.width) // 8


def all_aligned(places: Sequence[tuple[Any, Any]], width: int) -> Any:
    """Whether each (buffer, position) is a multiple of a vector's bytes, as an i1."""
    total = None
    for buffer, position in places:
        size = int(buffer.type.element_type.width) // 8
        start = memref.extract_aligned_pointer_as_index(buffer)
        address = arith.addi(start, arith.muli(at(position), index(size)))
        rest = arith.remui(address, index(vector_bytes(buffer, width)))
        total = rest if total is None else arith.ori(total, rest)
    return arith.cmpi(arith.CmpIPredicate.eq, total, index(0))


def fence_stores() -> None:
    """Order the streaming stores before all later ones: others may read what this tile wrote."""
    fence = ir.Operation.parse('llvm.call_intrinsic "llvm.x86.sse.sfence"() : () -> ()')
    ir.InsertionPoint.current.insert(fence)
