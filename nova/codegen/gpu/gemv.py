"""GEMV, a matmul with one row: the warps of the device stream the rows of a matrix.

Input: a kernel with contractions of a vector with the rows of matrices of one shape, and the
elementwise ops of their epilogue; the prologue may be a norm, which gives the vector in shared
memory. Output: the strategy `GEMV`. A token of a decoder is a list of
GEMVs, and their time is that of reading the matrices: every lane has several loads of 16
bytes in flight, of one or a few rows that share the elements of the vector. They are two batches:
when one is used, the batch after the other is loaded, also that of the next rows. Short rows that
two batches of one size would not cover are one batch. A warp has all
terms of its rows, so their sums need shuffles and no barrier. Matrices that no launch of the
program writes are loaded before the wait for earlier launches, which a dependent launch overlaps
with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.gemv_size import is_gemv_size
from nova.codegen.common.index_math import advance, at, shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.match_contraction import is_multiply_add
from nova.codegen.common.zero_fill import fills_with_zero, same_output
from nova.codegen.gpu.block_ops import (
    WARP,
    ThreadPosition,
    is_equal,
    is_less,
    reduce_warp,
    split,
    when,
)
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.memory import extract, load_vector, widest
from nova.codegen.gpu.pointwise.elementwise import ElementwiseCode
from nova.codegen.gpu.ptx_ops import wait_for_launches
from nova.codegen.gpu.rowwise.prologue import PrologueCode
from nova.codegen.gpu.strategy import Strategy
from nova.ir.bindings import arith, ir, math, scf
from nova.ir.index import index

_MOST_CONTRACTIONS = 4
_WARPS = 8
"""Warps of a block."""
_ROWS = (4, 2, 1)
_PROCESSORS = 132
_BUSY_WARPS = 7 * _PROCESSORS
"""Warps that keep the memory of a large device busy: more rows for each of them do not pay."""
_MOST_PROLOGUES = 2 * _PROCESSORS
"""Blocks of a launch with a prologue: those that a large device runs at once."""
_IN_FLIGHT = 16
"""Loads of 16 bytes of a lane that are in flight, in two batches or one."""


@dataclass(frozen=True)
class Contraction:
    """A vector times the rows of a matrix: the op, and the number of its matrix operand.

    `fill` is the op that sets the results to zero; without it they are added to.
    """

    op: Any
    matrix: int
    fill: Any | None


@dataclass(frozen=True)
class GemvMatch:
    """The contractions of a kernel, all of so many rows of this length."""

    contractions: tuple[Contraction, ...]
    rows: int
    length: int


@dataclass(frozen=True)
class GemvPlan:
    """Rows of a warp, and its loads of 16 bytes that are in flight together for each."""

    match: GemvMatch
    rows_per_warp: int
    width: int
    loads: int
    blocks: int
    is_early: bool = False
    """Whether the first loads of matrices come before the wait for earlier launches."""

    @property
    def groups(self) -> int:
        """Groups of rows that a warp reads together. A warp has every `blocks * _WARPS`th."""
        return -(-self.match.rows // self.rows_per_warp)

    @property
    def threads(self) -> int:
        return WARP * _WARPS

    @property
    def repeats(self) -> bool:
        """Whether a warp has several groups."""
        return self.groups > self.blocks * _WARPS

    @property
    def min_blocks_per_sm(self) -> int:
        """With as many registers as that leaves, the assembler does not delay loads."""
        return 1 if self.repeats and self.batches > 1 else 2

    @property
    def vectors(self) -> int:
        """Loads of a lane for a row."""
        return -(-self.match.length // (WARP * self.width))

    @property
    def batches(self) -> int:
        """Batches of loads of a row."""
        return -(-self.vectors // self.loads)

    @property
    def depth(self) -> int:
        """Batches in flight."""
        return min(2, self.batches)

    @property
    def is_whole(self) -> bool:
        """Whether every vector of every batch is inside of a row."""
        return self.match.length == self.batches * self.loads * WARP * self.width


def match_gemv(kernel: DeviceKernel) -> GemvMatch | None:
    """Match contractions of a vector with the rows of a matrix, and their epilogue."""
    nests, rank, ops = kernel.global_nests, kernel.grid_rank, kernel.ops
    if not kernel.grid or not kernel.is_structured:
        return None
    contractions, sizes = [], set()
    for i, op in enumerate(ops):
        if all(loop.parallel for loop in nests[op].loops):
            if len(nests[op].loops) != rank or _reads_memory(op):
                return None
            continue
        match = _match_nest(nests[op], rank)
        if match is None:
            return None
        matrix, rows, length = match
        before = ops[i - 1] if i else None
        zeroed = before is not None and fills_with_zero(before) and same_output(before, op)
        contractions.append(Contraction(op, matrix, before if zeroed else None))
        sizes.add((rows, length, str(op.operands[matrix].type.element_type)))
    if len(sizes) != 1 or len(contractions) > _MOST_CONTRACTIONS:
        return None
    ((rows, length, _),) = sizes
    return GemvMatch(tuple(contractions), rows, length)


def _match_nest(nest: LoopNest, rank: int) -> tuple[int, int, int] | None:
    """The number of the matrix operand, the rows and their length."""
    generic = nest.generic
    if generic.num_inputs != 2 or generic.num_outputs != 1 or nest.indexed:
        return None
    types = [str(argument.type) for argument in generic.block.arguments]
    if len(nest.loops) != rank + 1 or not is_multiply_add(generic) or types[2] != "f32":
        return None
    if types[0] != types[1] or types[0] not in ("bf16", "f16", "f32"):
        return None
    sizes = [loop.size for loop in nest.loops]
    numbers = [*sizes, *nest.offsets, *(s for loop in nest.loops for s in loop.strides)]
    if not all(isinstance(number, int) for number in numbers):
        return None
    long = [loop for loop in nest.loops[:rank] if loop.size != 1]
    along = nest.loops[rank].strides
    for matrix, vector in ((1, 0), (0, 1)):
        is_vector = all(loop.strides[vector] == 0 for loop in long)
        if is_vector and all(loop.strides[matrix] for loop in long) and along[:2] == (1, 1):
            return matrix, prod(int(loop.size) for loop in long), int(sizes[rank])
    return None


def plan_gemv(kernel: DeviceKernel, match: GemvMatch) -> GemvPlan | None:
    """Choose the rows of a warp; None for small matrices, and rows that are not aligned."""
    steps = [match.length]
    for contraction in match.contractions:
        nest = kernel.global_nests[contraction.op]
        steps += nest.offsets[:2]
        steps += [loop.strides[contraction.matrix] for loop in nest.loops[:-1] if loop.size != 1]
    first = match.contractions[0]
    width = widest([first.op.operands[first.matrix].type.element_type])
    if not is_gemv_size(match.rows, match.length) or any(s % width for s in steps):
        return None
    count = len(match.contractions)
    vectors = -(-match.length // (WARP * width))
    loads = max(1, min(vectors, _IN_FLIGHT // 2 // count))
    rows = next(
        rows
        for rows in _ROWS
        if rows == 1
        or (match.rows * count >= rows * _BUSY_WARPS and rows * loads * count <= _IN_FLIGHT)
    )
    loads = _batch_size(vectors, _IN_FLIGHT // 2 // (rows * count))
    groups, is_held = -(-match.rows // rows), rows * count * vectors <= _IN_FLIGHT
    if 2 * loads < vectors and is_held and groups <= _MOST_PROLOGUES * _WARPS:
        loads = vectors  # in one batch: no load of a matrix comes after the wait
    is_early = kernel.target.has_clusters and all(
        kernel.is_unwritten(contraction.op.operands[contraction.matrix])
        for contraction in match.contractions
    )
    blocks = -(-match.rows // (rows * _WARPS))
    if loads < vectors:
        blocks = min(blocks, _PROCESSORS)  # each warp always has the next batch in flight
    elif kernel.prologue:
        blocks = min(blocks, _MOST_PROLOGUES)
    return GemvPlan(match, rows, width, loads, blocks, is_early)


def _batch_size(vectors: int, most: int) -> int:
    """Vectors of a batch, so that a row has two or more; a divisor, where that is not far less."""
    size = max(1, min(-(-vectors // 2), most))
    return next(n for n in range(size, 0, -1) if vectors % n == 0 or 2 * n <= size)


@dataclass(frozen=True)
class _Stream:
    """A row of a matrix that a warp reads, and the vector it is multiplied with."""

    matrix: Any
    row: Any
    vector: Any
    start: Any


_Batch = list[Any]
"""Vectors of the rows of a warp that are in flight together: of each offset, those of all rows."""


class _GemvCode:
    """The code of a lane."""

    def __init__(
        self,
        kernel: DeviceKernel,
        plan: GemvPlan,
        position: ThreadPosition,
        buffers: Mapping[Any, Sequence[Any]],
    ):
        self.kernel = kernel
        self.plan = plan
        self.buffers = buffers
        self.lane = position.lane()
        self.warp = arith.addi(arith.muli(position.block, index(_WARPS)), position.warp())
        self._go_to(self.warp)

    def at_group(self, group: Any) -> _GemvCode:
        """The code of the same lane for the rows of another group."""
        code = copy(self)
        code._go_to(group)
        return code

    def _go_to(self, group: Any) -> None:
        plan = self.plan
        self.first = arith.muli(group, index(plan.rows_per_warp))
        last = index(plan.match.rows - 1)
        rows = [arith.minui(self.row(index(i)), last) for i in range(plan.rows_per_warp)]
        self.streams = [self._stream(c, row) for c in plan.match.contractions for row in rows]

    def row(self, number: Any) -> Any:
        """A row of the warp."""
        return arith.addi(self.first, number)

    def load_batch(self, batch: Any) -> _Batch:
        """Load a batch of the rows of the group: its vectors are in flight together."""
        return [
            self._load(stream.matrix, stream.row, offset)
            for offset in self._offsets(batch)
            for stream in self.streams
        ]

    def load_if(self, condition: Any, batch: Any) -> _Batch:
        """Load a batch if a condition holds that is the same for all lanes; else zeros."""
        count = self.plan.loads * len(self.streams)
        stream = self.streams[0]
        type_ = ir.VectorType.get([self.plan.width], stream.matrix.type.element_type)
        choice = scf.IfOp(condition, [type_] * count, has_else=True)
        with ir.InsertionPoint(choice.then_block):
            scf.YieldOp(self.load_batch(batch))
        with ir.InsertionPoint(choice.else_block):
            scf.YieldOp([_zeros(type_)] * count)
        return list(choice.results)

    def add_batch(self, batch: Any, rows: _Batch, sums: list[Any]) -> list[Any]:
        """Multiply the loaded vectors of rows by those of the operand, and add to the sums."""
        plan, count = self.plan, len(self.streams)
        operands = []
        for offset in self._offsets(batch):
            loaded = {
                s.vector: self._load(s.vector, s.start, offset)
                for s in self.streams[:: plan.rows_per_warp]
            }
            operands.append([loaded[s.vector] for s in self.streams])
        for number, of_rows in enumerate(operands):
            terms = zip(sums, rows[number * count : (number + 1) * count], of_rows, strict=True)
            sums = [self._dot(*each) for each in terms]
        return sums

    def group_sums(self, queue: list[_Batch], following: Any | None) -> list[list[Any]]:
        """The sums of the rows of the group, in each lane, by contraction.

        `queue` has its first batches, which are in flight. A batch is loaded after one is used, and
        the last ones are those of the group of `following`, if the warp has one: memory stays busy.
        """
        plan = self.plan
        sums = [splat(ir.F32Type.get(), 0)] * len(self.streams)
        steady = plan.batches - plan.depth
        if steady > 0:
            flat = [value for batch in queue for value in batch]
            loop = scf.ForOp(index(0), index(steady), index(1), [*sums, *flat])
            with ir.InsertionPoint(loop.body):
                sums, flat = _split_at(list(loop.inner_iter_args), len(sums))
                number, size = loop.induction_variable, len(flat) // plan.depth
                sums = self.add_batch(number, flat[:size], sums)
                later = self.load_batch(arith.addi(number, index(plan.depth)))
                scf.YieldOp([*sums, *flat[size:], *later])
            sums, flat = _split_at(list(loop.results), len(sums))
            queue[:] = [flat[i : i + size] for i in range(0, len(flat), size)]
        after = None if following is None else self.at_group(following)
        for number in range(plan.depth):
            sums = self.add_batch(index(max(steady, 0) + number), queue.pop(0), sums)
            if after is not None:
                exists = is_less(following, index(plan.groups))
                queue.append(after.load_if(exists, index(number)))
        sums = reduce_warp(sums, arith.addf)
        count = plan.rows_per_warp
        return [sums[i : i + count] for i in range(0, len(sums), count)]

    def _offsets(self, batch: Any) -> list[Any]:
        """The positions in a row of this lane's vectors of a batch."""
        plan = self.plan
        start = arith.muli(batch, index(plan.loads * WARP * plan.width))
        first = arith.addi(start, arith.muli(self.lane, index(plan.width)))
        return [shifted(first, i * WARP * plan.width) for i in range(plan.loads)]

    def _stream(self, contraction: Contraction, row: Any) -> _Stream:
        nest = self.kernel.nests[contraction.op]
        bases: list[Any] = [index(offset) for offset in nest.offsets]
        for counter, loop in zip(split(row, list(self.kernel.grid)), nest.loops, strict=False):
            bases = advance(bases, counter, loop)
        buffers, matrix = self.buffers[contraction.op], contraction.matrix
        vector = 1 - matrix
        return _Stream(buffers[matrix], bases[matrix], buffers[vector], bases[vector])

    def _dot(self, total: Any, row: Any, operand: Any) -> Any:
        for k in range(self.plan.width):
            total = math.fma(_extend(extract(row, k)), _extend(extract(operand, k)), total)
        return total

    def _load(self, buffer: Any, base: Any, offset: Any) -> Any:
        """A vector of a row; zeros after its end."""
        position = arith.addi(at(base), offset)
        if self.plan.is_whole:
            return load_vector(buffer, position, self.plan.width)
        type_ = ir.VectorType.get([self.plan.width], buffer.type.element_type)
        inside = is_less(offset, index(self.plan.match.length))
        guarded = scf.IfOp(inside, [type_], has_else=True)
        with ir.InsertionPoint(guarded.then_block):
            scf.YieldOp([load_vector(buffer, position, self.plan.width)])
        with ir.InsertionPoint(guarded.else_block):
            scf.YieldOp([_zeros(type_)])
        return guarded.results[0]


