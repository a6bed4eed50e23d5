"""The work of a persistent block of warpgroup attention: tiles of rows, point by point.

Input: the numbers of a plan. Output: code of a loop over the tiles of a block. Tiles of a causal
attention have different amounts of work: the largest come first, and every second round of blocks
takes its tiles in reverse order, so that all blocks have about the same work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.match_attention import Attention
from nova.codegen.gpu.attention.operands import batch_counters
from nova.codegen.gpu.ptx_ops import word
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, compare, divide, index, minimum, modulo, mul, sub


@dataclass(frozen=True)
class WorkItem:
    """A tile: the counters of the batch loops, its number among those of the point, and its
    number among the tiles of the block, from 1 (i32)."""

    counters: tuple[Index, ...]
    tile: Index
    round: ir.Value


@dataclass(frozen=True)
class WorkOrder:
    """`tiles` tiles per point; `together` points share the cache; `blocks` run concurrently."""

    attention: Attention
    batch: int
    tiles: int
    together: int
    blocks: int
    uneven: bool
    """Whether tiles differ in work: the last one of a point has the most."""
    last_first: bool = True

    @property
    def items(self) -> int:
        return self.batch * self.tiles

    def each(
        self, block: ir.Value, initial: Sequence[ir.Value], body: Callable[..., Sequence[Any]]
    ) -> None:
        """Emit `body` for each item of a block, with carried values."""
        rounds = -(-self.items // self.blocks)
        if rounds == 1:
            body(self._item(block, word(1)), *initial)
            return
        op = scf.ForOp(block, index(self.items), index(self.blocks), [word(1), *initial])
        with ir.InsertionPoint(op.body):
            round_, *carried = op.inner_iter_args
            number = self._reversed(op.induction_variable) if self.uneven else op.induction_variable
            results = body(self._item(number, round_), *carried)
            scf.YieldOp([arith.addi(round_, word(1)), *results])

    def _reversed(self, number: ir.Value) -> Index:
        """The item of a block in its round, from the end in every second one."""
        round_, within = divide(number, self.blocks), modulo(number, self.blocks)
        first = mul(round_, self.blocks)
        count = minimum(self.blocks, sub(self.items, first))
        opposite = add(first, sub(sub(count, 1), within))
        is_odd = compare(arith.CmpIPredicate.eq, modulo(round_, 2), 1)
        return arith.select(is_odd, index(opposite), number)

    def _item(self, number: Index, round_: ir.Value) -> WorkItem:
        if not self.uneven:
            point, tile = divide(number, self.tiles), modulo(number, self.tiles)
        else:
            span = self.together * self.tiles
            group, within = divide(number, span), modulo(number, span)
            point = add(mul(group, self.together), modulo(within, self.together))
            tile = divide(within, self.together)
            if self.last_first:
                tile = sub(self.tiles - 1, tile)
        return WorkItem(tuple(batch_counters(self.attention, point)), tile, round_)
