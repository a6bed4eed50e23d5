"""The epilogue of a GEMM on a GPU: from the accumulators of a block to its results.

Input: the accumulators of each thread. Output: code that redistributes them through shared memory:
elements that are adjacent in memory go to adjacent threads, some columns (a `Fragment`) at a time.
`mainloop.py` calls it; the user of a GEMM supplies the `Epilogue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

from nova.codegen.common.builder import BITS, element_type, loop, vector_type
from nova.codegen.gpu.block_ops import when
from nova.codegen.gpu.gemm.plan import GemmPlan, Operand
from nova.codegen.gpu.ptx_ops import (
    GLOBAL,
    SHARED,
    barrier,
    global_base,
    issue_loads,
    load,
    store,
)
from nova.core.sizes import is_multiple
from nova.ir.bindings import arith, ir, vector
from nova.ir.index import Index, add, compare, divide, index, minimum, modulo, mul, offset_by
from nova.ir.symbolic.size_table import typical

_LESS = arith.CmpIPredicate.slt
_TOGETHER = 4
"""Fragments of a thread whose operands are loaded together: in registers that sums had before."""


@dataclass(frozen=True)
class Fragment:
    """A group of results, as many as the plan's width.

    `row` and `column` are those of its first element in C; the others are in the same row, or with
    `along_rows` in the same column. `enclosing` has the counters of the outer loops, 0 for k.
    """

    enclosing: tuple[Index, ...]
    row: ir.Value
    column: ir.Value
    along_rows: bool


Finish = Callable[[ir.Value], None]
"""Consumes the results of a fragment: a vector of the plan's width, or a scalar if that is one."""
Epilogue = Callable[[Fragment], Finish]
"""Begins a fragment, for example loads its bias; what it returns adds and stores the results."""


class Core(Protocol):
    """The matmul implementation of a warp: `TensorCore` or `PlainCore`."""

    @property
    def part(self) -> Index: ...
    def prepare(self) -> None: ...
    def zeros(self) -> list[ir.Value]: ...
    def stage(self, lhs: Index, rhs: Index, sums: list[ir.Value]) -> list[ir.Value]: ...
    @property
    def row_lanes(self) -> int: ...
    @property
    def together(self) -> int: ...
    def rows(self) -> list[Index]: ...
    def columns(self) -> list[Index]: ...
    def number(self, row: int, column: int) -> int: ...


def parts(core: Core, sums: list[ir.Value]) -> Iterator[tuple[Index, Index, list[ir.Value]]]:
    """Row and column in the tile, and the accumulators of adjacent columns from there on."""
    columns = core.columns()
    for row, tile_row in enumerate(core.rows()):
        for first in range(0, len(columns), core.together):
            numbers = (core.number(row, first + i) for i in range(core.together))
            yield tile_row, columns[first], [sums[n] for n in numbers]


def store_epilogue(plan: GemmPlan, c: ir.Value) -> Epilogue:
    """A `Epilogue` that writes C, a flat buffer of the accumulator type, or adds to it."""
    spec, offset = plan.gemm.contraction, plan.gemm.offsets[2]
    size = BITS[spec.acc_type] // 8
    strides = spec.c_strides[::-1] if plan.swapped else spec.c_strides
    steps = (max(strides, key=typical), offset, *plan.enclosing_strides(2))
    aligned = all(is_multiple(step, plan.width) for step in steps)
    align = size * (plan.width if aligned else 1)

    def begin_fragment(fragment: Fragment) -> Finish:
        number = add(mul(fragment.row, strides[0]), mul(fragment.column, strides[1]))
        for position, step in zip(fragment.enclosing, plan.enclosing_strides(2), strict=True):
            number = add(number, mul(position, step))
        address = offset_by(global_base(c), mul(number, size), offset * size)

        def finish(value: ir.Value) -> None:
            if spec.accumulate:
                value = arith.addf(load(value.type, address, GLOBAL, align), value)
            store(value, address, GLOBAL, align)

        return finish

    return begin_fragment