def _zeros(type_: Any) -> Any:
    zero = ir.FloatAttr.get(type_.element_type, 0.0)
    return arith.constant(type_, ir.DenseElementsAttr.get_splat(type_, zero))


def _split_at(values: list[Any], count: int) -> tuple[list[Any], list[Any]]:
    return values[:count], values[count:]


def _extend(value: Any) -> Any:
    f32 = ir.F32Type.get()
    return value if value.type == f32 else arith.extf(f32, value)


def emit_gemv(kernel: DeviceKernel, plan: GemvPlan, position: ThreadPosition) -> None:
    """Emit the sums of the rows of a warp; then a lane for each row runs the epilogue."""
    flat = kernel.flat_buffers()
    buffers = {op: [flat(v) for v in op.operands] for op in kernel.ops}
    prologue = PrologueCode(kernel, position, flat)
    code = _GemvCode(kernel, plan, position, buffers)
    queue = [code.load_batch(index(number)) for number in range(plan.depth)]
    if plan.is_early:
        prologue.load_early()
        wait_for_launches()
    prologue.emit()
    if not plan.repeats:
        _emit_group(code, queue, None)
        return
    warps = plan.blocks * _WARPS
    carried = [value for batch in queue for value in batch]
    loop = scf.ForOp(code.warp, index(plan.groups), index(warps), carried)
    with ir.InsertionPoint(loop.body):
        values, group = list(loop.inner_iter_args), loop.induction_variable
        size = len(values) // plan.depth
        queue = [values[i : i + size] for i in range(0, len(values), size)]
        _emit_group(code.at_group(group), queue, arith.addi(group, index(warps)))
        scf.YieldOp([value for batch in queue for value in batch])


