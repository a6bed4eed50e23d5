"""The epilogue of a GEMM on a GPU: from the accumulators of a block to its results.

Input: the accumulators of each thread. Output: code that redistributes them through shared memory:
elements that are adjacent in memory go to adjacent threads, some columns (a `Fragment`) at a time.
`mainloop.py` calls it; the user of a GEMM supplies the `Epilogue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nova.codegen.common.builder import BITS, element_type, loop, splat, vector_type
from nova.codegen.gpu.gemm.plan import GemmPlan, Operand
from nova.codegen.gpu.ptx_ops import GLOBAL, SHARED, global_base, load, store
from nova.core.sizes import is_multiple
from nova.ir.bindings import arith, ir, scf, vector
from nova.ir.index import Index, add, compare, divide, index, modulo, mul, offset_by
from nova.ir.symbolic.size_table import typical

_LESS = arith.CmpIPredicate.slt


@dataclass(frozen=True)
class Fragment:
    """A group of results: `value` is a vector of the plan's width, or a scalar where that is one.

    `row` and `column` are those of its first element in C; the others are in the same row, or with
    `along_rows` in the same column. `enclosing` has the counters of the outer loops, 0 for k.
    """

    enclosing: tuple[Index, ...]
    row: ir.Value
    column: ir.Value
    value: ir.Value
    along_rows: bool


Epilogue = Callable[[Fragment], None]
"""Consumes results, for example adds a bias and stores them; called once, in a loop."""


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

    def store_fragment(fragment: Fragment) -> None:
        number = add(mul(fragment.row, strides[0]), mul(fragment.column, strides[1]))
        for position, step in zip(fragment.enclosing, plan.enclosing_strides(2), strict=True):
            number = add(number, mul(position, step))
        address = offset_by(global_base(c), mul(number, size), offset * size)
        value = fragment.value
        if spec.accumulate:
            value = arith.addf(load(value.type, address, GLOBAL, align), value)
        store(value, address, GLOBAL, align)

    return store_fragment


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
        """Distribute the results to the threads that finish them, one fragment per thread."""
        plan, shape, spec = self.plan, self.plan.shape, self.plan.gemm.contraction
        size, per_row = BITS[spec.acc_type] // 8, shape.columns // plan.width
        fragment_type = element_type(spec.acc_type)
        if plan.width > 1:
            fragment_type = vector_type(spec.acc_type, plan.width)
        part_bytes = shape.rows * plan.pitch
        with loop(self.thread, shape.rows * per_row, shape.threads) as number:
            row, column = divide(number, per_row), mul(modulo(number, per_row), plan.width)
            at_row, at_column = add(first[0], row), add(first[1], column)
            inside = self._is_in_tile(plan.lhs, at_row, tile[0])
            if (column_inside := self._is_in_tile(plan.rhs, at_column, tile[1])) is not None:
                inside = column_inside if inside is None else arith.andi(inside, column_inside)
            only = scf.IfOp(splat(ir.IntegerType.get_signless(1), 1) if inside is None else inside)
            with ir.InsertionPoint(only.then_block):
                start = offset_by(self.shared, mul(row, plan.pitch), mul(column, size))
                align = size * plan.width
                value = load(fragment_type, start, SHARED, align)
                for part in range(1, shape.parts):
                    more = load(fragment_type, offset_by(start, part * part_bytes), SHARED, align)
                    value = arith.addf(value, more)
                at_row, at_column = index(at_row), index(at_column)
                if plan.swapped:
                    at_row, at_column = at_column, at_row
                epilogue(Fragment(enclosing, at_row, at_column, value, plan.swapped))
                scf.YieldOp([])

    def _is_in_tile(self, operand: Operand, row: Index, tile: Index) -> ir.Value | None:
        """Whether a row (or column) exists, and belongs to this tile, not the previous one."""
        if not operand.ragged:
            return None
        if operand.shifted:
            return compare(arith.CmpIPredicate.sge, row, mul(tile, operand.tile.outer))
        return compare(_LESS, row, operand.size)
