"""Tensor-core matmul (mma.sync) of a warp's part of a stage.

Input: a matmul of tiles, and the warp and lane of this thread. Output: code that reads swizzled
tiles from shared memory and adds to accumulators. `mainloop.py` and `block.py` make a `TensorCore`
and call it in their loops.

A step is 32 bytes of k: 16 elements of two bytes, or 8 of tf32. An accumulator of 16 x 8 elements
is four numbers per lane: rows lane / 4 and that + 8, columns 2 (lane % 4) and that + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nova.codegen.common.builder import splat
from nova.codegen.gpu.gemm.plan import TF32_TYPES
from nova.codegen.gpu.gemm.shared_tile import CHUNK, Clean, SharedTile, TileMatmul
from nova.codegen.gpu.ptx_ops import SHARED, load, load_matrices, multiply, narrow_pair, round_tf32
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, add, divide, modulo, mul, offset_by

_STEP = 32
"""Bytes of k."""

Fragments = list[list[ir.Value]]
"""The registers of each fragment of a tile, at one step."""


@dataclass(frozen=True)
class Reader:
    """Fragments of one operand: 16 rows (or columns) by a step of k, as four 8 x 8 matrices.

    The matrices of A are in column-major order of a matrix of matrices (`rows_first`), those of B
    in row-major order. The warp's part of the tile begins at `first` and step `k_first`.
    """

    tile: SharedTile
    lane: ir.Value
    first: Index
    k_first: Index
    rows_first: bool
    element: str
    cached: dict[int, Index] = field(default_factory=dict)

    @property
    def tf32(self) -> bool:
        return self.element in TF32_TYPES

    def read(self, shared: Index, number: int, step: int) -> list[ir.Value]:
        """The registers of fragment `number` at this step of the stage.

        Those of `tf32x3` are four large parts, then four small ones.
        """
        tile = self.tile
        single = ir.F32Type.get()
        if self.tf32 and not tile.along_k:
            offsets = [self._word_offset(number, step, matrix) for matrix in range(4)]
            values = [load(single, offset_by(shared, *p), SHARED, 4) for p in offsets]
        else:
            values = load_matrices(
                offset_by(shared, *self._matrix_offset(number, step)), transposed=not tile.along_k
            )
            if self.tf32:
                values = [arith.bitcast(single, value) for value in values]
        if not self.tf32:
            return values
        large = [round_tf32(value) for value in values]
        if self.element == "tf32":
            return large
        return large + [round_tf32(_rest(*pair)) for pair in zip(values, large, strict=True)]

    def prepare(self, fragments: int, steps: range) -> None:
        """Compute the dynamic address terms before the loop over k."""
        for step in steps:
            for number in range(fragments):
                if self.tf32 and not self.tile.along_k:
                    for matrix in range(4):
                        self._word_offset(number, step, matrix)
                else:
                    self._matrix_offset(number, step)

    def _halves(self, matrix: Index) -> tuple[Index, Index]:
        """Whether a matrix is in the second half of the fragment: of its rows, and of k."""
        fast, slow = modulo(matrix, 2), divide(matrix, 2)
        return (fast, slow) if self.rows_first else (slow, fast)

    def _matrix_offset(self, number: int, step: int) -> tuple[Index, int]:
        """The address of this lane's row of a matrix: lane 8 i + j addresses row j of matrix i.

        Chunk numbers are XORed with their row number modulo eight (swizzle), to which only the lane
        contributes. The low bits of the chunk number take part in the XOR; the rest is added.
        """
        tile = self.tile
        within, (outer_half, k_half) = modulo(self.lane, 8), self._halves(divide(self.lane, 8))
        if tile.along_k:
            rows, chunks = number * 16, step * (_STEP // CHUNK)
        else:
            rows, chunks = step * (_STEP // tile.element), number * (16 // tile.per_chunk)
        mixed = chunks % 8
        if mixed not in self.cached:
            if tile.along_k:
                row = add(add(self.first, mul(outer_half, 8)), within)
                chunk = offset_by(mul(self.k_first, _STEP // CHUNK), k_half, mixed)
            else:
                row = offset_by(mul(self.k_first, _STEP // tile.element), mul(k_half, 8), within)
                chunk = offset_by(divide(self.first, tile.per_chunk), outer_half, mixed)
            self.cached[mixed] = tile.at(row, chunk)
        return self.cached[mixed], rows * tile.pitch + (chunks - mixed) * CHUNK

    def _word_offset(self, number: int, step: int, matrix: int) -> tuple[Index, int]:
        """The address of an element of tf32, in a tile whose rows do not run along k."""
        tile = self.tile
        outer_half, k_half = self._halves(matrix)
        assert isinstance(outer_half, int) and isinstance(k_half, int)
        group, member = divide(self.lane, 4), modulo(self.lane, 4)
        chunks = number * 4 + outer_half * 2
        mixed = chunks % 8
        if mixed not in self.cached:
            chunk = offset_by(divide(self.first, 4), divide(group, 4), mixed)
            row = add(mul(self.k_first, 8), member)
            self.cached[mixed] = add(tile.at(row, chunk), mul(modulo(group, 4), 4))
        return self.cached[mixed], (step * 8 + k_half * 4) * tile.pitch + (chunks - mixed) * CHUNK


def _rest(value: ir.Value, large: ir.Value) -> ir.Value:
    """A value (f32) without its large part (tf32), exactly."""
    word_type = large.type
    bits = arith.andi(large, splat(word_type, ~0x1FFF))  # the low bits of a tf32 are not specified
    return arith.subf(value, arith.bitcast(value.type, bits))


@dataclass(frozen=True)
class TensorCore:
    """The part of one warp: `at_rows` and `at_columns` of the tile, `part` of the steps."""

    tiles: TileMatmul
    lane: ir.Value
    at_rows: Index
    at_columns: Index
    part: Index
    readers: list[Reader] = field(default_factory=list)

    def prepare(self) -> None:
        tiles = self.tiles
        step = mul(self.part, self._steps)
        lhs = Reader(tiles.lhs, self.lane, self.at_rows, step, True, tiles.element)
        rhs = Reader(tiles.rhs, self.lane, self.at_columns, step, False, tiles.element)
        self.readers.extend((lhs, rhs))
        for reader, count in zip(self.readers, self._fragments, strict=True):
            reader.prepare(count, range(self._steps))

    @property
    def _fragments(self) -> tuple[int, int]:
        rows, columns = self.tiles.warp
        return rows // 16, columns // 16

    @property
    def _steps(self) -> int:
        """Steps of a stage that this warp computes."""
        return self.tiles.steps * self.tiles.lhs.element // _STEP

    def zeros(self) -> list[ir.Value]:
        rows, columns = self._fragments
        return [splat(ir.F32Type.get(), 0.0)] * (rows * columns * 8)

    def stage(self, lhs: Index, rhs: Index, sums: list[ir.Value]) -> list[ir.Value]:
        """Multiply-accumulate a stage whose tiles are at these addresses."""
        return self._multiply(lambda step: self._lhs_fragments(lhs, step), rhs, sums)

    def stage_from_registers(
        self,
        lhs: Sequence[Fragments],
        rhs: Index,
        sums: list[ir.Value],
        clean: Clean | None = None,
    ) -> list[ir.Value]:
        """Like `stage`, with the fragments of the left tile in registers for every step.

        `clean` transforms the elements read from the right tile.
        """
        return self._multiply(lambda step: lhs[step], rhs, sums, clean)

    def load_fragments(self, lhs: Index) -> list[Fragments]:
        """Load the fragments of a left tile into registers, for `stage_from_registers`."""
        return [self._lhs_fragments(lhs, step) for step in range(self._steps)]

    def as_lhs(self, sums: list[ir.Value]) -> list[Fragments]:
        """The accumulators as the left operand of another matmul, rounded to the operand type.

        A lane has the same positions in two adjacent accumulators as in a fragment.
        """
        rows, columns = self._fragments
        pairs = [
            narrow_pair(sums[i], sums[i + 1], self.tiles.element) for i in range(0, len(sums), 2)
        ]
        return [
            [pairs[4 * (row * columns + step) :][:4] for row in range(rows)]
            for step in range(columns)
        ]

    def _lhs_fragments(self, start: Index, step: int) -> Fragments:
        return [self.readers[0].read(start, number, step) for number in range(self._fragments[0])]

    def _multiply(
        self,
        lhs: Callable[[int], Fragments],
        rhs: Index,
        sums: list[ir.Value],
        clean: Clean | None = None,
    ) -> list[ir.Value]:
        sums = list(sums)
        rows, columns = self._fragments

        def fragments(step: int) -> tuple[Fragments, Fragments]:
            a = lhs(step)
            b = [self.readers[1].read(rhs, number, step) for number in range(columns)]
            return a, [[clean(word) for word in words] for words in b] if clean else b

        ahead = fragments(0)
        for step in range(self._steps):
            a, b = ahead
            if step + 1 < self._steps:
                ahead = fragments(step + 1)
            for row in range(rows):
                for column in range(2 * columns):
                    first = 4 * (row * 2 * columns + column)
                    words = b[column // 2]
                    at = 2 * (column % 2)
                    old = sums[first : first + 4]
                    for lhs_words, rhs_words in self._factors(a[row], words, at):
                        old = multiply(self._instruction, lhs_words, rhs_words, old)
                    sums[first : first + 4] = old
        return sums

    @property
    def _instruction(self) -> str:
        """The operand type of the instruction."""
        return "tf32" if self.tiles.element in TF32_TYPES else self.tiles.element

    def _factors(
        self, a: list[ir.Value], b: list[ir.Value], at: int
    ) -> list[tuple[list[ir.Value], list[ir.Value]]]:
        """The pairs of fragments whose matmuls are added: the small ones first.

        The matmul of both small parts is below the precision of the sum.
        """
        large = b[at : at + 2]
        if self.tiles.element != "tf32x3":
            return [(a, large)]
        small = b[4 + at : 6 + at]
        return [(a[4:], large), (a[:4], small), (a[:4], large)]

    row_lanes = 4
    """Lanes that share a row: a group of adjacent lanes."""

    together = 2
    """Adjacent columns per thread."""

    def rows(self) -> list[Index]:
        """The rows of the tile for which this thread has accumulators."""
        group = divide(self.lane, 4)
        return [offset_by(self.at_rows, group, 8 * i) for i in range(2 * self._fragments[0])]

    def columns(self) -> list[Index]:
        """The columns of the tile for which this thread has accumulators."""
        pair = mul(modulo(self.lane, 4), 2)
        count = 2 * self._fragments[1]
        return [offset_by(self.at_columns, pair, 8 * i + k) for i in range(count) for k in range(2)]

    def number(self, row: int, column: int) -> int:
        """The number of the accumulator at these indices of the thread's rows and columns."""
        accumulator = row // 2 * 2 * self._fragments[1] + column // 2
        return 4 * accumulator + 2 * (row % 2) + column % 2
