"""Matrix-vector products (GEMV): the warps of the device stream the rows of a matrix.

Input: a kernel with one contraction of a vector with the rows of a matrix, and the elementwise ops
of its epilogue. Output: the strategy `GEMV`. A token of a decoder is a list of such products, and
their time is that of reading the matrices: every lane has several loads of 16 bytes in flight, of
one or a few rows that share the elements of the vector. A warp has all terms of its rows, so their
sums need shuffles and no barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.builder import splat
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
from nova.codegen.gpu.elementwise import ElementwiseCode
from nova.codegen.gpu.memory import load_run, widest
from nova.codegen.gpu.strategy import Strategy
from nova.ir.bindings import arith, ir, math, scf
from nova.ir.index import index

_FEWEST_ROWS, _SHORTEST = 128, 128
"""Smaller matrices are read as fast by one block."""
_WARPS = 4
"""Warps of a block."""
_ROWS = (4, 2, 1)
_BUSY_WARPS = 132 * 8
"""Warps that keep the memory of a large device busy: more rows for each of them do not pay."""
_IN_FLIGHT = 16
"""Loads of 16 bytes of a lane that are issued before the first is used."""


@dataclass(frozen=True)
class GemvMatch:
    """The contraction of a kernel: the operands, and the length of the rows.

    `fill` is the op that sets the results to zero; without it they are added to.
    """

    op: Any
    matrix: int
    length: int
    rows: int
    fill: Any | None


@dataclass(frozen=True)
class GemvPlan:
    """Rows of a warp, and its loads of 16 bytes that are in flight together for each."""

    match: GemvMatch
    rows_per_warp: int
    width: int
    loads: int

    @property
    def blocks(self) -> int:
        return -(-self.match.rows // (self.rows_per_warp * _WARPS))

    @property
    def threads(self) -> int:
        return WARP * _WARPS

    @property
    def min_blocks_per_sm(self) -> int:
        return 0

    @property
    def vectors(self) -> int:
        """Loads of a lane for a row."""
        return -(-self.match.length // (WARP * self.width))


def match_gemv(kernel: DeviceKernel) -> GemvMatch | None:
    """Match one contraction of a vector with the rows of a matrix, and its epilogue."""
    nests, rank = kernel.global_nests, kernel.grid_rank
    if not kernel.grid or not kernel.is_structured:
        return None
    reductions = [op for op in kernel.ops if not all(loop.parallel for loop in nests[op].loops)]
    if len(reductions) != 1:
        return None
    (op,) = reductions
    if any(len(nests[e].loops) != rank or _reads_memory(e) for e in kernel.ops if e != op):
        return None
    before = kernel.ops[kernel.ops.index(op) - 1] if kernel.ops[0] != op else None
    zeroed = before is not None and fills_with_zero(before) and same_output(before, op)
    return _match_nest(nests[op], rank, before if zeroed else None)


def _match_nest(nest: LoopNest, rank: int, fill: Any) -> GemvMatch | None:
    generic = nest.generic
    if generic.num_inputs != 2 or generic.num_outputs != 1 or nest.indexed:
        return None
    types = [str(argument.type) for argument in generic.block.arguments]
    sizes = [loop.size for loop in nest.loops]
    if len(nest.loops) != rank + 1 or not is_multiply_add(generic) or types[2] != "f32":
        return None
    if types[0] != types[1] or types[0] not in ("bf16", "f16", "f32"):
        return None
    numbers = [*sizes, *nest.offsets, *(s for loop in nest.loops for s in loop.strides)]
    if not all(isinstance(number, int) for number in numbers):
        return None
    long = [loop for loop in nest.loops[:rank] if loop.size != 1]
    rows, length = 1, int(sizes[rank])
    for loop in long:
        rows *= int(loop.size)
    along = nest.loops[rank].strides
    for matrix, vector in ((1, 0), (0, 1)):
        is_vector = all(loop.strides[vector] == 0 for loop in long)
        if is_vector and all(loop.strides[matrix] for loop in long) and along[:2] == (1, 1):
            return GemvMatch(generic.op, matrix, length, rows, fill)
    return None


def plan_gemv(kernel: DeviceKernel, match: GemvMatch) -> GemvPlan | None:
    """Choose the rows of a warp; None for small matrices, and rows that are not aligned."""
    nest = kernel.global_nests[match.op]
    element = match.op.operands[match.matrix].type.element_type
    width = widest([element])
    steps = [*nest.offsets[:2], match.length]
    steps += [loop.strides[match.matrix] for loop in nest.loops[:-1] if loop.size != 1]
    if match.rows < _FEWEST_ROWS or match.length < _SHORTEST or any(s % width for s in steps):
        return None
    vectors = -(-match.length // (WARP * width))
    loads = min(vectors, _IN_FLIGHT // 2)
    rows = next(
        rows
        for rows in _ROWS
        if rows == 1 or (match.rows >= rows * _BUSY_WARPS and rows * loads <= _IN_FLIGHT)
    )
    return GemvPlan(match, rows, width, loads)


class _GemvCode:
    """The code of a lane."""

    def __init__(
        self, kernel: DeviceKernel, plan: GemvPlan, position: ThreadPosition, buffers: Sequence[Any]
    ):
        self.kernel = kernel
        self.plan = plan
        self.buffers = buffers
        self.nest = kernel.nests[plan.match.op]
        self.lane = position.lane()
        warp = arith.addi(arith.muli(position.block, index(_WARPS)), position.warp())
        self.first = arith.muli(warp, index(plan.rows_per_warp))

    def row(self, number: Any) -> Any:
        """A row of the warp."""
        return arith.addi(self.first, number)

    def totals(self) -> list[Any]:
        """The sums of the rows of the warp, in each lane."""
        plan = self.plan
        last = index(plan.match.rows - 1)
        rows = [arith.minui(self.row(index(i)), last) for i in range(plan.rows_per_warp)]
        bases = [self._bases(row) for row in rows]
        zero = splat(ir.F32Type.get(), 0)
        sums = [zero] * plan.rows_per_warp
        batches, remaining = divmod(plan.vectors, plan.loads)
        step = WARP * plan.width
        if batches > 1:
            loop = scf.ForOp(index(0), index(batches), index(1), sums)
            with ir.InsertionPoint(loop.body):
                start = arith.muli(loop.induction_variable, index(plan.loads * step))
                held = list(loop.inner_iter_args)
                scf.YieldOp(self._batch(bases, start, plan.loads, held, batches * plan.loads))
            sums = list(loop.results)
        elif batches:
            sums = self._batch(bases, index(0), plan.loads, sums, plan.loads)
        if remaining:
            start = index(batches * plan.loads * step)
            sums = self._batch(bases, start, remaining, sums, plan.vectors)
        return reduce_warp(sums, arith.addf)

    def _bases(self, row: Any) -> list[Any]:
        """The positions of the operands at a row."""
        bases: list[Any] = [index(offset) for offset in self.nest.offsets]
        counters = split(row, list(self.kernel.grid))
        for counter, loop in zip(counters, self.nest.loops, strict=False):
            bases = advance(bases, counter, loop)
        return bases

    def _batch(
        self, bases: Sequence[Any], start: Any, count: int, sums: list[Any], end: int
    ) -> list[Any]:
        """Add some vectors of each row; those before `end` of all rows are complete but the last.

        All loads come first: they are in flight together.
        """
        plan, matrix = self.plan, self.plan.match.matrix
        first = arith.addi(start, arith.muli(self.lane, index(plan.width)))
        offsets = [shifted(first, i * WARP * plan.width) for i in range(count)]
        ragged = plan.match.length % (WARP * plan.width) and end == plan.vectors
        rows = [
            [self._load(base[matrix], matrix, at_, ragged and i == count - 1) for base in bases]
            for i, at_ in enumerate(offsets)
        ]
        vectors = [
            self._load(bases[0][1 - matrix], 1 - matrix, at_, ragged and i == count - 1)
            for i, at_ in enumerate(offsets)
        ]
        for elements, of_rows in zip(vectors, rows, strict=True):
            wide = [self._extend(x) for x in elements]
            sums = [self._dot(total, row, wide) for total, row in zip(sums, of_rows, strict=True)]
        return sums

    def _dot(self, total: Any, row: Sequence[Any], wide: Sequence[Any]) -> Any:
        for element, x in zip(row, wide, strict=True):
            total = math.fma(self._extend(element), x, total)
        return total

    def _extend(self, value: Any) -> Any:
        f32 = ir.F32Type.get()
        return value if value.type == f32 else arith.extf(f32, value)

    def _load(self, base: Any, operand: int, offset: Any, ragged: bool) -> list[Any]:
        """A vector of an operand; zeros after the end of the row."""
        buffer, width = self.buffers[operand], self.plan.width
        position = arith.addi(at(base), offset)
        if not ragged:
            return load_run(buffer, position, width, 1, True)
        element = buffer.type.element_type
        inside = is_less(offset, index(self.plan.match.length))
        guarded = scf.IfOp(inside, [element] * width, has_else=True)
        with ir.InsertionPoint(guarded.then_block):
            scf.YieldOp(load_run(buffer, position, width, 1, True))
        with ir.InsertionPoint(guarded.else_block):
            scf.YieldOp([splat(element, 0)] * width)
        return list(guarded.results)


def emit_gemv(kernel: DeviceKernel, plan: GemvPlan, position: ThreadPosition) -> None:
    """Emit the sums of the rows of a warp; then a lane for each row runs the epilogue."""
    match = plan.match
    flat = kernel.flat_buffers()
    buffers = {op: [flat(v) for v in op.operands] for op in kernel.ops}
    code = _GemvCode(kernel, plan, position, buffers[match.op])
    total, *others = code.totals()
    for number, value in enumerate(others, 1):
        total = arith.select(is_equal(code.lane, index(number)), value, total)
    row = code.row(code.lane)
    stores = is_less(code.lane, index(plan.rows_per_warp))
    with when(arith.andi(stores, is_less(row, index(match.rows)))):
        counters = split(row, list(kernel.grid))
        epilogue = ElementwiseCode(kernel.grid_rank, None)
        for op in kernel.ops:
            if match.fill is not None and op == match.fill:
                continue
            with op.location:
                nest = kernel.nests[op]
                if op == match.op:
                    adds = match.fill is None
                    epilogue.store_results(nest, buffers[op], counters, [total], adds=adds)
                else:
                    epilogue.emit(nest, buffers[op], counters, {})


GEMV = Strategy("gemv", match_gemv, plan_gemv, emit_gemv)


def _reads_memory(op: Any) -> bool:
    """Whether the body reads memory at computed positions."""
    block = op.regions[0].blocks[0]
    return any(inner.operation.name == "memref.load" for inner in block.operations)
