"""GEMV: matmuls of few rows whose right operand is contiguous along k, as blocks of dot products.

Input: a `Contraction` that has a `GemvTile` (A and B have unit stride along k), flat buffers with
their offsets, and the rows and columns of C. Output: the body of a shared function.
`unpacked_gemm.py` calls `emit_gemv`; no operand is copied, and B is read once, as a few streams.

Vectors run along k. An element of C has `parts` vector accumulators, which take the vectors of k
round-robin. At the end the accumulators are added, then the halves of the vector, until one number
is left. A long sum is cut into blocks of k (cascade_sum.py). So its value depends on the shape
alone, and not on how the ranges are cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.codegen.common.builder import BITS, splat, vector_type
from nova.codegen.common.cascade_sum import SUMS
from nova.codegen.common.combine import reduce_halves
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.cpu.gemm.unpacked_loops import Matrix, rows_in_steps
from nova.codegen.cpu.gemm.unpacked_tiling import GemvTile
from nova.codegen.cpu.multiply_add import multiply_add
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index, mul

_LINE = 512
"""Bits of a cache line."""


def emit_gemv(
    target: Target,
    spec: Contraction,
    tile: GemvTile,
    matrices: tuple[Matrix, Matrix, Matrix],
    sizes: tuple[Index, Index],
) -> None:
    """Emit C, of `sizes` rows and columns, at the insertion point."""
    body = _Gemv(target, spec, tile, *matrices)
    rows, columns = sizes

    def panel(j: Index, nr: int) -> None:
        rows_in_steps(rows, tile.mr, lambda i, mr: body.tile_of(i, j, (mr, nr)))

    rows_in_steps(columns, tile.nr, panel)


@record
class _Gemv:
    target: Target
    spec: Contraction
    tile: GemvTile
    a: Matrix
    b: Matrix
    c: Matrix

    @property
    def vec_type(self) -> ir.VectorType:
        return vector_type(self.spec.acc_type, self.tile.vl)

    def tile_of(self, i: Index, j: Index, shape: tuple[int, int]) -> None:
        """Emit the tile of C at (i, j)."""
        (mr, nr), spec = shape, self.spec
        lhs = [self._start(self.a, i, spec.a_strides[0], r) for r in range(mr)]
        rhs = [self._start(self.b, j, spec.b_strides[1], c) for c in range(nr)]
        sums = self._sums(lhs, rhs)
        count = mr * nr
        totals = [
            reduce_halves([sums[part * count + at] for part in range(self.tile.parts)], arith.addf)
            for at in range(count)
        ]
        for r in range(mr):
            self._store(add(i, r), j, totals[r * nr : (r + 1) * nr])

    def _start(self, matrix: Matrix, first: Index, stride: int, number: int) -> Index:
        return add(matrix[1], add(mul(first, stride), number * stride))

    def _sums(self, lhs: list[Index], rhs: list[Index]) -> list[ir.Value]:
        """The vector accumulators: for each part, the columns of each row."""
        spec, vl, parts = self.spec, self.tile.vl, self.tile.parts
        vectors = self.tile.vectors
        count = len(lhs) * len(rhs)
        sums = [splat(self.vec_type, 0.0)] * (parts * count)
        step = vectors * vl
        full = spec.k - spec.k % step
        if full > step:

            def iteration(at: ir.Value, inner: list[ir.Value]) -> list[ir.Value]:
                self._fetch(rhs, at, step)
                for v in range(vectors):
                    inner = self._step(inner, lhs, rhs, add(at, v * vl), v % parts, None)
                return inner

            sums = SUMS.emit_loop(full, step, sums, iteration, terms_per_iteration=vectors // parts)
        else:
            full = 0
        for number, k in enumerate(range(full, spec.k, vl)):
            exists = min(vl, spec.k - k)
            mask = None if exists == vl else self._mask(exists)
            sums = self._step(sums, lhs, rhs, k, number % parts, mask)
        return sums

    def _step(
        self,
        sums: list[ir.Value],
        lhs: list[Index],
        rhs: list[Index],
        k: Index,
        part: int,
        mask: ir.Value | None,
    ) -> list[ir.Value]:
        """One vector of k for all dot products of the tile."""
        rows = [self._load(self.a[0], add(at, k), mask) for at in lhs]
        result, first = list(sums), part * len(lhs) * len(rhs)
        for c, start in enumerate(rhs):
            column = self._load(self.b[0], add(start, k), mask)
            for r, row in enumerate(rows):
                at = first + r * len(rhs) + c
                result[at] = multiply_add(self.target, row, column, sums[at])
        return result

    def _fetch(self, right: list[Index], k: Index, step: int) -> None:
        """Prefetch the next columns at the same steps of k: their streams are short."""
        if not self.tile.ahead:
            return
        far = len(right) * self.spec.b_strides[1]
        for at in right:
            for lane in range(0, step, _LINE // BITS[self.spec.acc_type]):
                offset = [index(add(add(at, k), far + lane))]
                memref.prefetch(
                    self.b[0], offset, is_write=False, locality_hint=3, is_data_cache=True
                )

    def _mask(self, exists: int) -> ir.Value:
        flags = ir.VectorType.get([self.tile.vl], ir.IntegerType.get_signless(1))
        return vector.create_mask(flags, [index(exists)])

    def _load(self, buffer: ir.Value, at: Index, mask: ir.Value | None) -> ir.Value:
        if mask is None:
            return vector.load(self.vec_type, buffer, [index(at)])
        return vector.maskedload(
            self.vec_type, buffer, [index(at)], mask, splat(self.vec_type, 0.0)
        )

    def _store(self, i: Index, j: Index, totals: list[ir.Value]) -> None:
        """Sum the lanes of `totals`, the columns of a row from j on, and store them."""
        (row, column), (buffer, start) = self.spec.c_strides, self.c
        at = add(start, add(mul(i, row), mul(j, column)))
        group = min(4, self.tile.vl)
        for first in range(0, len(totals), group):
            group_totals = totals[first : first + group]
            lanes = _sum_lanes(group_totals + group_totals[-1:] * (group - len(group_totals)))
            offset = add(at, first * column)
            if len(group_totals) == group and column == 1:
                where = [index(offset)]
                if self.spec.accumulate:
                    lanes = arith.addf(vector.load(lanes.type, buffer, where), lanes)
                vector.store(lanes, buffer, where)
                continue
            for lane in range(len(group_totals)):
                where = [index(add(offset, lane * column))]
                value = vector.extract(lanes, [], [lane])
                if self.spec.accumulate:
                    value = arith.addf(memref.load(buffer, where), value)
                memref.store(value, buffer, where)


def _sum_lanes(vectors: Sequence[ir.Value]) -> ir.Value:
    """A vector with the sum of the lanes of each of `vectors`, whose count is a power of two.

    The upper half of a vector is added to the lower half until one lane is left. Vectors are
    concatenated on the way, so that this takes few instructions.
    """
    values, width = list(vectors), ir.VectorType(vectors[0].type).shape[0]
    lanes = width  # of each of the vectors that are concatenated in one value
    while lanes > 1:
        together = width // lanes
        low = [g * lanes + at for g in range(together) for at in range(lanes // 2)]
        high = [at + lanes // 2 for at in low]
        if len(values) > 1:
            pairs = list(zip(values[::2], values[1::2], strict=True))
            low += [width + at for at in low]
            high += [width + at for at in high]
        else:
            pairs = [(values[0], values[0])]
        values = [
            arith.addf(vector.shuffle(x, y, low), vector.shuffle(x, y, high)) for x, y in pairs
        ]
        lanes //= 2
        width = len(low)
    return values[0]
