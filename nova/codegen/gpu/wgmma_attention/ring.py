"""Rings of tiles in shared memory, between the copy engine and the consumers of a block.

A slot of a ring has a *full* mbarrier, whose phase ends when the bytes of a copy have arrived, and
an *empty* one, which counts the consumers that have read it. Both sides count with a slot and a
parity, which flips when the ring wraps around.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nova.codegen.gpu.ptx_ops import word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma_attention.plan import BOX_FEATURES, ROW_BYTES, MappedOperand
from nova.ir.bindings import arith, ir
from nova.ir.index import Index

_EQUAL = arith.CmpIPredicate.eq


@dataclass(frozen=True)
class RingPosition:
    """A slot of a ring and its parity (both i32)."""

    slot: ir.Value
    parity: ir.Value

    @property
    def values(self) -> list[ir.Value]:
        return [self.slot, self.parity]


@dataclass(frozen=True)
class TileCopy:
    """An operand, the address of its tensor map, and the offset of its tile in a slot."""

    operand: MappedOperand
    source: ir.Value
    offset: int = 0


@dataclass(frozen=True)
class Ring:
    """`slots` tiles of `slot_bytes` from `base` on, and their barriers (addresses are i32)."""

    base: ir.Value
    slots: int
    slot_bytes: int
    barriers: ir.Value
    has_third: bool = False
    """Whether a slot has a third barrier: threads have looked at it."""

    @staticmethod
    def barrier_bytes(slots: int) -> int:
        return 24 * slots

    def init(self, arrivals: int, readers: int, third: int = 0) -> None:
        """Initialize the barriers: arrivals of a copy, and the consumers of a slot."""
        for number in range(self.slots):
            slot = word(number)
            ptx.init_barrier(self.full(slot), arrivals)
            ptx.init_barrier(self.empty(slot), readers)
            if self.has_third:
                ptx.init_barrier(self.third(slot), third)

    def address(self, slot: ir.Value) -> ir.Value:
        if self.slots == 1:
            return self.base
        return arith.addi(self.base, arith.muli(slot, word(self.slot_bytes)))

    def full(self, slot: ir.Value) -> ir.Value:
        return self._barrier(0, slot)

    def empty(self, slot: ir.Value) -> ir.Value:
        return self._barrier(1, slot)

    def third(self, slot: ir.Value) -> ir.Value:
        return self._barrier(2, slot)

    def _barrier(self, number: int, slot: ir.Value) -> ir.Value:
        first = arith.addi(self.barriers, word(8 * self.slots * number))
        return first if self.slots == 1 else arith.addi(first, arith.shli(slot, word(3)))

    def next(self, position: RingPosition) -> RingPosition:
        flipped = arith.xori(position.parity, word(1))
        if self.slots == 1:
            return RingPosition(position.slot, flipped)
        moved = arith.addi(position.slot, word(1))
        wraps = arith.cmpi(_EQUAL, moved, word(self.slots))
        return RingPosition(
            arith.select(wraps, word(0), moved), arith.select(wraps, flipped, position.parity)
        )

    def advance(self, position: RingPosition, by: ir.Value) -> RingPosition:
        """The position `by` slots later (i32)."""
        moved, slots = arith.addi(position.slot, by), word(self.slots)
        flips = arith.andi(arith.divui(moved, slots), word(1))
        return RingPosition(arith.remui(moved, slots), arith.xori(position.parity, flips))

    def await_full(self, position: RingPosition) -> None:
        ptx.await_phase(self.full(position.slot), position.parity)

    def release(
        self, position: RingPosition, thread: ir.Value, condition: ir.Value | None = None
    ) -> None:
        """The matmuls of a warpgroup have read a slot, if `condition` holds.

        Its thread 0 tells the producer.
        """
        is_first = arith.cmpi(_EQUAL, thread, word(0))
        arrives = is_first if condition is None else arith.andi(is_first, condition)
        ptx.arrive_where(self.empty(position.slot), arrives)

    def copy(
        self,
        tiles: Sequence[TileCopy],
        position: RingPosition,
        first: Index,
        counters: Sequence[Index],
    ) -> None:
        """Copy rows of operands from `first` on into a slot, once the consumers have read it.

        `counters` are those of the batch loops. Producers begin with parity 1: waiting for the
        phase before the first one returns at once.
        """
        ptx.await_phase(self.empty(position.slot), position.parity)
        full = self.full(position.slot)
        ptx.expect_bytes(full, sum(tile.operand.nbytes for tile in tiles))
        for tile in tiles:
            operand = tile.operand
            others = [counters[i] for i in operand.loops]
            start = arith.addi(self.address(position.slot), word(tile.offset))
            for box in range(operand.boxes):
                to = arith.addi(start, word(box * operand.map.box_bytes))
                ptx.copy_box(to, tile.source, full, [box * BOX_FEATURES, first, *others])


def feature_steps(features: int, lhs_rows: int, rhs_rows: int) -> list[tuple[int, int]]:
    """Offsets (16 bytes) of both descriptors per 16 features: rows of both run along features."""
    steps = []
    for number in range(-(-features // 16)):
        box, within = divmod(number, BOX_FEATURES // 16)
        steps.append(
            tuple(box * rows * ROW_BYTES + 32 * within >> 4 for rows in (lhs_rows, rhs_rows))
        )
    return [(lhs, rhs) for lhs, rhs in steps]


def row_steps(rows: int) -> list[tuple[int, int]]:
    """Offsets per 16 rows of rhs, which are the steps of k; lhs is in registers."""
    return [(0, 16 * ROW_BYTES * number >> 4) for number in range(rows // 16)]
