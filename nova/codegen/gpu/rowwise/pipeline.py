"""Rows of a persistent cluster: the next rows are copied to shared memory while one is computed.

Input: the operands that a `RowwisePlan` prefetches, and the position of a thread. Output: code that
copies the part of a row of a block, and reads it later. One thread starts bulk copies (the copy
engine of Hopper) of the vectors that all threads hold; an mbarrier counts their bytes. So no thread
waits until the memory system accepts a load. Where two rows fit, they are two stages: the blocks
that share a multiprocessor are of one cluster, as a rule, and wait for each other, so a copy has to
be on its way all the time. `persistent.py` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import (
    SharedMemory,
    barrier,
    element_bytes,
    is_equal,
    is_less,
    when,
)
from nova.codegen.gpu.memory import ACCESS, load_run, store_run
from nova.codegen.gpu.ptx_ops import (
    commit_copies,
    copy_async,
    global_base,
    opaque,
    wait_for_copies,
    word,
)
from nova.codegen.gpu.rowwise.exchange import RowNumber
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, add, compare, index, minimum, mul, sub
from nova.ir.symbolic.size_table import Extent

THREADS = 512
"""Threads of a block."""
_SHARED = {1: 220 << 10, 2: 110 << 10}
"""Blocks of a multiprocessor -> bytes of shared memory of a block for copied rows; reductions need
some more."""
_MOST_STAGES = 2
RESIDENT = {(2, 1): 66, (2, 2): 132, (4, 2): 60, (8, 2): 30}
"""Blocks of a cluster, and of a multiprocessor -> clusters that run concurrently on an H200.

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
    """The elements of a chunk of this block that are copied in bulk: whole vectors.

    `first` is a position in the row, or before it.
    """

    first: Index
    count: Index


