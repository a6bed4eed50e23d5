"""Rows of a persistent cluster: the next row is copied to shared memory while one is computed.

Input: the operands that a `RowwisePlan` prefetches, and the position of a thread. Output: code that
copies the part of a row of a block, and reads it later. One thread starts bulk copies (the copy
engine of Hopper) of the vectors that all threads hold; an mbarrier counts their bytes. So no thread
waits until the memory system accepts a load. `persistent.py` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import SharedMemory, barrier, element_bytes, is_equal, when
from nova.codegen.gpu.memory import ACCESS, load_run, store_run
from nova.codegen.gpu.ptx_ops import (
    commit_copies,
    copy_async,
    global_base,
    wait_for_copies,
    word,
)
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.core.sizes import size_min
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, add, compare, index, minimum, mul, sub
from nova.ir.symbolic.size_table import Extent

THREADS = 512
"""Threads of a block, of which two share a multiprocessor: one computes while the other waits."""
_SHARED = 100 << 10
"""Bytes of shared memory of a block for copied rows; reductions need some more."""
_RESIDENT = {2: 132, 4: 60, 8: 30}
"""Blocks of a cluster -> clusters that run concurrently on an H200, two blocks a multiprocessor.

A smaller device runs them in several waves."""


@dataclass(frozen=True)
class RowOperand:
    """An operand of a nest whose rows are copied ahead."""

    nest: LoopNest
    number: int

    @property
    def type(self) -> Any:
        return self.nest.generic.op.operands[self.number].type.element_type

    def can_copy(self, width: int) -> bool:
        """Whether vectors of `width` elements are the unit of the copy engine."""
        return width * element_bytes(self.type) == ACCESS


@dataclass(frozen=True)
class CopiedRange:
    """The elements of a chunk of this block that are copied in bulk: whole vectors of the row.

    `first` is a position in the row, `skipped` its distance from the chunk's start.
    """

    first: Index
    skipped: Index
    count: Index


def fits(operands: Sequence[RowOperand], elements: int) -> bool:
    """Whether the shared memory of a block holds so many elements of each thread and operand."""
    row_bytes = sum(element_bytes(operand.type) for operand in operands)
    return row_bytes * elements * THREADS <= _SHARED


def persistent_clusters(rows: Extent, cluster: int) -> Extent:
    """Clusters of a persistent launch."""
    return size_min(rows, _RESIDENT[cluster])


def copied_range(start: Any, shift: Any, length: Extent, width: int, is_inner: bool) -> CopiedRange:
    """The whole vectors of a chunk that begins at `start`; `is_inner` says that it has all.

    `shift` is the distance of the row from an aligned position, None for 0.
    """
    size = THREADS * width
    if is_inner:
        return CopiedRange(start, 0, size)
    zero = index(0)
    if shift is None:
        shift, skipped = zero, zero
    else:
        before = compare(arith.CmpIPredicate.slt, start, 0)
        skipped = arith.select(before, index(width), zero)
    first = arith.addi(start, skipped)
    end = index(add(shift, length))
    end = arith.subi(sub(end, arith.remui(end, index(width))), shift)
    end = minimum(add(start, size), end)
    return CopiedRange(first, skipped, arith.maxsi(sub(end, first), zero))


class RowPipeline:
    """The copies of one block."""

    def __init__(
        self,
        operands: Sequence[RowOperand],
        shared: SharedMemory,
        thread: Any,
        width: int,
        chunks: int,
        cut_chunks: Sequence[int],
    ):
        self.operands = operands
        self.width = width
        self.is_first = is_equal(thread, index(0))
        self.first = arith.muli(thread, index(width)) if width > 1 else thread
        self.slots = [shared.allocate(chunks * THREADS * width, o.type) for o in operands]
        arrived = shared.allocate(1, ir.IntegerType.get_signless(64))
        self.arrived = word(global_base(arrived))
        with when(self.is_first):
            ptx.init_barrier(self.arrived, 1)
            ptx.publish_barriers()
        # Vectors that are cut are read as a whole.
        for slot, operand in zip(self.slots, operands, strict=True):
            zeros = [splat(operand.type, 0)] * width
            for chunk in cut_chunks:
                store_run(zeros, slot, self._at(chunk, 0), 1, aligned=True)
        if cut_chunks:
            ptx.fence_shared_writes()
        barrier()

    def copy_ranges(
        self, ranges: Sequence[CopiedRange], sources: Sequence[tuple[Any, Sequence[Any]]]
    ) -> None:
        """Start the bulk copies of a row, in the first thread.

        `sources` are the buffer of each operand, and its position at the start of each range.
        """
        sizes = [element_bytes(operand.type) for operand in self.operands]
        elements: Index = 0
        for part in ranges:
            elements = add(elements, part.count)
        ptx.expect_byte_count(self.arrived, word(mul(elements, sum(sizes))))
        for slot, size, (buffer, positions) in zip(self.slots, sizes, sources, strict=True):
            for chunk, (part, position) in enumerate(zip(ranges, positions, strict=True)):
                slot_position = add(part.skipped, chunk * THREADS * self.width)
                to = word(add(global_base(slot), mul(slot_position, size)))
                source = index(add(global_base(buffer), mul(position, size)))
                nbytes = word(mul(part.count, size))
                if isinstance(part.count, int):
                    ptx.copy_bytes(to, source, nbytes, self.arrived)
                    continue
                with when(compare(arith.CmpIPredicate.sgt, part.count, 0)):
                    ptx.copy_bytes(to, source, nbytes, self.arrived)

    def copy_element(self, number: int, elements: Elements, base: Any, chunk: int, k: int) -> None:
        """Start the copy of element `k` of this thread's vector, which begins at `base`."""
        slot, operand = self.slots[number], self.operands[number]
        size = element_bytes(operand.type)
        source = add(global_base(elements.buffers[operand.number]), mul(shifted(base, k), size))
        copy_async(add(global_base(slot), mul(self._at(chunk, k), size)), source, size)

    def commit(self) -> None:
        """End the copies of elements of a row."""
        commit_copies()

    def wait(self, parity: Any, *, elements: bool) -> None:
        """Wait for the copies of a row, with `elements` for those of this thread's elements too."""
        if elements:
            wait_for_copies(0)
        ptx.await_phase(self.arrived, parity)

    def load(self, number: int, elements: Elements, chunk: int, parts: Sequence[int]) -> list[Any]:
        """The elements of a chunk of this thread: `parts` are their numbers, all or one."""
        operand = self.operands[number].number
        where = self._at(chunk, parts[0])
        values = load_run(self.slots[number], where, len(parts), 1, aligned=True)
        return [elements.unpacked(operand, value) for value in values]

    def _at(self, chunk: int, k: int) -> ir.Value:
        return index(add(self.first, chunk * THREADS * self.width + k))
