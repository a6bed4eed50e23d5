"""The AMX microkernel: VNNI words of A and B multiplied into C, two by two tile registers.

Input: packed operands of the layouts in tiles (vnni_packing.py), C, and the address of the old
values. Output: a call of a shared function that loops over column panels, micropanels and k. The
function configures the tile registers first and releases them at its end, so no other code sees
them. `packed_gemm.py` calls `multiply_tiles`.

The accumulator tiles start as the old values: loaded directly from C where the whole tile exists
and its columns are contiguous, otherwise through a scratch tile. Both give the same sums. A last
micropanel of at most 16 rows uses one row of tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from nova.codegen.common.builder import branch, loop, splat, vector_type
from nova.codegen.cpu import x86_intrinsics as x86
from nova.codegen.cpu.gemm.packed_layout import TILE
from nova.codegen.cpu.gemm.store_tile import StridedMatrix
from nova.codegen.cpu.shared_functions import call_shared, entry_alloca
from nova.core.records import record
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, compare, index, minimum, mul, sub
from nova.ir.symbolic.size_table import is_number

_SIDE = 2 * TILE
"""Rows and columns of C in tile registers 0 to 3; A is in 4 and 5, B in 6 and 7."""

_WORD = 4
"""Bytes of a VNNI word, and of an f32 or i32."""


def multiply_tiles(
    types: tuple[str, str, str],
    a: ir.Value,
    b: ir.Value,
    c: StridedMatrix,
    old: StridedMatrix,
    rows: Index,
    columns: Index,
    words: Index,
    b_offset: Index,
) -> None:
    """C = old + A*B for packed A (`rows`) and B (`columns`), both `words` words deep.

    The panels of B begin at `b_offset` of its buffer. `old` is C itself, or a row of 32 elements
    with both strides 0. `types` are those of A, B and the sums.
    """
    unit = is_number(c.column_stride, 1)

    def body(*values: ir.Value) -> None:
        a_panels, b_panels, into, before, *numbers = values
        c_at, c_row, c_column, old_at, old_row, old_column, m, n, k, b_at = numbers
        written = StridedMatrix(into, c_at, c_row, 1 if unit else c_column)
        read = StridedMatrix(before, old_at, old_row, old_column)
        scratch = entry_alloca(_SIDE * _SIDE, types[2])
        _Body(types, a_panels, b_panels, written, read, unit, scratch).emit(m, n, k, b_at)

    numbers = [index(n) for n in (*c.numbers, *old.numbers, rows, columns, words, b_offset)]
    name = f"nova_multiply_tiles{'' if unit else '_strided'}_{'_'.join(types[:2])}"
    call_shared(name, (a, b, c.buffer, old.buffer), numbers, 2, body)


@record
class _Body:
    """The body of one microkernel function."""

    types: tuple[str, str, str]
    a: ir.Value
    b: ir.Value
    c: StridedMatrix
    old: StridedMatrix
    unit: bool
    scratch: ir.Value

    def emit(self, rows: Index, columns: Index, words: Index, b_offset: Index) -> None:
        _configure()
        with loop(0, columns, _SIDE) as j, loop(0, rows, _SIDE) as i:
            a_at, b_at = mul(i, words), add(b_offset, mul(j, words))
            remaining = sub(rows, i), sub(columns, j)
            starts = self.c.at(i, j), self.old.at(i, j)
            one_row, two_rows = (
                functools.partial(self._panel, count, a_at, b_at, words, remaining, starts)
                for count in (1, 2)
            )
            branch(compare(arith.CmpIPredicate.sle, remaining[0], TILE), one_row, two_rows)
        x86.release_tiles()

    def _panel(
        self,
        count: int,
        a_at: Index,
        b_at: Index,
        words: Index,
        remaining: tuple[Index, Index],
        starts: tuple[Index, Index],
    ) -> None:
        """`count` by two tiles of C, of which `remaining` rows and columns (or more) exist."""
        rows, columns = remaining
        c_at, old_at = starts

        def full() -> None:
            self._prefetch(count, c_at)
            self._move(x86.load_tile, count, self.old, old_at)
            self._multiply(count, a_at, b_at, words)
            self._move(x86.store_tile_register, count, self.c, c_at)

        def part() -> None:
            copy = StridedMatrix(self.scratch, 0, _SIDE, 1)
            existing = minimum(rows, count * TILE), columns
            self._copy((self.old, old_at), (copy, 0), *existing)
            self._move(x86.load_tile, count, copy, 0)
            self._multiply(count, a_at, b_at, words)
            self._move(x86.store_tile_register, count, copy, 0)
            self._copy((copy, 0), (self.c, c_at), *existing)

        if not self.unit:
            part()
            return
        is_full = arith.andi(
            compare(arith.CmpIPredicate.sge, rows, count * TILE),
            compare(arith.CmpIPredicate.sge, columns, _SIDE),
        )
        branch(is_full, full, part)

    def _prefetch(self, count: int, start: Index) -> None:
        """Prefetch the tiles of C while they are computed: hardware cannot at such a row stride."""
        for row in range(count * TILE):
            begin = add(start, mul(self.c.row_stride, row))
            for column in range(2):
                at = [index(add(begin, column * TILE))]
                memref.prefetch(
                    self.c.buffer, at, is_write=True, locality_hint=3, is_data_cache=True
                )

    def _multiply(self, count: int, a_at: Index, b_at: Index, words: Index) -> None:
        with loop(0, words, TILE) as word:
            a_tile, b_tile = (add(at, mul(word, _SIDE)) for at in (a_at, b_at))
            for column in range(2):
                address = x86.address_of(self.b, add(b_tile, column * TILE))
                x86.load_tile(6 + column, address, _SIDE * _WORD)
            for row in range(count):
                address = x86.address_of(self.a, add(a_tile, row * TILE * TILE))
                x86.load_tile(4 + row, address, TILE * _WORD)
                for column in range(2):
                    x86.multiply_tiles(self.types[:2], 2 * row + column, 4 + row, 6 + column)

    def _move(
        self,
        move: Callable[[int, ir.Value, Index], None],
        count: int,
        matrix: StridedMatrix,
        start: Index,
    ) -> None:
        """Load or store the tiles of C; the rows of `matrix` are contiguous."""
        for row in range(count):
            begin = add(start, mul(matrix.row_stride, row * TILE))
            for column in range(2):
                address = x86.address_of(matrix.buffer, add(begin, column * TILE))
                move(2 * row + column, address, mul(matrix.row_stride, _WORD))

    def _copy(
        self,
        source: tuple[StridedMatrix, Index],
        into: tuple[StridedMatrix, Index],
        rows: Index,
        columns: Index,
    ) -> None:
        """Copy the rows and columns of a tile that exist from one buffer to another."""
        (read, read_at), (written, written_at) = source, into
        if not self.unit:
            with loop(0, rows, 1) as i, loop(0, minimum(columns, _SIDE), 1) as j:
                inner = [
                    add(mul(i, p.row_stride), mul(j, p.column_stride)) for p in (read, written)
                ]
                value = memref.load(read.buffer, [index(add(read_at, inner[0]))])
                memref.store(value, written.buffer, [index(add(written_at, inner[1]))])
            return
        row_type = vector_type(self.types[2], TILE)
        flags = ir.VectorType.get([TILE], ir.IntegerType.get_signless(1))
        with loop(0, rows, 1) as i, loop(0, _SIDE, TILE) as j:
            mask = vector.create_mask(flags, [index(sub(columns, j))])
            at = [
                index(add(start, add(mul(i, matrix.row_stride), j)))
                for matrix, start in (source, into)
            ]
            value = vector.maskedload(row_type, read.buffer, [at[0]], mask, splat(row_type, 0.0))
            vector.maskedstore(written.buffer, [at[1]], mask, value)


def _configure() -> None:
    """Palette 1, and 16 rows of 64 bytes for each of the eight tile registers."""
    table = np.zeros(64, np.uint8)
    table[0] = 1
    table[16:32:2] = TILE * _WORD
    table[48:56] = TILE
    table_type = vector_type("i32", TILE)
    value = arith.constant(
        table_type, ir.DenseElementsAttr.get(table.view(np.int32), type=table_type)
    )
    buffer = entry_alloca(TILE, "i32")
    vector.store(value, buffer, [index(0)])
    x86.configure_tiles(x86.address_of(buffer, 0))
