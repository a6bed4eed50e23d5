"""The accumulators of a warpgroup matmul in a thread: rows, columns, and hidden scores.

A thread has rows lane / 4 and that + 8 of its warp's 16, and columns 2 (lane % 4) and that + 1 of
every 8. Converted to 16 bits, accumulators are the words of an operand in registers of the next
matmul, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from nova.codegen.common.builder import BITS, element_type, splat, vector_type
from nova.codegen.common.match_attention import Matrix
from nova.codegen.gpu.block_ops import when
from nova.codegen.gpu.ptx_ops import GLOBAL, global_base, narrow_pair, store, word
from nova.ir.bindings import arith, ir, vector
from nova.ir.index import add, compare, mul

_LESS = arith.CmpIPredicate.slt


@dataclass(frozen=True)
class Fragment:
    """The part of a thread, by its number in its warpgroup (i32), in 64 rows."""

    thread: ir.Value

    @property
    def lane(self) -> ir.Value:
        return arith.andi(self.thread, word(31))

    @property
    def first_row(self) -> ir.Value:
        """The row of its first accumulators among the 64 (i32); the others are 8 further."""
        warp_row = arith.shli(arith.shrui(self.thread, word(5)), word(4))
        return arith.addi(warp_row, arith.shrui(self.lane, word(2)))

    @property
    def first_column(self) -> ir.Value:
        """The column of its first accumulator (i32)."""
        return arith.shli(arith.andi(self.lane, word(3)), word(1))


def numbers_of_row(count: int, half: int) -> list[int]:
    """The accumulators of a row of the thread: the first row (0) or the second (1)."""
    return [n for n in range(count) if n // 2 % 2 == half]


def column_of(number: int) -> int:
    """The column of an accumulator, relative to that of the first one."""
    return number // 4 * 8 + number % 2


def pack_operand(values: Sequence[ir.Value], element: str) -> list[ir.Value]:
    """Accumulators as the words of a matmul operand in registers."""
    return [narrow_pair(values[n], values[n + 1], element) for n in range(0, len(values), 2)]


def hide(
    values: Sequence[ir.Value], limits: Sequence[ir.Value], *, after: bool = True
) -> list[ir.Value]:
    """-inf for accumulators whose column (`column_of`) is after (or before) their row's limit."""
    predicate = arith.CmpIPredicate.sgt if after else arith.CmpIPredicate.slt
    hidden = splat(values[0].type, -inf)
    return [
        arith.select(arith.cmpi(predicate, word(column_of(n)), limits[n // 2 % 2]), hidden, value)
        for n, value in enumerate(values)
    ]


def write_rows(
    matrix: Matrix,
    values: Sequence[ir.Value],
    rows: Sequence[ir.Value],
    sizes: tuple[int, int],
    column: ir.Value,
    factors: Sequence[ir.Value],
    aligned: Sequence[int],
) -> None:
    """Store a thread's part of a result of `sizes` rows and columns: `rows` (index) of it.

    `factors` scale the rows. Offsets and strides of the result are multiples of those in `aligned`:
    two elements are stored together where they are even.
    """
    row_count, columns = sizes
    size = BITS[matrix.type] // 8
    paired = matrix.column == 1 and all(value % 2 == 0 for value in aligned)
    for half, row in enumerate(rows):
        scale = factors[half]
        with when(compare(_LESS, row, row_count)):
            start = add(global_base(matrix.buffer), mul(matrix.at(row, column), size))
            for n in numbers_of_row(len(values), half)[::2]:
                if column_of(n) >= columns:
                    continue
                pair = [arith.mulf(values[n + k], scale) for k in range(2)]
                if paired:
                    address = add(start, column_of(n) * size)
                    store(_packed(pair, matrix.type), address, GLOBAL, 2 * size)
                    continue
                for k, value in enumerate(pair):
                    address = add(start, mul(column_of(n) + k, matrix.column * size))
                    narrow = value
                    if matrix.type != "f32":
                        narrow = arith.truncf(element_type(matrix.type), value)
                    store(narrow, address, GLOBAL, size)


def _packed(pair: Sequence[ir.Value], type_: str) -> ir.Value:
    if type_ in ("bf16", "f16"):
        return narrow_pair(pair[0], pair[1], type_)
    return vector.from_elements(vector_type(type_, 2), list(pair))
