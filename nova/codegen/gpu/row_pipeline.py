"""Rows of a persistent cluster: the next row is copied to shared memory while one is computed.

Input: the operands that a `RowwisePlan` prefetches, and the position of a thread. Output: code that
copies a thread's elements of a row (cp.async), and reads them later. Each thread reads only
elements that it copied itself, so that no barrier is needed. `rowwise.py` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import SharedMemory, element_bytes
from nova.codegen.gpu.memory import ACCESS, load_run
from nova.codegen.gpu.ptx_ops import commit_copies, copy_async, global_base, wait_for_copies
from nova.core.sizes import size_min
from nova.ir.bindings import arith, ir
from nova.ir.index import add, index, mul
from nova.ir.symbolic.size_table import Extent

_MIN_COPY = 4
"""Bytes of the smallest asynchronous copy."""
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
        """Whether copies of `width` adjacent elements have a size that the hardware supports."""
        return _MIN_COPY <= width * element_bytes(self.type) <= ACCESS


def fits(operands: Sequence[RowOperand], elements: int) -> bool:
    """Whether the shared memory of a block holds so many elements of each thread and operand."""
    row_bytes = sum(element_bytes(operand.type) for operand in operands)
    return row_bytes * elements * THREADS <= _SHARED


def persistent_clusters(rows: Extent, cluster: int) -> Extent:
    """Clusters of a persistent launch."""
    return size_min(rows, _RESIDENT[cluster])


class RowPipeline:
    """The copies of one thread."""

    def __init__(
        self,
        operands: Sequence[RowOperand],
        shared: SharedMemory,
        thread: Any,
        width: int,
        chunks: int,
    ):
        self.operands = operands
        self.width = width
        self.first = arith.muli(thread, index(width)) if width > 1 else thread
        self.slots = [shared.allocate(chunks * THREADS * width, o.type) for o in operands]

    def copy(
        self, number: int, elements: Elements, base: Any, chunk: int, parts: Sequence[int]
    ) -> None:
        """Start the copy of elements of a chunk of this thread, which begins at `base`.

        `parts` are the numbers of the elements: all, or one.
        """
        slot, operand = self.slots[number], self.operands[number]
        size = element_bytes(operand.type)
        first = shifted(base, parts[0])
        source = add(global_base(elements.buffers[operand.number]), mul(first, size))
        to = add(global_base(slot), mul(self._at(chunk, parts), size))
        copy_async(to, source, size * len(parts))

    def commit(self) -> None:
        """End the copies of a row."""
        commit_copies()

    def wait(self) -> None:
        """Wait for the copies of this thread."""
        wait_for_copies(0)

    def load(self, number: int, elements: Elements, chunk: int, parts: Sequence[int]) -> list[Any]:
        """The elements of a chunk that this thread has copied."""
        operand = self.operands[number].number
        where = self._at(chunk, parts)
        values = load_run(self.slots[number], where, len(parts), 1, aligned=True)
        return [elements.unpacked(operand, value) for value in values]

    def _at(self, chunk: int, parts: Sequence[int]) -> ir.Value:
        return index(add(self.first, chunk * THREADS * self.width + parts[0]))
