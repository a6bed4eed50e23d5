"""Matches row programs, and chooses the number of threads per row.

Input: the loop nests of a kernel over its grid. Output: a `RowwisePlan`, or None. In a row program
every op runs along a row at each point of the grid: elementwise, or a reduction of the row to a
scalar, or on scalars of the row; and ops read intermediate values at the positions at which they
were written. Then every thread keeps its part of the row in registers from op to op. `rowwise.py`
emits the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.combine import find_combiners
from nova.codegen.common.loop_nest import Loop, LoopNest
from nova.codegen.gpu.block_ops import WARP, element_bytes
from nova.codegen.gpu.cluster_ops import can_exchange
from nova.codegen.gpu.device_kernel import MAX_THREADS, DeviceKernel, is_tile_local
from nova.codegen.gpu.memory import ACCESS, divides, widest
from nova.codegen.gpu.rowwise.pipeline import RESIDENT, THREADS, RowOperand, RowSlot
from nova.codegen.gpu.strategy import default_min_blocks_per_sm
from nova.core.sizes import ceildiv, is_static_shape, same_shape, size_min
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root
from nova.ir.symbolic.size_table import Extent, is_number, longest_size, typical
from nova.ir.walk import every_op, find_ops

_BLOCK = 128
"""Threads of a block whose rows are shorter than that."""
_REGISTER_HUNGRY = ("math.sin", "math.cos", "math.tan")
"""Functions whose code needs more registers than each of 1024 threads can have."""
_MAX_LIVE_ELEMENTS = 64
"""Elements that a thread may hold in registers, of all simultaneously live rows."""
_MAX_ELEMENTS = 32
"""Maximum elements of one row per thread: the code of each is unrolled."""
_FEW, _WIDE = 2, 512
"""Vectors of a row per thread, and the threads up to which that holds: few vectors leave room for
more warps, which hide latency; with more threads, all wait for the last."""
_CLUSTERS = (2, 4, 8)
"""Blocks of a cluster, each of _WIDE threads, that share a longer row."""
VECTOR_WORDS = 4
"""Words of an aligned vector."""
_LINE_WORDS = 32
"""Words of a line of the caches, at which copies begin."""
_ALONE = 2
"""Blocks of a cluster with a multiprocessor each: rows of this many blocks are the fastest."""
_MAX_ELEMENTS_ALONE = 56
"""Maximum elements of one row per thread of such a block."""
MULTIPROCESSORS = 132
"""Of an H200."""
_WARP_LENGTH, _WARP_ELEMENTS = 1024, 96
"""Longest row of 16-bit floats of a warp, and elements of all live rows of a thread."""
SHORT = 8
"""Iterations per point of the grid that a single thread may run."""
BUSY = 132 * 1024
"""Threads that saturate a large device: below that, more of them share a row."""

Key = tuple[Any, Extent, tuple[Extent, ...], Extent]
"""An access: buffer, offset, strides along the grid, stride along the row."""


@dataclass(frozen=True)
class Phase:
    """The position of a row from the previous aligned one: of row (i, j, ...) in all operands.

    Aligned positions are multiples of `unit` elements.
    """

    unit: int
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class RowwisePlan:
    """Rows of `length`, shared by a few threads with some vectors each."""

    rows: Extent
    length: Extent
    vector_width: int
    threads_per_row: int
    vectors_per_thread: int
    rows_per_block: int
    stored: Mapping[tuple[Any, int], bool]
    """Whether output i of an op must be stored, by (op, i)."""
    many_blocks_bound: int = 0
    """Blocks per multiprocessor of the launch bounds of many blocks; 0 for no bound."""
    cluster: int = 1
    """Blocks of a cluster that share a row."""
    prefetched: tuple[RowOperand, ...] = ()
    """Operands whose next row is copied ahead; then clusters are persistent."""
    phase: Phase | None = None
    """Where rows are not aligned: the first element of a vector is aligned, not that of a row."""
    slot: RowSlot | None = None
    """The part of a row of a block in shared memory, if rows are prefetched."""
    stages: int = 0
    """Rows that are copied ahead."""
    resident: int = 0
    """Clusters that run concurrently, if they are persistent."""

    @property
    def threads(self) -> int:
        return self.threads_per_row * self.rows_per_block // self.cluster

    @property
    def clusters(self) -> Extent:
        """Clusters of a persistent launch."""
        return size_min(self.rows, self.resident)

    @property
    def blocks(self) -> Extent:
        if self.prefetched:
            return self.clusters * self.cluster
        return ceildiv(self.rows, self.rows_per_block) * self.cluster

    @property
    def min_blocks_per_sm(self) -> int:
        return default_min_blocks_per_sm(self.blocks) or self.many_blocks_bound


def along_row(nest: LoopNest, grid_rank: int) -> list[Loop]:
    """The loops after the grid that have more than one iteration."""
    return [loop for loop in nest.loops[grid_rank:] if not is_number(loop.size, 1)]


def row_key(nest: LoopNest, operand: int, grid_rank: int) -> Key:
    """The access of a nest to an operand."""
    row = along_row(nest, grid_rank)
    strides = tuple(
        0 if is_number(loop.size, 1) else loop.strides[operand] for loop in nest.loops[:grid_rank]
    )
    root = buffer_root(nest.generic.op.operands[operand])
    return root, nest.offsets[operand], strides, row[0].strides[operand] if row else 0


@dataclass(frozen=True)
class RowProgram:
    """The common length of all rows, and the longest it can be."""

    length: Extent
    longest: int


def match_rows(kernel: DeviceKernel) -> RowProgram | None:
    """Match a row program; short rows need no cooperation of threads."""
    nests, rank = kernel.loop_nests, kernel.grid_rank
    if kernel.scalar_ops is None or (kernel.grid and kernel.inner_size <= SHORT):
        return None
    lengths = {loop.size for nest in nests for loop in along_row(nest, rank)}
    longest = longest_size(next(iter(lengths))) if len(lengths) == 1 else None
    if longest is None or not all(goes_along(nest, rank) for nest in nests):
        return None
    if not accesses_match(nests, kernel.scalar_ops, rank, nests) or _by_columns(nests, rank):
        return None
    return RowProgram(lengths.pop(), longest)


def plan_rows(kernel: DeviceKernel, match: RowProgram) -> RowwisePlan | None:
    """Choose the threads per row; None where a row does not fit in the registers of a block.

    On devices with clusters of blocks, those of a cluster.
    """
    nests, rank = kernel.loop_nests, kernel.grid_rank
    rows, length = kernel.num_points, match.length
    width = row_vector_width(nests, rank, length)
    live_rows = _max_live_rows(nests, rank)
    if (warps := _warp_rows(kernel, length, live_rows)) is not None:
        return warps
    vectors = -(-match.longest // width)
    elements = min(_MAX_ELEMENTS, max(width, _MAX_LIVE_ELEMENTS // max(1, live_rows)))
    large = any(find_ops(nest.generic.op, *_REGISTER_HUNGRY) for nest in nests)
    max_threads = min(kernel.max_threads, MAX_THREADS // 2 if large else MAX_THREADS)
    max_vectors = max(1, elements // width)
    threads = 1
    wide = min(_WIDE, max_threads)
    while (threads < wide and vectors > threads * min(_FEW, max_vectors)) or (
        threads < max_threads and vectors > threads * max_vectors
    ):
        threads *= 2
    stored = last_writes(nests, rank, kernel.results)
    if vectors > threads * max_vectors:
        if not large and (pipelined := _pipelined(kernel, match, width, live_rows)):
            return pipelined
        cluster = _cluster(kernel, vectors, max_vectors)
        if not cluster:
            return None
        threads = cluster * _WIDE
        per_thread = -(-vectors // threads)
        return RowwisePlan(rows, length, width, threads, per_thread, 1, stored, 2, cluster)
    while threads < min(vectors, max_threads) and typical(rows) * threads < BUSY:
        threads *= 2
    rows_per_block = _rows_per_block(rows, threads)
    per_thread = -(-vectors // threads)
    # Two blocks with long rows have enough registers to load all of them at once; more would not.
    in_registers = live_rows * per_thread * width <= _MAX_ELEMENTS
    bound = 2 if threads == _WIDE and per_thread > _FEW and in_registers else 0
    return RowwisePlan(rows, length, width, threads, per_thread, rows_per_block, stored, bound)


def _warp_rows(kernel: DeviceKernel, length: Extent, live_rows: int) -> RowwisePlan | None:
    """A warp per row, without barriers: for many rows of 16-bit floats, of up to 1024 elements.

    A thread has vectors of 16 bytes of the narrowest operand, and no thread is idle.
    """
    nests, rank, rows = kernel.loop_nests, kernel.grid_rank, kernel.num_points
    if not isinstance(length, int) or length > _WARP_LENGTH or typical(rows) * WARP < BUSY:
        return None
    width = row_vector_width(nests, rank, length, narrow=True)
    elements = length // WARP
    if width != ACCESS // 2 or length % (WARP * width) or live_rows * elements > _WARP_ELEMENTS:
        return None
    stored = last_writes(nests, rank, kernel.results)
    return RowwisePlan(
        rows, length, width, WARP, elements // width, _rows_per_block(rows, WARP), stored
    )


def _rows_per_block(rows: Extent, threads: int) -> int:
    count = _BLOCK // threads if threads <= WARP else 1
    while count * threads > WARP and typical(rows) % count:
        count //= 2
    return count


def _pipelined(
    kernel: DeviceKernel, match: RowProgram, width: int, live_rows: int
) -> RowwisePlan | None:
    """A persistent plan that copies the next row while it computes one, for many long rows."""
    if not _has_clusters(kernel):
        return None
    nests, rank = kernel.loop_nests, kernel.grid_rank
    phase = find_phase(nests, rank) if width < VECTOR_WORDS else None
    if phase is not None:
        width = VECTOR_WORDS
    else:  # the copy engine moves vectors of 16 bytes: eight 16-bit floats, if rows are those
        width = max(width, row_vector_width(nests, rank, match.length, narrow=True))
    vectors = -(-match.longest // width) + (0 if phase is None else -(-phase.unit // width))
    candidates = find_row_operands(nests, rank, width)
    # Words need few instructions: a block alone has registers for twice as many.
    alone = [(_ALONE, 1, _MAX_ELEMENTS_ALONE)] if width == VECTOR_WORDS else []
    for cluster, blocks_per_sm, most in (*alone, *((n, 2, _MAX_ELEMENTS) for n in _CLUSTERS)):
        resident = RESIDENT[cluster, blocks_per_sm]
        per_thread = -(-vectors // (cluster * THREADS))
        if typical(kernel.num_points) <= resident or live_rows * per_thread * width > most:
            continue
        slot = RowSlot.of(vectors, cluster * THREADS, width)
        operands: tuple[RowOperand, ...] = ()
        for operand in candidates:
            if slot.stages([*operands, operand], blocks_per_sm):
                operands = (*operands, operand)
        if not operands:
            return None
        stages = slot.stages(operands, blocks_per_sm)
        # Rows that are not aligned need more registers, if threads load some of them.
        needs_more = phase is not None and len(operands) < len(candidates)
        return RowwisePlan(
            kernel.num_points,
            match.length,
            width,
            cluster * THREADS,
            per_thread,
            1,
            last_writes(nests, rank, kernel.results),
            1 if needs_more else blocks_per_sm,
            cluster,
            operands,
            phase,
            slot,
            stages,
            resident,
        )
    return None


def find_phase(nests: Sequence[LoopNest], rank: int) -> Phase | None:
    """The common phase of all rows that differ from point to point, if their elements are words."""
    positions: set[tuple[int, ...]] = set()
    for nest in nests:
        for number, value in enumerate(nest.generic.op.operands):
            if not isinstance(value.type, ir.MemRefType):
                continue
            root, offset, strides, step = row_key(nest, number, rank)
            if is_tile_local(root) or is_number(step, 0) or is_shared_row(strides):
                continue
            if not is_number(step, 1) or element_bytes(value.type.element_type) != 4:
                return None
            place = offset, *strides
            if not is_static_shape(place):
                return None
            positions.add(tuple(map(typical, place)))
    for unit in (_LINE_WORDS, VECTOR_WORDS):
        phases = {tuple(number % unit for number in place) for place in positions}
        if len(phases) == 1:
            first, *others = phases.pop()
            return Phase(unit, first, tuple(others))
    return None


def is_shared_row(strides: Sequence[Extent]) -> bool:
    """Whether a row is the same at every point of the grid."""
    return all(is_number(stride, 0) for stride in strides)


def find_row_operands(nests: Sequence[LoopNest], rank: int, width: int) -> tuple[RowOperand, ...]:
    """The operands that can be copied ahead: rows that the kernel reads before it writes them.

    Rows that are the same at every point of the grid stay in the caches without that.
    """
    operands: list[RowOperand] = []
    accessed: set[Any] = set()
    for nest in nests:
        generic = nest.generic
        arguments = list(generic.block.arguments)
        for number, value in enumerate(generic.op.operands):
            if not isinstance(value.type, ir.MemRefType):
                continue
            root, _, strides, step = row_key(nest, number, rank)
            reads = number < generic.num_inputs and any(True for _ in arguments[number].uses)
            is_first = root not in accessed and not is_tile_local(root)
            accessed.add(root)
            operand = RowOperand(nest, number)
            differs = not is_shared_row(strides)
            if reads and is_first and differs and is_number(step, 1) and operand.can_copy(width):
                operands.append(operand)
    return tuple(operands)


def _has_clusters(kernel: DeviceKernel) -> bool:
    """Whether blocks of a cluster can exchange the values of all reductions."""
    if not kernel.has_clusters:
        return False
    for nest in kernel.loop_nests:
        arguments = list(nest.generic.block.arguments)[nest.generic.num_inputs :]
        reduces = not all(loop.parallel for loop in nest.loops)
        if reduces and not can_exchange([argument.type for argument in arguments]):
            return False
    return True


def _cluster(kernel: DeviceKernel, vectors: int, max_vectors: int) -> int:
    """Blocks of a cluster that together hold a row of so many vectors in registers; 0 for none."""
    if not _has_clusters(kernel):
        return 0
    sizes = (size for size in _CLUSTERS if vectors <= size * _WIDE * max_vectors)
    return next(sizes, 0)


def _by_columns(nests: Sequence[LoopNest], rank: int) -> bool:
    """Whether rows are strided in memory, and adjacent rows are contiguous."""
    return rank > 0 and any(
        abs(typical(row_stride)) > 1 and is_number(column_stride, 1)
        for nest in nests
        for loop in along_row(nest, rank)
        for row_stride, column_stride in zip(
            loop.strides, nest.loops[rank - 1].strides, strict=True
        )
    )


def goes_along(nest: LoopNest, rank: int) -> bool:
    """Whether an op is elementwise, a reduction that can be split, or on scalars of the row."""
    if nest.generic.is_whole or find_ops(nest.generic.op, "scf.for", "scf.while", "scf.if"):
        return False
    row = along_row(nest, rank)
    if len(row) > 1:
        return False
    if not row or row[0].parallel:
        return all(loop.parallel for loop in nest.loops)
    return find_combiners(nest) is not None


def accesses_match(
    nests: Sequence[LoopNest], others: Sequence[Any], rank: int, together: Sequence[LoopNest]
) -> bool:
    """Whether every thread touches only its own elements of the buffers that the kernel writes.

    All threads of a row or column take part in the nests `together`.
    """
    written: dict[Any, Key] = {}
    for nest in nests:
        first = nest.generic.num_inputs
        for operand in range(first, first + nest.generic.num_outputs):
            key = row_key(nest, operand, rank)
            if not _is_same(written.setdefault(key[0], key), key):
                return False
    produced: set[Any] = set()
    for nest in nests:
        first = nest.generic.num_inputs
        for operand, value in enumerate(nest.generic.op.operands):
            if not isinstance(value.type, ir.MemRefType):
                continue
            key = row_key(nest, operand, rank)
            root, *_, stride = key
            if root not in written:
                continue
            if not _is_same(written[root], key):
                return False
            reads = operand < first or nest.generic.uses_output
            if reads and root not in produced and is_number(stride, 0) and nest in together:
                return False  # all threads of the row would read what one of them writes
        produced |= {row_key(nest, first + i, rank)[0] for i in range(nest.generic.num_outputs)}
    bodies = [nest.generic.op for nest in nests]
    loads = [op for body in (*bodies, *others) for op in every_op(body) if op.name == "memref.load"]
    return not any(buffer_root(op.operands[0]) in written for op in loads)


def _is_same(first: Key, second: Key) -> bool:
    """Whether two accesses touch the same elements, for all sizes."""
    numbers = ((key[1], *key[2], key[3]) for key in (first, second))
    return first[0] == second[0] and same_shape(*numbers)


def row_vector_width(
    nests: Sequence[LoopNest], rank: int, length: Extent, *, narrow: bool = False
) -> int:
    """Adjacent elements per thread: as many as one access moves, of the widest or `narrow`est."""
    elements, steps = [], [length]
    for nest in nests:
        row = along_row(nest, rank)
        for operand, value in enumerate(nest.generic.op.operands):
            if not row or not isinstance(value.type, ir.MemRefType):
                continue
            if is_number(row[0].strides[operand], 1):
                elements.append(value.type.element_type)
                _, offset, strides, _ = row_key(nest, operand, rank)
                steps += [offset, *strides]
    width = max((widest([element]) for element in elements), default=1) if narrow else None
    return divides(width or widest(elements), steps)


def _max_live_rows(nests: Sequence[LoopNest], rank: int) -> int:
    """The maximum number of simultaneously live rows of values."""
    spans: dict[Key, tuple[int, int]] = {}
    for time, nest in enumerate(nests):
        for operand, value in enumerate(nest.generic.op.operands):
            key = row_key(nest, operand, rank)
            if isinstance(value.type, ir.MemRefType) and not is_number(key[-1], 0):
                spans[key] = (spans.get(key, (time, time))[0], time)
    return max(
        (sum(a <= time < b for a, b in spans.values()) for time in range(len(nests))), default=0
    )


def last_writes(
    nests: Sequence[LoopNest], rank: int, stored: set[Any]
) -> dict[tuple[Any, int], bool]:
    """Whether output i of an op must be in memory, by (op, i)."""
    last: dict[Any, tuple[Any, int]] = {}
    stored_outputs: dict[tuple[Any, int], bool] = {}
    for nest in nests:
        for i in range(nest.generic.num_outputs):
            root = row_key(nest, nest.generic.num_inputs + i, rank)[0]
            if root in last:
                stored_outputs[last[root]] = False
            last[root] = (nest.generic.op, i)
            stored_outputs[last[root]] = root in stored
    return stored_outputs
