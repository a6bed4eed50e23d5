"""A GEMM of few rows, whose number is known at run time, that reads its operands in place.

Input: a `Contraction` with a symbolic number of rows for which `takes_few_rows` holds, flat memrefs
with offsets, and the range of C. Output: a call of a shared function. `strategies.py` calls
`emit_few_rows` where a tile has few rows: packing them, and the columns of B, would not pay.

The code is for six rows and four rows at a time, which make up every even number from four on. An
odd number repeats the last row, which is then computed and stored twice. k is cut into blocks,
whose sums are added to C. All rows of a panel of columns are computed for a block of k before the
next block: the L1 cache has its rows of B.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.codegen.common.builder import BITS, loop, splat, vector_type
from nova.codegen.common.cascade_sum import LONG, carried
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.cpu.gemm.blocking import registers_used
from nova.codegen.cpu.gemm.unpacked_loops import Matrix, step_loop
from nova.codegen.cpu.multiply_add import multiply_add
from nova.codegen.cpu.shared_functions import call_shared
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index, minimum, mul, sub

_MORE, _LESS = 6, 4
"""Rows at a time."""

_LEAST_RIGHT = 128 << 10
"""Bytes of B from which packing it for few rows takes as long as multiplying."""


def takes_few_rows(target: Target, spec: Contraction) -> bool:
    """Whether only the rows are symbolic, and B has contiguous rows of whole vectors."""
    lanes = target.lanes(BITS[spec.acc_type])
    numbers = (spec.n, spec.k, *spec.a_strides, *spec.b_strides, *spec.c_strides)
    if not all(isinstance(n, int) for n in numbers) or spec.packed:
        return False
    return (
        spec.a_type == spec.b_type == spec.acc_type
        and spec.b_strides[1] == spec.c_strides[1] == 1
        and spec.n % lanes == 0
        and spec.n * spec.k * BITS[spec.acc_type] // 8 >= _LEAST_RIGHT
    )


def vectors_per_row(target: Target) -> int:
    """Vectors of a row of C that fit into the registers, for as many rows as there may be."""
    fits = (n for n in (4, 3, 2) if registers_used(target, _MORE, n) <= target.vector_registers)
    return next(fits, 1)


def operand_starts(
    spec: Contraction, offsets: tuple[ir.Value, ir.Value, ir.Value], row: ir.Value, column: ir.Value
) -> list[Index]:
    """The first elements of A, B and C for a range of C that begins at `row` and `column`."""
    return [
        add(offsets[0], mul(row, spec.a_strides[0])),
        add(offsets[1], column),
        add(offsets[2], add(mul(row, spec.c_strides[0]), column)),
    ]


def emit_few_rows(
    target: Target,
    spec: Contraction,
    buffers: tuple[ir.Value, ir.Value, ir.Value],
    offsets: tuple[ir.Value, ir.Value, ir.Value],
    ranges: tuple[ir.Value, ir.Value, ir.Value, ir.Value],
) -> None:
    """Emit C[m_lo:m_hi, n_lo:n_hi] for the whole of k; `ranges` are those four numbers."""
    m_lo, m_hi, n_lo, n_hi = ranges
    starts = operand_starts(spec, offsets, m_lo, n_lo)
    numbers = [index(n) for n in (*starts, sub(m_hi, m_lo), sub(n_hi, n_lo))]

    def body(a: ir.Value, b: ir.Value, c: ir.Value, *numbers: ir.Value) -> None:
        a_at, b_at, c_at, rows, columns = numbers
        lanes = target.lanes(BITS[spec.acc_type])
        code = _Code(target, spec, (a, a_at), (b, b_at), (c, c_at), lanes)
        code.emit(rows, columns)

    strides = (*spec.a_strides, *spec.b_strides, *spec.c_strides)
    words = (spec.acc_type, spec.n, spec.k, *strides, *(["more"] if spec.accumulate else []))
    call_shared("_".join(map(str, ("nova_few_rows", *words))), buffers, numbers, 2, body)


Height = tuple[Index, Index, int]
"""A range of rows, and how many of them are a tile."""


@record
class _Code:
    """The body of one function."""

    target: Target
    spec: Contraction
    a: Matrix
    b: Matrix
    c: Matrix
    lanes: int

    def emit(self, rows: ir.Value, columns: ir.Value) -> None:
        """All rows of a panel of B before the next. Columns are whole vectors."""
        even = arith.andi(index(add(rows, 1)), index(-2))
        even = arith.maxui(even, index(_LESS))
        # Of an even number: the remainder by six is 0, 4 or 2, so 0, 4 or 8 rows are in fours.
        fours = arith.remui(index(sub(12, mul(arith.remui(even, index(_MORE)), 2))), index(12))
        start = index(sub(even, fours))

        heights: list[Height] = [(0, start, _MORE), (start, rows, _LESS)]
        # Panels of several vectors, then of single ones.
        nv = vectors_per_row(self.target)
        whole = sub(columns, arith.remui(columns, index(nv * self.lanes)))
        step_loop(0, whole, nv * self.lanes, lambda j: self._panel(rows, heights, j, nv))
        if nv > 1:
            step_loop(whole, columns, self.lanes, lambda j: self._panel(rows, heights, j, 1))

    def _depth_in_l1(self, nv: int) -> int:
        """Steps of k whose vectors of a panel stay in the L1 cache from one tile to the next."""
        nbytes = nv * self.lanes * BITS[self.spec.acc_type] // 8
        return max(64, min(LONG, self.target.l1_bytes * 2 // 3 // nbytes))

    def _panel(self, rows: ir.Value, heights: list[Height], j: Index, nv: int) -> None:
        """All rows of `nv` vectors of columns. The sums of each block of k are added to C."""
        spec = self.spec

        def each_tile(body: Callable[[list[Index]], None]) -> None:
            for first, end, mr in heights:
                with loop(first, end, mr) as i:
                    last = index(sub(rows, 1))
                    body([i, *(arith.minui(index(add(i, r)), last) for r in range(1, mr))])

        if not spec.accumulate:
            each_tile(lambda numbers: self._clear(numbers, j, nv))
        depth = -(-spec.k // -(-spec.k // self._depth_in_l1(nv)))
        with loop(0, spec.k, depth) as k:
            end = minimum(add(k, depth), spec.k)
            each_tile(lambda numbers: self._tile(numbers, j, nv, (k, end)))

    def _positions(self, numbers: list[Index], j: Index, nv: int) -> list[ir.Value]:
        """Where the vectors of a tile of C are."""
        c_row = self.spec.c_strides[0]
        starts = [add(add(self.c[1], mul(n, c_row)), j) for n in numbers]
        return [index(add(start, v * self.lanes)) for start in starts for v in range(nv)]

    def _clear(self, numbers: list[Index], j: Index, nv: int) -> None:
        zero = splat(vector_type(self.spec.acc_type, self.lanes), 0.0)
        for at in self._positions(numbers, j, nv):
            vector.store(zero, self.c[0], [at])

    def _tile(self, numbers: list[Index], j: Index, nv: int, steps: tuple[Index, Index]) -> None:
        a_rows = [add(self.a[1], mul(n, self.spec.a_strides[0])) for n in numbers]
        positions = self._positions(numbers, j, nv)
        type_ = vector_type(self.spec.acc_type, self.lanes)
        sums = carried(
            *steps,
            1,
            [splat(type_, 0.0)] * len(positions),
            lambda at, values: self._step(a_rows, at, j, nv, values),
        )
        totals = [
            arith.addf(vector.load(type_, self.c[0], [at]), total)
            for at, total in zip(positions, sums, strict=True)
        ]
        for at, total in zip(positions, totals, strict=True):
            vector.store(total, self.c[0], [at])

    def _step(
        self, a_rows: list[Index], k: ir.Value, j: Index, nv: int, sums: list[ir.Value]
    ) -> list[ir.Value]:
        spec = self.spec
        type_ = vector_type(spec.acc_type, self.lanes)
        start = add(add(self.b[1], mul(k, spec.b_strides[0])), j)
        row = [
            vector.load(type_, self.b[0], [index(add(start, v * self.lanes))]) for v in range(nv)
        ]
        result = []
        for r, a_row in enumerate(a_rows):
            scalar = memref.load(self.a[0], [index(add(a_row, mul(k, spec.a_strides[1])))])
            spread = vector.broadcast(type_, scalar)
            for v in range(nv):
                result.append(multiply_add(self.target, spread, row[v], sums[r * nv + v]))
        return result
