"""Tiles of 64 rows that all consumers have: they divide the blocks of keys (flash-decoding).

Input: the `ForwardContext` of a block. Output: the code of a consumer warpgroup. Where an attention
has few heads, its time is that of the tile with the most keys: so a tile takes half of the time, or
a third. The consumers write their sums and the states of their rows to shared memory, and the
first one adds them. `forward.py` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.gpu.attention.operands import matrices_at
from nova.codegen.gpu.block_ops import when
from nova.codegen.gpu.ptx_ops import SHARED, load, opaque, store, wide, word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma_attention.consumer import Consumer
from nova.codegen.gpu.wgmma_attention.ring import RingPosition
from nova.codegen.gpu.wgmma_attention.softmax import RowScores, RowState
from nova.codegen.gpu.wgmma_attention.work import WorkItem
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, compare, divide, modulo, mul, sub

_EQUAL = arith.CmpIPredicate.eq
_LESS = arith.CmpIPredicate.slt
_WRITTEN, _READ = 1, 2
"""Named barriers: the others have written their results, and the first consumer has read them."""


@dataclass(frozen=True)
class PartialResults:
    """Memory for the `count` values of each thread of all consumers but the first (from `base`).

    Addresses, `group` (the number of this consumer) and `thread` are i32.
    """

    base: ir.Value
    consumers: int
    count: int
    group: ir.Value
    thread: ir.Value

    @property
    def _threads(self) -> int:
        return 128 * self.consumers

    @property
    def _is_first(self) -> ir.Value:
        return arith.cmpi(_EQUAL, self.group, word(0))

    def begin(self) -> None:
        """Before the first tile: the memory may be written."""
        with when(self._is_first):
            ptx.arrive_at_named(word(_READ), self._threads)

    def end(self) -> None:
        """After the last tile: no arrival is left over when the block ends."""
        with when(arith.cmpi(arith.CmpIPredicate.ne, self.group, word(0))):
            ptx.named_barrier(word(_READ), self._threads)

    def merge(
        self,
        tile: RowScores,
        state: RowState,
        out: Sequence[Any],
        finish: Callable[[RowState, list[Any]], None],
    ) -> None:
        """Call `finish` with the result of all keys, in the code of the first consumer."""
        with when(arith.cmpi(arith.CmpIPredicate.ne, self.group, word(0))):
            ptx.named_barrier(word(_READ), self._threads)
            for number, value in enumerate([*state.values, *out]):
                store(value, self._address(arith.subi(self.group, word(1)), number), SHARED, 4)
            ptx.arrive_at_named(word(_WRITTEN), self._threads)
        with when(self._is_first):
            ptx.named_barrier(word(_WRITTEN), self._threads)
            states, sums = [state], [list(out)]
            for other in range(self.consumers - 1):
                values = [
                    load(ir.F32Type.get(), self._address(word(other), number), SHARED, 4)
                    for number in range(self.count)
                ]
                states.append(RowState.of(values))
                sums.append(values[4:])
            ptx.arrive_at_named(word(_READ), self._threads)
            merged, factors = tile.merge(states)
            finish(merged, _weighted(sums, factors))

    def _address(self, other: ir.Value, number: int) -> Any:
        """The address of a value of this thread: those of a warp are adjacent."""
        row = arith.addi(arith.muli(other, word(self.count)), word(number))
        position = arith.addi(arith.muli(row, word(128)), self.thread)
        return add(wide(self.base), wide(arith.shli(position, word(2))))


def _weighted(sums: Sequence[Sequence[Any]], factors: Sequence[Sequence[Any]]) -> list[Any]:
    """The sums of all consumers, each times the factor of its row."""
    total = [arith.mulf(value, factors[0][n // 2 % 2]) for n, value in enumerate(sums[0])]
    for values, scale in zip(sums[1:], factors[1:], strict=True):
        total = [
            arith.addf(before, arith.mulf(value, scale[n // 2 % 2]))
            for n, (before, value) in enumerate(zip(total, values, strict=True))
        ]
    return total


@dataclass(frozen=True)
class SplitConsumer(Consumer):
    """A consumer with every nth block of keys of the rows of a tile."""

    def emit(self) -> None:
        owner, partials = self.owner, self._partials
        partials.begin()
        owner.order.each(owner.block, [word(0)] * 4, self._split_tile)
        partials.end()

    @property
    def _partials(self) -> PartialResults:
        plan = self.plan
        base = arith.addi(self.owner.base, word(plan.merge_offset))
        parts = plan.tile.consumers, plan.partial_values
        return PartialResults(base, *parts, self.group, self.thread)

    def _split_tile(self, item: WorkItem, *state: Any) -> list[Any]:
        """A tile of rows that all consumers have: each visits every nth block of keys.

        The first consumer has the last block, the only one with hidden scores.
        """
        owner, plan = self.owner, self.plan
        queries, stage = RingPosition(*state[:2]), RingPosition(*state[2:])
        first = mul(item.tile, plan.rows)
        count = owner.key_blocks(first)
        owner.queries.await_full(queries)
        types = [ir.F32Type.get()] * plan.partial_values
        # A tile may have fewer blocks of keys than there are consumers.
        either = scf.IfOp(compare(_LESS, wide(self.group), count), types, has_else=True)
        with ir.InsertionPoint(either.then_block):
            scf.YieldOp(self._visit_part(item, queries, stage, count))
        with ir.InsertionPoint(either.else_block):
            self._meet()
            lowest, zero = (splat(types[0], value) for value in (-inf, 0.0))
            scf.YieldOp([lowest, lowest, *[zero] * (plan.partial_values - 2)])
        owner.queries.release(queries, self.thread)
        item = owner.order.again(item)
        first = mul(item.tile, plan.rows)
        matrices = matrices_at(owner.attention, owner.buffers, item.counters)
        tile = RowScores.make(plan, owner.attention, matrices, first, word(0), opaque(self.thread))
        results = list(either.results)

        def finish(rows: RowState, out: list[Any]) -> None:
            self._finish(tile, item, rows, out, owner.hiding_keys(first))

        self._partials.merge(tile, RowState.of(results), results[4:], finish)
        following = owner.keys.advance(stage, word(count))
        return [*owner.queries.next(queries).values, *following.values]

    def _visit_part(
        self, item: WorkItem, queries: RingPosition, stage: RingPosition, count: Index
    ) -> list[Any]:
        """The state and the sums of this consumer's blocks of keys, of `count`."""
        owner, plan = self.owner, self.plan
        consumers = plan.tile.consumers
        first = mul(item.tile, plan.rows)
        matrices = matrices_at(owner.attention, owner.buffers, item.counters)
        tile = RowScores.make(plan, owner.attention, matrices, first, word(0), self.thread)
        lhs = ptx.descriptor(owner.queries.address(queries.slot), 0, 1024)
        last = sub(sub(count, 1), wide(self.group))
        least, others = modulo(last, consumers), divide(last, consumers)
        stage = owner.keys.advance(stage, self.group)
        carried = self._first_block(tile, lhs, stage, mul(last, plan.keys))
        carried = self._key_loop(
            tile,
            lhs,
            (0, others),
            carried,
            hides=False,
            key_at=lambda number: mul(add(least, mul(number, consumers)), plan.keys),
        )
        _, rows, out = self._last_values(carried)
        return [*rows.values, *out]

    def _next(self, stage: RingPosition) -> RingPosition:
        return self.owner.keys.advance(stage, word(self.plan.tile.consumers))
