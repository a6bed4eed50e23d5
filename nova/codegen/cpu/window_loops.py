"""Reductions over sliding windows as vector loops: depthwise convolutions and pooling.

Input: a loop nest whose reductions are the taps of a window, such as `out[c, y, x] += in[c, y*s +
ky, x*s + kx] * w[c, ky, kx]`. Output: loops over register tiles of a few rows by one vector of
columns, in which all taps are unrolled. A vector of the input is loaded once for all rows and taps
that read it. Columns of stride 2 are loaded as two vectors, whose even elements are those of one
tap, and whose odd elements are those of the next. Every element adds its taps in the order of the
scalar loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import prod
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.index_math import Range, advance, at, shifted
from nova.codegen.common.loop_nest import Loop, LoopNest
from nova.codegen.cpu.vector_body import emit_body
from nova.codegen.cpu.vectorize import find_column_plan
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import ir, memref, scf, vector
from nova.ir.index import index
from nova.ir.symbolic.size_table import is_number

_MOST_TAPS = 64
_ROWS_OF_32, _ROWS_OF_16 = 8, 4
"""Rows of a register tile with 32 and with 16 vector registers; taps need the others."""


@record
class WindowPlan:
    """How a reduction over windows is vectorized.

    Vectors of `width` elements run along the loop `column`, and a register tile has `rows`
    iterations of the loop `row` (None if there is no other parallel loop). `taps` are the
    iterations of the reductions, by operand: the offset of each in elements.
    """

    column: int
    row: int | None
    width: int
    rows: int
    masked: bool
    taps: tuple[tuple[int, ...], ...]


def find_window_plan(
    nest: LoopNest, buffers: Sequence[Any], ranges: Sequence[Range | None], target: Target
) -> WindowPlan | None:
    """The vectorization of a reduction over windows, or None."""
    reductions = [loop for loop in nest.loops if not loop.parallel]
    parallel = [i for i, loop in enumerate(nest.loops) if loop.parallel]
    if not reductions or not parallel or nest.generic.num_outputs != 1 or nest.indexed:
        return None
    column = parallel[-1]
    if ranges[column] is not None or not _slides(nest) or not _has_plain_types(nest, buffers):
        return None
    if not all(_is_static(loop) for loop in (*reductions, nest.loops[column])):
        return None
    count = prod(loop.size for loop in reductions)
    strides = nest.loops[column].strides
    if count > _MOST_TAPS or strides[-1] != 1 or any(s not in (0, 1, 2) for s in strides):
        return None
    plan = find_column_plan(nest, column, buffers, target)
    if plan is None:
        return None
    row = parallel[-2] if len(parallel) > 1 else None
    most = _ROWS_OF_32 if target.vector_registers >= 32 else _ROWS_OF_16
    rows = 1 if row is None else _rows(nest.loops[row], most)
    return WindowPlan(column, row, plan.width, rows, plan.masked, _tap_offsets(nest, reductions))


def _slides(nest: LoopNest) -> bool:
    """Whether an input is read at the sum of a parallel and a reduction loop."""
    iterators = nest.generic.iterators
    return any(
        len({iterators[d] for d, factor in enumerate(row) if factor}) == 2
        for access in nest.generic.accesses[: nest.generic.num_inputs]
        for row in access.coefficients
    )


def _has_plain_types(nest: LoopNest, buffers: Sequence[Any]) -> bool:
    """Whether every operand is a buffer of the type that the body computes with."""
    arguments = nest.generic.block.arguments
    return all(
        isinstance(buffer.type, ir.MemRefType) and buffer.type.element_type == argument.type
        for buffer, argument in zip(buffers, arguments, strict=True)
    )


def _is_static(loop: Loop) -> bool:
    return all(isinstance(n, int) for n in (loop.size, *loop.strides))


def _rows(loop: Loop, most: int) -> int:
    """Rows of a register tile: a divisor of all rows, if there is one of at least half the most."""
    if not _is_static(loop):
        return 1
    divisors = [n for n in range(1, min(most, loop.size) + 1) if loop.size % n == 0]
    return divisors[-1] if 2 * divisors[-1] >= min(most, loop.size) else min(most, loop.size)


def _tap_offsets(nest: LoopNest, reductions: Sequence[Loop]) -> tuple[tuple[int, ...], ...]:
    taps = list(product(*(range(loop.size) for loop in reductions)))
    return tuple(
        tuple(
            sum(t * loop.strides[i] for t, loop in zip(tap, reductions, strict=True))
            for tap in taps
        )
        for i in range(len(nest.offsets))
    )


class WindowLoops:
    """Emits a reduction over windows at the insertion point."""

    def __init__(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        ranges: Sequence[Range | None],
        captured: Mapping[Any, Any],
        plan: WindowPlan,
    ):
        self.nest = nest
        self.buffers = buffers
        self.ranges = ranges
        self.captured = captured
        self.plan = plan
        self.columns = nest.loops[plan.column]
        arguments = nest.generic.block.arguments
        self.used = [any(True for _ in a.uses) for a in arguments]

    def emit(self) -> Range | None:
        """Emit the loops; return the range of columns that remains to be done."""
        outer = [
            i
            for i, loop in enumerate(self.nest.loops)
            if loop.parallel and i not in (self.plan.column, self.plan.row)
        ]
        starts = [None if is_number(o, 0) else index(o) for o in self.nest.offsets]
        self._nested(outer, starts)
        remaining = self.columns.size % self.plan.width
        if self.plan.masked or not remaining:
            return None
        return index(self.columns.size - remaining), index(self.columns.size)

    # --- loops ------------------------------------------------------------------------------------

    def _nested(self, loops: Sequence[int], bases: Sequence[Any]) -> None:
        if not loops:
            self._emit_rows(bases)
            return
        loop = self.nest.loops[loops[0]]
        low, high = self.ranges[loops[0]] or (index(0), index(loop.size))
        op = scf.ForOp(low, high, index(1))
        with ir.InsertionPoint(op.body):
            self._nested(loops[1:], advance(bases, op.induction_variable, loop))
            scf.YieldOp([])

    def _emit_rows(self, bases: Sequence[Any]) -> None:
        if self.plan.row is None:
            self._emit_columns(bases, 1)
            return
        loop, rows = self.nest.loops[self.plan.row], self.plan.rows
        span = self.ranges[self.plan.row]
        if span is None and isinstance(loop.size, int):
            full = loop.size - loop.size % rows
            self._row_steps(bases, index(0), index(full), rows)
            if full < loop.size:
                self._emit_columns(advance(bases, index(full), loop), loop.size - full)
            return
        low, high = span or (index(0), index(loop.size))
        # A tile may have any number of rows here, and the code of few rows is small.
        self._row_steps(bases, low, high, 1)

    def _row_steps(self, bases: Sequence[Any], low: Any, high: Any, rows: int) -> None:
        loop = self.nest.loops[self.plan.row or 0]
        op = scf.ForOp(low, high, index(rows))
        with ir.InsertionPoint(op.body):
            self._emit_columns(advance(bases, op.induction_variable, loop), rows)
            scf.YieldOp([])

    def _emit_columns(self, bases: Sequence[Any], rows: int) -> None:
        width, size = self.plan.width, self.columns.size
        full = size - size % width
        if full == width:
            self._emit_tile(bases, rows, width)
        elif full:
            op = scf.ForOp(index(0), index(full), index(width))
            with ir.InsertionPoint(op.body):
                self._emit_tile(advance(bases, op.induction_variable, self.columns), rows, width)
                scf.YieldOp([])
        if size % width and self.plan.masked:
            self._emit_tile(advance(bases, index(full), self.columns), rows, size % width)

    # --- one register tile ------------------------------------------------------------------------

    def _emit_tile(self, bases: Sequence[Any], rows: int, lanes: int) -> None:
        """Emit `rows` by `lanes` elements of the output; `lanes` is below the width in a tail."""
        output = len(bases) - 1
        tile = _Tile(self, bases, rows, lanes)
        steps = self._row_strides(output)
        totals = [tile.load(output, r * steps) for r in range(rows)]
        for r, tap in self._order(rows):
            inputs = [
                tile.load(i, r * self._row_strides(i) + self.plan.taps[i][tap])
                if self.used[i]
                else None
                for i in range(output)
            ]
            (totals[r],) = emit_body(
                self.nest.generic.block,
                [*inputs, totals[r]],
                self.captured,
                {},
                self.plan.width,
                relaxed=True,
            )
        for r, total in enumerate(totals):
            tile.store(output, r * steps, total)

    def _row_strides(self, operand: int) -> int:
        if self.plan.row is None:
            return 0
        return int(self.nest.loops[self.plan.row].strides[operand])

    def tap_offsets(self, operand: int, rows: int) -> frozenset[int]:
        """The offsets of the taps of a register tile with this many rows."""
        step = self._row_strides(operand)
        return frozenset(r * step + tap for r in range(rows) for tap in self.plan.taps[operand])

    def _order(self, rows: int) -> list[tuple[int, int]]:
        """Pairs of row and tap: those that read the same vector are adjacent.

        The taps of a row keep their order, which is that of their offsets in the window.
        """
        pairs = list(product(range(rows), range(len(self.plan.taps[0]))))
        moving = next(i for i, s in enumerate(self.columns.strides) if s)
        offsets = self.plan.taps[moving]
        if any(a >= b for a, b in pairwise(offsets)):
            return pairs
        step = self._row_strides(moving)
        return sorted(pairs, key=lambda pair: (pair[0] * step + offsets[pair[1]], pair[0]))


class _Tile:
    """The vectors of a register tile, each loaded once."""

    def __init__(self, loops: WindowLoops, bases: Sequence[Any], rows: int, lanes: int):
        self.buffers, self.bases, self.lanes = loops.buffers, bases, lanes
        self.taps = [loops.tap_offsets(operand, rows) for operand in range(len(bases) - 1)]
        self.width, self.strides = loops.plan.width, loops.columns.strides
        self.loaded: dict[tuple[int, int], Any] = {}
        self.vectors: dict[tuple[int, int, int], Any] = {}

    def load(self, operand: int, offset: int) -> Any:
        """The vector, or the scalar that all columns share, at an offset from the tile's start."""
        key = operand, offset
        if key not in self.loaded:
            stride = self.strides[operand]
            if stride == 0:
                position = [at(shifted(self.bases[operand], offset))]
                self.loaded[key] = memref.load(self.buffers[operand], position)
            elif stride == 1:
                self.loaded[key] = self._vector(operand, offset, self.lanes)
            else:
                self.loaded[key] = self._every_second(operand, offset)
        return self.loaded[key]

    def _every_second(self, operand: int, offset: int) -> Any:
        """The elements at even distances from `offset`: half of each of two vectors."""
        width, lanes = self.width, self.lanes
        start, paired = self._pair(operand, offset)
        count = 2 * lanes if paired else 2 * lanes - 1
        low = self._vector(operand, start, min(width, count))
        first = width
        if count <= width:
            high = low
        elif lanes == width and not paired:
            # One element less: the last one of a buffer is not passed.
            high, first = self._vector(operand, start + width - 1, width), width + 1
        else:
            high = self._vector(operand, start + width, count - width)
        odd = offset - start
        elements = [*range(odd, width, 2), *range(first + odd, 2 * width, 2)]
        return vector.shuffle(low, high, mask=elements)

    def _pair(self, operand: int, offset: int) -> tuple[int, bool]:
        """The first offset of a pair of taps with adjacent elements, and whether both are used."""
        taps, first = self.taps[operand], offset
        while first - 1 in taps:
            first -= 1
        start = offset - (offset - first) % 2
        return start, start + 1 in taps

    def _vector(self, operand: int, offset: int, lanes: int) -> Any:
        key = operand, offset, lanes
        if key not in self.vectors:
            buffer = self.buffers[operand]
            type_ = ir.VectorType.get([self.width], buffer.type.element_type)
            position = [shifted(self.bases[operand], offset)]
            if lanes == self.width:
                self.vectors[key] = vector.load(type_, buffer, position)
            else:
                zeros, mask = splat(type_, 0), self._mask(lanes)
                self.vectors[key] = vector.maskedload(type_, buffer, position, mask, zeros)
        return self.vectors[key]

    def store(self, operand: int, offset: int, value: Any) -> None:
        buffer, position = self.buffers[operand], [shifted(self.bases[operand], offset)]
        if self.lanes == self.width:
            vector.store(value, buffer, position)
        else:
            vector.maskedstore(buffer, position, self._mask(self.lanes), value)

    def _mask(self, lanes: int) -> Any:
        mask_type = ir.VectorType.get([self.width], ir.IntegerType.get_signless(1))
        return vector.constant_mask(mask_type, [lanes])
