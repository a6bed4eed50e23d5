"""Column reductions by several threads per column: sums over rows, such as a bias gradient.

Input: the loop nests of a kernel over columns: reductions along each column, and ops on their
results. Output: a `ColumnReducePlan`, or None, and the code of a thread. The lanes of a warp have
adjacent columns, so that loads of rows are coalesced; the warps of a block take every `parts`th
row, and their results are combined in shared memory, in order. Where there are fewer columns than
a device has room for, the blocks of a cluster share the rows (Hopper), and combine their results
through distributed shared memory; there a thread has several adjacent columns, if they are narrow,
and a warp has several rows of few columns, whose results are combined by shuffles.
A result that no later reduction reads is combined by the threads that store it alone.
`schedule.py` calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from nova.codegen.common.combine import combiner, find_combiners, identity, reduce_tree
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import (
    WARP,
    SharedMemory,
    ThreadPosition,
    barrier,
    element_bytes,
    is_equal,
    is_less,
    shuffle_xor,
    split,
    when,
)
from nova.codegen.gpu.cluster_ops import can_exchange, cluster_barrier, load_over_cluster
from nova.codegen.gpu.device_kernel import DeviceKernel, is_updated
from nova.codegen.gpu.pointwise.elementwise import ElementwiseCode, ThreadVector, grouped
from nova.codegen.gpu.ptx_ops import issue_loads
from nova.codegen.gpu.rowwise.plan import (
    BUSY,
    SHORT,
    accesses_match,
    along_row,
    goes_along,
    last_writes,
)
from nova.codegen.gpu.strategy import Strategy, default_min_blocks_per_sm
from nova.codegen.gpu.tasks.block_tiles import BlockDim, adjacent_points
from nova.core.sizes import ceildiv, is_multiple
from nova.ir.bindings import arith, ir, memref, scf
from nova.ir.buffers import buffer_root
from nova.ir.index import index
from nova.ir.symbolic.size_table import Extent, is_number, typical

_MAX_PARTS = 32
_MIN_ROWS = 4
_FEW_PARTS, _MIN_ROWS_OF_MANY = 8, 8  # blocks of up to 256 threads fuse with other launches
"""Minimum rows per thread, if there are that many."""
_UNROLLED, _LOADS = 4, 8
"""Rows whose loads are independent of each other; more of them up to this many loads."""
_MAX_CLUSTER, _MIN_CLUSTER_ROWS = 8, 8
"""Blocks of a cluster, and minimum rows per thread of a cluster."""
_MAX_BLOCKS = {_MAX_PARTS: 120, _MAX_PARTS // 2: 128}
"""Blocks of a launch, by their warps. It is one wave of a large device: a block of 1024 threads has
a multiprocessor for itself, and clusters of four or eight occupy 120 of 132."""
_COLUMN_BYTES, _MAX_SUMS = 16, 8
"""Bytes that a thread loads of a row, of all matrices, and its sums, which have 64 registers with
their operands."""
_SECTOR, _LINE = 32, 128
"""Bytes of a row of a matrix that a warp loads: the least, and a line of the cache."""


@dataclass(frozen=True)
class ColumnReducePlan:
    """A block has `lanes` times `width` columns, whose rows are divided among `parts` warps."""

    columns: Extent
    parts: int
    shared_ops: int
    """Ops up to the last reduction: all threads take part in those."""
    stored: Mapping[tuple[Any, int], bool]
    cluster: int = 1
    """Blocks of a cluster that share the rows of a column."""
    width: int = 1
    """Adjacent columns of a thread."""
    lanes: int = WARP
    """Threads of a warp that share a row; a warp has several rows if that are not all."""

    @property
    def block_columns(self) -> int:
        return self.lanes * self.width

    @property
    def warp_rows(self) -> int:
        return WARP // self.lanes

    @property
    def threads(self) -> int:
        return WARP * self.parts

    @property
    def blocks(self) -> Extent:
        return ceildiv(self.columns, self.block_columns) * self.cluster

    @property
    def all_parts(self) -> int:
        """Threads that share the rows of a column."""
        return self.parts * self.warp_rows * self.cluster

    @property
    def min_blocks_per_sm(self) -> int:
        # Without a bound the assembler makes room for two blocks: 32 registers per thread where
        # there are 1024 threads, and the partial results of 32 warps alone fill those.
        return 1 if self.parts == _MAX_PARTS else default_min_blocks_per_sm(self.blocks)


@dataclass(frozen=True)
class ColumnReduction:
    """The last reduction of a kernel (its number), and the rows of the shortest reduction."""

    last: int
    rows: int


def match_columns(kernel: DeviceKernel) -> ColumnReduction | None:
    """Match reductions of columns, if one thread per column is too few."""
    nests, rank = kernel.loop_nests, kernel.grid_rank
    if kernel.inner_size <= SHORT or kernel.scalar_ops is None:
        return None
    reductions = [i for i, nest in enumerate(nests) if along_row(nest, rank)]
    if not kernel.grid or not reductions or typical(kernel.num_points) >= BUSY:
        return None
    if not all(goes_along(nest, rank) for nest in nests):
        return None
    if any(
        along_row(nests[i], rank)[0].parallel or not _reads_rows(nests[i], rank) for i in reductions
    ):
        return None
    last = reductions[-1]
    if not accesses_match(nests, kernel.scalar_ops, rank, nests[: last + 1]):
        return None
    rows = (typical(along_row(nests[i], rank)[0].size) for i in reductions)
    return ColumnReduction(last, min(rows))


def plan_columns(kernel: DeviceKernel, match: ColumnReduction) -> ColumnReducePlan:
    """Twice as many warps per column while there are rows for them, and the device is not full."""
    columns, parts = kernel.num_points, 1
    while (
        parts < min(_MAX_PARTS, kernel.max_threads // WARP)
        and parts * (_MIN_ROWS if parts < _FEW_PARTS else _MIN_ROWS_OF_MANY) < match.rows
        and typical(columns) * parts < 4 * BUSY
    ):
        parts *= 2
    stored = last_writes(kernel.loop_nests, kernel.grid_rank, kernel.results)
    plan = ColumnReducePlan(columns, parts, match.last + 1, stored)
    if parts < _MAX_PARTS or not isinstance(columns, int) or not _can_exchange(kernel):
        return plan
    widest, narrowest = _column_bounds(kernel)
    choices = [
        _divided(replace(plan, parts=parts, width=width, lanes=lanes), match.rows)
        for parts, width, lanes in product(_MAX_BLOCKS, (1, 2, 4, 8), (32, 16, 8, 4))
        if (width, lanes) == (1, WARP)
        or (
            width <= widest
            and columns % (lanes * width) == 0
            and lanes * width * narrowest >= _SECTOR
            and parts * (WARP // lanes) * _MIN_ROWS <= match.rows
        )
    ]
    return max(
        choices,
        key=lambda choice: _priority(choice, narrowest),
    )


def _divided(plan: ColumnReducePlan, rows: int) -> ColumnReducePlan:
    """The plan with as many blocks as fit, and have enough rows."""
    groups = typical(plan.blocks)
    while (
        plan.cluster < _MAX_CLUSTER
        and 2 * plan.cluster * groups <= _MAX_BLOCKS[plan.parts]
        and 2 * plan.all_parts * _MIN_CLUSTER_ROWS <= rows
    ):
        plan = replace(plan, cluster=2 * plan.cluster)
    return plan


def _priority(plan: ColumnReducePlan, element: int) -> tuple[int, ...]:
    """Fill the device, read whole lines of memory, then load much at once."""
    blocks, row = typical(plan.blocks), plan.block_columns * element
    filled = min(blocks, max(_MAX_BLOCKS.values()))
    return filled, min(row, _LINE), plan.threads * plan.width, row, -blocks


def _column_bounds(kernel: DeviceKernel) -> tuple[int, int]:
    """Adjacent columns of a thread, at most, and the bytes of the narrowest element of a matrix.

    As many columns as `_COLUMN_BYTES` of the matrices hold.
    """
    rank = kernel.grid_rank
    matrices = {
        buffer_root(value): element_bytes(value.type.element_type)
        for nest in kernel.loop_nests
        for row in along_row(nest, rank)
        for value, across, along in zip(
            nest.generic.op.operands, nest.loops[rank - 1].strides, row.strides, strict=True
        )
        if is_number(across, 1) and not is_number(along, 0)
    }
    sums = sum(
        len(nest.generic.op.operands) - nest.generic.num_inputs
        for nest in kernel.loop_nests
        if along_row(nest, rank)
    )
    narrowest = min(matrices.values(), default=1)
    if any(nest.indexed for nest in kernel.loop_nests) or not matrices:
        return 1, narrowest
    most = max(1, min(_COLUMN_BYTES // sum(matrices.values()), _MAX_SUMS // sums))
    return next(n for n in (8, 4, 2, 1) if n <= most and _divides(n, kernel.grid[-1])), narrowest


def _divides(width: int, extent: Extent) -> bool:
    return width == 1 or (isinstance(extent, int) and extent % width == 0)


def _can_exchange(kernel: DeviceKernel) -> bool:
    """Whether the blocks of a cluster can combine the results of all reductions."""
    return kernel.has_clusters and all(
        can_exchange(
            [a.type for a in list(nest.generic.block.arguments)[nest.generic.num_inputs :]]
        )
        for nest in kernel.loop_nests
        if along_row(nest, kernel.grid_rank)
    )


def _reads_rows(nest: LoopNest, rank: int) -> bool:
    """Whether adjacent columns are contiguous in memory, in each row; others are one per row."""
    last, row = nest.loops[rank - 1], along_row(nest, rank)[0]
    contiguous_rows = [
        column_stride
        for column_stride, row_stride in zip(last.strides, row.strides, strict=True)
        if is_number(row_stride, 1)
    ]
    return any(is_number(stride, 1) for stride in last.strides) and all(
        is_number(stride, 0) for stride in contiguous_rows
    )


class ColumnReduceCode(ElementwiseCode):
    """The code of a thread for its column; every thread has the results of the reductions."""

    def __init__(
        self,
        plan: ColumnReducePlan,
        position: ThreadPosition,
        rank: int,
        shared: SharedMemory,
        only_stored: Set[Any],
    ):
        """`only_stored` are the reductions whose results no later reduction reads."""
        super().__init__(rank, ThreadVector(rank - 1, plan.width) if plan.width > 1 else None)
        self.plan = plan
        self.warp = arith.divui(position.thread, index(WARP))
        self.lane = arith.remui(position.thread, index(plan.lanes))
        self.part, block = arith.divui(position.thread, index(plan.lanes)), position.block
        self.stores = is_less(position.lane(), index(plan.lanes)) if plan.warp_rows > 1 else None
        """Whether the thread is in the first row of its warp; None if the warp has one row."""
        if plan.cluster > 1:
            parts = index(plan.parts * plan.warp_rows)
            before = arith.muli(arith.remui(block, index(plan.cluster)), parts)
            self.part = arith.addi(before, self.part)
            block = arith.divui(block, index(plan.cluster))
        self.number = arith.addi(arith.muli(block, index(plan.lanes)), self.lane)
        if plan.width > 1:
            self.number = arith.muli(self.number, index(plan.width))
        first = is_equal(self.part, index(0))
        ragged = not is_multiple(plan.columns, plan.block_columns)
        inside = is_less(self.number, index(plan.columns)) if ragged else None
        self.owns = arith.andi(first, inside) if inside else first
        # Threads past the last column read the last one.
        clamped = arith.select(inside, self.number, index(plan.columns - 1)) if inside else None
        self.column = self.number if clamped is None else clamped
        self.shared = shared
        self.only_stored = only_stored
        self.rooms: dict[str, Any] = {}
        self.block_totals: dict[tuple[Any, int], Any] = {}
        """In a cluster: the result of this block for each column, by reduction."""
        self.alone = False

    def reserve(self, nests: Sequence[LoopNest]) -> None:
        """Allocate shared memory for the partial results of a column, at the top of the launch."""
        for nest in nests:
            if not along_row(nest, self.grid_rank):
                continue
            arguments = list(nest.generic.block.arguments)[nest.generic.num_inputs :]
            for i, argument in enumerate(arguments):
                key = str(argument.type)
                if self.plan.parts > 1 and key not in self.rooms:
                    slots = self.plan.parts * self.plan.block_columns
                    room = self.shared.allocate(slots, argument.type)
                    self.rooms[key] = room
                if self.plan.cluster > 1:
                    totals = self.shared.allocate(self.plan.block_columns, argument.type)
                    self.block_totals[nest.generic.op, i] = totals

    def emit_in_owners(self) -> AbstractContextManager[None]:
        """After the last reduction: one thread per column continues."""
        self.alone = True
        return when(self.owns)

    def _totals(
        self,
        elements: Elements,
        loops: list[int],
        bases: list[Any],
        ivs: list[dict[int, Any]],
    ) -> list[list[Any]]:
        nest = elements.nest
        (number,) = [i for i in loops if not is_number(nest.loops[i].size, 1)] or loops[-1:]
        names = find_combiners(nest)
        assert names is not None, "the plan has only reductions that combine"
        arguments = list(elements.generic.block.arguments)[elements.generic.num_inputs :]
        units = [identity(n, a.type) for n, a in zip(names, arguments, strict=True)]
        size, parts = nest.loops[number].size, self.plan.all_parts

        def iteration(row: Any, values: list[Any]) -> list[Any]:
            where, row_ivs = self._inside(nest, number, row, bases, ivs)
            results = self._apply(elements, where, grouped(values, self.count), row_ivs)
            return [value for points in results for value in points]

        count = size // parts
        unrolled = self._unrolled(nest, count)
        whole = count // unrolled

        def part_iteration(number: Any, values: list[Any]) -> list[Any]:
            row = arith.addi(arith.muli(number, index(parts * unrolled)), self.part)
            for k in range(unrolled):
                values = iteration(shifted(row, k * parts), values)
            return values

        partials = self._cascade(nest).emit_loop(
            whole,
            1,
            [unit for unit in units for _ in range(self.count)],
            part_iteration,
            terms_per_iteration=unrolled,
        )
        for k in range(count - whole * unrolled if isinstance(count, int) else 0):
            row = arith.addi(self.part, index((whole * unrolled + k) * parts))
            partials = iteration(row, partials)
        remaining = size % parts
        if not is_number(remaining, 0):
            more = scf.IfOp(
                is_less(self.part, index(remaining)), [v.type for v in partials], has_else=True
            )
            with ir.InsertionPoint(more.then_block):
                row = arith.addi(self.part, index(size - remaining))
                scf.YieldOp(iteration(row, partials))
            with ir.InsertionPoint(more.else_block):
                scf.YieldOp(partials)
            partials = list(more.results)
        before = self._outputs(elements, bases)
        alone = elements.generic.op in self.only_stored
        totals = []
        for i, (name, values) in enumerate(zip(names, grouped(partials, self.count), strict=True)):
            values = self._together(self._over_warp(values, name), name, alone)
            if self.plan.cluster > 1:
                slots = self.block_totals[elements.generic.op, i]
                values = self._over_cluster(values, name, slots, alone)
            pairs = zip(before[i], values, strict=True)
            totals.append([combiner(name)(old, total) for old, total in pairs])
        return totals

    def _unrolled(self, nest: LoopNest, count: Extent) -> int:
        """Rows of an iteration of the loop over the `count` rows of a thread."""
        if not isinstance(count, int):
            return 1
        most = _LOADS if self.plan.width > 1 and nest.generic.num_inputs == 1 else _UNROLLED
        return next((n for n in (most, _UNROLLED) if count % n == 0), min(_UNROLLED, max(1, count)))

    def _over_warp(self, values: list[Any], name: str) -> list[Any]:
        """Combine the results of the rows of the warp, in each of its threads."""
        combine, distance = combiner(name), WARP // 2
        while distance >= self.plan.lanes:
            values = [combine(value, shuffle_xor(value, distance)) for value in values]
            distance //= 2
        return values

    def _when_stores(self) -> AbstractContextManager[None]:
        return nullcontext() if self.stores is None else when(self.stores)

    def _over_cluster(self, values: list[Any], name: str, slots: Any, alone: bool) -> list[Any]:
        """Combine the results of the blocks of the cluster, in their order, in each thread."""
        with when(is_equal(self.warp, index(0))), self._when_stores():
            for k, value in enumerate(values):
                memref.store(value, slots, [self._slot(k)])
        cluster_barrier()
        first = memref.extract_aligned_pointer_as_index(slots)

        def combined() -> list[Any]:
            return [
                load_over_cluster(first, self._slot(k), v.type, combiner(name), self.plan.cluster)
                for k, v in enumerate(values)
            ]

        return _in_threads(is_equal(self.part, index(0)), combined, values) if alone else combined()

    def _slot(self, k: int) -> Any:
        """The number of the thread's column `k` among those of the block."""
        return arith.addi(self.lane, index(k * self.plan.lanes)) if k else self.lane

    def leave_cluster(self) -> None:
        """After the last reduction: wait until no block reads the shared memory of another."""
        if self.plan.cluster > 1:
            cluster_barrier()

    def _together(self, values: list[Any], name: str, alone: bool) -> list[Any]:
        """Combine the partial results of the block for the columns, in each of its threads.

        With `alone`, only in those of its first warp.
        """
        if self.plan.parts == 1:
            return values
        room = self.rooms[str(values[0].type)]
        columns = self.plan.block_columns
        barrier()  # others may still read the previous contents
        start = arith.muli(self.warp, index(columns))
        with self._when_stores():
            for k, value in enumerate(values):
                memref.store(value, room, [arith.addi(start, self._slot(k))])
        barrier()

        def combined() -> list[Any]:
            slots = [self._slot(k) for k in range(len(values))]
            partials = [
                [
                    memref.load(room, [shifted(slot, part * columns)])
                    for part in range(self.plan.parts)
                ]
                for slot in slots
            ]
            return [reduce_tree(parts, combiner(name)) for parts in partials]

        return _in_threads(is_equal(self.warp, index(0)), combined, values) if alone else combined()

    def _store(self, elements: Elements, values: list[list[Any]], bases: list[Any]) -> None:
        for i, points in enumerate(values):
            operand = elements.generic.num_inputs + i
            if self.plan.stored[elements.generic.op, i]:
                if self.alone:
                    self._store_points(elements, operand, points, bases[operand])
                else:
                    with when(self.owns):
                        self._store_points(elements, operand, points, bases[operand])
            self._remember(elements, operand, points)


