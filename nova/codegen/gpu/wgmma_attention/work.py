"""The work of a persistent block of warpgroup attention: tiles of rows, point by point.

Input: the `Work` of a plan. Output: code of a loop over the tiles of a block, in the order that
`balance.py` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.match_attention import Attention
from nova.codegen.gpu.attention.operands import batch_counters
from nova.codegen.gpu.ptx_ops import opaque, word
from nova.codegen.gpu.wgmma_attention.balance import Work
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, divide, modulo, mul, sub


@dataclass(frozen=True)
class WorkItem:
    """A tile: the counters of the batch loops, its number among those of the point, its number
    among the tiles of the block, from 1 (i32), and among all tiles."""

    counters: tuple[Index, ...]
    tile: Index
    round: ir.Value
    number: Index


@dataclass(frozen=True)
class WorkOrder:
    """The order of the tiles of an attention."""

    attention: Attention
    work: Work

    def each(
        self, block: ir.Value, initial: Sequence[ir.Value], body: Callable[..., Sequence[Any]]
    ) -> list[Any]:
        """Emit `body` for each item of a block, with carried values; those of the last item."""
        work = self.work
        if work.items <= work.blocks:
            return list(body(self._item(block, word(1)), *initial))
        # Counters of 32 bits: a producer has few registers.
        steps = word(block), word(work.items), word(work.blocks)
        op = scf.ForOp(*steps, [word(1), *initial])
        with ir.InsertionPoint(op.body):
            round_, *carried = op.inner_iter_args
            number = op.induction_variable
            if work.uneven:
                number = self._reversed(number)
            number = arith.index_castui(ir.IndexType.get(), number)
            results = body(self._item(number, round_), *carried)
            scf.YieldOp([arith.addi(round_, word(1)), *results])
        return list(op.results)[1:]

    def _reversed(self, number: ir.Value) -> ir.Value:
        """The item of a block in its round, from the end in every second one (i32)."""
        blocks = word(self.work.blocks)
        round_, within = arith.divui(number, blocks), arith.remui(number, blocks)
        first = arith.muli(round_, blocks)
        count = arith.minui(blocks, arith.subi(word(self.work.items), first))
        last = arith.subi(arith.addi(first, count), word(1))
        is_odd = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(round_, word(1)), word(1))
        return arith.select(is_odd, arith.subi(last, within), number)

    def _item(self, number: Index, round_: ir.Value) -> WorkItem:
        work = self.work
        if not work.uneven:
            point, tile = divide(number, work.tiles), modulo(number, work.tiles)
        else:
            span = work.together * work.tiles
            group, within = divide(number, span), modulo(number, span)
            point = add(mul(group, work.together), modulo(within, work.together))
            tile = divide(within, work.together)
            if work.last_first:
                tile = sub(work.tiles - 1, tile)
        return WorkItem(tuple(batch_counters(self.attention, point)), tile, round_, number)

    def again(self, item: WorkItem) -> WorkItem:
        """The same item; what depends on it is computed from here on, again."""
        number = opaque(word(item.number))
        return self._item(arith.index_castui(ir.IndexType.get(), number), item.round)
