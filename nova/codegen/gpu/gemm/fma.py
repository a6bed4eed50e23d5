"""FMA matmul of a thread's part of a stage: ordinary multiply-adds, exact to the type.

Input: a matmul of tiles, and the warp and lane of this thread. Output: code that reads tiles from
shared memory and adds to accumulators. `mainloop.py` and `block.py` make a `PlainCore` and call it
in their loops.

A warp is 4 x 8 threads, or groups of fewer threads that share the steps of k: threads of a small
tile then have more accumulators, and read fewer operands for each of them. The rows (or columns) of
a thread depend on the layout of the tile: where it runs along k, every fourth row (eighth column),
and several steps of k are read at once; else groups of 16 bytes of adjacent elements. Both let a
warp read without bank conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from nova.codegen.common.builder import element_type, splat, vector_type
from nova.codegen.gpu.gemm.shared_tile import Clean, SharedTile, TileMatmul
from nova.codegen.gpu.ptx_ops import SHARED, fused, load, load_floats, word
from nova.ir.bindings import ir, scf, vector
from nova.ir.index import Index, add, divide, index, modulo, mul, offset_by

_AT_ONCE = 64
"""Bytes of k whose steps are unrolled: with more, the assembler would hold too many operands."""


@dataclass(frozen=True)
class OperandSlice:
    """A thread's part of one operand: `count` rows (or columns), the warp's from `first` on."""

    tile: SharedTile
    element: str
    lane: Index
    lanes: int
    first: Index
    k_first: Index
    count: int
    steps: int
    """Steps of k that are read together."""
    start: list[Index] = field(default_factory=list)

    @property
    def step_bytes(self) -> int:
        """Bytes from one step of k to the next."""
        return self.tile.element if self.tile.along_k else self.tile.pitch

    @property
    def together(self) -> int:
        """Adjacent rows (or columns) that one access reads."""
        return 1 if self.tile.along_k else min(self.count, self.tile.per_chunk)

    def offset(self, number: int) -> int:
        """The distance of row `number` from the thread's first row."""
        group, within = divmod(number, self.together)
        return group * self.lanes * self.together + within

    def positions(self) -> list[Index]:
        """The rows (or columns) of the tile of this thread."""
        first = add(self.first, mul(self.lane, self.together))
        return [add(first, self.offset(i)) for i in range(self.count)]

    def prepare(self) -> None:
        """The address of the thread's first element, before the loop over k."""
        tile = self.tile
        first = add(self.first, mul(self.lane, self.together))
        row, row_offset = (first, self.k_first) if tile.along_k else (self.k_first, first)
        self.start.append(add(mul(row, tile.pitch), mul(row_offset, tile.element)))

    def read(self, shared: Index, step: int) -> Iterator[list[ir.Value]]:
        """The elements of some steps from `step` on, in the order in which they are read.

        Along k, those of all steps for a row at a time; else those of all rows for a step.
        """
        tile, base = self.tile, add(shared, self.start[0])
        if tile.along_k:
            for row in range(self.count):
                address = offset_by(base, self.offset(row) * tile.pitch, step * tile.element)
                yield self._load(address, self.steps)
            return
        for k in range(step, step + self.steps):
            yield self.read_across(shared, k)

    def read_across(self, shared: Index, step: int, *, pinned: bool = False) -> list[ir.Value]:
        """The elements of all rows for a step, of a tile whose rows run across k.

        LLVM moves no `pinned` load into another block, such as the next iteration.
        """
        tile, base = self.tile, add(shared, self.start[0])
        values: list[ir.Value] = []
        for row in range(0, self.count, self.together):
            distance = step * tile.pitch + self.offset(row) * tile.element
            if pinned and self.element == "f32" and self.together == 4:
                values += load_floats(word(base), distance)
            else:
                values += self._load(offset_by(base, distance), self.together)
        return values

    def by_step(self, shared: Index, step: int) -> Iterator[list[ir.Value]]:
        """The elements of all rows, one step after the other."""
        if not self.tile.along_k:
            return self.read(shared, step)
        return map(list, zip(*self.read(shared, step), strict=True))

    def _load(self, address: Index, count: int) -> list[ir.Value]:
        size = count * self.tile.element
        if count == 1:
            return [load(element_type(self.element), address, SHARED, size)]
        value = load(vector_type(self.element, count), address, SHARED, size)
        return [vector.extract(value, [], [i]) for i in range(count)]