def _emit_group(code: _GemvCode, queue: list[_Batch], following: Any | None) -> None:
    """Emit a group of rows: the sums, and the epilogue, whose operands are loaded before them."""
    kernel, plan, buffers = code.kernel, code.plan, code.buffers
    match = plan.match
    epilogue = ElementwiseCode(kernel.grid_rank, None)
    contracted = {c.op for c in match.contractions} | {c.fill for c in match.contractions}
    written = {b for op in kernel.ops for b in buffers[op][kernel.nests[op].generic.num_inputs :]}
    nearest = arith.minui(code.row(code.lane), index(match.rows - 1))
    for op in kernel.ops:
        if op not in contracted:
            counters = split(nearest, list(kernel.grid))
            epilogue.preload(kernel.nests[op], buffers[op], counters, written)
    totals = {}
    for contraction, sums in zip(
        match.contractions, code.group_sums(queue, following), strict=True
    ):
        total = sums[0]
        for number, value in enumerate(sums[1:], 1):
            total = arith.select(is_equal(code.lane, index(number)), value, total)
        totals[contraction.op] = total, contraction.fill is None
    fills = [c.fill for c in match.contractions if c.fill is not None]
    row = code.row(code.lane)
    stores = is_less(code.lane, index(plan.rows_per_warp))
    with when(arith.andi(stores, is_less(row, index(match.rows)))):
        counters = split(row, list(kernel.grid))
        for op in kernel.ops:
            if op in fills:
                continue
            with op.location:
                nest = kernel.nests[op]
                if op in totals:
                    total, adds = totals[op]
                    epilogue.store_results(nest, buffers[op], counters, [total], adds=adds)
                else:
                    epilogue.emit(nest, buffers[op], counters, {})


GEMV = Strategy("gemv", match_gemv, plan_gemv, emit_gemv)


def _reads_memory(op: Any) -> bool:
    """Whether the body reads memory at computed positions."""
    block = op.regions[0].blocks[0]
    return any(inner.operation.name == "memref.load" for inner in block.operations)
