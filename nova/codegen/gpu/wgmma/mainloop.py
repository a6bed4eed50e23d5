"""The producer and the consumers of a warpgroup GEMM: the code of one block.

Input: a `WgmmaPlan`, the tensor maps of A and B, and the epilogue of a tile. Output: code at the
insertion point, inside a `gpu.launch` of the plan's blocks. `kernel.py` calls `emit_block`.

    producer warp        copy stage 0 | copy stage 1 | copy stage 2 | ... the next tile's stages
    full barriers             |  expected bytes have arrived
    consumer warpgroups       multiply stage 0 | multiply stage 1 | ... | epilogue of the tile
    empty barriers                   |  both consumers have read the stage

Both sides count stages with a slot of the ring and a parity, which flips when the ring wraps
around. The blocks of a cluster have the same columns: each copies its part of B to all of them. Or
they divide k: then each has a part of the stages of one tile, and `split_sums.py` adds their sums.

An operand that no launch of the program writes, such as a weight, is copied `early`: the producer
fills the ring with it before `griddepcontrol.wait`, while the launch before is still running.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from nova.codegen.gpu.block_ops import barrier, when
from nova.codegen.gpu.cluster_ops import (
    cluster_arrive,
    cluster_barrier,
    cluster_rank,
    cluster_wait,
)
from nova.codegen.gpu.gemm.tile_order import tile_position
from nova.codegen.gpu.ptx_ops import shared_base, wait_for_launches, wide, word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma.plan import (
    ROW_BYTES,
    STEP_BYTES,
    WgmmaOperand,
    WgmmaPlan,
)
from nova.codegen.gpu.wgmma.split_sums import ConsumerThread, reduce_split_sums
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, compare, divide, index, minimum, modulo, mul, sub
from nova.ir.symbolic.size_table import is_number

_EQUAL = arith.CmpIPredicate.eq
_PRODUCER_REGISTERS, _CONSUMER_REGISTERS = 40, 232
_WARPS = 4
"""Warps of the producer."""


@dataclass(frozen=True)
class TilePosition:
    """The tile of a block: its first row and column in C, and the enclosing loops, 0 for k."""

    row: Index
    column: Index
    enclosing: tuple[Index, ...]


TileEpilogue = Callable[[TilePosition, ConsumerThread, int], Callable[[list[Any]], None]]
"""Begins a tile with so many accumulators; the result stores the tile, given these."""


def emit_block(
    plan: WgmmaPlan,
    maps: tuple[ir.Value, ir.Value],
    epilogue: TileEpilogue,
    finish: Callable[[ConsumerThread], None],
    *,
    block: ir.Value,
    thread: ir.Value,
    early: tuple[bool, bool] = (False, False),
) -> None:
    """Emit a block; `finish` ends the work of a consumer after its last tile.

    With `early` operands the code waits for the launches before it by itself.
    """
    _Block(plan, maps, epilogue, finish, block, word(thread), aligned_base(), early).emit()


def aligned_base() -> ir.Value:
    """The address of the first stage (i32): rows of swizzled boxes repeat every 1024 bytes."""
    base = word(shared_base())
    mask = arith.constant(base.type, -1024)
    return arith.andi(arith.addi(base, word(1023)), mask)


@dataclass(frozen=True)
class _Block:
    plan: WgmmaPlan
    maps: tuple[ir.Value, ir.Value]
    epilogue: TileEpilogue
    finish: Callable[[ConsumerThread], None]
    block: ir.Value
    thread: ir.Value
    base: ir.Value
    early: tuple[bool, bool]

    def emit(self) -> None:
        plan = self.plan
        group = arith.shrui(self.thread, word(7))
        number = arith.andi(self.thread, word(127))
        with when(arith.cmpi(_EQUAL, self.thread, word(0))):
            for slot in range(plan.ring_stages):
                ptx.init_barrier(self._full(word(slot)), 1)
                ptx.init_barrier(self._empty(word(slot)), plan.tile.consumers * plan.tile.cluster)
            ptx.publish_barriers()
        self._synchronize()
        rank = cluster_rank() if plan.cluster > 1 else None
        is_producer = arith.cmpi(_EQUAL, group, word(0))
        moves_registers = plan.tile.consumers > 1  # else all threads have enough
        roles = scf.IfOp(is_producer, has_else=True)
        with ir.InsertionPoint(roles.then_block):
            if moves_registers:
                ptx.set_registers(_PRODUCER_REGISTERS, more=False)
            if any(self.early) and plan.has_one_wave:
                with when(arith.cmpi(_EQUAL, arith.andi(number, word(31)), word(0))):
                    self._produce_tile(rank, arith.shrui(number, word(5)))
            else:
                with when(arith.cmpi(_EQUAL, number, word(0))):
                    self._produce(rank)
            if plan.tile.split > 1:
                cluster_barrier()  # that of `reduce_split_sums`
            scf.YieldOp([])
        with ir.InsertionPoint(roles.else_block):
            if moves_registers:
                ptx.set_registers(_CONSUMER_REGISTERS, more=True)
            if any(self.early):
                wait_for_launches()
            consumer = ConsumerThread(arith.subi(group, word(1)), number)
            self._consume(rank, consumer)
            self.finish(consumer)
            scf.YieldOp([])
        if plan.cluster > 1:
            # Shared memory of a block that has ended must not be accessed. Sums that were loaded
            # from it have been used: an ordered barrier would wait for the stores of C.
            cluster_arrive(relaxed=plan.tile.split > 1)
            cluster_wait()

    def _synchronize(self) -> None:
        if self.plan.tile.cluster > 1:
            cluster_barrier()
        else:
            barrier()

    # --- barriers and stages --------------------------------------------------------------------

    def _full(self, slot: ir.Value) -> ir.Value:
        """The barrier that ends a phase when the copies of a slot have arrived."""
        return self._address(self.plan.barriers_offset, slot, 8)

    def _empty(self, slot: ir.Value) -> ir.Value:
        """The barrier that ends a phase when all consumers have read a slot."""
        return self._address(self.plan.barriers_offset + 8 * self.plan.ring_stages, slot, 8)

    def _address(self, offset: int, slot: ir.Value, size: int) -> ir.Value:
        return arith.addi(arith.addi(self.base, word(offset)), arith.muli(slot, word(size)))

    def _next(self, slot: ir.Value, parity: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The next slot of the ring, and its parity."""
        moved = arith.addi(slot, word(1))
        wraps = arith.cmpi(_EQUAL, moved, word(self.plan.ring_stages))
        flipped = arith.xori(parity, word(1))
        return arith.select(wraps, word(0), moved), arith.select(wraps, flipped, parity)

    def _each_tile(
        self, rank: ir.Value | None, initial: Sequence[ir.Value], body: Callable[..., Any]
    ) -> None:
        """The tiles of this block: every `clusters`-th, in the order of `_position`."""
        plan = self.plan
        first = index(divide(self.block, plan.cluster))
        if plan.tile.split > 1:
            body(self._position(first, None), *initial)
            return
        self._other_tiles(first, rank, initial, body)

    def _other_tiles(
        self,
        first: ir.Value,
        rank: ir.Value | None,
        initial: Sequence[ir.Value],
        body: Callable[..., Any],
    ) -> None:
        """The tiles of this block from number `first` on."""
        plan = self.plan
        op = scf.ForOp(first, index(plan.work_items), index(plan.clusters), list(initial))
        with ir.InsertionPoint(op.body):
            tile = self._position(op.induction_variable, rank)
            scf.YieldOp(list(body(tile, *op.inner_iter_args)))

    def _position(self, number: ir.Value, rank: ir.Value | None) -> TilePosition:
        """The tile with a number; the blocks of a cluster have rows of tiles next to each other."""
        plan = self.plan
        (row, column), enclosing = tile_position(plan, number)
        if rank is not None:
            row = add(mul(row, plan.tile.cluster), wide(rank))
        return TilePosition(mul(row, plan.tile.rows), mul(column, plan.tile.columns), enclosing)

    def _stage_range(self, rank: ir.Value | None) -> tuple[ir.Value, ir.Value]:
        """The stages of k of this block."""
        plan = self.plan
        if plan.tile.split == 1 or rank is None:
            return index(0), index(plan.stages)
        first = mul(wide(rank), plan.part_stages)
        return index(first), index(minimum(add(first, plan.part_stages), plan.stages))

    # --- producer -------------------------------------------------------------------------------

    def _produce(self, rank: ir.Value | None) -> None:
        plan = self.plan

        def tile_copies(tile: TilePosition, slot: Any, parity: Any, begun: int = 0) -> list[Any]:
            first, end = self._stage_range(rank)
            first = index(add(first, begun))
            op = scf.ForOp(first, end, index(1), [slot, parity])
            with ir.InsertionPoint(op.body):
                inner_slot, inner_parity = op.inner_iter_args
                ptx.await_phase(self._empty(inner_slot), inner_parity)
                full = self._full(inner_slot)
                ptx.expect_bytes(full, plan.stage_bytes)
                shared_rank = rank if plan.tile.cluster > 1 else None
                self._copy_stage(tile, op.induction_variable, inner_slot, full, shared_rank)
                scf.YieldOp(list(self._next(inner_slot, inner_parity)))
            return list(op.results)

        # Waiting for the phase before the first one returns at once.
        if not any(self.early):
            self._each_tile(rank, [word(0), word(1)], tile_copies)
            return
        number = index(divide(self.block, plan.cluster))
        tile = self._position(number, None)
        begun = self._copy_early(tile, rank)
        wraps = begun == plan.ring_stages
        slot, parity = word(0 if wraps else begun), word(0 if wraps else 1)
        state = tile_copies(tile, slot, parity, begun)
        self._other_tiles(index(add(number, plan.clusters)), rank, state, tile_copies)

    def _produce_tile(self, rank: ir.Value | None, warp: ir.Value) -> None:
        """The copies of the only tile of a block, by a thread of each `warp` of the producer.

        A stage is one copy of each operand, and the copies of a thread are slower than the matmuls
        of a small tile: about 0.15 us each on an H200. So the warps divide the stages.
        """
        plan = self.plan
        tile = self._position(index(divide(self.block, plan.cluster)), None)
        begun = self._copy_early(tile, rank, warp)
        first, end = self._stage_range(rank)
        # The first stage after those that has the number of this warp.
        skipped = arith.andi(arith.subi(warp, word(begun)), word(_WARPS - 1))
        start = add(add(first, begun), wide(skipped))
        op = scf.ForOp(index(start), end, index(_WARPS), [])
        with ir.InsertionPoint(op.body):
            number = word(index(sub(op.induction_variable, first)))
            slot = arith.remui(number, word(plan.ring_stages))
            wraps = arith.andi(arith.divui(number, word(plan.ring_stages)), word(1))
            ptx.await_phase(self._empty(slot), arith.xori(wraps, word(1)))
            full = self._full(slot)
            ptx.expect_bytes(full, plan.stage_bytes)
            self._copy_stage(tile, op.induction_variable, slot, full, None)
            scf.YieldOp([])

    def _copy_early(
        self, tile: TilePosition, rank: ir.Value | None, warp: ir.Value | None = None
    ) -> int:
        """Fill the ring: the early operands, and after the wait the others. Returns its stages.

        With a `warp` those whose number is that of the warp.
        """
        plan = self.plan
        least = plan.stages - (plan.tile.split - 1) * plan.part_stages
        count = min(plan.ring_stages, least)
        first, _ = self._stage_range(rank)
        for sides in (self.early, tuple(not side for side in self.early)):
            for slot in range(count):
                full = self._full(word(slot))
                stage = index(add(first, slot))
                owner = None if warp is None else _is_equal(warp, slot % _WARPS)
                with nullcontext() if owner is None else when(owner):
                    if sides == self.early:
                        ptx.expect_bytes(full, plan.stage_bytes)
                    self._copy_stage(tile, stage, word(slot), full, None, sides)
            if sides == self.early:
                wait_for_launches()
        return count

    def _copy_stage(
        self,
        tile: TilePosition,
        stage: ir.Value,
        slot: ir.Value,
        full: ir.Value,
        rank: ir.Value | None,
        sides: Sequence[bool] = (True, True),
    ) -> None:
        """Start the copies of a stage, of one of the two operands or of both."""
        plan = self.plan
        step, enclosing = self._step(stage, tile)
        start = self._address(0, slot, plan.stage_bytes)
        if sides[0]:
            self._copy_operand(plan.lhs, self.maps[0], start, tile.row, step, enclosing, full, 0)
        if not sides[1]:
            return
        start = arith.addi(start, word(plan.lhs_bytes))
        column, mask = tile.column, 0
        if rank is not None:
            part = plan.rhs.outer
            start = arith.addi(start, arith.muli(rank, word(part * ROW_BYTES)))
            column, mask = add(column, mul(wide(rank), part)), (1 << plan.tile.cluster) - 1
        self._copy_operand(plan.rhs, self.maps[1], start, column, step, enclosing, full, mask)

    def _copy_operand(
        self,
        operand: WgmmaOperand,
        source: ir.Value,
        start: ir.Value,
        first: Index,
        step: Index,
        enclosing: Sequence[Index],
        full: ir.Value,
        mask: int,
    ) -> None:
        others = []
        for terms in operand.terms:
            coordinate: Index = 0
            for term in terms:
                coordinate = add(coordinate, term.at(enclosing))
            others.append(coordinate)
        box = operand.map.box
        for number in range(operand.boxes):
            to = arith.addi(start, word(number * operand.map.box_bytes))
            outer = add(first, number * (box[1] if operand.along_k else box[0]))
            inside = [step, outer] if operand.along_k else [outer, step]
            if len(others) == len(box) - 1:  # positions are in the box
                del inside[1]
            last = others
            if operand.period:
                moved = add(others[0], divide(inside[0], operand.period))
                inside, last = [modulo(inside[0], operand.period)], [moved, *others[1:]]
            ptx.copy_box(to, source, full, [*inside, *last], mask)

    def _step(self, stage: ir.Value, tile: TilePosition) -> tuple[Index, list[Index]]:
        """The first step of k of a stage, and the positions of all enclosing loops."""
        plan = self.plan
        enclosing = list(tile.enclosing)
        if is_number(plan.gemm.outer_steps, 1):
            return mul(stage, plan.depth), enclosing
        outer_number = divide(stage, plan.stages_of_k)
        for number in reversed(range(len(enclosing))):
            loop = plan.gemm.enclosing[number]
            if not loop.parallel:
                enclosing[number] = modulo(outer_number, loop.size)
                outer_number = divide(outer_number, loop.size)
        return mul(modulo(stage, plan.stages_of_k), plan.depth), enclosing

    # --- consumers ------------------------------------------------------------------------------

    def _consume(self, rank: ir.Value | None, consumer: ConsumerThread) -> None:
        plan = self.plan
        rows = plan.tile.rows // plan.tile.consumers
        offset = arith.muli(consumer.group, word(rows * ROW_BYTES))

        def tile_sums(tile: TilePosition, slot: Any, parity: Any) -> list[Any]:
            sums = ptx.undefined_sums(rows // 64 * plan.tile.columns // 2)
            if rank is not None and plan.tile.split > 1:
                part = mul(wide(rank), plan.part_columns)
                tile = replace(tile, column=add(tile.column, part))
            store = self.epilogue(tile, consumer, len(sums) // plan.tile.split)
            initial = [slot, parity, word(0), *sums]
            first, end = self._stage_range(rank)
            op = scf.ForOp(first, end, index(1), initial)
            with ir.InsertionPoint(op.body):
                inner_slot, inner_parity, previous, *sums = op.inner_iter_args
                ptx.await_phase(self._full(inner_slot), inner_parity)
                is_later = compare(arith.CmpIPredicate.ne, op.induction_variable, first)
                adds = arith.extui(ir.IntegerType.get_signless(32), is_later)
                sums = self._multiply(inner_slot, offset, sums, adds)
                # The matmuls of the stage before have ended.
                with when(is_later):
                    self._release(previous, consumer)
                scf.YieldOp([*self._next(inner_slot, inner_parity), inner_slot, *sums])
            next_slot, next_parity, last, *sums = op.results
            sums = ptx.await_sums(sums)
            self._release(last, consumer)
            if plan.tile.split > 1:
                assert rank is not None
                sums = reduce_split_sums(plan, self.base, rank, consumer, sums)
            store(sums)
            return [next_slot, next_parity]

        self._each_tile(rank, [word(0), word(0)], tile_sums)

    def _multiply(
        self, slot: ir.Value, offset: ir.Value, sums: list[Any], adds: ir.Value
    ) -> list[Any]:
        plan = self.plan
        start = self._address(0, slot, plan.stage_bytes)
        rhs_start = arith.addi(start, word(plan.lhs_bytes))
        lhs_start = arith.addi(start, offset)
        # Boxes of 64 rows along k, or of 64 columns: both are 64 rows of 128 bytes.
        blocks = plan.tile.rows // plan.tile.consumers // 64
        lhs = [
            ptx.descriptor(arith.addi(lhs_start, word(i * 64 * ROW_BYTES)), 0, 1024)
            for i in range(blocks)
        ]
        rhs = ptx.descriptor(rhs_start, 0 if plan.rhs.along_k else 64 * ROW_BYTES, 1024)
        sides = plan.lhs, plan.rhs
        steps = ROW_BYTES // STEP_BYTES
        advance_lhs, advance_rhs = (
            STEP_BYTES >> 4 if side.along_k else 16 * ROW_BYTES >> 4 for side in sides
        )
        return ptx.multiply_stage(
            plan.elements,
            sums,
            lhs,
            rhs,
            adds,
            steps,
            (advance_lhs, advance_rhs),
            (not plan.lhs.along_k, not plan.rhs.along_k),
            pending=1,
        )

    def _release(self, slot: ir.Value, consumer: ConsumerThread) -> None:
        """This consumer has read a slot: one thread tells each block of the cluster."""
        cluster = self.plan.tile.cluster
        is_chosen = arith.cmpi(arith.CmpIPredicate.ult, consumer.thread, word(cluster))
        if cluster == 1:
            ptx.arrive_where(self._empty(slot), is_chosen)
            return
        with when(is_chosen):
            ptx.arrive(self._empty(slot), consumer.thread)


def _is_equal(value: ir.Value, number: int) -> ir.Value:
    return arith.cmpi(_EQUAL, value, word(number))
