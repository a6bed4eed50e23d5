"""Kernels that are one GEMM and its epilogue.

Input: the ops of a kernel with their loop nests, all over one grid. Output: whether the kernel
matches, and the code of its launch. `schedule.py` tries this before the other strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nova.codegen.common.index_math import index
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.match_contraction import Product, match_contraction
from nova.codegen.common.zero_fill import fills_with_zero, same_output
from nova.codegen.gpu.block_ops import Place
from nova.codegen.gpu.elementwise import ElementwiseCode, Lane
from nova.codegen.gpu.gemm.epilogue import Fragment
from nova.codegen.gpu.gemm.mainloop import emit_gemm
from nova.codegen.gpu.gemm.plan import Around, GemmPlan, GpuGemm
from nova.codegen.gpu.gemm.select_plan import plan_gemm
from nova.ir.bindings import vector


@dataclass(frozen=True)
class GemmKernel:
    """The GEMM of a kernel: its op, roles of loops, plan, and the fill that it makes redundant."""

    op: Any
    product: Product
    plan: GemmPlan
    skipped: frozenset[Any]

    def emit(
        self,
        ops: Sequence[Any],
        nests: Mapping[Any, LoopNest],
        grid_rank: int,
        flat: Callable[[Any], Any],
        place: Place,
    ) -> None:
        """Emit the code of a block; `flat` maps operands to flat buffers."""
        buffers = {op: [flat(v) for v in op.operands] for op in ops}
        left, right, _ = buffers[self.op]

        def finish(fragment: Fragment) -> None:
            loop = self.product.m if fragment.along_rows else self.product.n
            lane = Lane(loop, self.plan.width) if self.plan.width > 1 else None
            counters: list[Any] = [None] * grid_rank
            counters[self.product.m] = fragment.row
            counters[self.product.n] = fragment.column
            for number, position in zip(self.product.around, fragment.around, strict=True):
                if number < grid_rank:
                    counters[number] = index(position) if isinstance(position, int) else position
            code = ElementwiseCode(grid_rank, lane)
            for op in ops:
                if op in self.skipped:
                    continue
                with op.location:
                    if op == self.op:
                        values = _elements(fragment.value, self.plan.width)
                        adds = self.product.spec.accumulate
                        code.give(nests[op], buffers[op], counters, values, adds=adds)
                    else:
                        code.emit(nests[op], buffers[op], counters, {})

        emit_gemm(self.plan, left, right, finish, block=place.block, thread=place.thread)


def _elements(value: Any, count: int) -> list[Any]:
    if count == 1:
        return [value]
    return [vector.extract(value, dynamic_position=[], static_position=[k]) for k in range(count)]


def match_gemm_kernel(
    ops: Sequence[Any], nests: Mapping[Any, LoopNest], grid: Sequence[int], arch: str, tf32: bool
) -> GemmKernel | None:
    """Match the GEMM of the kernel, if all other ops run at the points of its result."""
    if not grid or any(op not in nests for op in ops):
        return None
    found: list[tuple[Any, Product, Any]] = []
    for i, op in enumerate(ops):
        before = ops[i - 1] if i else None
        zeroed = before is not None and fills_with_zero(before) and same_output(before, op)
        product = match_contraction(nests[op], accumulate=not zeroed)
        if product is not None:
            found.append((op, product, before if zeroed else None))
    if len(found) != 1:
        return None
    op, product, fill = found[0]
    rank = len(grid)
    own = [i for i, loop in enumerate(nests[op].loops) if loop.parallel]
    if own != list(range(rank)) or max(product.m, product.n) >= rank:
        return None
    others = [other for other in ops if other is not op]
    if any(len(nests[other].loops) != rank or _reads_memory(other) for other in others):
        return None
    plan = plan_gemm(_gpu_gemm(nests[op], product), arch, tf32=tf32)
    # The GEMM itself sums over the enclosing loops of k: only the old value of C is added.
    summed = replace(product, spec=replace(product.spec, accumulate=fill is None))
    return GemmKernel(op, summed, plan, frozenset([fill] if fill is not None else []))


def _reads_memory(op: Any) -> bool:
    """Whether the body reads memory at computed positions."""
    block = op.regions[0].blocks[0]
    return any(inner.operation.name == "memref.load" for inner in block.operations)


def _gpu_gemm(nest: LoopNest, product: Product) -> GpuGemm:
    around = tuple(
        Around(nest.loops[i].size, _three(nest.loops[i].strides), nest.loops[i].parallel)
        for i in product.around
    )
    return GpuGemm(product.spec, around, _three(nest.offsets))


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    a, b, c = values
    return a, b, c
