"""The generic strategy: a block per point of the grid, whose threads share the inner loops.

Input: the loop nests and other ops of a kernel, and the position of a thread. Output: the code of
the block: each op distributed over the threads, and barriers between dependent ops. This handles
every kernel; a single thread runs unstructured ops, except for writes of slices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, prod
from typing import Any

from nova.codegen.common.combine import combiner, find_combiners, identity
from nova.codegen.common.elements import Elements
from nova.codegen.common.flat_buffers import flatten
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.argreduce import ArgReduce, best_share, find_extreme
from nova.codegen.gpu.block_ops import (
    WARP,
    SharedMemory,
    ThreadPosition,
    barrier,
    is_equal,
    is_less,
    reduce_block,
    reduce_warp,
    split,
    when,
)
from nova.codegen.gpu.block_values import folded_fills, indexed_views, shared_arguments
from nova.codegen.gpu.device_kernel import DeviceKernel, computes_scalars
from nova.codegen.gpu.hazards import Hazards, threads_of_elements
from nova.codegen.gpu.nest_point import NestPoint
from nova.codegen.gpu.slice_writes import SliceWrite, match_slice_write
from nova.codegen.gpu.strategy import Strategy, default_min_blocks_per_sm
from nova.codegen.gpu.tasks.block_tiles import BlockDim, adjacent_points
from nova.core.rounding import round_up
from nova.core.sizes import at_most
from nova.ir.bindings import arith, ir, memref, scf
from nova.ir.clone import clone_into
from nova.ir.index import index
from nova.ir.symbolic.size_table import Extent, is_number, typical


class GenericCode:
    """Emits the ops of a kernel for one block, in order."""

    def __init__(self, position: ThreadPosition, grid_rank: int, shared: SharedMemory):
        self.position = position
        self.grid_rank = grid_rank
        self.shared = shared
        self.partials: dict[str, Any] = {}

    def reserve(self, nests: Sequence[LoopNest]) -> None:
        """Allocate shared memory for the partial results of all warps, at the top of the launch."""
        for nest in nests:
            names = find_combiners(nest)
            if names is None and self._has_extreme(nest):
                for argument in list(nest.generic.block.arguments)[nest.generic.num_inputs :]:
                    key = f"best {argument.type}"
                    if key not in self.partials:
                        room = self.shared.allocate(self.position.warps, argument.type)
                        self.partials[key] = room
            if names is None or self.position.warps == 1:
                continue
            first = nest.generic.num_inputs
            for argument in list(nest.generic.block.arguments)[first:]:
                key = str(argument.type)
                if key not in self.partials and _has_single_point(nest, self.grid_rank):
                    self.partials[key] = self.shared.allocate(self.position.warps, argument.type)

    def _has_extreme(self, nest: LoopNest) -> bool:
        """Whether all threads of the block search for the position of one best element."""
        terms = prod(loop.size for loop in nest.loops[self.grid_rank :] if not loop.parallel)
        return (
            self.position.warps > 1
            and _has_single_point(nest, self.grid_rank)
            and at_most(self.position.threads, terms)
            and find_extreme(nest) is not None
        )

    def emit(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        counters: Sequence[Any],
        captured: Mapping[Any, Any],
        initial: Any = None,
        first_thread: int = 0,
    ) -> None:
        """Emit one structured op; `counters` are those of the grid's loops.

        `initial` is the value with which a reduction begins, if not the one in memory, and
        `first_thread` the thread of the first point, where threads share the points.
        """
        offsets: list[Any] = [None if is_number(o, 0) else index(o) for o in nest.offsets]
        spot = NestPoint(Elements(nest, buffers, captured), offsets, {}, initial)
        spot = spot.at(range(len(counters)), counters)
        inner = range(self.grid_rank, len(nest.loops))
        parallel = [i for i in inner if nest.loops[i].parallel]
        reductions = [i for i in inner if not nest.loops[i].parallel]
        points, terms = prod(spot.sizes(parallel)), prod(spot.sizes(reductions))
        if is_number(points, 0):
            return
        names = find_combiners(nest) if reductions else None
        if self.has_thread_points(nest):
            self._by_threads(spot, parallel, reductions, first_thread)
        elif names is not None and is_number(points, 1) and typical(terms) > WARP:
            self._by_block(spot, parallel, reductions, names)
        elif names is not None:
            self._by_warps(spot, parallel, reductions, names)
        elif (extreme := find_extreme(nest)) is not None:
            if is_number(points, 1) and self._has_extreme(nest):
                self._position_by_block(spot, parallel, reductions, extreme)
            else:
                self._position_by_warps(spot, parallel, reductions, extreme)

    def has_thread_points(self, nest: LoopNest) -> bool:
        """Whether each point has a thread; else warps or all threads share its reductions."""
        inner = nest.loops[self.grid_rank :]
        points = prod(loop.size for loop in inner if loop.parallel)
        terms = prod(loop.size for loop in inner if not loop.parallel)
        if all(loop.parallel for loop in inner):
            return True
        if find_combiners(nest) is not None:
            few_points, many_terms = typical(points) < self.position.threads, typical(terms) >= WARP
            of_block = is_number(points, 1) and typical(terms) > WARP
            return not (of_block or (few_points and many_terms))
        return not at_most(WARP, terms) or find_extreme(nest) is None

    def write_slice(self, write: SliceWrite, mapping: dict[Any, Any], flat: Any) -> None:
        """Emit a loop that writes a slice, an element per thread."""

        def at_number(number: Any) -> None:
            write.emit(split(number, write.sizes), mapping, flat)

        self._strided(self.position.thread, self.position.threads, write.count, at_number)

    def copy(self, source: Any, to: Any) -> None:
        """Copy a flat buffer, an element per thread."""

        def at_number(number: Any) -> None:
            memref.store(memref.load(source, [number]), to, [number])

        count = prod(to.type.shape)
        self._strided(self.position.thread, self.position.threads, count, at_number)

    def alone(self) -> Any:
        """A context that runs unstructured ops in one thread only."""
        return when(is_equal(self.position.thread, index(0)))

    def run_alone(self, op: Any, mapping: dict[Any, Any], rooms: Sequence[Any]) -> None:
        """Run an unstructured op in one thread; all threads load its scalar results from `rooms`.

        A loop that stores and carries a scalar is such an op.
        """
        results = list(op.results)
        with self.alone():
            clone_into(op, mapping)
            for value, room in zip(results, rooms, strict=True):
                memref.store(mapping[value], room, [index(0)])
        if results:
            barrier()
            for value, room in zip(results, rooms, strict=True):
                mapping[value] = memref.load(room, [index(0)])

    # --- distributions of a loop nest -------------------------------------------------------------

    def _by_threads(
        self, spot: NestPoint, parallel: list[int], reductions: list[int], first_thread: int
    ) -> None:
        """One thread per point, which runs the reductions sequentially."""
        elements = spot.elements

        def at_point(point: NestPoint) -> None:
            if reductions:
                results = point.reduce(reductions, point.initial_values())
            else:
                results = elements.apply(elements.load_all(point.bases), point.ivs)
            elements.store(results, point.bases)

        number = self.position.thread
        if first_thread:  # threads before it have a large unsigned number, and no point
            number = arith.subi(number, index(first_thread))
        self._at_points(spot, parallel, number, self.position.threads, at_point)

    def _by_warps(
        self, spot: NestPoint, parallel: list[int], reductions: list[int], names: Sequence[str]
    ) -> None:
        """One warp per point, whose lanes share the reductions."""
        lane = self.position.lane()

        def at_point(point: NestPoint) -> None:
            partial = point.reduce_share(reductions, names, lane, WARP)
            totals = [
                reduce_warp([value], combiner(name))[0]
                for value, name in zip(partial, names, strict=True)
            ]
            with when(is_equal(lane, index(0))):
                point.combine_and_store(names, totals)

        self._at_points(spot, parallel, self.position.warp(), self.position.warps, at_point)

    def _position_by_warps(
        self, spot: NestPoint, parallel: list[int], reductions: list[int], extreme: ArgReduce
    ) -> None:
        """One warp per point, whose lanes find the best element together."""
        elements, lane = spot.elements, self.position.lane()

        def at_point(point: NestPoint) -> None:
            best = best_share(point, reductions, extreme, lane, WARP)
            best = extreme.merge_warp(best, elements.captured)
            with when(is_equal(lane, index(0))):
                elements.store(list(best), point.bases)

        self._at_points(spot, parallel, self.position.warp(), self.position.warps, at_point)

    def _position_by_block(
        self, spot: NestPoint, parallel: list[int], reductions: list[int], extreme: ArgReduce
    ) -> None:
        """All threads find the best element of a single point together."""
        position = self.position
        point = spot.at(parallel, [index(0)] * len(parallel))
        best = best_share(point, reductions, extreme, position.thread, position.threads)
        rooms = [self.partials[f"best {value.type}"] for value in best]
        best = extreme.merge_block(best, spot.elements.captured, position, rooms)
        with self.alone():
            spot.elements.store(list(best), point.bases)

    def _by_block(
        self, spot: NestPoint, parallel: list[int], reductions: list[int], names: Sequence[str]
    ) -> None:
        """All threads share the reductions of a single point."""
        point = spot.at(parallel, [index(0)] * len(parallel))
        partial = point.reduce_share(reductions, names, self.position.thread, self.position.threads)
        totals = []
        for value, name in zip(partial, names, strict=True):
            room = self.partials.get(str(value.type))
            neutral = identity(name, value.type)
            totals.append(reduce_block(self.position, value, combiner(name), neutral, room))
        with self.alone():
            point.combine_and_store(names, totals)

    def _at_points(
        self,
        spot: NestPoint,
        loops: list[int],
        first: Any,
        step: int,
        body: Callable[[NestPoint], None],
    ) -> None:
        """Emit `body` at every `step`th point of some loops, from `first` on."""
        sizes = spot.sizes(loops)

        def at_number(number: Any) -> None:
            body(spot.at(loops, split(number, sizes)))

        self._strided(first, step, prod(sizes), at_number)

    def _strided(self, first: Any, step: int, count: Extent, body: Any) -> None:
        """Emit `body` for first, first + step, ... below `count`."""
        if isinstance(count, int) and count <= step:
            if count == step:
                body(first)
                return
            with when(is_less(first, index(count))):
                body(first)
            return
        loop = scf.ForOp(first, index(count), index(step))
        with ir.InsertionPoint(loop.body):
            body(loop.induction_variable)
            scf.YieldOp([])


class ThreadSchedule:
    """Where the ops of a block begin: barriers, and the thread of an op's first point.

    Ops that do not depend on each other have points on different warps, so that these wait for
    memory concurrently; an op that continues the points of another one has the same threads, and
    needs no barrier.
    """

    def __init__(self, code: GenericCode):
        self.code = code
        self.hazards = Hazards()
        self.first_thread = 0
        self._begun: list[int] = []
        self._free = 0

    def enter(self, op: Any, nest: LoopNest | None) -> None:
        """Emit the barrier before an op if it needs one, and set `first_thread`."""
        rank, threads = self.code.grid_rank, self.code.position.threads
        shares = nest is not None and self.code.has_thread_points(nest)
        count = prod(loop.size for loop in nest.loops[rank:] if loop.parallel) if nest else 0
        if nest is None or not shares or not isinstance(count, int):
            if self.hazards.conflicts(op):
                self._barrier()
            self.hazards.add(op)
            self.first_thread, self._free = 0, threads
            return
        new = self._free if self._free + count <= threads else 0
        for first in dict.fromkeys((new, *self._begun)):
            orders = threads_of_elements(nest, rank, first)
            if first + count <= max(threads, count) and not self.hazards.conflicts(op, orders):
                break
        else:
            self._barrier()
            first, orders = 0, threads_of_elements(nest, rank, 0)
        self.hazards.add(op, orders)
        self.first_thread = first
        self._begun.append(first)
        self._free = max(self._free, first + round_up(count, WARP))

    def _barrier(self) -> None:
        barrier()
        self.hazards.clear()
        self._begun, self._free = [], 0


@dataclass(frozen=True)
class GenericPlan:
    """One block per point of the grid."""

    blocks: Extent
    threads: int

    @property
    def min_blocks_per_sm(self) -> int:
        return default_min_blocks_per_sm(self.blocks)


def match_generic(kernel: DeviceKernel) -> bool:
    """Every kernel matches."""
    return True


def plan_generic(kernel: DeviceKernel, _: bool) -> GenericPlan:
    """About four iterations of the longest op per thread; one where a single block runs alone."""
    writes = [match_slice_write(op) for op in kernel.ops if op not in kernel.nests]
    inner = [_threads_wanted(nest, kernel.grid_rank) for nest in kernel.loop_nests]
    longest = max([*inner, *(write.count for write in writes if write), 1])
    each = 1 if is_number(kernel.num_points, 1) else 4
    threads = max(WARP, round_up(ceil(longest / each), WARP))
    return GenericPlan(kernel.num_points, min(kernel.max_threads, threads))


def emit_generic(kernel: DeviceKernel, plan: GenericPlan, position: ThreadPosition) -> None:
    """Emit all ops for one block, with barriers between dependent ops."""
    code = GenericCode(position, kernel.grid_rank, kernel.shared)
    private, copied = shared_arguments(kernel)
    flat = kernel.flat_buffers(kernel.allocate_shared, [*private, *copied])
    views, begins = indexed_views(kernel, [*private, *copied], flat), folded_fills(kernel)
    fills = {fill for fill, op in pairwise(kernel.ops) if op in begins}
    emit_prologue(kernel, position, flat)
    code.reserve(kernel.loop_nests)
    counters = split(position.block, kernel.grid)
    mapping: dict[Any, Any] = {}
    rooms = {
        op: [kernel.shared.allocate(1, value.type) for value in op.results]
        for op in kernel.ops
        if op not in kernel.nests and not computes_scalars(op)
    }

    schedule = ThreadSchedule(code)

    def emit_nest(nest: LoopNest, buffers: list[Any]) -> None:
        initial, first = begins.get(nest.generic.op), schedule.first_thread
        code.emit(nest, buffers, counters, {**mapping, **views}, initial, first)

    for op in kernel.ops:
        if op in fills:
            continue
        schedule.enter(op, kernel.nests.get(op))
        if op in kernel.nests or computes_scalars(op):
            kernel.emit_op(op, flat, mapping, emit_nest)
        elif (write := match_slice_write(op)) is not None:
            with op.location:
                code.write_slice(write, mapping, flat)
        else:
            with op.location:
                code.run_alone(op, mapping, rooms[op])
    if copied:
        barrier()
    for value in copied:
        code.copy(flat(value), flatten(value))


def emit_prologue(kernel: DeviceKernel, position: ThreadPosition, flat: Any) -> None:
    """Emit the ops that every block computes as a whole; all of its threads see the results."""
    if not kernel.prologue:
        return
    code = GenericCode(position, 0, kernel.shared)
    code.reserve(list(kernel.prologue.values()))
    hazards = Hazards()
    for op, nest in kernel.prologue.items():
        if hazards.conflicts(op):
            barrier()
            hazards.clear()
        hazards.add(op)
        with op.location:
            code.emit(nest, [flat(value) for value in op.operands], [], {})
    barrier()


def _tiles(kernel: DeviceKernel, plan: GenericPlan) -> list[BlockDim] | None:
    return None if kernel.prologue else adjacent_points(kernel.grid, 1)


GENERIC = Strategy("generic", match_generic, plan_generic, emit_generic, _tiles)


def _has_single_point(nest: LoopNest, grid_rank: int) -> bool:
    points = prod(loop.size for loop in nest.loops[grid_rank:] if loop.parallel)
    return is_number(points, 0, 1)


def _threads_wanted(nest: LoopNest, grid_rank: int) -> int:
    """The threads that an op can use: one for each iteration, or point of a short reduction."""
    inner = nest.loops[grid_rank:]
    terms = typical(prod(loop.size for loop in inner if not loop.parallel))
    points = typical(prod(loop.size for loop in inner if loop.parallel))
    return points if terms < WARP else points * terms