@dataclass(frozen=True)
class RowSlot:
    """The vectors of a row that a block holds: of all threads, but in the last chunk of a few."""

    chunks: int
    width: int
    last: int

    @property
    def elements(self) -> int:
        return ((self.chunks - 1) * THREADS + self.last) * self.width

    @staticmethod
    def of(vectors: int, threads_per_row: int, width: int) -> RowSlot:
        """The largest slot of the blocks of a cluster."""
        chunks = -(-vectors // threads_per_row)
        last = min(THREADS, vectors - (chunks - 1) * threads_per_row)
        return RowSlot(chunks, width, last)

    def stages(self, operands: Sequence[RowOperand], blocks_per_sm: int) -> int:
        """The rows of these operands that the shared memory of a block holds."""
        row_bytes = sum(element_bytes(operand.type) for operand in operands) * self.elements
        return min(_MOST_STAGES, _SHARED[blocks_per_sm] // row_bytes) if row_bytes else 0


def copied_range(start: Any, shift: Any, length: Extent, width: int, is_inner: bool) -> CopiedRange:
    """The whole vectors of a chunk that begins at `start`; `is_inner` says that it has all.

    `shift` is the distance of the row from an aligned position, None for 0. What is between both is
    copied, too: it is of the row before.
    """
    size = THREADS * width
    if is_inner:
        return CopiedRange(start, size)
    end = index(length if shift is None else add(shift, length))
    end = sub(end, arith.remui(end, index(width)))
    end = minimum(add(start, size), end if shift is None else sub(end, shift))
    return CopiedRange(start, arith.maxsi(index(sub(end, start)), index(0)))


class RowPipeline:
    """The copies of one block. A stage is an index value, 0 where there is one only."""

    def __init__(
        self,
        operands: Sequence[RowOperand],
        shared: SharedMemory,
        thread: Any,
        slot: RowSlot,
        stages: int,
        cut_chunks: Sequence[int],
    ):
        self.operands = operands
        self.slot, self.stages = slot, stages
        self.width = width = slot.width
        self.is_first = is_equal(thread, index(0))
        self.first = arith.muli(thread, index(width)) if width > 1 else thread
        self.slots = [shared.allocate(stages * slot.elements, o.type) for o in operands]
        arrived = shared.allocate(stages, ir.IntegerType.get_signless(64))
        self.arrived = word(global_base(arrived))
        with when(self.is_first):
            for stage in range(stages):
                ptx.init_barrier(arith.addi(self.arrived, word(8 * stage)), 1)
            ptx.publish_barriers()
        # Vectors that are cut are read as a whole.
        for memory, operand in zip(self.slots, operands, strict=True):
            zeros = [splat(operand.type, 0)] * width
            for chunk in cut_chunks:
                with when(is_less(thread, index(self._threads(chunk)))):
                    for stage in range(stages):
                        at = self._at(chunk, 0, index(stage))
                        store_run(zeros, memory, at, 1, aligned=True)
        if cut_chunks:
            ptx.fence_shared_writes()
        barrier()

    def stage_of(self, row: RowNumber) -> ir.Value:
        """The stage of a row."""
        if self.stages == 1:
            return index(0)
        return arith.index_castui(ir.IndexType.get(), row.buffer)

    def copy_ranges(
        self,
        ranges: Sequence[CopiedRange],
        sources: Sequence[tuple[Any, Sequence[Any]]],
        stage: ir.Value,
    ) -> None:
        """Start the bulk copies of a row, in the first thread.

        `sources` are the buffer of each operand, and its position at the start of each range.
        """
        sizes = [element_bytes(operand.type) for operand in self.operands]
        elements: Index = 0
        for part in ranges:
            elements = add(elements, part.count)
        arrived = self._barrier(stage)
        ptx.expect_byte_count(arrived, word(mul(elements, sum(sizes))))
        for slot, size, (buffer, positions) in zip(self.slots, sizes, sources, strict=True):
            for chunk, (part, position) in enumerate(zip(ranges, positions, strict=True)):
                slot_position = add(mul(stage, self.slot.elements), chunk * THREADS * self.width)
                to = word(add(global_base(slot), mul(slot_position, size)))
                source = index(add(global_base(buffer), mul(position, size)))
                nbytes = word(mul(part.count, size))
                if isinstance(part.count, int):
                    ptx.copy_bytes(to, source, nbytes, arrived)
                    continue
                with when(compare(arith.CmpIPredicate.sgt, part.count, 0)):
                    ptx.copy_bytes(to, source, nbytes, arrived)

    def copy_element(
        self, number: int, elements: Elements, base: Any, chunk: int, k: int, stage: ir.Value
    ) -> None:
        """Start the copy of element `k` of this thread's vector, which begins at `base`."""
        slot, operand = self.slots[number], self.operands[number]
        size = element_bytes(operand.type)
        source = add(global_base(elements.buffers[operand.number]), mul(shifted(base, k), size))
        copy_async(add(global_base(slot), mul(self._at(chunk, k, stage), size)), source, size)

    def commit(self) -> None:
        """End the copies of elements of a row: in every thread, also if it has none."""
        commit_copies()

    def wait(self, row: RowNumber, *, elements: bool) -> None:
        """Wait for the copies of a row, with `elements` for those of this thread's elements too."""
        if elements:
            wait_for_copies(self.stages - 1)
        parity = row.buffer if self.stages == 1 else row.phase
        ptx.await_phase(self._barrier(self.stage_of(row)), parity)

    def load(
        self, number: int, elements: Elements, chunk: int, parts: Sequence[int], stage: ir.Value
    ) -> list[Any]:
        """The elements of a chunk of this thread: `parts` are their numbers, all or one."""
        operand = self.operands[number].number
        where = self._at(chunk, parts[0], stage)
        values = load_run(self.slots[number], where, len(parts), 1, aligned=True)
        return [elements.unpacked(operand, value) for value in values]

    def _barrier(self, stage: ir.Value) -> ir.Value:
        return arith.addi(self.arrived, arith.shli(word(stage), word(3)))

    def _threads(self, chunk: int) -> int:
        """Threads with memory for a vector of a chunk."""
        return self.slot.last if chunk == self.slot.chunks - 1 else THREADS

    def _at(self, chunk: int, k: int, stage: ir.Value) -> ir.Value:
        """The position of element `k` of this thread's vector; of another one if it has none."""
        first: Index = self.first
        if self._threads(chunk) < THREADS:
            # Computed where it is used: a loop over rows has no register for it.
            first = arith.index_castui(ir.IndexType.get(), opaque(word(first)))
            first = minimum(first, (self._threads(chunk) - 1) * self.width)
        start = add(mul(stage, self.slot.elements), chunk * THREADS * self.width + k)
        return index(add(start, first))
