"""A kernel around one matrix product: the product, and what is done with each of its results.

In: the ops of a kernel with their nests, all over one grid. Out: whether the kernel is such a one,
and the code of its launch. `schedule.py` asks before it takes any other way.
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
    """The product of a kernel: its op, roles of loops, plan, and the fill that it makes useless."""

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
        """The code of a block; `flat` gives the buffers behind operands."""
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
    """The product that the kernel is made of, if all else happens at the points of its result."""
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
    # Several steps of k around are summed by the product itself: only what was there is added.
    summed = replace(product, spec=replace(product.spec, accumulate=fill is None))
    return GemmKernel(op, summed, plan, frozenset([fill] if fill is not None else []))


def _reads_memory(op: Any) -> bool:
    """Whether the body reads at places that it computes."""
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
