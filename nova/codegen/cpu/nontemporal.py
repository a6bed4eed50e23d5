"""Non-temporal stores, which bypass the caches: for results too large to stay in a cache.

A regular store first reads the line that it overwrites; a non-temporal store does not, which saves
a quarter of the traffic of `a * b + c`. It needs a whole, aligned vector, and it is not ordered
with other stores until a fence. `vectorize.py` calls `streams`; `vector_loops.py` emits the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.codegen.common.index_math import at
from nova.codegen.common.loop_nest import LoopNest
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref
from nova.ir.buffers import buffer_root, nbytes
from nova.ir.index import index

_LEAST, _ENOUGH = 8 << 20, 32 << 20
"""Results below the first size stay in a cache; those above the second fit in no cache."""


def streams(nest: LoopNest, target: Target, width: int) -> bool:
    """Whether the outputs of `nest`, stored `width` elements at a time, use non-temporal stores.

    All outputs are large, the kernel does not read them, and a vector is a whole register.
    """
    if target.arch != "x86_64" or not all(loop.parallel for loop in nest.loops):
        return False
    generic = nest.generic
    read = {buffer_root(v) for v in generic.inputs}
    limit = min(max(target.l3_bytes, _LEAST), _ENOUGH)
    if any(not isinstance(loop.size, int) for loop in nest.loops):
        return False  # the results of small sizes stay in a cache
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


def all_aligned(offsets: Sequence[tuple[Any, Any]], width: int) -> Any:
    """Whether each (buffer, position) is a multiple of a vector's bytes, as an i1."""
    total = None
    for buffer, position in offsets:
        size = int(buffer.type.element_type.width) // 8
        start = memref.extract_aligned_pointer_as_index(buffer)
        # The pointer is that of the whole buffer: a view of a tile begins after it.
        first = memref.ExtractStridedMetadataOp(buffer).offset
        element = arith.addi(first, at(position))
        address = arith.addi(start, arith.muli(element, index(size)))
        misalignment = arith.remui(address, index(vector_bytes(buffer, width)))
        total = misalignment if total is None else arith.ori(total, misalignment)
    return arith.cmpi(arith.CmpIPredicate.eq, total, index(0))


def fence_stores() -> None:
    """Order the non-temporal stores before all later stores: other tiles may read these results."""
    fence = ir.Operation.parse('llvm.call_intrinsic "llvm.x86.sse.sfence"() : () -> ()')
    ir.InsertionPoint.current.insert(fence)
