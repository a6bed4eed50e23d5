"""A consumer warpgroup of the forward pass of warpgroup attention.

Input: the `ForwardContext` of its block. Output: code that multiplies and stores its 64 rows of
each tile. `forward.py` calls it, and has a picture of the roles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd, inf
from typing import Any

from nova.codegen.common.builder import BITS
from nova.codegen.gpu.attention.dropout import DrawnWeights
from nova.codegen.gpu.attention.operands import matrices_at
from nova.codegen.gpu.block_ops import reduce_lanes, when
from nova.codegen.gpu.ptx_ops import GLOBAL, global_base, opaque, store, wide, word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma_attention import fragment as layout
from nova.codegen.gpu.wgmma_attention.forward_context import ForwardContext
from nova.codegen.gpu.wgmma_attention.nonfinite_values import (
    add_visible_nonfinite,
)
from nova.codegen.gpu.wgmma_attention.plan import GROUP_ROWS, ROW_BYTES, ForwardPlan
from nova.codegen.gpu.wgmma_attention.ring import (
    Ring,
    RingPosition,
    feature_steps,
    row_steps,
)
from nova.codegen.gpu.wgmma_attention.softmax import RowScores, RowState
from nova.codegen.gpu.wgmma_attention.work import WorkItem
from nova.ir.bindings import arith, ir, math, scf
from nova.ir.index import Index, add, compare, index, minimum, mul, sub

_EQUAL = arith.CmpIPredicate.eq
_LESS = arith.CmpIPredicate.slt
_FIRST_BARRIER = 4
"""The named barrier of the warps of the first consumer; those before it keep the order."""
_MOST_COLUMNS_OF_RANGES = 192
"""Value columns for which registers suffice to keep the range of blocks inside one segment."""


@dataclass(frozen=True)
class Consumer:
    """A consumer warpgroup: 64 rows of the tiles of its block."""

    owner: ForwardContext
    group: ir.Value
    thread: ir.Value

    @property
    def plan(self) -> ForwardPlan:
        return self.owner.plan

    @property
    def _is_ordered(self) -> bool:
        return self.plan.tile.ordered

    def emit(self) -> None:
        owner = self.owner
        if self._is_ordered:
            # The last one lets the first one begin.
            last = word(self.plan.tile.consumers - 1)
            with when(arith.cmpi(_EQUAL, self.group, last)):
                ptx.arrive_at_named(word(1), 256)
        owner.order.each(owner.block, [word(0)] * 4, self._tile)
        if self._is_ordered:
            # No arrival is left over when the block ends.
            with when(arith.cmpi(_EQUAL, self.group, word(0))):
                self._await_order()

    def _await_order(self) -> None:
        if self._is_ordered:
            ptx.named_barrier(arith.addi(self.group, word(1)), 256)

    def _pass_on(self) -> None:
        if self._is_ordered:
            following = arith.addi(self.group, word(1))
            wraps = arith.cmpi(_EQUAL, following, word(self.plan.tile.consumers))
            number = arith.addi(arith.select(wraps, word(0), following), word(1))
            ptx.arrive_at_named(number, 256)

    def _meet(self) -> None:
        """A barrier of the warps of this consumer, after they waited for a slot.

        Thread 0 releases slots for all of them. Matmuls bring the warps together; without one, a
        slot could be filled again while a warp still waits for it. Its mbarrier then has the parity
        of before, and the warp waits for ever.
        """
        ptx.named_barrier(arith.addi(self.group, word(_FIRST_BARRIER)), 128)

    def _release_unread(self, ring: Ring, position: RingPosition) -> None:
        """Wait for a slot that no matmul of this consumer reads, and release it."""
        ring.await_full(position)
        self._meet()
        ring.release(position, self.thread)

    # --- a tile ---------------------------------------------------------------------------------

    def _tile(self, item: WorkItem, *state: Any) -> list[Any]:
        """A tile; a consumer whose rows are all beyond the last one only keeps the order."""
        plan = self.plan
        if not plan.has_idle_consumers:
            return self._computed_tile(item, *state)
        row = add(mul(item.tile, plan.rows), mul(wide(self.group), GROUP_ROWS))
        has_rows = compare(_LESS, row, plan.sizes.i)
        either = scf.IfOp(has_rows, [value.type for value in state], has_else=True)
        with ir.InsertionPoint(either.then_block):
            scf.YieldOp(self._computed_tile(item, *state))
        with ir.InsertionPoint(either.else_block):
            scf.YieldOp(self._idle_tile(item, *state))
        return list(either.results)

    def _idle_tile(self, item: WorkItem, *state: Any) -> list[Any]:
        """Wait for the copies of a tile, release them, and keep the order of the consumers."""
        owner, plan = self.owner, self.plan
        # Nothing computed here is of use to the other branch, where registers are few.
        copies, keys, values = (
            replace(ring, base=opaque(ring.base), barriers=opaque(ring.barriers))
            for ring in (owner.queries, owner.keys, owner.values)
        )
        queries, stage = (RingPosition(*map(opaque, part)) for part in (state[:2], state[2:]))
        first = mul(wide(opaque(word(item.tile))), plan.rows)
        least, count = owner.key_range(first, owner.segments(first, item.counters))
        self._release_unread(copies, queries)
        self._release_unread(keys, stage)
        op = scf.ForOp(index(least), index(sub(count, 1)), index(1), stage.values)
        with ir.InsertionPoint(op.body):
            previous = RingPosition(*op.inner_iter_args)
            following = keys.next(previous)
            keys.await_full(following)
            self._await_order()
            self._pass_on()
            keys.release(following, self.thread)
            self._release_unread(values, previous)
            scf.YieldOp(following.values)
        last = RingPosition(*op.results)
        self._release_unread(values, last)
        return [*copies.next(queries).values, *keys.next(last).values]

    def _computed_tile(self, item: WorkItem, *state: Any) -> list[Any]:
        owner, plan = self.owner, self.plan
        keys = owner.keys
        queries, stage = RingPosition(*state[:2]), RingPosition(*state[2:])
        first = mul(item.tile, plan.rows)
        segments = owner.segments(first, item.counters)
        (least, count), plain = owner.key_range(first, segments), owner.plain_blocks(first)
        matrices = matrices_at(owner.attention, owner.buffers, item.counters)
        tile = RowScores.make(plan, owner.attention, matrices, first, self.group, self.thread)
        owner.queries.await_full(queries)
        offset = arith.muli(self.group, word(GROUP_ROWS * ROW_BYTES))
        lhs = ptx.descriptor(arith.addi(owner.queries.address(queries.slot), offset), 0, 1024)
        carried = self._first_block(tile, lhs, stage, mul(sub(count, 1), plan.keys))
        # Blocks with hidden scores after the first one, then those without.
        high: Index = sub(count, 1)
        if segments is not None and plan.value_columns <= _MOST_COLUMNS_OF_RANGES:
            bounds = segments.inner_blocks(plan.keys, least, minimum(high, plain))
            # One register each until their loops begin.
            least, inner, end = (wide(opaque(word(bound))) for bound in (least, *bounds))
            carried = self._key_loop(tile, lhs, (end, high), carried, hides=True)
            carried = self._key_loop(tile, lhs, (inner, end), carried, hides=False)
            high = inner
        if segments is not None or self._has_several_edges:
            low = least if segments is not None else minimum(high, plain)
            carried = self._key_loop(tile, lhs, (low, high), carried, hides=True)
            high = low
        elif plan.causal:
            high = minimum(high, plain)
        if not plan.masked and segments is None:
            carried = self._key_loop(tile, lhs, (0, high), carried, hides=False)
        owner.queries.release(queries, self.thread)
        stage, rows, out = self._last_values(carried)
        # What results need is not kept in registers over the blocks of keys.
        item = owner.order.again(item)
        first = mul(item.tile, plan.rows)
        matrices = matrices_at(owner.attention, owner.buffers, item.counters)
        thread = opaque(self.group), opaque(self.thread)
        tile = RowScores.make(plan, owner.attention, matrices, first, *thread)
        self._finish(tile, item, rows, out, owner.hiding_keys(first))
        return [*owner.queries.next(queries).values, *keys.next(stage).values]

    def _first_block(
        self, tile: RowScores, lhs: ir.Value, stage: RingPosition, key: Index
    ) -> list[Any]:
        """The carried values of the key loop after the block of keys from `key` on."""
        plan, keys = self.plan, self.owner.keys
        zero = tile.number(0.0)
        keys.await_full(stage)
        kept = tile.draw(lambda: key)
        visible = tile.visible(lambda: key)
        scores = ptx.await_sums(self._issue_scores(lhs, stage))
        keys.release(stage, self.thread)
        start = RowState([tile.number(-inf)] * 2, [zero] * 2)
        weights, rows, _ = tile.softmax(scores, start, key, visible, hides=plan.has_edges)
        words = self._pack(weights, kept)
        return [*stage.values, *rows.values, *words, *[zero] * (plan.value_columns // 2)]

    def _last_values(self, carried: Sequence[Any]) -> tuple[RingPosition, RowState, list[Any]]:
        """The sums with the values of the last block, whose weights are carried."""
        stage, rows, words, out = self._split(carried)
        self._await_values(stage, None if self.plan.cleans_values else False)
        out = ptx.await_sums(self._issue_values(out, words, stage))
        self.owner.values.release(stage, self.thread)
        return stage, rows, out

    @property
    def _has_several_edges(self) -> bool:
        """Whether a tile may have several blocks of keys with hidden scores."""
        plan = self.plan
        return plan.masked or (plan.causal and plan.keys % plan.rows != 0)

    def _split(self, carried: Sequence[Any]) -> tuple[RingPosition, RowState, list[Any], list[Any]]:
        words = self.plan.keys // 4
        rows = RowState.of(carried[2:6])
        return (
            RingPosition(*carried[:2]),
            rows,
            list(carried[6 : 6 + words]),
            list(carried[6 + words :]),
        )

    def _key_loop(
        self,
        tile: RowScores,
        lhs: ir.Value,
        blocks: tuple[Index, Index],
        carried: list[Any],
        *,
        hides: bool,
        key_at: Callable[[Index], Index] | None = None,
    ) -> list[Any]:
        """Visit blocks of keys from last to first; the values are those of the previous block.

        `key_at` gives the first key of a block by its number among those of this consumer.
        """
        owner, plan = self.owner, self.plan
        low, high = blocks
        op = scf.ForOp(index(low), index(high), index(1), carried)
        with ir.InsertionPoint(op.body):
            previous, rows, words, out = self._split(list(op.inner_iter_args))
            step = op.induction_variable
            number = sub(sub(add(low, high), 1), step)
            key = mul(number, plan.keys) if key_at is None else key_at(number)
            stage = self._next(previous)
            # Before the matmul that needs registers for scores; another consumer's runs meanwhile.
            kept = tile.draw(lambda: key)
            visible = tile.visible(lambda: key) if hides else None
            owner.keys.await_full(stage)
            self._await_order()
            scores = self._issue_scores(lhs, stage)
            is_hiding: ir.Value | bool | None = False
            if plan.cleans_values:
                is_hiding = None if hides else compare(_EQUAL, step, low)
            self._await_values(previous, is_hiding)
            out = self._issue_values(out, words, previous)
            self._pass_on()
            scores = ptx.await_sums(scores, pending=1)
            owner.keys.release(stage, self.thread)
            weights, rows, rescale = tile.softmax(scores, rows, key, visible, hides=hides)
            out = ptx.await_sums(out)
            owner.values.release(previous, self.thread)
            out = [arith.mulf(value, rescale[n // 2 % 2]) for n, value in enumerate(out)]
            words = self._pack(weights, kept)
            scf.YieldOp([*stage.values, *rows.values, *words, *out])
        return list(op.results)

    def _next(self, stage: RingPosition) -> RingPosition:
        """The stage of the next block of keys of this consumer."""
        return self.owner.keys.next(stage)

    def _pack(self, weights: list[ir.Value], kept: DrawnWeights | None) -> list[ir.Value]:
        """Weights as an operand of the next matmul; `_finish` scales those that dropout keeps."""
        words = layout.pack_operand(weights, self.plan.element)
        return kept.keep_pairs(words) if kept else words

    def _await_values(self, stage: RingPosition, is_hiding: ir.Value | bool | None) -> None:
        """Wait for values; those of a block with hidden scores (None: always) have been cleaned."""
        ring = self.owner.values
        if is_hiding is False:
            ring.await_full(stage)
            return
        barrier_ = ring.third(stage.slot)
        if isinstance(is_hiding, ir.Value):
            barrier_ = arith.select(is_hiding, barrier_, ring.full(stage.slot))
        ptx.await_phase(barrier_, stage.parity)

    # --- matmuls --------------------------------------------------------------------------------

    def _issue_scores(self, lhs: ir.Value, stage: RingPosition) -> list[Any]:
        plan = self.plan
        rhs = ptx.descriptor(self.owner.keys.address(stage.slot), 0, 1024)
        sums = ptx.undefined_sums(plan.keys // 2)
        steps = feature_steps(plan.sizes.e, plan.rows, plan.keys)
        return ptx.issue_matmul(
            plan.element, sums, lhs, rhs, steps, adds=False, rhs_transposed=False
        )

    def _issue_values(
        self, out: Sequence[Any], words: Sequence[Any], stage: RingPosition
    ) -> list[Any]:
        plan = self.plan
        address = self.owner.values.address(stage.slot)
        rhs = ptx.descriptor(address, plan.keys * ROW_BYTES, 1024)
        steps = row_steps(plan.keys)
        return ptx.issue_matmul(
            plan.element, out, words, rhs, steps, adds=True, rhs_transposed=True
        )

    # --- results --------------------------------------------------------------------------------

    def _finish(
        self,
        tile: RowScores,
        item: WorkItem,
        state: RowState,
        out: list[Any],
        hiding_keys: tuple[Index, Index],
    ) -> None:
        owner, plan = self.owner, self.plan
        results = owner.attention.spec.results
        column = wide(tile.fragment.first_column)
        if plan.cleans_values:
            spoiled = owner.flag.reaches(item.round)
            either = scf.IfOp(spoiled, [value.type for value in out], has_else=True)
            with ir.InsertionPoint(either.then_block):
                keys = hiding_keys[0], minimum(hiding_keys[1], plan.sizes.j)
                scf.YieldOp(
                    add_visible_nonfinite(
                        tile.matrices["v"], keys, tile.rows, column, plan.sizes.f, out
                    )
                )
            with ir.InsertionPoint(either.else_block):
                scf.YieldOp(out)
            out = list(either.results)
        totals = [reduce_lanes([value], arith.addf, 4)[0] for value in state.totals]
        zero, unit = tile.number(0.0), tile.number(1.0)
        empty = [arith.cmpf(arith.CmpFPredicate.OEQ, total, zero) for total in totals]
        if "out" in results:
            scale = tile.number(tile.dropout.scale) if tile.dropout else unit
            factors = [
                arith.select(is_empty, zero, arith.divf(scale, total))
                for is_empty, total in zip(empty, totals, strict=True)
            ]
            number = owner.attention.names.index("to_out")
            nest = owner.attention.nest
            strides = [nest.loops[i].strides[number] for i in owner.attention.batch]
            matrix = tile.matrices["to_out"]
            layout.write_rows(
                matrix,
                out,
                tile.rows,
                (plan.sizes.i, plan.sizes.f),
                column,
                factors,
                [gcd(nest.offsets[number], matrix.row, *strides)],
            )
        if "logsumexp" in results:
            is_first_lane = arith.cmpi(_EQUAL, arith.andi(self.thread, word(3)), word(0))
            for half, row in enumerate(tile.rows):
                scaled = arith.mulf(state.maxima[half], tile.number(tile.factor / tile.unit))
                logarithm = math.log(arith.select(empty[half], unit, totals[half]))
                value = arith.addf(scaled, logarithm)
                value = arith.select(empty[half], tile.number(inf), value)
                exists = compare(_LESS, row, plan.sizes.i)
                with when(arith.andi(is_first_lane, exists)):
                    matrix, size = tile.matrices["to_logsumexp"], BITS[owner.attention.type] // 8
                    address = add(global_base(matrix.buffer), mul(matrix.at(row), size))
                    store(value, address, GLOBAL, size)
