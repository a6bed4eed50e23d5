"""Products of a thread's part of a stage with ordinary multiply-adds, exact to the type.

In: a plan, and which warp and lane this thread is; out: code that reads tiles from shared memory
and adds to accumulators. `products.py` makes one `PlainCore` and calls it in its loop.

A warp is 4 x 8 threads. What a thread has of the rows (or columns) depends on how the tile lies:
where it runs along k, every fourth row (eighth column), and 16 bytes of k are read at once; else
groups of 16 bytes of neighbours. Both let a warp read without waiting for banks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nova.mlir.bindings import ir, vector
from nova.schedules.cuda.instructions import SHARED, at, divide, fused, load, modulo
from nova.schedules.cuda.products_plan import ProductPlan
from nova.schedules.cuda.products_tiles import SharedTile
from nova.schedules.words import Index, add, element_type, mul, splat, vector_type

LANES = (4, 8)
"""Threads of a warp along rows and along columns."""


@dataclass(frozen=True)
class Strip:
    """What a thread has of one operand: `count` rows (or columns), the warp's from `first` on."""

    tile: SharedTile
    element: str
    lane: Index
    lanes: int
    first: Index
    k_first: Index
    count: int
    start: list[Index] = field(default_factory=list)

    @property
    def together(self) -> int:
        """Neighbours that are read at once, or lie at once."""
        return 1 if self.tile.along_k else min(self.count, self.tile.per_chunk)

    def offset(self, number: int) -> int:
        """How far from the thread's first row the one with this number is."""
        group, rest = divmod(number, self.together)
        return group * self.lanes * self.together + rest

    def prepare(self) -> None:
        """The address of the thread's first element, before the loop over k."""
        tile = self.tile
        first = add(self.first, mul(self.lane, self.together))
        across, along = (first, self.k_first) if tile.along_k else (self.k_first, first)
        self.start.append(add(mul(across, tile.pitch), mul(along, tile.element)))

    def read(self, shared: Index, step: int) -> Iterator[list[ir.Value]]:
        """The elements of a chunk of steps from `step` on, in the order in which they are read.

        Along k, those of all steps for a row at a time; else those of all rows for a step.
        """
        tile, base = self.tile, add(shared, self.start[0])
        if tile.along_k:
            for row in range(self.count):
                place = at(base, self.offset(row) * tile.pitch, step * tile.element)
                yield self._load(place, tile.per_chunk)
            return
        for k in range(step, step + tile.per_chunk):
            values: list[ir.Value] = []
            for row in range(0, self.count, self.together):
                place = at(base, k * tile.pitch, self.offset(row) * tile.element)
                values += self._load(place, self.together)
            yield values

    def by_step(self, shared: Index, step: int) -> Iterator[list[ir.Value]]:
        """The elements of all rows, for one step of a chunk after the other."""
        if not self.tile.along_k:
            return self.read(shared, step)
        return map(list, zip(*self.read(shared, step), strict=True))

    def _load(self, place: Index, count: int) -> list[ir.Value]:
        size = count * self.tile.element
        if count == 1:
            return [load(element_type(self.element), place, SHARED, size)]
        value = load(vector_type(self.element, count), place, SHARED, size)
        return [vector.extract(value, [], [i]) for i in range(count)]


@dataclass(frozen=True)
class PlainCore:
    """The part of one thread: `at_rows` and `at_columns` of its warp, `part` of the steps."""

    plan: ProductPlan
    lane: ir.Value
    at_rows: Index
    at_columns: Index
    part: Index
    strips: list[Strip] = field(default_factory=list)

    def prepare(self) -> None:
        plan = self.plan
        lanes = divide(self.lane, LANES[1]), modulo(self.lane, LANES[1])
        step = mul(self.part, self._steps)
        sides = (plan.left.tile, self.at_rows), (plan.right.tile, self.at_columns)
        for i, (tile, first) in enumerate(sides):
            count = plan.shape.warp[i] // LANES[i]
            strip = Strip(tile, plan.element, lanes[i], LANES[i], first, step, count)
            strip.prepare()
            self.strips.append(strip)

    @property
    def _steps(self) -> int:
        return self.plan.shape.depth // self.plan.shape.split

    def zeros(self) -> list[ir.Value]:
        rows, columns = (strip.count for strip in self.strips)
        return [splat(element_type(self.plan.element), 0.0)] * (rows * columns)

    def stage(self, left: Index, right: Index, sums: list[ir.Value]) -> list[ir.Value]:
        """Add the products of a stage whose tiles are at these addresses."""
        sums = list(sums)
        of_rows, of_columns = self.strips

        def multiply(row: int, column: int, a: ir.Value, b: ir.Value) -> None:
            place = row * of_columns.count + column
            sums[place] = fused(a, b, sums[place])

        for step in range(0, self._steps, of_rows.tile.per_chunk):
            if of_rows.tile.along_k and of_columns.tile.along_k:
                # All rows are held, and columns pass by: both would be too many registers.
                rows = list(of_rows.read(left, step))
                for j, column in enumerate(of_columns.read(right, step)):
                    for k, b in enumerate(column):
                        for i, row in enumerate(rows):
                            multiply(i, j, row[k], b)
                continue
            sides = of_rows.by_step(left, step), of_columns.by_step(right, step)
            for a_step, b_step in zip(*sides, strict=True):
                for i, a in enumerate(a_step):
                    for j, b in enumerate(b_step):
                        multiply(i, j, a, b)
        return sums

    def parts(self, sums: list[ir.Value]) -> Iterator[tuple[Index, Index, list[ir.Value]]]:
        """Row and column in the tile, and neighbours in a row from there on."""
        of_rows, of_columns = self.strips
        rows = add(of_rows.first, mul(of_rows.lane, of_rows.together))
        columns = add(of_columns.first, mul(of_columns.lane, of_columns.together))
        size = of_columns.together
        for i in range(of_rows.count):
            for j in range(0, of_columns.count, size):
                place = i * of_columns.count + j
                row, column = add(rows, of_rows.offset(i)), add(columns, of_columns.offset(j))
                yield row, column, sums[place : place + size]
