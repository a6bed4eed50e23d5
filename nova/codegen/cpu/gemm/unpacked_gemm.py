"""Unpacked GEMM: small matmuls, and those with few rows, read their operands in place.

Input: a `Contraction` for which `is_unpacked` holds (unit columns of B and C, or few rows and unit
stride along k, which gemv.py emits), flat memrefs with offsets, and the range of C. Output: a call
of a shared function with static sizes and strides. `packed_gemm.py` calls `emit_unpacked` where
packing the operands would not pay.

C is computed by register tiles of `mr` rows and `nv` vectors, each for `chunk` steps of k at a time
(unpacked_tiling.py). A long k is cut into blocks: those of a small matmul are added up in registers
(cascade_sum.py), those of few rows in a buffer. An element of C is always the same sum in the same
order, however the ranges are cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nova.codegen.common.builder import (
    BITS,
    broadcast,
    load_element,
    load_vector,
    loop,
    splat,
    store_vector,
    vector_type,
)
from nova.codegen.common.cascade_sum import SUMS
from nova.codegen.common.match_contraction import Contraction, typical_contraction
from nova.codegen.cpu.gemm.gemv import emit_gemv
from nova.codegen.cpu.gemm.unpacked_loops import Matrix, rows_in_steps, step_loop
from nova.codegen.cpu.gemm.unpacked_tiling import GemvTile, UnpackedTile, unpacked_tile
from nova.codegen.cpu.multiply_add import multiply_add
from nova.codegen.cpu.shared_functions import call_shared, entry_alloca
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index, minimum, mul, sub
from nova.ir.symbolic.size_table import typical

_UNROLLED = 4
"""Steps of k in one iteration of the loop of a small matmul."""


def emit_unpacked(
    target: Target,
    spec: Contraction,
    buffers: tuple[ir.Value, ir.Value, ir.Value],
    offsets: tuple[ir.Value, ir.Value, ir.Value],
    ranges: tuple[ir.Value, ir.Value, ir.Value, ir.Value],
    height: int | None = None,
) -> None:
    """Emit C[m_lo:m_hi, n_lo:n_hi] for the whole of k; `ranges` are those four numbers.

    `height` is the number of rows, where it is static and the first row is not.
    """
    m_lo, m_hi, n_lo, n_hi = map(_static, ranges)
    rows, columns = sub(m_hi, m_lo) if height is None else height, sub(n_hi, n_lo)
    (a_row, _), (_, b_column), (c_row, c_column) = spec.a_strides, spec.b_strides, spec.c_strides
    starts = [
        add(offsets[0], mul(m_lo, a_row)),
        add(offsets[1], mul(n_lo, b_column)),
        add(offsets[2], add(mul(m_lo, c_row), mul(n_lo, c_column))),
    ]
    dynamic = [n for n in (rows, columns) if not isinstance(n, int)]

    def body(a: ir.Value, b: ir.Value, c: ir.Value, *numbers: ir.Value) -> None:
        a_at, b_at, c_at, *dynamic_sizes = numbers
        unknown = iter(dynamic_sizes)
        tall = rows if isinstance(rows, int) else next(unknown)
        width = columns if isinstance(columns, int) else next(unknown)
        matrices = ((a, a_at), (b, b_at), (c, c_at))
        tile = unpacked_tile(target, typical_contraction(spec))
        if isinstance(tile, GemvTile):
            emit_gemv(target, spec, tile, matrices, (tall, width))
        else:
            _Body(target, spec, tile, *matrices).emit(tall, width)

    sizes = [str(n) if isinstance(n, int) else "x" for n in (rows, columns)]
    strides = (*spec.a_strides, *spec.b_strides, *spec.c_strides)
    words = (spec.acc_type, typical(spec.m), spec.n, spec.k, *sizes, *strides)
    name = "_".join(map(str, ("nova_direct", *words, *(["more"] if spec.accumulate else []))))
    call_shared(name, buffers, [index(n) for n in (*starts, *dynamic)], 2, body)


def has_static_strides(spec: Contraction) -> bool:
    """Whether only the rows of C may be symbolic, which the code takes as a number."""
    return replace(spec, m=0).is_static


def _static(value: ir.Value) -> Index:
    """The `int` of a constant; other values unchanged."""
    op = value.owner.operation if isinstance(value, ir.OpResult) else None
    return int(op.attributes["value"].value) if op and op.name == "arith.constant" else value


@record
class _Body:
    """The body of one function."""

    target: Target
    spec: Contraction
    tile: UnpackedTile
    a: Matrix
    b: Matrix
    c: Matrix

    @property
    def vec_type(self) -> ir.VectorType:
        return vector_type(self.spec.acc_type, self.tile.vl)

    def emit(self, rows: Index, columns: Index) -> None:
        spec, tile = self.spec, self.tile
        if tile.block:
            self._pieces(rows, columns)
            return
        last = spec.k - spec.k % tile.chunk
        self._multiply_chunks(rows, columns, (0, last or spec.k), fresh=not spec.accumulate)
        if 0 < last < spec.k:
            self._chunk(rows, columns, last, spec.k - last, fresh=False)

    def _multiply_chunks(
        self, rows: Index, columns: Index, k: tuple[Index, Index], *, fresh: bool
    ) -> None:
        """Whole chunks from the first step of k to the second, or a single chunk for all of k."""
        (first, end), chunk = k, min(self.tile.chunk, self.spec.k)
        self._chunk(rows, columns, first, chunk, fresh=fresh)
        start = add(first, chunk)
        if not isinstance(end, int) or start < end:
            with loop(start, end, chunk) as at:
                self._chunk(rows, columns, at, chunk, fresh=False)

    def _pieces(self, rows: Index, columns: Index) -> None:
        """Blocks of k, for as many columns at a time as the buffer of their sums has room for."""
        width = round_up(self.tile.columns, self.tile.nr)
        if isinstance(columns, int) and columns <= width:
            self._blocks(rows, columns, width)
            return
        with loop(0, columns, width) as j:
            (b, b_at), (c, c_at) = self.b, self.c
            piece = replace(self, b=(b, add(b_at, j)), c=(c, add(c_at, j)))
            piece._blocks(rows, minimum(sub(columns, j), width), width)

    def _blocks(self, rows: Index, columns: Index, width: int) -> None:
        """Blocks of k, each summed in a buffer of `width` columns, which is added to C."""
        spec, tile = self.spec, self.tile
        part_spec = replace(spec, c_strides=(width, 1))
        buffer = entry_alloca(typical(spec.m) * width, spec.acc_type)
        part = _Body(self.target, part_spec, tile, self.a, self.b, (buffer, 0))
        zero = splat(self.vec_type, 0.0)
        if not spec.accumulate:
            self._each_vector(rows, columns, lambda i, j, mask: self._store_c(i, j, mask, zero))

        def add_part(i: Index, j: Index, mask: ir.Value | None) -> None:
            value = part._get(i, j, mask)
            self._store_c(i, j, mask, arith.addf(self._get(i, j, mask), value))

        last = spec.k - spec.k % tile.chunk
        with loop(0, last, tile.block) as k:
            end = minimum(add(k, tile.block), last)
            part._multiply_chunks(rows, columns, (k, end), fresh=True)
            self._each_vector(rows, columns, add_part)
        if last < spec.k:
            self._chunk(rows, columns, last, spec.k - last, fresh=False)

    def _each_vector(
        self, rows: Index, columns: Index, body: Callable[[Index, Index, ir.Value | None], None]
    ) -> None:
        """Emit `body` for every vector of C, with the mask of its valid elements."""

        def visit(j: Index, nv: int, mask: ir.Value | None) -> None:
            def row(i: Index, _: int) -> None:
                for v in range(nv):
                    body(i, add(j, v * self.tile.vl), mask if v == nv - 1 else None)

            rows_in_steps(rows, 1, row)

        self._columns(
            columns, visit, lambda j, nv, remaining: visit(j, nv, self._mask(nv, remaining))
        )

    def _mask(self, nv: int, remaining: Index) -> ir.Value:
        """The mask of the last of `nv` vectors that have `remaining` columns."""
        flags = ir.VectorType.get([self.tile.vl], ir.IntegerType.get_signless(1))
        return vector.create_mask(flags, [index(sub(remaining, (nv - 1) * self.tile.vl))])

    def _c_offset(self, i: Index, j: Index) -> Index:
        (row, column) = self.spec.c_strides
        return add(self.c[1], add(mul(i, row), mul(j, column)))

    def _get(self, i: Index, j: Index, mask: ir.Value | None) -> ir.Value:
        return self._load(self.c[0], self._c_offset(i, j), mask)

    def _store_c(self, i: Index, j: Index, mask: ir.Value | None, value: ir.Value) -> None:
        offset = [index(self._c_offset(i, j))]
        if mask is None:
            vector.store(value, self.c[0], offset)
        else:
            vector.maskedstore(self.c[0], offset, mask, value)

    def _chunk(self, rows: Index, columns: Index, k: Index, depth: int, *, fresh: bool) -> None:
        """`depth` steps of k from `k` on, for all of C."""
        tile = self.tile

        def panel(j: Index, nv: int, mask: ir.Value | None) -> None:
            def tile_rows(i: Index, mr: int) -> None:
                self._tile(i, j, k, (mr, nv), depth, mask, fresh=fresh)

            rows_in_steps(rows, tile.mr, tile_rows)

        self._columns(
            columns, panel, lambda j, nv, remaining: panel(j, nv, self._mask(nv, remaining))
        )

    def _columns(
        self,
        columns: Index,
        full: Callable[[Index, int, ir.Value | None], None],
        part: Callable[[Index, int, Index], None],
    ) -> None:
        """Whole column panels, then the remaining columns in vectors, the last one masked."""
        tile = self.tile
        if isinstance(columns, int):
            end, remaining = columns - columns % tile.nr, columns % tile.nr
            step_loop(0, end, tile.nr, lambda j: full(j, tile.nv, None))
            vectors = -(-remaining // tile.vl)
            if remaining and remaining % tile.vl == 0:
                full(end, vectors, None)
            elif remaining:
                part(end, vectors, remaining)
            return
        whole = sub(columns, arith.remui(columns, index(tile.nr)))
        step_loop(0, whole, tile.nr, lambda j: full(j, tile.nv, None))
        step_loop(whole, columns, tile.vl, lambda j: part(j, 1, sub(columns, j)))

    def _tile(
        self,
        i: Index,
        j: Index,
        k: Index,
        shape: tuple[int, int],
        depth: int,
        mask: ir.Value | None,
        *,
        fresh: bool,
    ) -> None:
        """One tile of C; `mask` is the mask of its last vector."""
        (mr, nv), vl, spec = shape, self.tile.vl, self.spec
        a_at = add(self.a[1], add(mul(i, spec.a_strides[0]), mul(k, spec.a_strides[1])))
        b_at = add(self.b[1], add(mul(k, spec.b_strides[0]), j))
        c_at = add(self.c[1], add(mul(i, spec.c_strides[0]), j))
        accesses = [
            (add(c_at, r * spec.c_strides[0] + v * vl), mask if v == nv - 1 else None)
            for r in range(mr)
            for v in range(nv)
        ]
        zero = splat(self.vec_type, 0.0)
        sums = [zero if fresh else self._load(self.c[0], at, flags) for at, flags in accesses]

        def steps(first: Index, count: int, sums: list[ir.Value]) -> list[ir.Value]:
            for number in range(count):
                at = add(first, number)
                a_step, b_step = mul(at, spec.a_strides[1]), mul(at, spec.b_strides[0])
                sums = self._step(sums, add(a_at, a_step), add(b_at, b_step), shape, mask)
            return sums

        unrolled = depth - depth % _UNROLLED if depth == spec.k else 0
        if unrolled > _UNROLLED:
            sums = SUMS.emit_loop(
                unrolled,
                _UNROLLED,
                sums,
                lambda at, values: steps(at, _UNROLLED, values),
                terms_per_iteration=_UNROLLED,
            )
            sums = steps(unrolled, depth - unrolled, sums)
        else:
            sums = steps(0, depth, sums)
        for value, (at, flags) in zip(sums, accesses, strict=True):
            if flags is None:
                store_vector(value, self.c[0], index(at))
            else:
                vector.maskedstore(self.c[0], [index(at)], flags, value)

    def _step(
        self,
        sums: list[ir.Value],
        a_at: Index,
        b_at: Index,
        shape: tuple[int, int],
        mask: ir.Value | None,
    ) -> list[ir.Value]:
        """One step of k for a tile."""
        mr, nv = shape
        if self.tile.ahead and mask is None:
            self._fetch(add(b_at, self.tile.chunk * self.spec.b_strides[0]), nv)
        b_row = [
            self._load(self.b[0], add(b_at, v * self.tile.vl), mask if v == nv - 1 else None)
            for v in range(nv)
        ]
        result = []
        for r in range(mr):
            scalar = load_element(self.a[0], index(add(a_at, r * self.spec.a_strides[0])))
            spread = broadcast(self.vec_type, scalar)
            for v in range(nv):
                result.append(multiply_add(self.target, spread, b_row[v], sums[r * nv + v]))
        return result

    def _fetch(self, start: Index, nv: int) -> None:
        """Prefetch `nv` vectors of B that the next chunk reads."""
        buffer = self.b[0]
        for lane in range(0, nv * self.tile.vl, 512 // BITS[self.spec.acc_type]):
            offset = [index(add(start, lane))]
            memref.prefetch(buffer, offset, is_write=False, locality_hint=3, is_data_cache=True)

    def _load(self, buffer: ir.Value, at: Index, mask: ir.Value | None) -> ir.Value:
        if mask is None:
            return load_vector(self.vec_type, buffer, index(at))
        return vector.maskedload(
            self.vec_type, buffer, [index(at)], mask, splat(self.vec_type, 0.0)
        )
