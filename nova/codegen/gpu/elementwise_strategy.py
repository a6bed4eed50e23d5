"""The elementwise strategy: one thread for one point of the grid, or for a few adjacent ones.

Input: a kernel with few iterations at each point, or whose threads read adjacent elements in each.
Output: an `ElementwisePlan`, and the code of a thread (`elementwise.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nova.codegen.common.loop_nest import Loop, LoopNest
from nova.codegen.gpu.block_ops import WARP, ThreadPosition, is_less, split, when
from nova.codegen.gpu.device_kernel import SHARED_LIMIT, DeviceKernel, is_tile_local
from nova.codegen.gpu.elementwise import ElementwiseCode, ThreadVector, widest_vector
from nova.codegen.gpu.rowwise.plan import SHORT
from nova.codegen.gpu.strategy import Strategy, default_min_blocks_per_sm
from nova.codegen.gpu.tasks.block_tiles import BlockDim, adjacent_points
from nova.core.rounding import round_up
from nova.core.sizes import ceildiv, is_multiple
from nova.ir.bindings import arith
from nova.ir.index import index
from nova.ir.symbolic.size_table import Extent, is_number, typical

_BLOCK_THREADS = 256
_MANY_POINTS = 4096
"""Points of the grid from which one thread each saturates a device."""


@dataclass(frozen=True)
class ElementwisePlan:
    """`workers` threads, each with the points of one vector along `vector`, or with one point."""

    vector: ThreadVector | None
    workers: Extent

    @property
    def threads(self) -> int:
        workers = typical(self.workers)
        if workers >= _BLOCK_THREADS:
            return _BLOCK_THREADS
        return max(WARP, round_up(workers, WARP))

    @property
    def blocks(self) -> Extent:
        return ceildiv(self.workers, self.threads)

    @property
    def min_blocks_per_sm(self) -> int:
        return default_min_blocks_per_sm(self.blocks)


def match_elementwise(kernel: DeviceKernel) -> bool | None:
    """Whether one thread per point of the grid is enough; None if not."""
    if not kernel.grid:
        return None
    coalesced = typical(kernel.num_points) >= _MANY_POINTS and all(
        _is_coalesced(nest, kernel.grid_rank) for nest in kernel.loop_nests
    )
    short = kernel.inner_size <= SHORT
    return True if short or coalesced or kernel.scratch_bytes > SHARED_LIMIT else None


def _is_coalesced(nest: LoopNest, grid_rank: int) -> bool:
    """Whether adjacent points read adjacent elements in each iteration."""
    last = nest.loops[grid_rank - 1]
    inner = nest.loops[grid_rank:]
    return not inner or (
        _has_unit(last) and not any(_has_unit(loop) for loop in inner if typical(loop.size) > 1)
    )


def _has_unit(loop: Loop) -> bool:
    return any(is_number(stride, 1) for stride in loop.strides)


def plan_elementwise(kernel: DeviceKernel, _: bool) -> ElementwisePlan:
    """As many adjacent points per thread as one access of 16 bytes has."""
    vector = widest_vector(kernel.loop_nests, kernel.grid)
    return ElementwisePlan(vector, kernel.num_points // (vector.width if vector else 1))


def emit_elementwise(kernel: DeviceKernel, plan: ElementwisePlan, position: ThreadPosition) -> None:
    """Emit all ops at the points of a thread."""
    width = plan.vector.width if plan.vector else 1
    flat = kernel.flat_buffers(lambda value: kernel.allocate_private(value, width))
    point_strides = {
        flat(value): kernel.scratch_elements(value)
        for value in kernel.scratch
        if is_tile_local(value)
    }
    number = arith.addi(arith.muli(position.block, index(position.threads)), position.thread)

    def emit_points() -> None:
        sizes = list(kernel.grid)
        if plan.vector:
            sizes[-1] //= width
        counters = split(number, sizes)
        if plan.vector:
            counters[-1] = arith.muli(counters[-1], index(width))
        code = ElementwiseCode(kernel.grid_rank, plan.vector, point_strides)
        mapping: dict[Any, Any] = {}

        def emit_nest(nest: LoopNest, buffers: list[Any]) -> None:
            code.emit(nest, buffers, counters, mapping)

        for op in kernel.ops:
            kernel.emit_op(op, flat, mapping, emit_nest)

    if not is_multiple(plan.workers, position.threads):
        with when(is_less(number, index(plan.workers))):
            emit_points()
    else:
        emit_points()


def _tiles(kernel: DeviceKernel, plan: ElementwisePlan) -> list[BlockDim] | None:
    return adjacent_points(kernel.grid, plan.threads * (plan.vector.width if plan.vector else 1))


ELEMENTWISE = Strategy("elementwise", match_elementwise, plan_elementwise, emit_elementwise, _tiles)
