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
from nova.codegen.gpu.ptx_ops import opaque, wide, word
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
        steps = word(0), self._rounds(word(block)), word(1)
        op = scf.ForOp(*steps, list(initial))
        with ir.InsertionPoint(op.body):
            round_ = op.induction_variable
            within = self._position(round_, word(block))
            number = arith.addi(arith.muli(round_, word(work.blocks)), within)
            number = wide(number)
            item = self._item(number, arith.addi(round_, word(1)))
            scf.YieldOp(list(body(item, *op.inner_iter_args)))
        return list(op.results)

    def _rounds(self, block: ir.Value) -> ir.Value:
        """The number of items of a block (i32): the last round may not have one for each."""
        whole, rest = divmod(self.work.items, self.work.blocks)
        within = self._position(word(whole), block)
        has_more = arith.cmpi(arith.CmpIPredicate.ult, within, word(rest))
        return arith.addi(word(whole), arith.extui(ir.IntegerType.get_signless(32), has_more))

    def _position(self, round_: ir.Value, block: ir.Value) -> ir.Value:
        """The position of a block in a round (i32): from the end in every second one."""
        if not self.work.uneven:
            return block
        is_odd = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(round_, word(1)), word(1))
        return arith.select(is_odd, arith.subi(word(self.work.blocks - 1), block), block)

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
        return self._item(wide(number), item.round)
