"""The GPU schedule of a kernel: the work of each thread, and the code of its launch.

Input: a kernel over buffers (stage `buffers`) and a device target. Output: one `gpu.launch` in
place of the kernel's ops. `lower-device-kernels` calls this. The grid of a kernel is the leading
dimensions that its ops share. A point of it is computed by one thread (elementwise.py) where there
is little work, by a few threads or a block with the whole row in registers (rowwise.py), and
otherwise by a block (generic.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import ceil, prod
from typing import Any, TypeVar

from nova.codegen.common.index_math import index
from nova.codegen.common.loop_nest import LoopNest, make_loop_nest, merge_grid, merge_inner
from nova.codegen.cpu.tile_local import is_scratch
from nova.codegen.gpu.attention.kernel import find_attention_kernel
from nova.codegen.gpu.block_ops import (
    WARP,
    LaunchShape,
    Place,
    SharedMemory,
)
from nova.codegen.gpu.column_reduce import ColumnReducePlan, plan_columns
from nova.codegen.gpu.elementwise import widest_lane
from nova.codegen.gpu.gemm.kernel import match_gemm_kernel
from nova.codegen.gpu.launch import SHARED_LIMIT, LaunchCode, is_number
from nova.codegen.gpu.rowwise_plan import RowwisePlan, plan_rows
from nova.codegen.gpu.scatter_plan import ScatterPlan, plan_scatter
from nova.codegen.gpu.transpose_tile import TransposeTilePlan, plan_tiles
from nova.core.targets import Target
from nova.ir.bindings import arith, ir
from nova.ir.buffers import VIEWS, buffer_root
from nova.ir.gpu_bindings import gpu
from nova.ir.kernel import Kernel
from nova.ir.linalg_generic import is_generic_op

_Plan = TypeVar("_Plan", ColumnReducePlan, RowwisePlan)
_POINT_THREADS = 256
_MOST_THREADS = 1024
_WORTH_TILES = 4096
"""Minimum points of a kernel with transpose tiles: fewer are read from the cache."""
_SHORT = 8
"""Iterations after the grid that a single thread may run."""
_FEW_BLOCKS = 64


class DeviceSchedule:
    """The schedule of one kernel: analysed once, emitted once."""

    def __init__(self, kernel: Any, ops: list[Any], target: Target, *, tf32: bool = False):
        self.kernel = kernel
        self.target = target
        self.ops = [op for op in ops if op.name not in VIEWS and not _is_free(op)]
        grid = Kernel(kernel).grid
        structured = [op for op in self.ops if is_generic_op(op)]
        if any(not is_generic_op(op) and not is_number(op) for op in self.ops):
            grid = ()  # unstructured ops run in one thread
        nests, self.grid = merge_grid([make_loop_nest(op) for op in structured], grid)
        nests = [merge_inner(nest, len(self.grid)) for nest in nests]
        self.scratch = [op.results[0] for op in ops if op.name == "memref.alloca"]
        whole = dict(zip(structured, nests, strict=True))
        self.nests = {op: self._at_own_point(nest) for op, nest in whole.items()}
        self.points = prod(self.grid)
        self.product = match_gemm_kernel(self.ops, whole, self.grid, target.cpu, tf32)
        self.attention = find_attention_kernel(kernel, self.ops, whole, target.cpu)
        self.shared = SharedMemory()
        self.code = LaunchCode(kernel, self.ops, self.nests, self.grid, self.scratch, self.shared)

    # --- analysis ---------------------------------------------------------------------------------

    def _at_own_point(self, nest: LoopNest) -> LoopNest:
        """Scratch of a point begins at its own start: the strides of the grid loops in it are 0."""
        local = [
            i
            for i, value in enumerate(nest.generic.op.operands)
            if isinstance(value.type, ir.MemRefType) and buffer_root(value) in self._tile_local
        ]
        loops = list(nest.loops)
        for i in range(len(self.grid)):
            strides = tuple(0 if k in local else s for k, s in enumerate(loops[i].strides))
            loops[i] = replace(loops[i], strides=strides)
        return replace(nest, loops=tuple(loops))

    @cached_property
    def _tile_local(self) -> set[Any]:
        return {value for value in self.scratch if is_scratch(value.owner.operation)}

    @cached_property
    def inner(self) -> int:
        """The maximum of iterations that an op has at one point of the grid."""
        rank = len(self.grid)
        return max(
            (prod(loop.size for loop in nest.loops[rank:]) for nest in self.nests.values()),
            default=1,
        )

    @cached_property
    def by_points(self) -> bool:
        """Whether a point of the grid is computed by one thread rather than by a block."""
        if not self.grid:
            return False
        if self.inner <= _SHORT:
            return True
        if self.columns or self.rows:
            return False
        if self.points >= 4096 and all(map(self._is_columnwise, self.nests.values())):
            return True
        return self.code.scratch_bytes > SHARED_LIMIT

    @cached_property
    def tiles(self) -> TransposeTilePlan | None:
        """The plan for inputs in another dimension order, if there are any."""
        if self.points < _WORTH_TILES or any(op not in self.nests for op in self.ops):
            return None
        return plan_tiles(list(self.nests.values()), self.grid)

    @cached_property
    def _is_empty(self) -> bool:
        """Whether no op of the kernel has any work."""
        return all(op in self.nests for op in self.ops) and not any(
            prod(loop.size for loop in nest.loops) for nest in self.nests.values()
        )

    @cached_property
    def scatter(self) -> ScatterPlan | None:
        """The scatter plan of the kernel, if it adds at computed positions."""
        return None if self.scratch else plan_scatter(self.ops)

    @cached_property
    def columns(self) -> ColumnReducePlan | None:
        """The column reduction plan of the kernel, if it has one."""
        return None if self.inner <= _SHORT else self._plan(plan_columns)

    @cached_property
    def rows(self) -> RowwisePlan | None:
        """The row program of the kernel, if it is one."""
        return self._plan(plan_rows)

    def _plan(self, plan: Callable[..., _Plan | None]) -> _Plan | None:
        others = [op for op in self.ops if op not in self.nests]
        if not all(map(is_number, others)):
            return None
        results = set(Kernel(self.kernel).output_arguments)
        return plan(list(self.nests.values()), others, self.grid, results)

    def _is_columnwise(self, nest: LoopNest) -> bool:
        """Whether adjacent points read adjacent elements in each iteration (coalesced)."""
        last = nest.loops[len(self.grid) - 1]
        inner = nest.loops[len(self.grid) :]
        return not inner or (
            1 in last.strides and all(1 not in loop.strides for loop in inner if loop.size > 1)
        )

    # --- emission ---------------------------------------------------------------------------------

    def emit(self) -> LaunchShape:
        """Emit the launch at the insertion point; an empty grid is not launched at all."""
        if not self.points or self._is_empty:
            return LaunchShape(0, WARP)
        self.lane = widest_lane(list(self.nests.values()), self.grid) if self.by_points else None
        per_thread = self.lane.count if self.lane else 1
        workers = self.points // per_thread
        if self.product:
            blocks, threads = self.product.plan.blocks, self.product.plan.shape.threads
        elif self.attention:
            blocks, threads = self.attention.plan.blocks, self.attention.plan.threads
        elif self.tiles:
            blocks, threads = self.tiles.blocks, self.tiles.threads
        elif self.by_points:
            threads = _POINT_THREADS if workers >= _POINT_THREADS else _up(workers, WARP)
            blocks = ceil(workers / threads)
        elif plan := self.scatter or self.columns or self.rows:
            blocks, threads = plan.blocks, plan.threads
        else:
            threads = min(_MOST_THREADS, _up(ceil(self.inner / 4), WARP))
            blocks = self.points
        i32 = ir.IntegerType.get_signless(32)
        size = arith.ConstantOp(i32, ir.IntegerAttr.get(i32, 0))
        launch = gpu.LaunchOp(
            (index(blocks), index(1), index(1)),
            (index(threads), index(1), index(1)),
            dynamic_shared_memory_size=size.result,
        )
        body = launch.regions[0].blocks[0]
        with ir.InsertionPoint(body):
            place = Place(body.arguments[0], body.arguments[3], threads)
            if self.product:
                flat = self.code.flat_buffers()
                rank = len(self.grid)
                self.product.emit(self.ops, self.nests, rank, flat, place)
                self.shared.size = self.product.plan.shared_bytes
            elif self.attention:
                self.attention.emit(self.code.flat_buffers(), place)
                self.shared.size = self.attention.plan.shared_bytes
            elif self.tiles:
                self.code.tiles(place, self.tiles)
            elif self.by_points:
                self.code.points(place, self.lane, workers)
            elif self.scatter:
                self.code.scatter(place, self.scatter)
            elif self.columns:
                self.code.columns(place, self.columns)
            elif self.rows:
                self.code.rows(place, self.rows)
            else:
                self.code.block(place)
            gpu.TerminatorOp()
        size.operation.attributes["value"] = ir.IntegerAttr.get(i32, self.shared.size)
        return LaunchShape(blocks, threads, self.shared.size, self._resident(blocks))

    def _resident(self, blocks: int) -> int:
        """Blocks per multiprocessor of the launch bounds, which limit the registers of a thread.

        Few blocks have a multiprocessor each: the assembler need not spill to make room for two.
        Attention blocks get all the registers there are: shared memory limits their occupancy.
        """
        if self.product:
            return self.product.plan.resident
        if self.attention or blocks <= _FEW_BLOCKS:
            return 1
        others = self.tiles or self.by_points or self.scatter or self.columns
        return self.rows.resident if self.rows and not others else 0


def _is_free(op: Any) -> bool:
    return op.name in ("arith.constant", "memref.alloca")


def _up(value: int, step: int) -> int:
    return max(step, -(-value // step) * step)