@dataclass(frozen=True)
class Results:
    """The accumulators of a block, in shared memory from `shared` on."""

    plan: GemmPlan
    shared: ir.Value
    thread: ir.Value

    def collect(self, core: Core, sums: list[ir.Value]) -> None:
        """Write the accumulators of all warps as tiles, one per part of the steps."""
        plan = self.plan
        type_ = plan.gemm.contraction.acc_type
        size = BITS[type_] // 8
        base = add(self.shared, mul(core.part, plan.shape.rows * plan.pitch))
        for row, column, values in parts(core, sums):
            address = offset_by(base, mul(row, plan.pitch), mul(column, size))
            packed_type = vector_type(type_, len(values))
            value = vector.from_elements(packed_type, values) if len(values) > 1 else values[0]
            store(value, address, SHARED, size * len(values))

    def distribute(
        self,
        epilogue: Epilogue,
        tile: tuple[Index, Index],
        first: Sequence[Index],
        enclosing: tuple[Index, ...],
    ) -> None:
        """Distribute the results to the threads that finish them, after a barrier of the block.

        The first fragments of a thread begin before the barrier, and several at a time: loads of
        their operands wait for memory once.
        """
        plan, threads = self.plan, self.plan.shape.threads
        fragments = plan.shape.rows * plan.shape.columns // plan.width
        count = max(1, fragments // threads)
        assert fragments % threads == 0 or count == 1
        is_one = compare(_LESS, self.thread, fragments) if fragments < threads else None

        def begin(number: Index) -> Callable[[], None]:
            if is_one is not None:
                number = minimum(number, fragments - 1)
            row, column = self._place(number)
            at_row, at_column = add(first[0], row), add(first[1], column)
            conditions = [
                is_one,
                self._is_in_tile(plan.lhs, at_row, tile[0]),
                self._is_in_tile(plan.rhs, at_column, tile[1]),
            ]
            nearest = (
                self._nearest(plan.lhs, at_row, tile[0], 1),
                self._nearest(plan.rhs, at_column, tile[1], plan.width),
            )
            finish = epilogue(self._fragment(enclosing, *nearest))

            def finish_inside() -> None:
                inside = [condition for condition in conditions if condition is not None]
                with when(reduce(arith.andi, inside)) if inside else nullcontext():
                    finish(self._load(row, column))

            return finish_inside

        together = next(n for n in range(min(count, _TOGETHER), 0, -1) if count % n == 0)
        begun = [begin(add(self.thread, i * threads)) for i in range(together)]
        issue_loads()
        barrier()
        for finish in begun:
            finish()
        if count > together:
            step = together * threads
            with loop(add(self.thread, step), fragments, step) as number:
                for finish in [begin(add(number, i * threads)) for i in range(together)]:
                    finish()

    def _place(self, number: Index) -> tuple[Index, Index]:
        """Row and column of a fragment in the tile."""
        per_row = self.plan.shape.columns // self.plan.width
        return divide(number, per_row), mul(modulo(number, per_row), self.plan.width)

    def _fragment(self, enclosing: tuple[Index, ...], row: Index, column: Index) -> Fragment:
        row, column = index(row), index(column)
        if self.plan.swapped:
            row, column = column, row
        return Fragment(enclosing, row, column, self.plan.swapped)

    def _load(self, row: Index, column: Index) -> ir.Value:
        """The sum of the parts of a fragment."""
        plan, type_ = self.plan, self.plan.gemm.contraction.acc_type
        size, part_bytes = BITS[type_] // 8, plan.shape.rows * plan.pitch
        fragment_type = element_type(type_) if plan.width == 1 else vector_type(type_, plan.width)
        start = offset_by(self.shared, mul(row, plan.pitch), mul(column, size))
        align = size * plan.width
        value = load(fragment_type, start, SHARED, align)
        for part in range(1, plan.shape.parts):
            more = load(fragment_type, offset_by(start, part * part_bytes), SHARED, align)
            value = arith.addf(value, more)
        return value

    def _nearest(self, operand: Operand, row: Index, tile: Index, width: int) -> Index:
        """The nearest row (or column) that exists and belongs to this tile, of groups of `width`.

        Operands of a fragment that does not are loaded from there, and not used.
        """
        if not operand.ragged:
            return row
        if operand.shifted:
            return arith.maxsi(index(row), index(mul(tile, operand.tile.outer)))
        return minimum(row, operand.size - width)

    def _is_in_tile(self, operand: Operand, row: Index, tile: Index) -> ir.Value | None:
        """Whether a row (or column) exists, and belongs to this tile, not the previous one."""
        if not operand.ragged:
            return None
        if operand.shifted:
            return compare(arith.CmpIPredicate.sge, row, mul(tile, operand.tile.outer))
        return compare(_LESS, row, operand.size)
