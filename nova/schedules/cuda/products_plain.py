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
from nova.schedules.cuda.products_tiles import CHUNK, SharedTile
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

    def read(self, shared: Index, step: int) -> list[list[ir.Value]]:
        """Elements of all rows, for each of the steps of a chunk from `step` on."""
        tile, base, steps = self.tile, add(shared, self.start[0]), self.tile.per_chunk
        scalar = element_type(self.element)
        if tile.along_k:
            kind = vector_type(self.element, steps)
            rows = [
                load(
                    kind, at(base, self.offset(i) * tile.pitch, step * tile.element), SHARED, CHUNK
                )
                for i in range(self.count)
            ]
            return [[vector.extract(row, [], [k]) for row in rows] for k in range(steps)]
        size = self.together
        found = []
        for k in range(step, step + steps):
            row: list[ir.Value] = []
            for i in range(0, self.count, size):
                place = at(base, k * tile.pitch, self.offset(i) * tile.element)
                kind = vector_type(self.element, size) if size > 1 else scalar
                value = load(kind, place, SHARED, size * tile.element)
                row += (
                    [vector.extract(value, [], [n]) for n in range(size)] if size > 1 else [value]
                )
            found.append(row)
        return found


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
        for step in range(0, self._steps, of_rows.tile.per_chunk):
            pairs = zip(of_rows.read(left, step), of_columns.read(right, step), strict=True)
            for a, b in pairs:
                for i, row in enumerate(a):
                    for j, column in enumerate(b):
                        place = i * len(b) + j
                        sums[place] = fused(row, column, sums[place])
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
