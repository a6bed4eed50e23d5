"""A small GEMM whose sizes are known at run time, which reads its operands in place.

Input: a `Contraction` with symbolic columns or depth for which `takes_small` holds, flat memrefs
with offsets, and the range of C. Output: a call of a shared function, which takes the sizes and
strides as numbers. `strategies.py` calls it where `is_small` holds at run time: packing operands
that fit into the caches would take as long as multiplying them.

Tiles have six or four rows, as in `few_rows.py`; an odd number repeats the last row. The last
columns are a vector that ends with the row, and may repeat columns of the one before it. So
nothing is masked, and elements are computed twice with the same result. Only a C of at most one
vector of columns is masked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from nova.codegen.common.builder import BITS, branch, loop, splat, vector_type
from nova.codegen.common.cascade_sum import carried
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.common.overrides import NO_OVERRIDES
from nova.codegen.cpu.gemm.few_rows import operand_starts, vectors_per_row
from nova.codegen.cpu.gemm.unpacked_loops import Matrix
from nova.codegen.cpu.multiply_add import multiply_add
from nova.codegen.cpu.shared_functions import call_shared
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, compare, index, minimum, mul, sub

_MORE, _LESS = 6, 4
"""Rows at a time."""

_NARROW = 8
"""Rows at a time of one vector of columns: as many sums hide the latency of adding."""

_MOST = 128
"""Rows, columns and steps of k: from there on, packed panels are as fast."""


def takes_small(spec: Contraction) -> bool:
    """Whether columns or k are symbolic, and B and C have contiguous rows of floats."""
    if spec.packed or spec.packed_rows or spec.windows or spec.accumulate:
        return False
    if spec.overrides != NO_OVERRIDES or (isinstance(spec.n, int) and isinstance(spec.k, int)):
        return False
    return (
        spec.a_type == spec.b_type == spec.acc_type
        and spec.acc_type in ("f32", "f64")
        and spec.b_strides[1] == spec.c_strides[1] == 1
    )


def is_small(spec: Contraction, ranges: tuple[ir.Value, ir.Value, ir.Value, ir.Value]) -> ir.Value:
    """Whether a range of C is small at run time, and has elements."""
    m_lo, m_hi, n_lo, n_hi = ranges
    rows, columns = sub(m_hi, m_lo), sub(n_hi, n_lo)
    most, least = arith.CmpIPredicate.sle, arith.CmpIPredicate.sge
    conditions = [compare(most, size, _MOST) for size in (rows, columns, spec.k)]
    conditions += [compare(least, size, 1) for size in (rows, columns)]
    return reduce(arith.andi, [c for c in conditions if isinstance(c, ir.Value)])


def emit_small(
    target: Target,
    spec: Contraction,
    buffers: tuple[ir.Value, ir.Value, ir.Value],
    offsets: tuple[ir.Value, ir.Value, ir.Value],
    ranges: tuple[ir.Value, ir.Value, ir.Value, ir.Value],
) -> None:
    """Emit C[m_lo:m_hi, n_lo:n_hi] for the whole of k; `ranges` are those four numbers."""
    m_lo, m_hi, n_lo, n_hi = ranges
    starts = operand_starts(spec, offsets, m_lo, n_lo)
    sizes = [sub(m_hi, m_lo), sub(n_hi, n_lo), spec.k]
    steps = [*spec.a_strides, spec.b_strides[0], spec.c_strides[0]]
    along = spec.a_strides[1] == 1

    def body(a: ir.Value, b: ir.Value, c: ir.Value, *numbers: ir.Value) -> None:
        a_at, b_at, c_at, rows, columns, k, a_row, a_step, b_row, c_row = numbers
        steps = (a_row, 1 if along else a_step, b_row, c_row)
        lanes = target.lanes(BITS[spec.acc_type])
        code = _Code(target, spec.acc_type, (a, a_at), (b, b_at), (c, c_at), lanes, k, steps)
        code.emit(rows, columns)

    name = f"nova_small_{spec.acc_type}{'_along' if along else ''}"
    call_shared(name, buffers, [index(n) for n in (*starts, *sizes, *steps)], 2, body)


@record
class _Code:
    """The body of one function."""

    target: Target
    type: str
    a: Matrix
    b: Matrix
    c: Matrix
    lanes: int
    k: ir.Value
    steps: tuple[Index, Index, Index, Index]
    mask: ir.Value | None = None
    """The lanes that have columns; None: all."""

    def emit(self, rows: ir.Value, columns: ir.Value) -> None:
        branch(
            compare(arith.CmpIPredicate.sgt, columns, self.lanes),
            lambda: self._emit_wide(rows, columns),
            lambda: self._emit_narrow(rows, columns),
        )

    def _emit_narrow(self, rows: ir.Value, columns: ir.Value) -> None:
        """Rows of at most one vector."""
        flags = ir.VectorType.get([self.lanes], ir.IntegerType.get_signless(1))
        narrow = replace(self, mask=vector.create_mask(flags, [columns]))
        with loop(0, rows, _NARROW) as i:
            narrow._tile(i, _NARROW, rows, [0])

    def _emit_wide(self, rows: ir.Value, columns: ir.Value) -> None:
        """All rows of a panel of columns before the next."""
        even = arith.andi(index(add(rows, 1)), index(-2))
        even = arith.maxui(even, index(_LESS))
        # Of an even number: the remainder by six is 0, 4 or 2, so 0, 4 or 8 rows are in fours.
        fours = arith.remui(index(sub(12, mul(arith.remui(even, index(_MORE)), 2))), index(12))
        start = index(sub(even, fours))
        lanes, most = self.lanes, vectors_per_row(self.target)
        end = sub(columns, lanes)

        def panel(j: Index, nv: int) -> None:
            # The last vector ends with the row.
            starts = [j, *(minimum(add(j, v * lanes), end) for v in range(1, nv))]
            starts[0] = minimum(j, end)
            heights = ((0, start, _MORE), (start, rows, _LESS)) if nv > 1 else ((0, rows, _NARROW),)
            for low, high, mr in heights:
                with loop(low, high, mr) as i:
                    self._tile(i, mr, rows, starts)

        def panels(j: Index, width: Index, nv: int) -> None:
            """A panel for `width` columns: at most `nv` vectors."""
            if nv == 1:
                panel(j, 1)
                return
            has_more = compare(arith.CmpIPredicate.sgt, width, (nv - 1) * lanes)
            branch(has_more, lambda: panel(j, nv), lambda: panels(j, width, nv - 1))

        step: Index = most * lanes
        if most > 3:  # five vectors are three and two: one vector takes as long as two
            is_five = compare(arith.CmpIPredicate.ule, sub(columns, 4 * lanes + 1), lanes - 1)
            step = arith.select(is_five, index(3 * lanes), index(step))
        with loop(0, columns, step) as j:
            panels(j, minimum(sub(columns, j), step), most)

    def _tile(self, i: ir.Value, mr: int, rows: ir.Value, starts: list[Index]) -> None:
        """Some rows, and the vectors of columns that start there."""
        last, (a_row, _, _, c_row) = index(sub(rows, 1)), self.steps
        numbers = [i, *(arith.minui(index(add(i, r)), last) for r in range(1, mr))]
        a_rows = [add(self.a[1], mul(n, a_row)) for n in numbers]
        c_rows = [add(self.c[1], mul(n, c_row)) for n in numbers]
        zero = splat(vector_type(self.type, self.lanes), 0.0)
        sums = carried(
            0,
            self.k,
            1,
            [zero] * (mr * len(starts)),
            lambda at, values: self._step(a_rows, at, starts, values),
        )
        positions = [index(add(row, start)) for row in c_rows for start in starts]
        for at, total in zip(positions, sums, strict=True):
            if self.mask is None:
                vector.store(total, self.c[0], [at])
            else:
                vector.maskedstore(self.c[0], [at], self.mask, total)

    def _load(self, at: ir.Value) -> ir.Value:
        type_ = vector_type(self.type, self.lanes)
        if self.mask is None:
            return vector.load(type_, self.b[0], [at])
        return vector.maskedload(type_, self.b[0], [at], self.mask, splat(type_, 0.0))

    def _step(
        self, a_rows: list[Index], k: ir.Value, starts: list[Index], sums: list[ir.Value]
    ) -> list[ir.Value]:
        _, a_step, b_row, _ = self.steps
        type_ = vector_type(self.type, self.lanes)
        first = add(self.b[1], mul(k, b_row))
        row = [self._load(index(add(first, start))) for start in starts]
        spread = [
            vector.broadcast(type_, memref.load(self.a[0], [index(add(a_row, mul(k, a_step)))]))
            for a_row in a_rows
        ]
        terms = [(x, y) for x in spread for y in row]
        return [
            multiply_add(self.target, x, y, total)
            for (x, y), total in zip(terms, sums, strict=True)
        ]
