"""The GEMM main loop on a GPU: the code of one block.

Input: a `GemmPlan`, the buffers of A and B, and the epilogue. Output: code at the insertion point,
inside a `gpu.launch` with the plan's grid, block and shared memory. The device schedule of kernels
calls `emit_gemm`.

Stages of both operands are copied into a ring of buffers in shared memory, some stages ahead of the
one that is multiplied (a multistage software pipeline, as in CUTLASS). `epilogue.py` handles the
accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from nova.codegen.common.builder import BITS
from nova.codegen.gpu.block_ops import when
from nova.codegen.gpu.gemm.epilogue import Core, Epilogue, Results
from nova.codegen.gpu.gemm.fma import PlainCore
from nova.codegen.gpu.gemm.mma import TensorCore
from nova.codegen.gpu.gemm.pipelined_copies import PipelinedCopies
from nova.codegen.gpu.gemm.plan import TF32_TYPES, GemmPlan, Operand
from nova.codegen.gpu.gemm.shared_tile import WARP
from nova.codegen.gpu.gemm.tile_order import tile_position
from nova.codegen.gpu.ptx_ops import (
    barrier,
    commit_copies,
    global_base,
    shared_base,
    wait_for_copies,
    wait_for_launches,
)
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, compare, divide, index, minimum, modulo, mul, offset_by
from nova.ir.symbolic.size_table import Extent, is_number, least_size

_LESS = arith.CmpIPredicate.slt
_COPY_GROUP = 6
"""Copies that are started together; each group delays the multiply-adds, as do large groups."""


def _share(items: Sequence[object], number: int, count: int) -> slice:
    """The `number`-th of `count` nearly equal parts."""
    return slice(len(items) * number // count, len(items) * (number + 1) // count)


def emit_gemm(
    plan: GemmPlan,
    a: ir.Value,
    b: ir.Value,
    epilogue: Epilogue,
    *,
    block: ir.Value,
    thread: ir.Value,
    early: tuple[bool, bool] = (False, False),
) -> None:
    """Emit block number `block`; a and b are flat buffers, `thread` is the number in the block.

    The copies of `early` operands of the plan start before the launches before have ended: then
    the code waits for these by itself.
    """
    if is_number(plan.blocks, 0):
        return
    if plan.swapped:
        a, b = b, a
    _Block(plan, a, b, epilogue, block, thread, early).emit()


def can_start_early(plan: GemmPlan) -> bool:
    """Whether the first copies of an operand can start before those of the other one."""
    has_stages = least_size(plan.stages_of_k * plan.gemm.outer_steps) > 0
    return has_stages and not plan.shape.transposes


@dataclass(frozen=True)
class _Block:
    plan: GemmPlan
    a: ir.Value
    b: ir.Value
    epilogue: Epilogue
    block: ir.Value
    thread: ir.Value
    early: tuple[bool, bool]

    def emit(self) -> None:
        plan, shape = self.plan, self.plan.shape
        tile, enclosing = tile_position(self.plan, self.block)
        first = [
            minimum(start, operand.size - size) if operand.shifted else start
            for operand, start, size in zip(
                (plan.lhs, plan.rhs),
                (mul(tile[0], shape.rows), mul(tile[1], shape.columns)),
                (shape.rows, shape.columns),
                strict=True,
            )
        ]
        shared = shared_base()
        core = self._core()
        core.prepare()
        sums = core.zeros()
        stages = plan.stages_of_k * plan.gemm.outer_steps
        if not is_number(stages, 0):
            lhs = self._copies(plan.lhs, self.a, 0, enclosing)
            rhs = self._copies(plan.rhs, self.b, 1, enclosing)
            sums = self._multiply(core, (lhs, rhs), first, shared, stages)
            # Other warps may still read the stage that the accumulators will overwrite.
            wait_for_copies(0)
            barrier()
        results = Results(plan, shared, self.thread)
        results.collect(core, sums)
        results.distribute(self.epilogue, tile, first, enclosing)

    def _core(self) -> Core:
        plan, shape = self.plan, self.plan.shape
        lane, warp = modulo(self.thread, WARP), divide(self.thread, WARP)
        part = divide(warp, prod(shape.warps))
        if (groups := shape.parts // shape.split) > 1:
            part = add(mul(part, groups), divide(lane, WARP // groups))
        at_rows = mul(modulo(divide(warp, shape.warps[1]), shape.warps[0]), shape.warp[0])
        at_columns = mul(modulo(warp, shape.warps[1]), shape.warp[1])
        core_class = TensorCore if plan.core_type == "tensor" else PlainCore
        return core_class(plan.tile_matmul, index(lane), at_rows, at_columns, part)

    def _copies(
        self, operand: Operand, buffer: ir.Value, operand_number: int, enclosing: Sequence[Index]
    ) -> PipelinedCopies:
        plan = self.plan
        number: Index = plan.gemm.offsets[operand_number]
        for position, step in zip(enclosing, plan.enclosing_strides(operand_number), strict=True):
            number = add(number, mul(position, step))
        base = index(add(global_base(buffer), mul(number, BITS[operand.type] // 8)))
        element = "f32" if plan.element in TF32_TYPES else plan.element
        return PipelinedCopies(operand, plan.shape.threads, self.thread, base, element)

    # --- the loop over k ------------------------------------------------------------------------

    def _multiply(
        self,
        core: Core,
        sides: tuple[PipelinedCopies, PipelinedCopies],
        first: Sequence[Index],
        shared: ir.Value,
        stages: Extent,
    ) -> list[ir.Value]:
        plan = self.plan
        ahead = plan.shape.stages - 1
        ring_bytes = plan.shape.stages * plan.stage_bytes

        def copy(number: Index, offset: Index, only: Sequence[bool] = (True, True)) -> None:
            k, extra = self._step(number)
            addresses = add(shared, offset), offset_by(shared, offset, plan.lhs.tile.nbytes)
            copies = zip(sides, addresses, first, extra, only, strict=True)
            for side, to, start, further, is_copied in copies:
                if is_copied:
                    side.copy(to, start, k, further)

        if isinstance(core, PlainCore) and plan.shape.transposes:
            return self._multiply_ahead(core, sides, first, shared, stages)
        if any(self.early):
            self._begin_copies(partial(copy, only=self.early), stages, commits=False)
            wait_for_launches()
            copy_others = partial(copy, only=[not side for side in self.early])
            self._begin_copies(copy_others, stages)
        else:
            self._begin_copies(copy, stages)
        zero = index(0)
        initial = [zero, index(ahead * plan.stage_bytes), *core.zeros()]
        op = scf.ForOp(zero, index(stages), index(1), initial)
        with ir.InsertionPoint(op.body):
            number = op.induction_variable
            read_offset, write_offset, *sums = op.inner_iter_args
            wait_for_copies(ahead - 1)
            barrier()
            coming = scf.IfOp(compare(_LESS, number, stages - ahead))
            with ir.InsertionPoint(coming.then_block):
                copy(add(number, ahead), write_offset)
                scf.YieldOp([])
            commit_copies()
            start = add(shared, read_offset)
            sums = core.stage(start, add(start, plan.lhs.tile.nbytes), sums)
            scf.YieldOp([*(self._next(p, ring_bytes) for p in (read_offset, write_offset)), *sums])
        return list(op.results)[2:]

    def _begin_copies(
        self, copy: Callable[[Index, Index], None], stages: Extent, *, commits: bool = True
    ) -> None:
        """Copy the first stages, all but one of the ring; without `commits` for a later group."""
        plan = self.plan
        for number in range(plan.shape.stages - 1):
            if number < least_size(stages):
                copy(number, number * plan.stage_bytes)
            elif not isinstance(stages, int):
                with when(compare(_LESS, number, stages)):
                    copy(number, number * plan.stage_bytes)
            if commits:
                commit_copies()

    def _multiply_ahead(
        self,
        core: PlainCore,
        sides: tuple[PipelinedCopies, PipelinedCopies],
        first: Sequence[Index],
        shared: ir.Value,
        stages: Extent,
    ) -> list[ir.Value]:
        """The loop with register double buffering.

        The operands of a step of k are read while those of the step before are multiplied, also
        across stages: the last step of a stage waits for the next stage, and reads its first step.
        Copies are distributed over the steps, so that reads do not wait for many of them.
        """
        plan, depth = self.plan, self.plan.shape.depth
        ahead, lhs_bytes = plan.shape.stages - 1, plan.lhs.tile.nbytes
        ring_bytes = plan.shape.stages * plan.stage_bytes

        def copies(number: Index, offset: Index) -> list[Callable[[], None]]:
            k, extra = self._step(number)
            addresses = add(shared, offset), offset_by(shared, offset, lhs_bytes)
            started: list[Callable[[], None]] = []
            for side, to, start, further in zip(sides, addresses, first, extra, strict=True):
                if side.excludes_threads:
                    started.append(partial(side.copy, to, start, k, further))
                    continue
                for unit in range(len(side.units)):
                    started.append(partial(side.copy_one, unit, to, start, k, further))
            return started

        def copy(number: Index, offset: Index) -> None:
            for start_copy in copies(number, offset):
                start_copy()

        self._begin_copies(copy, stages)
        wait_for_copies(ahead - 1)
        barrier()
        operands = core.read_step(shared, add(shared, lhs_bytes), 0, pinned=True)
        count, zero = len(operands), index(0)
        initial = [zero, index(ahead * plan.stage_bytes), *operands, *core.zeros()]
        op = scf.ForOp(zero, index(stages), index(1), initial)
        with ir.InsertionPoint(op.body):
            number = op.induction_variable
            read_offset, write_offset, *values = op.inner_iter_args
            operands, sums = values[:count], values[count:]
            start = add(shared, read_offset)
            # After the last stage its copy is repeated, to a buffer that no thread reads any more.
            coming = copies(minimum(add(number, ahead), stages - 1), write_offset)
            groups = min(depth // 2, max(2, -(-len(coming) // _COPY_GROUP)))
            for step in range(depth):
                if step + 1 < depth:
                    following = core.read_step(start, add(start, lhs_bytes), step + 1)
                    if step % 2 == 0 and step // 2 < groups:
                        for start_copy in coming[_share(coming, step // 2, groups)]:
                            start_copy()
                else:
                    commit_copies()
                    wait_for_copies(ahead - 1)
                    barrier()
                    next_offset = self._next(read_offset, ring_bytes)
                    # After the last stage there is none: read that one again.
                    is_last = compare(arith.CmpIPredicate.eq, number, stages - 1)
                    next_start = add(shared, arith.select(is_last, read_offset, next_offset))
                    rhs_start = add(next_start, lhs_bytes)
                    following = core.read_step(next_start, rhs_start, 0, pinned=True)
                sums = core.multiply_step(operands, sums)
                operands = following
            scf.YieldOp([next_offset, self._next(write_offset, ring_bytes), *operands, *sums])
        return list(op.results)[2 + count :]

    def _next(self, offset: ir.Value, ring: int) -> ir.Value:
        """The next buffer of the ring."""
        moved = index(add(offset, self.plan.stage_bytes))
        wraps = compare(arith.CmpIPredicate.eq, moved, ring)
        return arith.select(wraps, index(0), moved)

    def _step(self, number: Index) -> tuple[Index, list[Index]]:
        """The first step of k of a stage, and the byte offset of the outer loops of k."""
        plan = self.plan
        several = not is_number(plan.gemm.outer_steps, 0, 1)
        inner = modulo(number, plan.stages_of_k) if several else number
        extra: list[Index] = [0, 0]
        outer_number = divide(number, plan.stages_of_k)
        for loop in reversed(plan.gemm.enclosing):
            if loop.parallel or is_number(plan.gemm.outer_steps, 1):
                continue
            position, outer_number = (
                modulo(outer_number, loop.size),
                divide(outer_number, loop.size),
            )
            for i, operand in enumerate((plan.lhs, plan.rhs)):
                nbytes = loop.strides[i] * (BITS[operand.type] // 8)
                extra[i] = add(extra[i], mul(position, nbytes))
        return mul(inner, plan.shape.depth), extra
