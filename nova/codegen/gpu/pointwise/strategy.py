"""The elementwise strategy: one thread for one point of the grid, or for a few adjacent ones.

Input: a kernel with few iterations at each point, or whose threads read adjacent elements in each.
Output: an `ElementwisePlan`, and the code of a thread (`elementwise.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.index_math import shifted
from nova.codegen.common.loop_nest import Loop, LoopNest
from nova.codegen.gpu.block_ops import WARP, ThreadPosition, is_less, split, when
from nova.codegen.gpu.device_kernel import SHARED_LIMIT, DeviceKernel, is_tile_local
from nova.codegen.gpu.pointwise.computed_loads import computed_loads
from nova.codegen.gpu.pointwise.elementwise import ElementwiseCode, ThreadVector, widest_vector
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
_REPEATS, _FULL_BLOCKS = (4, 2), 1056
"""Vectors of a thread, if there are that many blocks: those that run concurrently on an H200."""


@dataclass(frozen=True)
class ElementwisePlan:
    """`workers` vectors of points along `vector`, or points, of which a thread has `repeat`."""

    vector: ThreadVector | None
    workers: Extent
    repeat: int = 1
    """Vectors of a thread, at a distance of the threads of a block."""

    @property
    def threads(self) -> int:
        workers = typical(self.workers)
        if workers >= _BLOCK_THREADS:
            return _BLOCK_THREADS
        return max(WARP, round_up(workers, WARP))

    @property
    def blocks(self) -> Extent:
        return ceildiv(self.workers, self.threads * self.repeat)

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
    workers = kernel.num_points // (vector.width if vector else 1)
    return ElementwisePlan(vector, workers, _repeat(kernel, workers) if vector else 1)


def _repeat(kernel: DeviceKernel, workers: Extent) -> int:
    """Vectors of a thread: several where the device is full, all loaded before the first store."""
    is_plain = kernel.is_structured and all(
        len(nest.loops) == kernel.grid_rank and not computed_loads(nest)
        for nest in kernel.loop_nests
    )
    if not is_plain or not isinstance(workers, int):
        return 1
    blocks = workers // _BLOCK_THREADS
    return next(
        n
        for n in (*_REPEATS, 1)
        if n == 1 or (blocks >= n * _FULL_BLOCKS and workers % (n * _BLOCK_THREADS) == 0)
    )


def emit_elementwise(kernel: DeviceKernel, plan: ElementwisePlan, position: ThreadPosition) -> None:
    """Emit all ops at the points of a thread."""
    width = plan.vector.width if plan.vector else 1
    flat = kernel.flat_buffers(lambda value: kernel.allocate_private(value, width))
    point_strides = {
        flat(value): kernel.scratch_elements(value)
        for value in kernel.scratch
        if is_tile_local(value)
    }

    def start(number: Any) -> tuple[ElementwiseCode, list[Any]]:
        """The code and the counters of one vector of points."""
        sizes = list(kernel.grid)
        if plan.vector:
            sizes[-1] //= width
        counters = split(number, sizes)
        if plan.vector:
            counters[-1] = arith.muli(counters[-1], index(width))
        return ElementwiseCode(kernel.grid_rank, plan.vector, point_strides), counters

    def emit_points(code: ElementwiseCode, counters: list[Any]) -> None:
        mapping: dict[Any, Any] = {}

        def emit_nest(nest: LoopNest, buffers: list[Any]) -> None:
            code.emit(nest, buffers, counters, mapping)

        for op in kernel.ops:
            kernel.emit_op(op, flat, mapping, emit_nest)

    if plan.repeat > 1:
        first = arith.muli(position.block, index(plan.repeat))
        blocks = [shifted(first, k) for k in range(plan.repeat)]
        threads = [start(_number(block, position)) for block in blocks]
        _preload(kernel, flat, threads, position.threads * width)
        for code, counters in threads:
            emit_points(code, counters)
        return
    number = _number(position.block, position)
    if not is_multiple(plan.workers, position.threads):
        with when(is_less(number, index(plan.workers))):
            emit_points(*start(number))
    else:
        emit_points(*start(number))


def _number(block: Any, position: ThreadPosition) -> Any:
    """The number of the vector of a thread, of those of a block."""
    return arith.addi(arith.muli(block, index(position.threads)), position.thread)


def _preload(
    kernel: DeviceKernel,
    flat: Callable[[Any], Any],
    threads: Sequence[tuple[ElementwiseCode, list[Any]]],
    distance: int,
) -> None:
    """Load the inputs of all vectors of a thread, every `distance` points.

    Vectors at the same position of rows share what has one row.
    """
    buffers = {op: [flat(value) for value in op.operands] for op in kernel.ops}
    written = {
        buffer
        for op, nest in kernel.nests.items()
        for buffer in buffers[op][nest.generic.num_inputs :]
    }
    is_same_column = is_multiple(distance, kernel.grid[-1])
    first, _ = threads[0]
    for code, counters in threads:
        if is_same_column:
            code.cached = {
                key: values
                for key, values in first.cached.items()
                if all(is_number(stride, 0) for stride in key[2][:-1])
            }
        for op, nest in kernel.nests.items():
            with op.location:
                code.preload(nest, buffers[op], counters, written)


def _tiles(kernel: DeviceKernel, plan: ElementwisePlan) -> list[BlockDim] | None:
    width = plan.vector.width if plan.vector else 1
    return adjacent_points(kernel.grid, plan.threads * plan.repeat * width)


ELEMENTWISE = Strategy("elementwise", match_elementwise, plan_elementwise, emit_elementwise, _tiles)
