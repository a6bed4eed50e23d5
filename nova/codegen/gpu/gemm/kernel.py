"""Kernels that are one GEMM and its epilogue.

Input: the ops of a kernel with their loop nests, all over one grid. Output: the strategy `GEMM`,
which `schedule.py` tries before the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.match_contraction import LoopContraction, match_contraction
from nova.codegen.common.zero_fill import fills_with_zero, same_output
from nova.codegen.gpu.block_ops import ThreadPosition
from nova.codegen.gpu.device_kernel import DeviceKernel, is_updated
from nova.codegen.gpu.gemm.epilogue import Finish, Fragment
from nova.codegen.gpu.gemm.mainloop import can_start_early, emit_gemm
from nova.codegen.gpu.gemm.plan import EnclosingLoop, GemmPlan, GpuGemm
from nova.codegen.gpu.gemm.select_plan import plan_gemm
from nova.codegen.gpu.pointwise.elementwise import ElementwiseCode, ThreadVector
from nova.codegen.gpu.strategy import Strategy
from nova.codegen.gpu.tasks.block_tiles import BlockDim, gemm_tiles
from nova.ir.bindings import vector
from nova.ir.buffers import buffer_root
from nova.ir.index import index
from nova.ir.symbolic.size_table import Extent


@dataclass(frozen=True)
class GemmMatch:
    """The GEMM of a kernel: its op, the roles of its loops, and the fill that it makes redundant.

    `contraction` accumulates if the old value of C is added.
    """

    op: Any
    contraction: LoopContraction
    gemm: GpuGemm
    fill: Any | None


@dataclass(frozen=True)
class GemmKernelPlan:
    """A GEMM kernel and the plan of its GEMM."""

    match: GemmMatch
    gemm: GemmPlan
    early: tuple[bool, bool] = (False, False)
    """Operands of the plan that no launch before this one writes: copied before those end."""

    @property
    def is_early(self) -> bool:
        return any(self.early)

    @property
    def blocks(self) -> Extent:
        return self.gemm.blocks

    @property
    def threads(self) -> int:
        return self.gemm.shape.threads

    @property
    def min_blocks_per_sm(self) -> int:
        return self.gemm.min_blocks_per_sm


def match_gemm(kernel: DeviceKernel) -> GemmMatch | None:
    """Match the GEMM of the kernel, if all other ops run at the points of its result."""
    ops, nests, rank = kernel.ops, kernel.global_nests, kernel.grid_rank
    if not kernel.grid or not kernel.is_structured:
        return None
    matches: list[tuple[Any, LoopContraction, Any]] = []
    for i, op in enumerate(ops):
        previous = ops[i - 1] if i else None
        zeroed = previous is not None and fills_with_zero(previous) and same_output(previous, op)
        contraction = match_contraction(nests[op], accumulate=not zeroed)
        if contraction is not None and contraction.spec.acc_type != "i32":
            matches.append((op, contraction, previous if zeroed else None))
    if len(matches) != 1:
        return None
    op, contraction, fill = matches[0]
    parallel = [i for i, loop in enumerate(nests[op].loops) if loop.parallel]
    if parallel != list(range(rank)) or max(contraction.m, contraction.n) >= rank:
        return None
    epilogue = [other_op for other_op in ops if other_op is not op]
    if any(len(nests[e].loops) != rank or _reads_memory(e) for e in epilogue):
        return None
    # The GEMM itself sums over the enclosing loops of k: only the old value of C is added.
    spec = replace(contraction.spec, accumulate=fill is None)
    gemm = _gpu_gemm(nests[op], contraction)
    return GemmMatch(op, replace(contraction, spec=spec), gemm, fill)


def plan_gemm_kernel(kernel: DeviceKernel, match: GemmMatch) -> GemmKernelPlan:
    """The plan with the least estimated time: tensor cores where the types allow it, or FMA."""
    plan = plan_gemm(match.gemm, kernel.target.cpu, precision=kernel.matmul_precision)
    early = [kernel.is_unwritten(value) for value in list(match.op.operands)[:2]]
    if plan.swapped:
        early.reverse()
    if not kernel.target.has_clusters or not can_start_early(plan):
        return GemmKernelPlan(match, plan)
    return GemmKernelPlan(match, plan, (early[0], early[1]))


def emit_gemm_kernel(kernel: DeviceKernel, plan: GemmKernelPlan, position: ThreadPosition) -> None:
    """Emit the GEMM of a block, with the other ops of the kernel as its epilogue."""
    match, gemm, grid_rank = plan.match, plan.gemm, kernel.grid_rank
    contraction = match.contraction
    flat = kernel.flat_buffers()
    buffers = {op: [flat(v) for v in op.operands] for op in kernel.ops}
    a, b, _ = buffers[match.op]

    changing = {op: _changing_inputs(kernel, op, buffers[op]) for op in kernel.ops}

    def begin_epilogue(fragment: Fragment) -> Finish:
        loop = contraction.m if fragment.along_rows else contraction.n
        vector = ThreadVector(loop, gemm.width) if gemm.width > 1 else None
        counters: list[Any] = [None] * grid_rank
        counters[contraction.m] = fragment.row
        counters[contraction.n] = fragment.column
        for number, counter in zip(contraction.enclosing, fragment.enclosing, strict=True):
            if number < grid_rank:
                counters[number] = index(counter) if isinstance(counter, int) else counter
        code = ElementwiseCode(grid_rank, vector)
        for op in kernel.ops:
            if op not in (match.op, match.fill):
                with op.location:
                    code.preload(kernel.nests[op], buffers[op], counters, changing[op])

        def finish(value: Any) -> None:
            for op in kernel.ops:
                if match.fill is not None and op == match.fill:
                    continue
                nest = kernel.nests[op]
                with op.location:
                    if op == match.op:
                        values = _elements(value, gemm.width)
                        adds = contraction.spec.accumulate
                        code.store_results(nest, buffers[op], counters, values, adds=adds)
                    else:
                        code.emit(nest, buffers[op], counters, {})

        return finish

    emit_gemm(
        gemm,
        a,
        b,
        begin_epilogue,
        block=position.block,
        thread=position.thread,
        early=plan.early,
    )
    kernel.shared.size = gemm.shared_bytes


def _changing_inputs(kernel: DeviceKernel, op: Any, buffers: list[Any]) -> set[Any]:
    """The buffers of inputs that may change before the op: it does not load them early."""
    written = {buffer_root(v) for nest in kernel.nests.values() for v in nest.generic.outputs}
    return {
        buffers[number]
        for number, value in enumerate(kernel.nests[op].generic.inputs)
        if buffer_root(value) in written and not is_updated(kernel, op, number)
    }


def _tiles(kernel: DeviceKernel, plan: GemmKernelPlan) -> list[BlockDim] | None:
    gemm = plan.gemm
    if gemm.lhs.shifted or gemm.rhs.shifted:  # the last tile overlaps the one before it
        return None
    return gemm_tiles(gemm, plan.match.contraction, gemm.shape.rows, gemm.shape.columns)


GEMM = Strategy("gemm", match_gemm, plan_gemm_kernel, emit_gemm_kernel, _tiles)


def _elements(value: Any, count: int) -> list[Any]:
    if count == 1:
        return [value]
    return [vector.extract(value, dynamic_position=[], static_position=[k]) for k in range(count)]


def _reads_memory(op: Any) -> bool:
    """Whether the body reads memory at computed positions."""
    block = op.regions[0].blocks[0]
    return any(inner.operation.name == "memref.load" for inner in block.operations)


def _gpu_gemm(nest: LoopNest, contraction: LoopContraction) -> GpuGemm:
    enclosing = tuple(
        EnclosingLoop(nest.loops[i].size, _three(nest.loops[i].strides), nest.loops[i].parallel)
        for i in contraction.enclosing
    )
    return GpuGemm(contraction.spec, enclosing, _three(nest.offsets))


def _three(values: Sequence[Extent]) -> tuple[Extent, Extent, Extent]:
    a, b, c = values
    return a, b, c