def _in_threads(
    condition: Any, compute: Callable[[], list[Any]], otherwise: list[Any]
) -> list[Any]:
    """The values of `compute` in threads where the condition holds, `otherwise` in others."""
    op = scf.IfOp(condition, [value.type for value in otherwise], has_else=True)
    with ir.InsertionPoint(op.then_block):
        scf.YieldOp(compute())
    with ir.InsertionPoint(op.else_block):
        scf.YieldOp(otherwise)
    return list(op.results)


def _only_stored(nests: Sequence[LoopNest], rank: int) -> set[Any]:
    """The reductions whose results no op up to the last reduction reads."""
    read = {
        buffer_root(value)
        for nest in nests
        for value in list(nest.generic.op.operands)[: nest.generic.num_inputs]
    }
    return {
        nest.generic.op
        for nest in nests
        if along_row(nest, rank)
        and not any(
            buffer_root(value) in read
            for value in list(nest.generic.op.operands)[nest.generic.num_inputs :]
        )
    }


def emit_columns(kernel: DeviceKernel, plan: ColumnReducePlan, position: ThreadPosition) -> None:
    """Emit the reductions in all threads of a column, and the ops after them in one."""
    flat = kernel.flat_buffers(lambda value: value)
    shared_nests = kernel.loop_nests[: plan.shared_ops]
    only_stored = _only_stored(shared_nests, kernel.grid_rank)
    code = ColumnReduceCode(plan, position, kernel.grid_rank, kernel.shared, only_stored)
    code.reserve(kernel.loop_nests)
    counters = split(code.column, kernel.grid)
    mapping: dict[Any, Any] = {}

    def emit_nest(nest: LoopNest, buffers: list[Any]) -> None:
        code.emit(nest, buffers, counters, mapping)

    last = kernel.ops.index(list(kernel.nests)[plan.shared_ops - 1])
    if plan.parts < _MAX_PARTS:  # 1024 threads have no registers for it
        _load_early(kernel, code, flat, counters, last)
    for op in kernel.ops[: last + 1]:
        kernel.emit_op(op, flat, mapping, emit_nest)
    code.leave_cluster()
    with code.emit_in_owners():
        for op in kernel.ops[last + 1 :]:
            kernel.emit_op(op, flat, mapping, emit_nest)


