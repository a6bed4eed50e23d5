"""Stores a register tile to C: the whole tile, or the part that lies inside C.

Input: the vectors of a tile, row by row, and C and its old values in memory (`StridedMatrix`).
Output: code at the insertion point that adds the tile to the old values. `microkernel.py` calls
`store_tile`.
"""

from __future__ import annotations

from nova.codegen.common.builder import branch, load_vector, loop, splat, store_vector
from nova.codegen.cpu.multiply_add import add_values
from nova.codegen.cpu.transpose_registers import transpose
from nova.core.records import record
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, compare, index, minimum, mul, sub
from nova.ir.symbolic.size_table import is_number


@record
class StridedMatrix:
    """A matrix in memory: element (row, column) is at `offset + row*row_stride + ...`."""

    buffer: ir.Value
    offset: Index
    row_stride: Index
    column_stride: Index

    @property
    def numbers(self) -> tuple[Index, Index, Index]:
        return self.offset, self.row_stride, self.column_stride

    @property
    def transposed(self) -> StridedMatrix:
        return StridedMatrix(self.buffer, self.offset, self.column_stride, self.row_stride)

    def at(self, row: Index, column: Index) -> Index:
        inner = add(mul(row, self.row_stride), mul(column, self.column_stride))
        return add(self.offset, inner)


def store_tile(
    tile: list[ir.Value],
    nv: int,
    scratch: ir.Value,
    into: tuple[StridedMatrix, Index],
    before: tuple[StridedMatrix, Index],
    rows: Index,
    columns: Index,
    *,
    unit: bool,
) -> None:
    """C = old + tile, for the first `rows` and `columns`, which may exceed the tile.

    A row has `nv` vectors. `into` and `before` are C and its old values, each with the offset of
    the tile; with `unit`, both have contiguous columns. If C has contiguous rows, the tile is
    transposed in registers. `scratch` has room for a tile.
    """
    row_type = tile[0].type
    vl, mr = row_type.shape[0], len(tile) // nv
    nr = nv * vl
    (c, c_at), (old, old_at) = into, before

    def store_full() -> None:
        for i in range(mr):
            target, source = add(c_at, mul(i, c.row_stride)), add(old_at, mul(i, old.row_stride))
            for v in range(nv):
                was = load_vector(row_type, old.buffer, index(add(source, v * vl)))
                value = add_values(was, tile[i * nv + v])
                store_vector(value, c.buffer, index(add(target, v * vl)))

    def spill() -> None:
        for number, value in enumerate(tile):
            store_vector(value, scratch, index(number * vl))

    def store_masked() -> None:
        spill()
        flags = ir.VectorType.get([vl], ir.IntegerType.get_signless(1))
        with loop(0, minimum(rows, mr), 1) as i, loop(0, nr, vl) as j:
            mask = vector.create_mask(flags, [index(sub(columns, j))])
            target = [index(add(c_at, add(mul(i, c.row_stride), j)))]
            source = [index(add(old_at, add(mul(i, old.row_stride), j)))]
            was = vector.maskedload(row_type, old.buffer, source, mask, splat(row_type, 0.0))
            value = vector.load(row_type, scratch, [index(add(mul(i, nr), j))])
            vector.maskedstore(c.buffer, target, mask, add_values(was, value))

    def scattered() -> None:
        spill()
        with loop(0, minimum(rows, mr), 1) as i, loop(0, minimum(columns, nr), 1) as j:
            inner = [add(mul(i, p.row_stride), mul(j, p.column_stride)) for p in (c, old)]
            was = memref.load(old.buffer, [index(add(old_at, inner[1]))])
            value = memref.load(scratch, [index(add(mul(i, nr), j))])
            memref.store(add_values(was, value), c.buffer, [index(add(c_at, inner[0]))])

    def store_transposed() -> None:
        flags = ir.VectorType.get([vl], ir.IntegerType.get_signless(1))
        mask = vector.create_mask(flags, [index(minimum(rows, mr))])
        zero = splat(row_type, 0.0)
        # Lanes of old values that are one row of zeros have stride 0: they are the same zeros.
        for v in range(nv):
            square = [tile[i * nv + v] for i in range(mr)] + [zero] * (vl - mr)
            for j, values in enumerate(transpose(square, row_type.element_type.width)):
                column = v * vl + j
                target = [index(add(c_at, mul(column, c.column_stride)))]
                source = [index(add(old_at, mul(column, old.column_stride)))]
                was = vector.maskedload(row_type, old.buffer, source, mask, zero)
                vector.maskedstore(c.buffer, target, mask, add_values(was, values))

    if not unit and is_number(c.row_stride, 1) and mr <= vl:
        branch(compare(arith.CmpIPredicate.sge, columns, nr), store_transposed, scattered)
        return
    if not unit:
        scattered()
        return
    is_full = arith.andi(
        compare(arith.CmpIPredicate.sge, rows, mr),
        compare(arith.CmpIPredicate.sge, columns, nr),
    )
    branch(is_full, store_full, store_masked)
