"""Pieces of a row in the shared memory of one block: each warp copies and reads its own.

Input: the operands that a `SharedRowsPlan` copies, and the position of a thread. Output: code that
copies the piece of a warp, and reads a thread's elements of it. Pieces are whole lines of the
caches. The first lane of a warp starts a bulk copy (the copy engine of Hopper), and an mbarrier of
the warp counts its bytes, so no warp waits for the copies of another. `shared_rows.py` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import shifted
from nova.codegen.gpu.block_ops import (
    WARP,
    SharedMemory,
    ThreadPosition,
    barrier,
    element_bytes,
    is_equal,
    is_less,
    when,
)
from nova.codegen.gpu.memory import load_run, store_run
from nova.codegen.gpu.ptx_ops import (
    commit_copies,
    copy_async,
    global_base,
    wait_for_copies,
    word,
)
from nova.codegen.gpu.rowwise.pipeline import RowOperand
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, add, compare, index, minimum, mul, sub

LINE_VECTORS = 8
"""Vectors of 16 bytes of a line of the caches."""


@dataclass(frozen=True)
class Pieces:
    """How warps divide a row of up to `lines` lines, of vectors of `width` elements.

    The first `lines % warps` warps have a line more than the others.
    """

    lines: int
    warps: int
    width: int

    @staticmethod
    def of(length: int, unit: int, warps: int, width: int) -> Pieces:
        """Pieces of rows that begin up to `unit - 1` elements after an aligned position."""
        return Pieces(-(-(length + unit - 1) // (LINE_VECTORS * width)), warps, width)

    @property
    def least(self) -> int:
        """Lines of the smallest piece."""
        return self.lines // self.warps

    @property
    def chunks(self) -> int:
        """Vectors of a thread."""
        most = self.least + (1 if self.lines % self.warps else 0)
        return -(-most * LINE_VECTORS // WARP)

    @property
    def elements(self) -> int:
        """Elements of the row in shared memory."""
        return self.lines * LINE_VECTORS * self.width

    def is_inside_pieces(self, chunk: int) -> bool:
        """Whether each warp has all vectors of a chunk."""
        return (chunk + 1) * WARP <= self.least * LINE_VECTORS

    def is_inside_row(self, chunk: int, length: int) -> bool:
        """Whether no vector of a chunk reaches beyond the end of a row."""
        first = (self.lines - self.least) * LINE_VECTORS
        return (first + (chunk + 1) * WARP) * self.width <= length


class PieceCopies:
    """The copies of one warp; made at the top of the launch."""

    def __init__(
        self,
        operands: Sequence[RowOperand],
        shared: SharedMemory,
        position: ThreadPosition,
        pieces: Pieces,
        length: int,
    ):
        self.operands, self.pieces = operands, pieces
        self.slots = [shared.allocate(pieces.elements, o.type) for o in operands]
        arrived = shared.allocate(position.warps, ir.IntegerType.get_signless(64))
        lane, warp = position.lane(), position.warp()
        self.is_first = is_equal(lane, index(0))
        self.arrived = word(add(global_base(arrived), mul(warp, 8)))
        more = pieces.lines % pieces.warps
        first_line: Index = mul(warp, pieces.least)
        count: Index = pieces.least
        if more:
            first_line = add(first_line, minimum(warp, more))
            count = arith.select(is_less(warp, index(more)), index(count + 1), index(count))
        self.first = mul(first_line, LINE_VECTORS * pieces.width)
        """The first element of the warp's piece, from the aligned position before the row."""
        self.end = index(add(self.first, mul(count, LINE_VECTORS * pieces.width)))
        self.own = index(add(self.first, mul(lane, pieces.width)))
        """The first element of the thread's first vector, from there."""
        with when(self.is_first):
            ptx.init_barrier(self.arrived, 1)
            ptx.publish_barriers()
        self._clear_end(position.thread, length)
        barrier()

    def _clear_end(self, thread: Any, length: int) -> None:
        """Clear the vectors after the end of some rows: they are read, and nothing copies them."""
        width = self.pieces.width
        first = length // width
        count = self.pieces.elements // width - first
        if not count:
            return
        with when(is_less(thread, index(count))):
            for slot, operand in zip(self.slots, self.operands, strict=True):
                zeros = [splat(operand.type, 0)] * width
                where = index(add(mul(thread, width), first * width))
                store_run(zeros, slot, where, 1, aligned=True)
            ptx.fence_shared_writes()

    def is_in_piece(self, chunk: int) -> Any:
        """Whether the thread's vector of a chunk is of its warp's piece."""
        return is_less(self._at(chunk, 0), self.end)

    def copy(self, end: Index, sources: Sequence[tuple[Any, Any]]) -> None:
        """Start the bulk copies of a row that ends at `end` (from the aligned position before it).

        `sources` are the buffer of each operand, and the position of the warp's first element. A
        vector that is cut by the end of the row is not copied.
        """
        sizes = [element_bytes(operand.type) for operand in self.operands]
        whole = sub(end, arith.remui(index(end), index(self.pieces.width)))
        count = arith.maxsi(index(sub(minimum(self.end, whole), self.first)), index(0))
        with when(self.is_first):
            ptx.expect_byte_count(self.arrived, word(mul(count, sum(sizes))))
            with when(compare(arith.CmpIPredicate.sgt, count, 0)):
                for slot, size, (buffer, position) in zip(self.slots, sizes, sources, strict=True):
                    to = word(add(global_base(slot), mul(self.first, size)))
                    source = index(add(global_base(buffer), mul(position, size)))
                    ptx.copy_bytes(to, source, word(mul(count, size)), self.arrived)

    def copy_element(self, number: int, elements: Elements, base: Any, chunk: int, k: int) -> None:
        """Start the copy of element `k` of this thread's vector, which begins at `base`."""
        operand = self.operands[number]
        size = element_bytes(operand.type)
        source = add(global_base(elements.buffers[operand.number]), mul(shifted(base, k), size))
        to = add(global_base(self.slots[number]), mul(self._at(chunk, k), size))
        copy_async(to, source, size)

    def wait(self, *, elements: bool) -> None:
        """Wait for the copies, with `elements` for those of this thread's elements too."""
        if elements:
            commit_copies()
            wait_for_copies(0)
        ptx.await_phase(self.arrived, word(0))

    def load(self, number: int, chunk: int) -> list[Any]:
        """This thread's elements of a chunk of an operand; others where it has none."""
        where = self._at(chunk, 0)
        if not self.pieces.is_inside_pieces(chunk):
            where = arith.select(self.is_in_piece(chunk), where, self.own)
        return load_run(self.slots[number], where, self.pieces.width, 1, aligned=True)

    def store(self, number: int, chunk: int, values: Sequence[Any]) -> None:
        """Write this thread's elements of a chunk in the place of an operand, where it has some."""
        where = self._at(chunk, 0)
        if self.pieces.is_inside_pieces(chunk):
            store_run(values, self.slots[number], where, 1, aligned=True)
            return
        with when(self.is_in_piece(chunk)):
            store_run(values, self.slots[number], where, 1, aligned=True)

    def _at(self, chunk: int, k: int) -> Any:
        return shifted(self.own, chunk * WARP * self.pieces.width + k)


def row_bytes(operands: Sequence[RowOperand], pieces: Pieces) -> int:
    """Bytes of a row of these operands in shared memory."""
    return sum(element_bytes(operand.type) for operand in operands) * pieces.elements
