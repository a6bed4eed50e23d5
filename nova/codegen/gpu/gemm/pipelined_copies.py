"""Pipelined copies of operand tiles from global to shared memory, by all threads of a block.

Input: an `Operand` of a plan and the first row (or column) of its block. Output: code.
`mainloop.py` makes a `PipelinedCopies` for each operand before its loop over k, so that terms that
do not depend on k are computed once, and calls `copy` for each stage.

Elements out of bounds become zeros in shared memory: results computed from them are not stored, or
add nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nova.codegen.common.builder import BITS, element_type, splat, vector_type
from nova.codegen.gpu.gemm.plan import Operand
from nova.codegen.gpu.gemm.shared_tile import CHUNK
from nova.codegen.gpu.ptx_ops import GLOBAL, SHARED, copy_async, load, store, word
from nova.core.sizes import is_multiple
from nova.ir.bindings import arith, ir, scf, vector
from nova.ir.index import Index, add, compare, divide, index, minimum, modulo, mul, offset_by, sub

_LESS = arith.CmpIPredicate.slt


@dataclass(frozen=True)
class _Unit:
    """One of the copies of a thread, relative to the thread's first one."""

    row: int
    column: int
    """In bytes of shared memory."""


class PipelinedCopies:
    """The copies of one operand by `threads` threads, of which this one is `thread`.

    `base` is the address of the operand at the first element of its first row, and `element` the
    type in shared memory.
    """

    def __init__(
        self,
        operand: Operand,
        threads: int,
        thread: ir.Value,
        base: ir.Value,
        element: str,
    ):
        self.operand, self.threads, self.element = operand, threads, element
        self.base = base
        self.unit = operand.copied or CHUNK
        """Bytes in shared memory that a copy fills."""
        self.per_row = operand.tile.row_bytes // self.unit
        # The tile position of this thread's first copy. Adjacent threads copy adjacent elements of
        # global memory.
        if operand.transposed:
            self.row = modulo(thread, operand.tile.rows)
            self.column = mul(divide(thread, operand.tile.rows), self.unit)
        else:
            self.row = divide(thread, self.per_row)
            self.column = mul(modulo(thread, self.per_row), self.unit)
        self.units = tuple(self._units())
        self.to = tuple(self._shared(unit) for unit in self.units)

    def _units(self) -> Iterator[_Unit]:
        """Rows, and segments of rows that are longer than one copy by all threads."""
        if self.operand.transposed:
            step = self.threads // self.operand.tile.rows
            assert self.threads % self.operand.tile.rows == 0 and self.per_row % step == 0
            for column in range(0, self.per_row, step):
                yield _Unit(0, column * self.unit)
            return
        # Otherwise two threads would copy to the same address, and some past the end of the tile.
        assert self.threads % self.per_row == 0 or self.per_row % self.threads == 0
        row_step = max(1, self.threads // self.per_row)
        for row in range(0, self.operand.tile.rows, row_step):
            for column in range(0, self.per_row, self.threads):
                yield _Unit(row, column * self.unit)

    def _shared(self, unit: _Unit) -> tuple[Index, int]:
        """The shared-memory address of a unit: a dynamic term of this thread, and a static one."""
        tile = self.operand.tile
        if not tile.swizzled:
            start = add(mul(self.row, tile.pitch), self.column)
            return start, unit.row * tile.pitch + unit.column
        column = add(self.column, unit.column)
        chunk, within = divide(column, CHUNK), modulo(column, CHUNK)
        if unit.row % 8 == 0:
            # The swizzle repeats every eight rows.
            return add(tile.at(self.row, chunk), within), unit.row * tile.pitch
        return add(tile.at(add(self.row, unit.row), chunk), within), 0

    def copy(self, shared: Index, first: Index, k: Index, extra: Index = 0) -> None:
        """Start the copy of the tile at row `first` and step `k`, offset by `extra` bytes."""
        if self.excludes_threads:
            only = scf.IfOp(compare(_LESS, self.row, self.operand.tile.rows))
            with ir.InsertionPoint(only.then_block):
                self._copy(shared, first, k, extra)
                scf.YieldOp([])
        else:
            self._copy(shared, first, k, extra)

    @property
    def excludes_threads(self) -> bool:
        """Whether there are more threads than copies."""
        has_more = self.threads // self.per_row > self.operand.tile.rows
        return has_more and not self.operand.transposed

    def _copy(self, shared: Index, first: Index, k: Index, extra: Index) -> None:
        for number in range(len(self.units)):
            self.copy_one(number, shared, first, k, extra)

    def copy_one(
        self, number: int, shared: Index, first: Index, k: Index, extra: Index = 0
    ) -> None:
        """Start one of this thread's copies of a tile, which all threads take part in."""
        unit, to = self.units[number], self.to[number]
        if self.operand.copied:
            self._copy_unit(offset_by(shared, *to), unit, first, k, extra)
        else:
            self._pass_through(offset_by(shared, *to), unit, first, k, extra)

    # --- asynchronous copies, without registers -------------------------------------------------

    def _copy_unit(self, to: Index, unit: _Unit, first: Index, k: Index, extra: Index) -> None:
        o, size = self.operand, BITS[self.operand.type] // 8
        # Address terms: those of the thread, of the stage, and of the unit, in this order.
        elements = divide(self.column, size)
        outer, step = (self.row, elements) if o.tile.along_k else (elements, self.row)
        element = add(mul(add(outer, first), o.stride), mul(step, o.step))
        more = unit.column // size
        down, right = (o.stride, o.step) if o.tile.along_k else (o.step, o.stride)
        unit_bytes = (unit.row * down + more * right) * size
        source = offset_by(self.base, mul(element, size), extra, mul(k, o.step * size), unit_bytes)
        copy_async(to, source, self.unit, self._valid(unit, first, k))

    def _valid(self, unit: _Unit, first: Index, k: Index) -> ir.Value | None:
        """The number of valid bytes of a unit; None for all."""
        o, size = self.operand, BITS[self.operand.type] // 8
        outer_limit, k_limit = self._limits(first, k)
        rows_limit, row_limit = (outer_limit, k_limit) if o.tile.along_k else (k_limit, outer_limit)
        valid: ir.Value | None = None
        if row_limit is not None:
            remaining = sub(row_limit, divide(add(self.column, unit.column), size))
            inside = arith.maxsi(index(minimum(remaining, self.unit // size)), index(0))
            valid = word(mul(inside, size))
        if rows_limit is not None:
            exists = compare(_LESS, add(self.row, unit.row), rows_limit)
            valid = arith.select(exists, word(self.unit) if valid is None else valid, word(0))
        return valid

    def _limits(self, first: Index, k: Index) -> tuple[Index | None, Index | None]:
        """Valid rows (or columns) and steps of the tile; None where the tile is full."""
        o = self.operand
        rows = sub(o.size, first) if o.ragged and not o.shifted else None
        steps = sub(o.steps, k) if not is_multiple(o.steps, o.tile.depth) else None
        return rows, steps

    # --- through registers: elements that are strided, unaligned, or of another type ------------

    def _pass_through(self, to: Index, unit: _Unit, first: Index, k: Index, extra: Index) -> None:
        o = self.operand
        tile, source_type = o.tile, element_type(o.type)
        across = add(self.row, unit.row)
        start = divide(add(self.column, unit.column), tile.element)
        outer_limit, k_limit = self._limits(first, k)
        values = []
        for i in range(tile.per_chunk):
            column = add(start, i)
            outer, step = (across, column) if tile.along_k else (column, across)
            exists = None
            clamped = []
            for position, limit in ((outer, outer_limit), (step, k_limit)):
                if limit is None:
                    clamped.append(position)
                    continue
                inside = compare(_LESS, position, limit)
                exists = inside if exists is None else arith.andi(exists, inside)
                clamped.append(arith.select(inside, index(position), index(0)))
            number = add(mul(add(clamped[0], first), o.stride), mul(add(clamped[1], k), o.step))
            size = BITS[o.type] // 8
            value = load(source_type, offset_by(self.base, mul(number, size), extra), GLOBAL, size)
            wide = element_type(self.element)
            if value.type != wide:
                value = arith.extf(wide, value)
            if exists is not None:
                value = arith.select(exists, value, splat(wide, 0.0))
            values.append(value)
        packed = vector.from_elements(vector_type(self.element, tile.per_chunk), values)
        store(packed, to, SHARED, CHUNK)
