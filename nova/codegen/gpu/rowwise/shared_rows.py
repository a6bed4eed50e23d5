"""Row programs whose rows are in shared memory: a block has a row, and reads it for each op.

Input: a kernel of many rows that are longer than the registers of a block, whose operands fit into
its shared memory (the scores of a vocabulary). Output: the strategy `SHARED_ROWS`, which
`schedule.py` tries before `ROWWISE`. Each warp copies a piece of the row (`pieces.py`), and waits
for other warps only where the row is reduced. A row of intermediate values takes the place of an
operand that no later op reads, or its readers compute it again. Blocks are not persistent: the
device starts a block wherever one has ended, which balances multiprocessors of different speed
better than copies ahead hide latency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import at, shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import WARP, SharedMemory, ThreadPosition, is_less, when
from nova.codegen.gpu.device_kernel import DeviceKernel, is_tile_local
from nova.codegen.gpu.pointwise.elementwise import grouped
from nova.codegen.gpu.rowwise.code import PartialGuard, RowwiseCode, Values, is_total
from nova.codegen.gpu.rowwise.pieces import PieceCopies, Pieces, row_bytes
from nova.codegen.gpu.rowwise.pipeline import RowOperand
from nova.codegen.gpu.rowwise.plan import (
    MULTIPROCESSORS,
    VECTOR_WORDS,
    Key,
    RowProgram,
    RowwisePlan,
    along_row,
    find_phase,
    find_row_operands,
    is_shared_row,
    last_writes,
    match_rows,
    row_key,
    row_vector_width,
)
from nova.codegen.gpu.strategy import Strategy
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import add, index, sub
from nova.ir.symbolic.size_table import Extent, is_number, typical
from nova.ir.walk import every_op, find_ops

_REGISTER_ELEMENTS = 32 * 1024
"""Rows up to this length fit into the registers of a block."""
_THREADS = 512
_BLOCKS = ((2, 108 << 10), (1, 224 << 10))
"""Blocks of a multiprocessor, and the bytes of shared memory of each for rows."""
_COSTLY_OPS = ("math.exp", "math.log", "math.tanh", "math.erf", "math.powf", "arith.divf")
_UNROLLED_ELEMENTS = 24
"""Elements of a thread in an iteration of a loop over chunks."""
_MOST_OPS = 8
"""Ops of an intermediate value that each reader computes again."""


_NO_PIECES = Pieces(0, 1, 1)


@dataclass(frozen=True)
class SharedRowsPlan(RowwisePlan):
    """A block per row; `pieces` are those of its warps."""

    copied: tuple[RowOperand, ...] = ()
    """Operands whose rows are copied to shared memory."""
    pieces: Pieces = _NO_PIECES
    kept: tuple[tuple[Any, int], ...] = ()
    """Ops whose result is kept in shared memory, and the number of the operand in whose place."""


def plan_shared_rows(kernel: DeviceKernel, match: RowProgram) -> SharedRowsPlan | None:
    """The plan of many long rows on a device with a copy engine; None for others."""
    length, rows = match.length, kernel.num_points
    if not kernel.has_clusters or not isinstance(length, int) or length <= _REGISTER_ELEMENTS:
        return None
    nests, rank = kernel.loop_nests, kernel.grid_rank
    width = row_vector_width(nests, rank, length)
    phase = find_phase(nests, rank) if width < VECTOR_WORDS else None
    if phase is not None:
        width = VECTOR_WORDS
    else:
        width = max(width, row_vector_width(nests, rank, length, narrow=True))
    operands = find_row_operands(nests, rank, width)
    stored = last_writes(nests, rank, kernel.results)
    if not _can_recompute(nests, rank, stored, {row_key(o.nest, o.number, rank) for o in operands}):
        return None
    pieces = Pieces.of(length, 1 if phase is None else phase.unit, _THREADS // WARP, width)
    for blocks, most in _BLOCKS:
        is_full = typical(rows) > MULTIPROCESSORS * blocks
        if not operands or not is_full or row_bytes(operands, pieces) > most:
            continue
        return SharedRowsPlan(
            rows,
            length,
            width,
            _THREADS,
            pieces.chunks,
            1,
            stored,
            blocks,
            phase=phase,
            copied=operands,
            pieces=pieces,
            kept=_find_kept(nests, rank, operands, stored),
        )
    return None


def _can_recompute(
    nests: Sequence[LoopNest],
    rank: int,
    stored: Mapping[tuple[Any, int], bool],
    copied: set[Key],
) -> bool:
    """Whether all rows that ops read are copied, shared by all rows, or cheap to compute again."""
    available, results = set(copied), set()
    for nest in nests:
        generic = nest.generic
        first = generic.num_inputs
        for number, value in enumerate(generic.op.operands):
            if not isinstance(value.type, ir.MemRefType):
                continue
            key = row_key(nest, number, rank)
            if is_number(key[-1], 0) or (number >= first and not generic.uses_output):
                continue
            is_constant = is_shared_row(key[2]) and not is_tile_local(key[0])
            if key in results or not (key in available or is_constant):
                return False
        row = along_row(nest, rank)
        if not row or not row[0].parallel:
            continue
        if generic.uses_output:
            return False
        for i in range(generic.num_outputs):
            key = row_key(nest, first + i, rank)
            if stored[generic.op, i]:
                results.add(key)
            elif generic.num_outputs > 1 or not is_total(nest) or _count_ops(nest) > _MOST_OPS:
                return False
            else:
                available.add(key)
    return True


def _find_kept(
    nests: Sequence[LoopNest],
    rank: int,
    operands: Sequence[RowOperand],
    stored: Mapping[tuple[Any, int], bool],
) -> tuple[tuple[Any, int], ...]:
    """Ops whose result fits into the place of an operand that later ops do not read."""
    last = {row_key(nest, i, rank): time for time, nest in enumerate(nests) for i in _reads(nest)}
    free = dict(enumerate(operands))
    kept = []
    for time, nest in enumerate(nests):
        generic = nest.generic
        row = along_row(nest, rank)
        if not row or not row[0].parallel or stored[generic.op, 0]:
            continue
        if not find_ops(generic.op, *_COSTLY_OPS):
            continue
        element = generic.block.arguments[generic.num_inputs].type
        for number, operand in free.items():
            is_dead = last[row_key(operand.nest, operand.number, rank)] <= time
            if is_dead and operand.type == element:
                kept.append((generic.op, number))
                del free[number]
                break
    return tuple(kept)


def _reads(nest: LoopNest) -> list[int]:
    """The inputs of an op that are buffers."""
    values = enumerate(nest.generic.inputs)
    return [number for number, value in values if isinstance(value.type, ir.MemRefType)]


def _count_ops(nest: LoopNest) -> int:
    return sum(1 for _ in every_op(nest.generic.op)) - 2


RowValues = Callable[[int], list[Any]]
"""A thread's elements of a row in a chunk."""


