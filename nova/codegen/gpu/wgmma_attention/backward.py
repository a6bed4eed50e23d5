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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, inf
from typing import Any

from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.gpu.attention.block import read_number
from nova.codegen.gpu.attention.operands import matrices_at
from nova.codegen.gpu.attention.scores import AttentionScores
from nova.codegen.gpu.block_ops import barrier, when
from nova.codegen.gpu.ptx_ops import SHARED, load, store, word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma_attention import fragment as layout
from nova.codegen.gpu.wgmma_attention.fragment import Fragment
from nova.codegen.gpu.wgmma_attention.gradient_plan import (
    CONSUMERS,
    REGISTERS,
    GradientPart,
    GradientPlan,
)
from nova.codegen.gpu.wgmma_attention.plan import GROUP_ROWS, ROW_BYTES
from nova.codegen.gpu.wgmma_attention.ring import (
    Ring,
    RingPosition,
    TileCopy,
    feature_steps,
    row_steps,
)
from nova.codegen.gpu.wgmma_attention.softmax import wide
from nova.codegen.gpu.wgmma_attention.work import WorkItem, WorkOrder
from nova.ir.attention_ops import AXES
from nova.ir.bindings import arith, ir, scf, vector
from nova.ir.index import Index, add, compare, divide, divide_up, index, minimum, mul, sub

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
                has_keys = part.part.has_keys
                readers = CONSUMERS * (4 if has_keys else 1)
                part.stages.init(1 + (_WARP if has_keys else 0), readers)
            ptx.publish_barriers()
        barrier()
        few, many = REGISTERS
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
        stages = Ring(start, part.stages, part.stage_bytes, ring_barriers, by_warps=part.has_keys)
        return _Part(owner, number, part, fixed, stages)

    @cached_property
    def order(self) -> WorkOrder:
        return WorkOrder(self.owner.attention, self.part.work)

    def each(self, initial: Sequence[ir.Value], body: Any) -> None:
        """The tiles of this block; a block beyond those of the part has none."""
        if self.part.work.blocks == self.owner.plan.blocks:
            self.order.each(self.owner.block, initial, body)
            return
        with when(compare(arith.CmpIPredicate.slt, self.owner.block, self.part.work.blocks)):
            self.order.each(self.owner.block, initial, body)

    def block_range(self, first: Index) -> tuple[Index, Index]:
        """The blocks that pass the tile from row `first` on."""
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
            low, high = self.block_range(first)
            op = scf.ForOp(index(low), index(high), index(1), stage.values)
            with ir.InsertionPoint(op.body):
                inner = RingPosition(*op.inner_iter_args)
                row = mul(op.induction_variable, part.passing)
                self.stages.copy(copies(part.passing_names), inner, row, item.counters)
                scf.YieldOp(self.stages.next(inner).values)
            return [*self.fixed.next(fixed).values, *op.results]

        self.each([word(0), word(1), word(0), word(1)], tile_copies)

    def copy_statistics(self, lane: ir.Value) -> None:
        """A warp copies the logsumexp and delta of the rows of each stage.

        The logsumexp is in units of the scores; rows beyond the last one have weights of 0.
        """
        part, owner = self.part, self.owner

        def tile_copies(item: WorkItem, *state: Any) -> list[Any]:
            matrices = matrices_at(owner.attention, owner.buffers, item.counters)
            scores = AttentionScores(part, owner.attention, matrices)
            low, high = self.block_range(mul(item.tile, part.tile_rows))
            op = scf.ForOp(index(low), index(high), index(1), list(state))
            with ir.InsertionPoint(op.body):
                stage = RingPosition(*op.inner_iter_args)
                ptx.await_phase(self.stages.empty(stage.slot), stage.parity)
                to = arith.addi(self.stages.address(stage.slot), word(part.passing_bytes))
                for first in range(0, part.passing, _WARP):
                    within = arith.addi(lane, word(first))
                    row = add(mul(op.induction_variable, part.passing), wide(within))
                    exists = compare(arith.CmpIPredicate.slt, row, part.sizes.i)
                    last = minimum(row, part.sizes.i - 1)
                    shift, delta = (
                        read_number(matrices[name], last, "f32") for name in ("logsumexp", "delta")
                    )
                    shift = arith.mulf(shift, scores.number(scores.unit))
                    shift = arith.select(exists, shift, scores.number(inf))
                    delta = arith.select(exists, delta, scores.number(0.0))
                    address = arith.addi(to, arith.shli(within, word(2)))
                    with when(arith.cmpi(arith.CmpIPredicate.ult, within, word(part.passing))):
                        for number, value in enumerate((shift, delta)):
                            at = arith.addi(address, word(4 * part.passing * number))
                            store(value, wide(at), SHARED, 4)
                ptx.arrive(self.stages.full(stage.slot))
                scf.YieldOp(self.stages.next(stage).values)
            return list(op.results)

        self.each([word(0), word(1)], tile_copies)


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
        attention = owner.owner.attention
        fixed, stage = RingPosition(*state[:2]), RingPosition(*state[2:])
        first = mul(item.tile, part.tile_rows)
        low, high = owner.block_range(first)
        matrices = matrices_at(attention, owner.owner.buffers, item.counters)
        tile = _TileWeights.make(self, matrices, first)
        owner.fixed.await_full(fixed)
        descriptors = [self._fixed_descriptor(name) for name in part.fixed_names]
        zero = tile.number(0.0)
        counts = [self._columns(name) // 2 for name in part.results]
        sums = [zero] * sum(counts)
        op = scf.ForOp(index(low), index(high), index(1), [*stage.values, word(0), *sums])
        with ir.InsertionPoint(op.body):
            slot, parity, previous, *values = op.inner_iter_args
            position = RingPosition(slot, parity)
            owner.stages.await_full(position)
            scores = self._issue_scores(descriptors[0], part.passing_names[0], position)
            # The matmuls of the block before have ended.
            values = ptx.await_sums(values, pending=1)
            is_later = compare(arith.CmpIPredicate.ne, op.induction_variable, low)
            owner.stages.release(RingPosition(previous, parity), self.thread, is_later)
            values = self._accumulate(
                tile, descriptors, scores, position, op.induction_variable, values, counts
            )
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
        tile: _TileWeights,
        descriptors: list[ir.Value],
        scores: list[Any],
        stage: RingPosition,
        number: ir.Value,
        values: list[Any],
        counts: list[int],
    ) -> list[Any]:
        """Add the matmuls of one block to the results."""
        part, element = self.part, self.owner.owner.plan.element
        slopes: list[Any] = []
        if part.needs_slopes:
            slopes = self._issue_scores(descriptors[1], part.passing_names[1], stage)
        scores = ptx.await_sums(scores, pending=1 if part.needs_slopes else 0)
        passed = mul(number, part.passing)
        statistics = tile.statistics(self.owner, stage)
        weights = tile.weights(tile.scores_of(scores, passed), statistics)
        results: dict[str, list[Any]] = {}
        parts: dict[str, list[Any]] = {}
        for name, count in zip(part.results, counts, strict=True):
            parts[name], values = values[:count], values[count:]
        if "v" in part.results:
            words = layout.pack_operand(weights, element)
            results["v"] = self._issue_sums(parts["v"], words, "g", stage)
        if part.needs_slopes:
            slopes = ptx.await_sums(slopes, pending=1 if "v" in part.results else 0)
            changes = tile.changes(weights, slopes, statistics)
            words = layout.pack_operand(changes, element)
            name, rows = ("k", "q") if part.has_keys else ("q", "k")
            results[name] = self._issue_sums(parts[name], words, rows, stage)
        return [value for name in part.results for value in results[name]]

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

    def _write(self, tile: _TileWeights, values: list[Any], counts: list[int]) -> None:
        part, attention = self.part, self.owner.owner.attention
        column = wide(tile.fragment.first_column)
        for name, count in zip(part.results, counts, strict=True):
            sums, values = values[:count], values[count:]
            scale = tile.number(1.0 if name == "v" else attention.spec.scale)
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


