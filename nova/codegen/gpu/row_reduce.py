"""Reductions of rows that are longer than a block's registers: a block per row, in loops.

Input: the loop nests of a row program (`rowwise/plan.py`) in which rows are only reduced, such as a
logsumexp over a vocabulary. Output: a `RowReducePlan`, or None, and the code of a thread. Each
reduction reads its rows anew: the first from memory, later ones from the caches. Nothing of a row
is kept, so a multiprocessor has several blocks, each at another row and at another reduction: one
computes while others load. `schedule.py` calls this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nova.codegen.common.cascade_sum import Cascade
from nova.codegen.common.combine import combiner, find_combiners, identity, reduce_tree
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import advance
from nova.codegen.gpu.block_ops import ThreadPosition, element_bytes, is_less
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.memory import load_run
from nova.codegen.gpu.pointwise.elementwise import grouped
from nova.codegen.gpu.rowwise.code import RowwiseCode, Values
from nova.codegen.gpu.rowwise.plan import (
    BUSY,
    RowProgram,
    RowwisePlan,
    along_row,
    last_writes,
    match_rows,
    row_key,
    row_vector_width,
)
from nova.codegen.gpu.strategy import Strategy
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import index
from nova.ir.symbolic.size_table import is_number

_THREADS, _MAX_THREADS = 256, 1024
_UNROLLED = 4
"""Vectors of a row whose loads are independent of each other."""
_REGISTER_ELEMENTS = 32 * 1024
"""Longer rows do not fit into the registers of a block."""
_MIN_ROWS = 2 * 132
"""Fewer rows are shared by the blocks of a cluster, so that all multiprocessors have work."""


_RESIDENT = 132 * 2048
"""Threads that run concurrently on a large device."""
_CACHED = 32 << 20
"""Bytes that stay in its L2 cache until they are read again. Where the rows of all blocks take
more, a row has more threads, so that there are fewer of them."""


@dataclass(frozen=True)
class RowReducePlan(RowwisePlan):
    """A block per row; `vectors_per_thread` are those of an iteration."""

    @property
    def step(self) -> int:
        """Elements of an iteration."""
        return self.threads_per_row * self.vector_width * self.vectors_per_thread


def match_row_reduction(kernel: DeviceKernel) -> RowProgram | None:
    """Match a row program that reads its rows only to reduce them; None for any other."""
    program = match_rows(kernel)
    if program is None or not isinstance(program.length, int):
        return None
    if program.length <= _REGISTER_ELEMENTS or not isinstance(kernel.num_points, int):
        return None
    if kernel.num_points < _MIN_ROWS:
        return None
    rows = (loop for nest in kernel.loop_nests for loop in along_row(nest, kernel.grid_rank))
    return program if not any(loop.parallel for loop in rows) else None


def plan_row_reduction(kernel: DeviceKernel, match: RowProgram) -> RowReducePlan:
    """More threads for a row while the device is not full."""
    nests, rank, rows = kernel.loop_nests, kernel.grid_rank, kernel.num_points
    threads = _THREADS
    again = sum(1 for nest in nests if along_row(nest, rank)) > 1
    row_bytes = _row_bytes(kernel, match.length) if again else 0
    while threads < min(_MAX_THREADS, kernel.max_threads) and (
        rows * threads < BUSY or row_bytes * min(rows, _RESIDENT // threads) > _CACHED
    ):
        threads *= 2
    width = row_vector_width(nests, rank, match.length)
    stored = last_writes(nests, rank, kernel.results)
    return RowReducePlan(rows, match.length, width, threads, _UNROLLED, 1, stored)


def _row_bytes(kernel: DeviceKernel, length: int) -> int:
    """Bytes of the rows that a block reads, of all operands."""
    sizes: dict[Any, int] = {}
    for nest in kernel.loop_nests:
        for number, value in enumerate(nest.generic.inputs):
            root, *_, stride = row_key(nest, number, kernel.grid_rank)
            if isinstance(value.type, ir.MemRefType) and not is_number(stride, 0):
                sizes[root] = length * element_bytes(value.type.element_type)
    return sum(sizes.values())


class RowReduceCode(RowwiseCode):
    """The code of a thread; scalars of the row are as in any row program."""

    plan: RowReducePlan

    def _reduction(self, elements: Elements) -> None:
        names = find_combiners(elements.nest)
        assert names is not None, "the plan has only reductions that combine"
        types = self._output_types(elements)
        width, plan = self.plan.vector_width, self.plan
        units = [identity(n, t) for n, t in zip(names, types, strict=True) for _ in range(width)]
        cascade = Cascade(tuple(name for name in names for _ in range(width)))
        length, step = int(plan.length), plan.step
        full = length // step
        self._load_scalars(elements)

        def iteration(number: Any, values: list[Any]) -> list[Any]:
            first = arith.addi(arith.muli(number, index(step)), self.starts[0])
            return self._chunks(elements, first, plan.vectors_per_thread, values)

        totals = units
        if full:
            totals = cascade.emit_loop(
                full, 1, units, iteration, terms_per_iteration=plan.vectors_per_thread
            )
        for begin in range(full * step, length, plan.threads_per_row * width):
            first = arith.addi(index(begin), self.starts[0])
            ends = begin + plan.threads_per_row * width
            inside = is_less(first, index(length)) if ends > length else None
            totals = self._last_chunk(elements, first, inside, totals)
        results = []
        for i, (name, values) in enumerate(zip(names, grouped(totals, width), strict=True)):
            combine = combiner(name)
            room = self.partials.get((elements.generic.op, i))
            results.append(self._reduced(reduce_tree(values, combine), combine, room))
        where, _ = self._at(elements.nest, None)
        initial = self._outputs(elements, where, None)
        together = zip(names, initial, results, strict=True)
        self._keep_numbers(elements, [combiner(n)(b[0], t) for n, b, t in together])

    def _last_chunk(
        self, elements: Elements, first: Any, inside: Any, values: list[Any]
    ) -> list[Any]:
        if inside is None:
            return self._chunks(elements, first, 1, values)
        op = scf.IfOp(inside, [value.type for value in values], has_else=True)
        with ir.InsertionPoint(op.then_block):
            scf.YieldOp(self._chunks(elements, first, 1, values))
        with ir.InsertionPoint(op.else_block):
            scf.YieldOp(values)
        return list(op.results)

    def _chunks(self, elements: Elements, first: Any, count: int, values: list[Any]) -> list[Any]:
        """The totals after `count` vectors from `first` on: all loads come before the first use."""
        width = self.plan.vector_width
        distance = self.plan.threads_per_row * width
        starts = [arith.addi(first, index(k * distance)) if k else first for k in range(count)]
        loaded = [self._vector(elements, start) for start in starts]
        totals: Values = grouped(values, width)
        for start, inputs in zip(starts, loaded, strict=True):
            _, ivs = self._position(elements, start)
            points = [
                elements.apply(
                    [*[v and v[k] for v in inputs], *[t[k] for t in totals]],
                    self._moved(elements.nest, ivs, k),
                )
                for k in range(width)
            ]
            totals = [list(column) for column in zip(*points, strict=True)]
        return [value for total in totals for value in total]

    def _vector(self, elements: Elements, start: Any) -> list[Any]:
        """A thread's elements of the inputs at a position of the row; scalars are repeated."""
        width = self.plan.vector_width
        bases, _ = self._position(elements, start)
        row, _ = self._at(elements.nest, None)
        inputs: list[Any] = []
        arguments = list(elements.generic.block.arguments)[: elements.generic.num_inputs]
        for number, argument in enumerate(arguments):
            buffer = elements.buffers[number]
            *_, stride = row_key(elements.nest, number, self.grid_rank)
            if not any(True for _ in argument.uses):
                inputs.append(None)
            elif is_number(stride, 0) or not isinstance(buffer.type, ir.MemRefType):
                inputs.append(self._load(elements, number, row[number], None) * width)
            else:
                vector = load_run(buffer, bases[number], width, stride, is_number(stride, 1))
                inputs.append([elements.unpacked(number, value) for value in vector])
        return inputs

    def _position(self, elements: Elements, start: Any) -> tuple[list[Any], dict[int, Any]]:
        """The position of each operand's elements from `start` on, and the counters there."""
        bases, ivs = self._at(elements.nest, None)
        (row,) = along_row(elements.nest, self.grid_rank)
        if len(row.dims) == 1 and row.dims[0] in elements.nest.indexed:
            ivs = {**ivs, row.dims[0]: start}
        return advance(bases, start, row), ivs


def emit_row_reduction(kernel: DeviceKernel, plan: RowReducePlan, position: ThreadPosition) -> None:
    """Emit all ops for the part of a row of one thread."""
    flat = kernel.flat_buffers(lambda value: value)
    code = RowReduceCode(plan, position, kernel.grid, kernel.shared)
    code.reserve(kernel.loop_nests)
    mapping: dict[Any, Any] = {}
    for op in kernel.ops:
        kernel.emit_op(op, flat, mapping, lambda nest, buffers: code.emit(nest, buffers, mapping))


ROW_REDUCE = Strategy("row_reduce", match_row_reduction, plan_row_reduction, emit_row_reduction)
