"""The gradients of warpgroup attention: the code of one block.

Input: a `GradientPlan`, its tensor maps and buffers. Output: code at the insertion point, inside a
`gpu.launch` of the plan's blocks. `kernel.py` calls it.

Weights p and d = p (g v^T - delta) are recomputed from the logsumexp of each row: dv = p^T g,
dk = scale d^T q, dq = scale d k. A tile of keys computes the transposed scores k q^T and v g^T, so
that p^T and d^T are in registers as the next matmuls read them; a tile of rows of q computes q k^T
and g v^T. Each pass of a consumer has four (or three) matmuls, of which one or two run while it
computes weights:

    scores i | slopes i | weights | dv += p g | d | dk += d q | scores i + 1 ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, inf
from typing import Any

from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.gpu.attention.dropout import DrawnWeights, KeptWeights
from nova.codegen.gpu.attention.operands import matrices_at
from nova.codegen.gpu.attention.scores import AttentionScores
from nova.codegen.gpu.attention.segments import SegmentRange
from nova.codegen.gpu.block_ops import barrier, when
from nova.codegen.gpu.ptx_ops import GLOBAL, SHARED, global_base, load, store, wide, word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma_attention import fragment as layout
from nova.codegen.gpu.wgmma_attention.gradient_plan import (
    CONSUMERS,
    GradientPart,
    GradientPlan,
)
from nova.codegen.gpu.wgmma_attention.gradient_weights import TileWeights
from nova.codegen.gpu.wgmma_attention.plan import GROUP_ROWS, ROW_BYTES
from nova.codegen.gpu.wgmma_attention.ring import (
    Ring,
    RingPosition,
    TileCopy,
    feature_steps,
    row_steps,
)
from nova.codegen.gpu.wgmma_attention.work import WorkItem, WorkOrder
from nova.ir.attention_ops import AXES
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, compare, divide, divide_up, index, minimum, mul

_EQUAL = arith.CmpIPredicate.eq
_WARP = 32


@dataclass(frozen=True)
class GradientBlock:
    """A block of threads; addresses of shared memory and thread numbers are i32."""

    plan: GradientPlan
    attention: Attention
    buffers: list[Any]
    maps: dict[tuple[int, str], ir.Value]
    block: ir.Value
    thread: ir.Value
    base: ir.Value

    def emit(self) -> None:
        group = arith.shrui(self.thread, word(7))
        number = arith.andi(self.thread, word(127))
        parts = [_Part.make(self, n, part) for n, part in enumerate(self.plan.parts)]
        with when(arith.cmpi(_EQUAL, self.thread, word(0))):
            for part in parts:
                part.fixed.init(1, CONSUMERS)
                part.stages.init(1 + (_WARP if part.part.has_keys else 0), CONSUMERS)
            ptx.publish_barriers()
        barrier()
        few, many = self.plan.registers
        roles = scf.IfOp(arith.cmpi(_EQUAL, group, word(0)), has_else=True)
        with ir.InsertionPoint(roles.then_block):
            ptx.set_registers(few, more=False)
            for part in parts:
                self._separate(part)
                with when(arith.cmpi(_EQUAL, number, word(0))):
                    part.produce()
                if part.part.has_keys:
                    warp = arith.shrui(number, word(5))
                    with when(arith.cmpi(_EQUAL, warp, word(1))):
                        part.copy_statistics(arith.andi(number, word(31)))
            scf.YieldOp([])
        with ir.InsertionPoint(roles.else_block):
            ptx.set_registers(many, more=True)
            consumer = arith.subi(group, word(1))
            for part in parts:
                self._separate(part)
                _Consumer(part, consumer, number).emit()
            scf.YieldOp([])

    def _separate(self, part: _Part) -> None:
        """The tiles of a part lie where those of the part before it were."""
        if part.number:
            ptx.named_barrier(word(0), self.plan.threads)


@dataclass(frozen=True)
class _Part:
    """A part of the plan in this block: its rings, and its producer."""

    owner: GradientBlock
    number: int
    part: GradientPart
    fixed: Ring
    stages: Ring

    @staticmethod
    def make(owner: GradientBlock, number: int, part: GradientPart) -> _Part:
        barriers = arith.addi(owner.base, word(owner.plan.part_barriers(number)))
        fixed = Ring(owner.base, 1, part.fixed_bytes, barriers)
        start = arith.addi(owner.base, word(part.fixed_bytes))
        ring_barriers = arith.addi(barriers, word(Ring.barrier_bytes(1)))
        stages = Ring(start, part.stages, part.stage_bytes, ring_barriers)
        return _Part(owner, number, part, fixed, stages)

    @cached_property
    def order(self) -> WorkOrder:
        return WorkOrder(self.owner.attention, self.part.work)

    def each(self, initial: Sequence[ir.Value], body: Any, finish: Any = None) -> None:
        """The tiles of this block, then `finish`; a block beyond those of the part has none."""

        def emit() -> None:
            carried = self.order.each(self.owner.block, initial, body)
            if finish is not None:
                finish(*carried)

        if self.part.work.blocks == self.owner.plan.blocks:
            emit()
            return
        with when(compare(arith.CmpIPredicate.slt, self.owner.block, self.part.work.blocks)):
            emit()

    def segments(self, first: Index, matrices: dict[str, Matrix]) -> SegmentRange | None:
        """The rows that pass the tile from row `first` on, of packed sequences."""
        role, rows = "j" if self.part.has_keys else "i", self.part.tile_rows
        return SegmentRange.of_tile(self.owner.attention, matrices, role, first, rows)

    def matrices(self, item: WorkItem) -> dict[str, Matrix]:
        """The operands and results at the point of a tile."""
        return matrices_at(self.owner.attention, self.owner.buffers, item.counters)

    def block_range(self, first: Index, segments: SegmentRange | None) -> tuple[Index, Index]:
        """The blocks that pass the tile from row `first` on; at least one."""
        low, high = self._all_blocks(first)
        return (
            (low, high) if segments is None else segments.some_blocks(self.part.passing, low, high)
        )

    def _all_blocks(self, first: Index) -> tuple[Index, Index]:
        """Those of all segments."""
        part = self.part
        high = -(-part.extents[1] // part.passing)
        if not part.causal:
            return 0, high
        if part.has_keys:
            return minimum(divide(first, part.passing), high - 1), high
        return 0, minimum(high, divide_up(add(first, part.tile_rows), part.passing))

    def offset(self, name: str) -> int:
        """The offset of an operand in its slot."""
        part = self.part
        names = part.fixed_names if name in part.fixed_names else part.passing_names
        return sum(part.operands[n].nbytes for n in names[: names.index(name)])

    # --- producer -------------------------------------------------------------------------------

    def produce(self) -> None:
        part = self.part

        def copies(names: Sequence[str]) -> list[TileCopy]:
            return [
                TileCopy(part.operands[n], self.owner.maps[self.number, n], self.offset(n))
                for n in names
            ]

        def tile_copies(item: WorkItem, *state: Any) -> list[Any]:
            fixed, stage = RingPosition(*state[:2]), RingPosition(*state[2:])
            first = mul(item.tile, part.tile_rows)
            self.fixed.copy(copies(part.fixed_names), fixed, first, item.counters)
            segments = self.segments(first, self.matrices(item))
            low, high = self.block_range(first, segments)
            op = scf.ForOp(word(low), word(high), word(1), stage.values)
            with ir.InsertionPoint(op.body):
                inner = RingPosition(*op.inner_iter_args)
                row = wide(arith.muli(op.induction_variable, word(part.passing)))
                self.stages.copy(copies(part.passing_names), inner, row, item.counters)
                scf.YieldOp(self.stages.next(inner).values)
            return [*self.fixed.next(fixed).values, *op.results]

        self.each([word(0), word(1), word(0), word(1)], tile_copies)

    def copy_statistics(self, lane: ir.Value) -> None:
        """A warp copies the logsumexp and delta of the rows of each stage.

        The logsumexp is in units of the scores; rows beyond the last one have weights of 0. Threads
        of the consumers read them, and arrive at a named barrier of the slot, on which this warp
        waits before it writes the slot again.
        """
        part, owner = self.part, self.owner
        names = ("logsumexp", "delta")
        to = arith.addi(self.stages.base, word(part.passing_bytes))
        to = arith.addi(to, arith.shli(lane, word(2)))

        def tile_copies(item: WorkItem, *state: Any) -> list[Any]:
            matrices = self.matrices(item)
            scores = AttentionScores(part, owner.attention, matrices)
            tile_row = mul(item.tile, part.tile_rows)
            low, high = self.block_range(tile_row, self.segments(tile_row, matrices))
            first = add(mul(low, part.passing), wide(lane))
            sources = [
                add(global_base(matrices[name].buffer), mul(matrices[name].at(first), 4))
                for name in names
            ]
            carried = [*state, *(index(source) for source in sources)]
            op = scf.ForOp(word(low), word(high), word(1), carried)
            with ir.InsertionPoint(op.body):
                slot, is_used, *addresses = op.inner_iter_args
                with when(arith.cmpi(_EQUAL, is_used, word(1))):
                    self._statistics_barrier(slot, ptx.named_barrier)
                target = arith.addi(to, arith.muli(slot, word(self.stages.slot_bytes)))
                block_row = arith.addi(arith.muli(op.induction_variable, word(part.passing)), lane)
                for row in range(0, part.passing, _WARP):
                    exists = self._row_exists(arith.addi(block_row, word(row)))
                    for number, (name, address) in enumerate(zip(names, addresses, strict=True)):
                        source = add(address, mul(matrices[name].row, 4 * row))
                        hidden = scores.number(inf if name == "logsumexp" else 0.0)
                        value = _load_where(exists, source, hidden)
                        if name == "logsumexp":
                            value = arith.mulf(value, scores.number(scores.unit))
                        at = arith.addi(target, word(4 * (part.passing * number + row)))
                        store(value, wide(at), SHARED, 4)
                ptx.arrive(self.stages.full(slot))
                steps = [mul(matrices[name].row, 4 * part.passing) for name in names]
                following = [
                    index(add(address, step))
                    for address, step in zip(addresses, steps, strict=True)
                ]
                moved = arith.addi(slot, word(1))
                wraps = arith.cmpi(_EQUAL, moved, word(part.stages))
                next_slot = arith.select(wraps, word(0), moved)
                scf.YieldOp([next_slot, arith.select(wraps, word(1), is_used), *following])
            return list(op.results)[:2]

        def await_readers(slot: ir.Value, is_used: ir.Value) -> None:
            # Barriers are left complete: a part after this one may use them.
            for number in range(part.stages):
                used = arith.cmpi(arith.CmpIPredicate.ult, word(number), slot)
                with when(arith.ori(used, arith.cmpi(_EQUAL, is_used, word(1)))):
                    self._statistics_barrier(word(number), ptx.named_barrier)

        self.each([word(0), word(0)], tile_copies, await_readers)

    def release_statistics(self, stage: RingPosition) -> None:
        """A consumer has read the statistics of a stage."""
        self._statistics_barrier(stage.slot, ptx.arrive_at_named)

    def _statistics_barrier(self, slot: ir.Value, emit: Callable[[ir.Value, int], None]) -> None:
        """The named barrier of a slot: of the warp that copies, and all consumers."""
        emit(arith.addi(slot, word(1)), _WARP + 128 * CONSUMERS)

    def _row_exists(self, row: ir.Value) -> ir.Value | None:
        """Whether q has the row (i32); None where all rows of all blocks exist."""
        if self.part.sizes.i % self.part.passing == 0:
            return None
        return arith.cmpi(arith.CmpIPredicate.slt, row, word(self.part.sizes.i))


def _load_where(condition: ir.Value | None, address: Index, other: ir.Value) -> ir.Value:
    """Load an f32 of global memory; `other`, without a load, where the condition does not hold."""
    element = ir.F32Type.get()
    if condition is None:
        return load(element, address, GLOBAL, 4)
    op = scf.IfOp(condition, [element], has_else=True)
    with ir.InsertionPoint(op.then_block):
        scf.YieldOp([load(element, address, GLOBAL, 4)])
    with ir.InsertionPoint(op.else_block):
        scf.YieldOp([other])
    return op.results[0]


@dataclass(frozen=True)
class _Consumer:
    """A consumer warpgroup: 64 rows of the tiles of a part."""

    owner: _Part
    group: ir.Value
    thread: ir.Value

    @property
    def part(self) -> GradientPart:
        return self.owner.part

    def emit(self) -> None:
        self.owner.each([word(0)] * 4, self._tile)

    def _tile(self, item: WorkItem, *state: Any) -> list[Any]:
        owner, part = self.owner, self.part
        fixed, stage = RingPosition(*state[:2]), RingPosition(*state[2:])
        first = mul(item.tile, part.tile_rows)
        matrices, attention = owner.matrices(item), owner.owner.attention
        segments = owner.segments(first, matrices)
        thread = self.group, self.thread
        tile = TileWeights.make(part, attention, matrices, first, *thread, segments)
        low, high = owner.block_range(first, tile.segments)
        owner.fixed.await_full(fixed)
        descriptors = [self._fixed_descriptor(name) for name in part.fixed_names]
        zero = tile.number(0.0)
        counts = [self._columns(name) // 2 for name in part.results]
        sums = [zero] * sum(counts)
        # Bits of dropout and segments leave few registers: counters of 32 bits.
        is_short = bool(tile.dropout or tile.segments)
        low, high, step = ((word if is_short else index)(n) for n in (low, high, 1))
        op = scf.ForOp(low, high, step, [*stage.values, word(0), *sums])
        with ir.InsertionPoint(op.body):
            slot, parity, previous, *values = op.inner_iter_args
            position = RingPosition(slot, parity)
            number = wide(op.induction_variable) if is_short else op.induction_variable
            # The matmuls of the block before still run.
            kept, visible = tile.draw(number), tile.visible(number)
            owner.stages.await_full(position)
            scores = self._issue_scores(descriptors[0], part.passing_names[0], position)
            # The matmuls of the block before have ended.
            values = ptx.await_sums(values, pending=1)
            is_later = arith.cmpi(arith.CmpIPredicate.ne, op.induction_variable, low)
            owner.stages.release(RingPosition(previous, parity), self.thread, is_later)
            bits = kept, visible
            block = (position, number, bits)
            values = self._accumulate(tile, descriptors, scores, *block, values, counts)
            following = owner.stages.next(position)
            scf.YieldOp([*following.values, slot, *values])
        slot, parity, previous, *values = op.results
        values = ptx.await_sums(values)
        owner.stages.release(RingPosition(previous, parity), self.thread)
        owner.fixed.release(fixed, self.thread)
        self._write(tile, values, counts)
        return [*owner.fixed.next(fixed).values, slot, parity]

    def _accumulate(
        self,
        tile: TileWeights,
        descriptors: list[ir.Value],
        scores: list[Any],
        stage: RingPosition,
        number: ir.Value,
        bits: tuple[DrawnWeights | None, KeptWeights | None],
        values: list[Any],
        counts: list[int],
    ) -> list[Any]:
        """Add the matmuls of a block; `bits` are what dropout keeps, and the same segments."""
        kept, visible = bits
        part, element = self.part, self.owner.owner.plan.element
        slopes: list[Any] = []
        if part.needs_slopes:
            slopes = self._issue_scores(descriptors[1], part.passing_names[1], stage)
        scores = ptx.await_sums(scores, pending=1 if part.needs_slopes else 0)
        passed = mul(number, part.passing)
        statistics = arith.addi(self.owner.stages.address(stage.slot), word(part.passing_bytes))
        shifts, deltas = tile.shifts(statistics), tile.deltas(statistics)
        weights = tile.weights(tile.scores_of(scores, passed), shifts)
        if visible is not None:
            weights = visible.keep(weights)
        results: dict[str, list[Any]] = {}
        parts: dict[str, list[Any]] = {}
        for name, count in zip(part.results, counts, strict=True):
            parts[name], values = values[:count], values[count:]
        if "v" in part.results:
            words = layout.pack_operand(weights, element)
            words = kept.keep_pairs(words) if kept else words
            results["v"] = self._issue_sums(parts["v"], words, "g", stage)
        if part.needs_slopes:
            slopes = ptx.await_sums(slopes, pending=1 if "v" in part.results else 0)
            slopes = kept.keep(slopes) if kept else slopes
            changes = tile.changes(weights, slopes, deltas)
            words = layout.pack_operand(changes, element)
            self._release_statistics(stage)
            name, rows = ("k", "q") if part.has_keys else ("q", "k")
            results[name] = self._issue_sums(parts[name], words, rows, stage)
        else:
            self._release_statistics(stage)
        return [value for name in part.results for value in results[name]]

    def _release_statistics(self, stage: RingPosition) -> None:
        if self.part.has_keys:
            self.owner.release_statistics(stage)

    # --- matmuls --------------------------------------------------------------------------------

    def _columns(self, name: str) -> int:
        """Columns of a result that are computed: a multiple of 16."""
        size = self.part.sizes.of(AXES[name][1])
        return -(-size // 16) * 16

    def _fixed_descriptor(self, name: str) -> ir.Value:
        owner = self.owner
        offset = arith.muli(self.group, word(GROUP_ROWS * ROW_BYTES))
        start = arith.addi(owner.fixed.base, word(owner.offset(name)))
        return ptx.descriptor(arith.addi(start, offset), 0, 1024)

    def _passing_address(self, name: str, stage: RingPosition) -> ir.Value:
        start = self.owner.stages.address(stage.slot)
        return arith.addi(start, word(self.owner.offset(name)))

    def _issue_scores(self, lhs: ir.Value, name: str, stage: RingPosition) -> list[Any]:
        """Rows of this warpgroup times those of a block, along features."""
        part = self.part
        rhs = ptx.descriptor(self._passing_address(name, stage), 0, 1024)
        steps = feature_steps(part.sizes.of(AXES[name][1]), part.tile_rows, part.passing)
        sums = ptx.undefined_sums(part.passing // 2)
        element = self.owner.owner.plan.element
        return ptx.issue_matmul(element, sums, lhs, rhs, steps, adds=False, rhs_transposed=False)

    def _issue_sums(
        self, sums: list[Any], words: list[Any], name: str, stage: RingPosition
    ) -> list[Any]:
        """Add weights times the rows of a block to a result."""
        part = self.part
        address = self._passing_address(name, stage)
        rhs = ptx.descriptor(address, part.passing * ROW_BYTES, 1024)
        steps = row_steps(part.passing)
        element = self.owner.owner.plan.element
        return ptx.issue_matmul(element, sums, words, rhs, steps, adds=True, rhs_transposed=True)

    # --- results --------------------------------------------------------------------------------

    def _write(self, tile: TileWeights, values: list[Any], counts: list[int]) -> None:
        part, attention = self.part, self.owner.owner.attention
        column = wide(tile.fragment.first_column)
        for name, count in zip(part.results, counts, strict=True):
            sums, values = values[:count], values[count:]
            kept_scale = tile.dropout.scale if tile.dropout else 1.0
            scale = tile.number(kept_scale if name == "v" else attention.spec.scale)
            number = attention.names.index(f"to_{name}")
            nest = attention.nest
            strides = [nest.loops[i].strides[number] for i in attention.batch]
            matrix = tile.matrices[f"to_{name}"]
            layout.write_rows(
                matrix,
                sums,
                tile.tile_rows,
                (part.extents[0], part.sizes.of(AXES[name][1])),
                column,
                [scale, scale],
                [gcd(nest.offsets[number], matrix.row, *strides)],
            )