@dataclass(frozen=True)
class _Statistics:
    """The logsumexp, in units of the scores, and delta of each accumulator's row of q."""

    shifts: list[ir.Value]
    deltas: list[ir.Value]


@dataclass(frozen=True)
class _TileWeights(AttentionScores):
    """The weights of a consumer's rows of a tile; transposed where those are keys."""

    part: GradientPart
    fragment: Fragment
    tile_rows: list[ir.Value]
    """The two rows of the thread (index): of q, or of k and v."""
    row_statistics: _Statistics | None
    """Of the two rows, where they are rows of q."""

    @staticmethod
    def make(consumer: _Consumer, matrices: dict[str, Matrix], first: Index) -> _TileWeights:
        part, attention = consumer.part, consumer.owner.owner.attention
        fragment = Fragment(consumer.thread)
        group_row = arith.muli(consumer.group, word(GROUP_ROWS))
        row = add(first, wide(arith.addi(group_row, fragment.first_row)))
        rows = [index(row), index(add(row, 8))]
        tile = _TileWeights(part, attention, matrices, part, fragment, rows, None)
        if part.has_keys:
            return tile
        last = [minimum(row, part.sizes.i - 1) for row in rows]
        shifts, deltas = (
            [read_number(matrices[name], row, "f32") for row in last]
            for name in ("logsumexp", "delta")
        )
        shifts = [arith.mulf(shift, tile.number(tile.unit)) for shift in shifts]
        statistics = _Statistics(shifts, deltas)
        return _TileWeights(part, attention, matrices, part, fragment, rows, statistics)

    def statistics(self, owner: _Part, stage: RingPosition) -> _Statistics:
        """Those of each accumulator."""
        count = self.part.passing // 2
        if self.row_statistics is not None:
            rows = self.row_statistics
            return _Statistics(
                [rows.shifts[n // 2 % 2] for n in range(count)],
                [rows.deltas[n // 2 % 2] for n in range(count)],
            )
        start = arith.addi(owner.stages.address(stage.slot), word(self.part.passing_bytes))
        start = wide(arith.addi(start, arith.shli(self.fragment.first_column, word(2))))
        pair = ir.VectorType.get([2], ir.F32Type.get())
        columns: list[list[ir.Value]] = []
        for offset in (0, 4 * self.part.passing):
            values = []
            for group in range(self.part.passing // 8):
                loaded = load(pair, add(start, offset + 32 * group), SHARED, 8)
                values += [vector.extract(loaded, [], [i]) for i in range(2)]
            columns.append(values)
        return _Statistics(
            *([values[n // 4 * 2 + n % 2] for n in range(count)] for values in columns)
        )

    def scores_of(self, sums: list[ir.Value], passed: Index) -> list[ir.Value]:
        """Scaled scores of the block from row `passed` on; -inf where hidden."""
        scores = list(sums)
        if self.factor == 1.0:
            unit = self.number(self.attention.spec.scale * self.unit)
            scores = [arith.mulf(value, unit) for value in scores]
        column = self.fragment.first_column
        if "mask" in self.matrices:
            first = add(passed, wide(column))
            for n, score in enumerate(scores):
                own, other = self.tile_rows[n // 2 % 2], add(first, layout.column_of(n))
                row, key = (other, own) if self.part.has_keys else (own, other)
                scores[n] = self.with_mask(score, row, key)
        causal, sizes = self.attention.spec.causal, self.part.sizes
        limits: list[ir.Value] = []
        if self.part.has_keys:
            if causal:
                limits = [arith.subi(word(sub(key, passed)), column) for key in self.tile_rows]
                scores = layout.hide(scores, limits, after=False)
        elif causal or sizes.j % self.part.passing:
            for row in self.tile_rows:
                limit: Index = sub(sizes.j - 1, passed)
                if causal:
                    limit = minimum(limit, sub(row, passed))
                limits.append(arith.subi(word(limit), column))
            scores = layout.hide(scores, limits)
        return scores

    def weights(self, scores: list[ir.Value], statistics: _Statistics) -> list[ir.Value]:
        return [
            self.weight(score, shift)
            for score, shift in zip(scores, statistics.shifts, strict=True)
        ]

    def changes(
        self, weights: list[ir.Value], slopes: list[ir.Value], statistics: _Statistics
    ) -> list[ir.Value]:
        """The gradients of the scores, before the scale.

        The slope of a hidden value, whose weight is 0, may be NaN.
        """
        zero = self.number(0.0)
        hides = self.attention.spec.causal or "mask" in self.matrices
        changes = []
        for weight, slope, delta in zip(weights, slopes, statistics.deltas, strict=True):
            change = arith.mulf(weight, arith.subf(slope, delta))
            if hides:
                hidden = arith.cmpf(arith.CmpFPredicate.OEQ, weight, zero)
                change = arith.select(hidden, zero, change)
            changes.append(change)
        return changes
