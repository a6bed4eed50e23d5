"""The GEMM main loop on a GPU: the code of one block.

Input: a `GemmPlan`, the buffers of A and B, and the epilogue. Output: code at the insertion point,
inside a `gpu.launch` with the plan's grid, block and shared memory. The device schedule of kernels
calls `emit_gemm`.

Stages of both operands are copied into a ring of buffers in shared memory, some stages ahead of the
one that is multiplied (a multistage software pipeline). `epilogue.py` handles the accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from nova.codegen.common.builder import BITS
from nova.codegen.gpu.gemm.epilogue import Core, Finish, Results
from nova.codegen.gpu.gemm.fma import PlainCore
from nova.codegen.gpu.gemm.mma import TensorCore
from nova.codegen.gpu.gemm.pipelined_copies import PipelinedCopies
from nova.codegen.gpu.gemm.plan import GemmPlan, Operand
from nova.codegen.gpu.ptx_ops import (
    barrier,
    commit_copies,
    global_base,
    shared_base,
    wait_for_copies,
)
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, compare, divide, index, minimum, modulo, mul, offset_by, sub

_LESS = arith.CmpIPredicate.slt


def emit_gemm(
    plan: GemmPlan,
    a: ir.Value,
    b: ir.Value,
    finish: Finish,
    *,
    block: ir.Value,
    thread: ir.Value,
) -> None:
    """Emit block number `block`; a and b are flat buffers, `thread` is the number in the block."""
    if not plan.blocks:
        return
    if plan.swapped:
        a, b = b, a
    _Block(plan, a, b, finish, block, thread).emit()


@dataclass(frozen=True)
class _Block:
    plan: GemmPlan
    a: ir.Value
    b: ir.Value
    finish: Finish
    block: ir.Value
    thread: ir.Value

    def emit(self) -> None:
        plan, shape = self.plan, self.plan.shape
        tile, around = self._position()
        first = [
            minimum(start, operand.size - size) if operand.shifted else start
            for operand, start, size in zip(
                (plan.left, plan.right),
                (mul(tile[0], shape.rows), mul(tile[1], shape.columns)),
                (shape.rows, shape.columns),
                strict=True,
            )
        ]
        shared = shared_base()
        core = self._core()
        core.prepare()
        sums = core.zeros()
        stages = plan.stages_of_k * plan.product.outer_steps
        if stages:
            left = self._stager(plan.left, self.a, 0, around)
            right = self._stager(plan.right, self.b, 1, around)
            sums = self._multiply(core, (left, right), first, shared, stages)
            # Other warps may still read the stage that the accumulators will overwrite.
            wait_for_copies(0)
            barrier()
        results = Results(plan, shared, self.thread)
        results.collect(core, sums)
        barrier()
        results.finish(self.finish, tile, first, around)

    def _position(self) -> tuple[tuple[Index, Index], tuple[Index, ...]]:
        """The tile of this block, and the positions of the enclosing loops.

        Tiles are visited in groups of rows, each column by column (grouped tile order), so that
        concurrent blocks share rows of A and columns of B in the L2 cache.
        """
        plan = self.plan
        (rows, columns), group = plan.tiles, plan.group
        number: Index = modulo(self.block, rows * columns)
        rest: Index = divide(self.block, rows * columns)
        around: list[Index] = []
        for around_loop in reversed(plan.product.around):
            if around_loop.parallel:
                around.insert(0, modulo(rest, around_loop.size))
                rest = divide(rest, around_loop.size)
            else:
                around.insert(0, 0)
        first = mul(divide(number, group * columns), group)
        within = modulo(number, group * columns)
        if rows % group == 0:
            tile = add(first, modulo(within, group)), divide(within, group)
        else:
            high = index(minimum(sub(rows, first), group))
            within = index(within)
            tile = add(first, arith.remui(within, high)), arith.divui(within, high)
        return tile, tuple(around)

    def _core(self) -> Core:
        plan, shape = self.plan, self.plan.shape
        lane, warp = modulo(self.thread, 32), divide(self.thread, 32)
        part = divide(warp, prod(shape.warps))
        at_rows = mul(modulo(divide(warp, shape.warps[1]), shape.warps[0]), shape.warp[0])
        at_columns = mul(modulo(warp, shape.warps[1]), shape.warp[1])
        kind = TensorCore if plan.kind == "tensor" else PlainCore
        return kind(plan.of_tiles, index(lane), at_rows, at_columns, part)

    def _stager(
        self, operand: Operand, buffer: ir.Value, which: int, around: Sequence[Index]
    ) -> PipelinedCopies:
        plan = self.plan
        number: Index = plan.product.offsets[which]
        for position, step in zip(around, plan.steps_around(which), strict=True):
            number = add(number, mul(position, step))
        base = index(add(global_base(buffer), mul(number, BITS[operand.type] // 8)))
        element = "f32" if plan.element == "tf32" else plan.element
        return PipelinedCopies(operand, plan.shape.threads, self.thread, base, element)

    # --- the loop over k ------------------------------------------------------------------------

    def _multiply(
        self,
        core: Core,
        sides: tuple[PipelinedCopies, PipelinedCopies],
        first: Sequence[Index],
        shared: ir.Value,
        stages: int,
    ) -> list[ir.Value]:
        plan = self.plan
        ahead = plan.shape.stages - 1
        ring = plan.shape.stages * plan.stage_bytes

        def copy(number: Index, place: Index) -> None:
            k, extra = self._step(number)
            places = add(shared, place), offset_by(shared, place, plan.left.tile.nbytes)
            for side, to, start, further in zip(sides, places, first, extra, strict=True):
                side.copy(to, start, k, further)

        for number in range(ahead):
            if number < stages:
                copy(number, number * plan.stage_bytes)
            commit_copies()
        zero = index(0)
        initial = [zero, index(ahead * plan.stage_bytes), *core.zeros()]
        op = scf.ForOp(zero, index(stages), index(1), initial)
        with ir.InsertionPoint(op.body):
            number = op.induction_variable
            here, there, *sums = op.inner_iter_args
            wait_for_copies(ahead - 1)
            barrier()
            coming = scf.IfOp(compare(_LESS, number, stages - ahead))
            with ir.InsertionPoint(coming.then_block):
                copy(add(number, ahead), there)
                scf.YieldOp([])
            commit_copies()
            start = add(shared, here)
            sums = core.stage(start, add(start, plan.left.tile.nbytes), sums)
            scf.YieldOp([*(self._next(p, ring) for p in (here, there)), *sums])
        return list(op.results)[2:]

    def _next(self, place: ir.Value, ring: int) -> ir.Value:
        """The next buffer of the ring."""
        moved = index(add(place, self.plan.stage_bytes))
        around = compare(arith.CmpIPredicate.eq, moved, ring)
        return arith.select(around, index(0), moved)

    def _step(self, number: Index) -> tuple[Index, list[Index]]:
        """The first step of k of a stage, and the byte offset of the outer loops of k."""
        plan = self.plan
        inner = modulo(number, plan.stages_of_k) if plan.product.outer_steps > 1 else number
        extra: list[Index] = [0, 0]
        rest = divide(number, plan.stages_of_k)
        for around_loop in reversed(plan.product.around):
            if around_loop.parallel or plan.product.outer_steps == 1:
                continue
            position, rest = modulo(rest, around_loop.size), divide(rest, around_loop.size)
            for i, operand in enumerate((plan.left, plan.right)):
                nbytes = around_loop.strides[i] * BITS[operand.type] // 8
                extra[i] = add(extra[i], mul(position, nbytes))
        return mul(inner, plan.shape.depth), extra