def _load_early(
    kernel: DeviceKernel,
    code: ColumnReduceCode,
    flat: Callable[[Any], Any],
    counters: Sequence[Any],
    last: int,
) -> None:
    """Load the operands of the ops after op `last`, the last reduction, before the reductions.

    Such as the moments of an optimizer: later, their loads would wait for memory one by one.
    """
    written = {
        flat(value)
        for nest in kernel.nests.values()
        for value in list(nest.generic.op.operands)[nest.generic.num_inputs :]
    }
    for op in kernel.ops[last + 1 :]:
        if op in kernel.nests:
            own = {
                flat(op.operands[i])
                for i in range(kernel.nests[op].generic.num_inputs)
                if isinstance(op.operands[i].type, ir.MemRefType) and is_updated(kernel, op, i)
            }
            buffers = [flat(v) if isinstance(v.type, ir.MemRefType) else v for v in op.operands]
            with op.location:
                code.preload(kernel.nests[op], buffers, counters, written - own)
    issue_loads()


def _tiles(kernel: DeviceKernel, plan: ColumnReducePlan) -> list[BlockDim] | None:
    return adjacent_points(kernel.grid, plan.block_columns)


COLUMN_REDUCE = Strategy("column_reduce", match_columns, plan_columns, emit_columns, _tiles)