@dataclass(frozen=True)
class PlainCore:
    """The part of one thread: `at_rows` and `at_columns` of its warp, `part` of the steps."""

    tiles: TileMatmul
    lane: ir.Value
    at_rows: Index
    at_columns: Index
    part: Index
    slices: list[OperandSlice] = field(default_factory=list)

    def prepare(self) -> None:
        tiles = self.tiles
        along = tiles.lanes
        number = modulo(self.lane, prod(along))
        lanes = divide(number, along[1]), modulo(number, along[1])
        step = mul(self.part, tiles.steps)
        together = tiles.reach // tiles.lhs.element
        sides = (tiles.lhs, self.at_rows), (tiles.rhs, self.at_columns)
        for i, (tile, first) in enumerate(sides):
            count = tiles.warp[i] // along[i]
            operand_slice = OperandSlice(
                tile, tiles.element, lanes[i], along[i], first, step, count, together
            )
            operand_slice.prepare()
            self.slices.append(operand_slice)

    def zeros(self) -> list[ir.Value]:
        rows, columns = (operand_slice.count for operand_slice in self.slices)
        return [splat(element_type(self.tiles.element), 0.0)] * (rows * columns)

    def stage(
        self,
        lhs: Index,
        rhs: Index,
        sums: list[ir.Value],
        clean: Clean | None = None,
    ) -> list[ir.Value]:
        """Multiply-accumulate a stage whose tiles are at these addresses.

        `clean` transforms the elements of the right tile.
        """
        steps, unrolled = self.tiles.steps, _AT_ONCE // self.tiles.lhs.element
        if steps <= unrolled:
            return self._multiply_steps(lhs, rhs, sums, steps, clean)
        loop = scf.ForOp(index(0), index(steps), index(unrolled), list(sums))
        with ir.InsertionPoint(loop.body):
            of_rows, of_columns = self.slices
            lhs = add(lhs, mul(loop.induction_variable, of_rows.step_bytes))
            rhs = add(rhs, mul(loop.induction_variable, of_columns.step_bytes))
            scf.YieldOp(self._multiply_steps(lhs, rhs, list(loop.inner_iter_args), unrolled, clean))
        return list(loop.results)

    def _multiply_steps(
        self,
        lhs: Index,
        rhs: Index,
        sums: list[ir.Value],
        steps: int,
        clean: Clean | None,
    ) -> list[ir.Value]:
        """Multiply-accumulate the first steps of two tiles."""
        sums = list(sums)
        of_rows, of_columns = self.slices

        def multiply(row: int, column: int, a: ir.Value, b: ir.Value) -> None:
            number = row * of_columns.count + column
            sums[number] = fused(a, b, sums[number])

        for step in range(0, steps, of_rows.steps):
            if of_rows.tile.along_k and of_columns.tile.along_k:
                # All rows are kept in registers, and columns are streamed: both would need too
                # many.
                rows = list(of_rows.read(lhs, step))
                for j, column in enumerate(of_columns.read(rhs, step)):
                    for k, b in enumerate(map(clean, column) if clean else column):
                        for i, row in enumerate(rows):
                            multiply(i, j, row[k], b)
                continue
            sides = of_rows.by_step(lhs, step), of_columns.by_step(rhs, step)
            for a_step, b_step in zip(*sides, strict=True):
                factors = list(map(clean, b_step)) if clean else b_step
                for i, a in enumerate(a_step):
                    for j, b in enumerate(factors):
                        multiply(i, j, a, b)
        return sums

    def read_step(
        self, lhs: Index, rhs: Index, step: int, *, pinned: bool = False
    ) -> list[ir.Value]:
        """The operands of one step of k, of tiles whose rows run across k: rows, then columns."""
        values: list[ir.Value] = []
        for part, shared in zip(self.slices, (lhs, rhs), strict=True):
            values += part.read_across(shared, step, pinned=pinned)
        return values

    def multiply_step(self, operands: list[ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
        """Multiply-accumulate the operands of `read_step`."""
        rows = operands[: self.slices[0].count]
        columns = operands[self.slices[0].count :]
        pairs = ((a, b) for a in rows for b in columns)
        return [fused(a, b, total) for (a, b), total in zip(pairs, sums, strict=True)]

    @property
    def row_lanes(self) -> int:
        """Lanes that share a row: a group of adjacent lanes."""
        return self.tiles.lanes[1]

    @property
    def together(self) -> int:
        """Adjacent columns per thread."""
        return self.slices[1].together

    def rows(self) -> list[Index]:
        """The rows of the tile for which this thread has accumulators."""
        return self.slices[0].positions()

    def columns(self) -> list[Index]:
        """The columns of the tile for which this thread has accumulators."""
        return self.slices[1].positions()

    def number(self, row: int, column: int) -> int:
        """The number of the accumulator at these indices of the thread's rows and columns."""
        return row * self.slices[1].count + column