class LazyValues(Sequence[Any]):
    """Values whose code is emitted at each access."""

    def __init__(self, size: int, make: Callable[[int], Any]):
        self.size, self.make = size, make

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: Any) -> Any:
        if number >= self.size:
            raise IndexError(number)
        return self.make(number)


class SharedRowsCode(RowwiseCode):
    """Emits the code of a thread for the row of its block."""

    plan: SharedRowsPlan

    def __init__(
        self,
        plan: SharedRowsPlan,
        position: ThreadPosition,
        grid: Sequence[Extent],
        shared: SharedMemory,
    ):
        length = int(plan.length)
        self.copies = PieceCopies(plan.copied, shared, position, plan.pieces, length)
        self.rows: dict[Key, RowValues] = {}
        super().__init__(plan, position, grid, shared)

    def copy_row(self, buffers: Sequence[list[Any]]) -> None:
        """Copy the row to shared memory; `buffers` are those of the plan's operands."""
        plan = self.plan
        self.operands = [
            Elements(operand.nest, flat, {})
            for operand, flat in zip(plan.copied, buffers, strict=True)
        ]
        self._copy_pieces()
        for number, elements in enumerate(self.operands):
            key = row_key(elements.nest, plan.copied[number].number, self.grid_rank)
            self.rows[key] = self._copied_row(number, elements)
        self.copies.wait(elements=plan.phase is not None)

    def _copied_row(self, number: int, elements: Elements) -> RowValues:
        operand = self.plan.copied[number].number
        return lambda chunk: [
            elements.unpacked(operand, value) for value in self.copies.load(number, chunk)
        ]

    def _copy_pieces(self) -> None:
        """Start the copies of a warp's piece: vectors in bulk, and elements of a vector cut."""
        plan = self.plan
        shift = 0 if self.shift is None else self.shift
        first = index(sub(self.copies.first, shift))
        sources = [
            (
                elements.buffers[operand.number],
                at(self._at(elements.nest, first)[0][operand.number]),
            )
            for operand, elements in zip(plan.copied, self.operands, strict=True)
        ]
        self.copies.copy(add(shift, plan.length), sources)
        if plan.phase is None:
            return
        for number, elements in enumerate(self.operands):
            operand = plan.copied[number].number
            for chunk, guard in enumerate(self.guards):
                if isinstance(guard, PartialGuard) and not self._is_inside_row(chunk):
                    where, _ = self._at(elements.nest, self.starts[chunk])
                    self._copy_cut(number, elements, where[operand], chunk, guard)

    def _copy_cut(
        self, number: int, elements: Elements, base: Any, chunk: int, guard: PartialGuard
    ) -> None:
        """Copy the elements of a vector at the end of the row, which has not all of them."""
        cut = arith.xori(guard.full, splat(guard.full.type, 1))
        with when(arith.andi(cut, guard.elements[0])):
            for k, inside in enumerate(guard.elements):
                with when(inside):
                    self.copies.copy_element(number, elements, base, chunk, k)

    # --- values -----------------------------------------------------------------------------------

    def _map_chunks(self, elements: Elements) -> None:
        """Compute a row that is a result; that of others is computed where it is read."""
        if not self.plan.stored[elements.generic.op, 0]:
            self._defer(elements)
            return

        def store(chunk: int, _: Values) -> Values:
            self._elementwise(elements, chunk)
            return []

        self._load_scalars(elements)
        self._fold_chunks(store, [])

    def _reduction(self, elements: Elements) -> None:
        self._load_scalars(elements)
        super()._reduction(elements)

    def _defer(self, elements: Elements) -> None:
        """Let later ops compute a row, or keep it in the place of an operand."""
        generic, kept = elements.generic, dict(self.plan.kept)
        inputs = [self._values(elements, operand) for operand in range(generic.num_inputs)]

        def compute(chunk: int) -> list[Any]:
            _, ivs = self._at(elements.nest, self.starts[chunk])
            values = [each and each(chunk) for each in inputs]
            return [
                elements.apply([v and v[k] for v in values], self._moved(elements.nest, ivs, k))[0]
                for k in range(self.plan.vector_width)
            ]

        key = row_key(elements.nest, generic.num_inputs, self.grid_rank)
        self.rows[key] = compute
        if generic.op not in kept:
            return
        number = kept[generic.op]

        def keep(chunk: int, _: Values) -> Values:
            self.copies.store(number, chunk, compute(chunk))
            return []

        self._fold_chunks(keep, [])
        self.rows[key] = partial(self.copies.load, number)

    def _fold_chunks(self, step: Callable[[int, Values], Values], totals: Values) -> Values:
        """A loop over the chunks that all warps have: registers for a few of them suffice."""
        count = self.plan.vectors_per_thread
        inner = [chunk for chunk in range(count) if self._is_inner(chunk)]
        step_size = max(1, _UNROLLED_ELEMENTS // self.plan.vector_width)
        first = inner[0] if len(inner) > step_size else count
        last = first + len(inner) // step_size * step_size if first < count else count
        for chunk in range(first):
            totals = step(chunk, totals)
        if first < last:
            totals = self._loop(step, totals, range(first, last, step_size))
        for chunk in range(last, count):
            totals = step(chunk, totals)
        return totals

    def _loop(self, step: Callable[[int, Values], Values], totals: Values, chunks: range) -> Values:
        distance = WARP * self.plan.vector_width
        bounds = (0, len(chunks) * chunks.step * distance, chunks.step * distance)
        loop = scf.ForOp(*map(index, bounds), [value for values in totals for value in values])
        own = self.copies.own
        with ir.InsertionPoint(loop.body):
            self.copies.own = arith.addi(own, loop.induction_variable)
            inside = grouped(list(loop.inner_iter_args), self.plan.vector_width)
            for chunk in range(chunks.start, chunks.start + chunks.step):
                inside = step(chunk, inside)
            scf.YieldOp([value for values in inside for value in values])
        self.copies.own = own
        return grouped(list(loop.results), self.plan.vector_width)

    def _values(self, elements: Elements, operand: int) -> RowValues | None:
        """An input of an op as it is at this point; None for one that the op does not use."""
        if not any(True for _ in elements.generic.block.arguments[operand].uses):
            return None
        key = row_key(elements.nest, operand, self.grid_rank)
        if key in self.rows:
            return self.rows[key]
        where, _ = self._at(elements.nest, None)
        if not is_number(key[-1], 0):
            return lambda chunk: self._load_shared(elements, operand, chunk)
        values = self._load(elements, operand, where[operand], None) * self.plan.vector_width
        return lambda chunk: values

    def _load_shared(self, elements: Elements, operand: int, chunk: int) -> list[Any]:
        """A thread's elements of a row that is the same at every point of the grid."""
        where, _ = self._at(elements.nest, self.starts[chunk])
        return self._fetch(elements, operand, where[operand], chunk)

    def _load(self, elements: Elements, operand: int, base: Any, chunk: int | None) -> list[Any]:
        key = row_key(elements.nest, operand, self.grid_rank)
        is_buffer = isinstance(elements.buffers[operand].type, ir.MemRefType)
        if chunk is None or not is_buffer or is_number(key[-1], 0):
            return super()._load(elements, operand, base, chunk)
        if key in self.rows:
            return self.rows[key](chunk)
        return self._fetch(elements, operand, base, chunk)

    # --- positions --------------------------------------------------------------------------------

    def _place_chunks(self) -> None:
        # Emitted where they are used: a device has few registers for positions and conditions.
        count = self.plan.vectors_per_thread
        self.starts = LazyValues(count, self._start)
        self.guards = LazyValues(count, lambda i: self._guard(i, self._start(i)))

    def _is_inner(self, chunk: int) -> bool:
        """Whether all threads have all elements of a chunk."""
        is_inside = self._is_inside_row(chunk) and self.plan.pieces.is_inside_pieces(chunk)
        return is_inside and (chunk > 0 or self.plan.phase is None)

    def _start(self, chunk: int) -> Any:
        first = shifted(self.copies.own, chunk * WARP * self.plan.vector_width)
        return first if self.shift is None else arith.subi(first, self.shift)

    def _is_inside_row(self, chunk: int) -> bool:
        return self.plan.pieces.is_inside_row(chunk, int(self.plan.length))

    def _guard(self, chunk: int, start: Any) -> Any:
        pieces = self.plan.pieces
        inside = None if pieces.is_inside_pieces(chunk) else self.copies.is_in_piece(chunk)
        if self._is_inside_row(chunk) and (chunk or self.shift is None):
            if inside is None or self.shift is None:
                return inside
            return PartialGuard(inside, [inside] * pieces.width)
        if self.shift is None:
            in_row = is_less(start, index(self.plan.length))
            return in_row if inside is None else arith.andi(in_row, inside)
        cut = self._cut(start)
        if inside is None:
            return cut
        return PartialGuard(
            arith.andi(cut.full, inside), [arith.andi(each, inside) for each in cut.elements]
        )


def emit_shared_rows(kernel: DeviceKernel, plan: SharedRowsPlan, position: ThreadPosition) -> None:
    """Emit all ops for the part of a row of one thread."""
    flat = kernel.flat_buffers(lambda value: value)
    code = SharedRowsCode(plan, position, kernel.grid, kernel.shared)
    code.reserve(kernel.loop_nests)
    code.copy_row([[flat(v) for v in o.nest.generic.op.operands] for o in plan.copied])
    mapping: dict[Any, Any] = {}
    for op in kernel.ops:
        kernel.emit_op(op, flat, mapping, lambda nest, buffers: code.emit(nest, buffers, mapping))


SHARED_ROWS = Strategy("shared_rows", match_rows, plan_shared_rows, emit_shared_rows)
