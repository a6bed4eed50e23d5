"""Packed GEMM for CPU targets: the GotoBLAS/BLIS algorithm, with both operands packed.

Input: a `Contraction` (static sizes and strides), flat memrefs with offsets, and the row and column
range of C to compute. Output: scf/memref/arith code at the insertion point: loops around calls of
functions that all GEMMs of the module share (packing.py, microkernel.py). `strategies.py` calls it.

The loops of a block, from the outside in: blocks of columns (`nc`); blocks of k (`kc`), for which B
is packed; blocks of rows (`mc`), for which A is packed; and in the shared functions column panels
(`nr`) and micropanels (`mr`). The packed columns of B stay in the L3 cache, the packed rows of A in
L2, one column panel of B in L1, and an `mr x nr` tile of C in registers. Where the rows of a task
are packed at once, B is not packed beforehand: the first micropanel copies each column panel while
it uses it (`Tiling.copying`). An element of C is always the same sum in the same order, however the
ranges are cut.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.builder import BITS, element_type, loop, splat, store_vector, vector_type
from nova.codegen.common.match_contraction import (
    Contraction,
    typical_contraction,
    with_unit_columns,
)
from nova.codegen.cpu.gemm.amx_microkernel import multiply_tiles
from nova.codegen.cpu.gemm.blocking import Tiling, choose_tiling, tiling_of
from nova.codegen.cpu.gemm.microkernel import Microkernel
from nova.codegen.cpu.gemm.packed_layout import ELEMENTS
from nova.codegen.cpu.gemm.packing import Block, pack
from nova.codegen.cpu.gemm.store_tile import StridedMatrix
from nova.codegen.cpu.gemm.unpacked_tiling import is_unpacked
from nova.codegen.cpu.gemm.vnni_packing import pack_vnni_words
from nova.codegen.cpu.gemm.window_operand import WindowBlock, pack_windows
from nova.codegen.cpu.gemm.word_dot import WordDot
from nova.codegen.cpu.shared_functions import entry_alloca, without_end
from nova.core.rounding import round_up
from nova.core.sizes import Size, ceildiv
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref
from nova.ir.index import Index, add, compare, divide_up, index, minimum, mul, sub
from nova.ir.symbolic.size_table import is_number, typical

_ROW_PANEL_BYTES, _MAX_PANELS, _MAX_K_BLOCKS = 128 << 10, 1 << 20, 4
"""Bytes of a row panel of C, so that it stays in L2 next to the data of its epilogue; bytes of the
columns of B that are packed for a tile; and the number of blocks of k, each emitted separately."""

_MIN_ROWS, _MIN_DEPTH = 192, 128
"""The least tile that is worth row panels: with fewer rows, packing columns while they are used is
better, and shallow matmuls lose nothing in small tiles, which balance better over many cores."""


_LARGE_L2 = 2 << 20
"""Bytes of the L2 cache of large servers: prefetching data that is already there costs 2 % of the
time."""


def emit_packed(
    target: Target,
    spec: Contraction,
    buffers: tuple[ir.Value, ir.Value, ir.Value],
    offsets: tuple[ir.Value, ir.Value, ir.Value],
    ranges: tuple[ir.Value, ir.Value, ir.Value, ir.Value],
) -> None:
    """Emit C[m_lo:m_hi, n_lo:n_hi] for the whole of k; `ranges` are those four numbers."""
    (a, b, c), (a_offset, b_offset, c_offset) = buffers, offsets
    _Block(target, spec, a, a_offset, b, b_offset, c, c_offset).emit(*ranges)


def row_panels_of(target: Target, spec: Contraction, rows: int, columns: int) -> int | None:
    """Rows of C of a row panel in a tile of this size; None where `emit_row_panels` does not apply.

    Rows and columns are those of C after `with_unit_columns`.
    """
    inner = with_unit_columns(spec)
    if not isinstance(spec.k, int) or spec.k < _MIN_DEPTH or rows < _MIN_ROWS:
        return None
    inner = typical_contraction(inner)
    if is_unpacked(target, inner):
        return None
    tiling, size = choose_tiling(target, inner), BITS[spec.acc_type] // 8
    if tiling.layout is not ELEMENTS or tiling.k_blocks > _MAX_K_BLOCKS:
        return None
    panels = round_up(columns, tiling.panel_columns) * spec.k * size
    if not spec.packed and panels > _MAX_PANELS:
        return None
    unit = tiling.panel_rows
    most = max(1, min(_ROW_PANEL_BYTES, target.l2_bytes // 4) // (columns * size) // unit)
    pieces = -(-rows // (most * unit))
    return round_up(-(-rows // pieces), unit)


def emit_row_panels(
    target: Target,
    spec: Contraction,
    buffers: tuple[ir.Value, ir.Value, ir.Value],
    offsets: tuple[Index, Index, Callable[[Index], Index]],
    rows: tuple[Index, Index],
    columns: tuple[Index, Index],
    most: tuple[int, int],
    epilogue: Callable[[Index, Index], None],
) -> None:
    """Emit C[rows, columns] in row panels; `epilogue` emits the ops after each panel.

    Buffers and offsets are those of `emit_packed`, except the offset of C, which is requested with
    the first row of a row panel. Rows and columns are those of C after `with_unit_columns`; `most`
    bounds both for a row panel.
    """
    inner = with_unit_columns(spec)
    a, b, c = buffers
    a_offset, b_offset, c_offset = offsets
    if inner is not spec:
        a, a_offset, b, b_offset = b, b_offset, a, a_offset
    block = _Block(target, inner, a, a_offset, b, b_offset, c, 0)
    block.emit_row_panels(rows, columns, most, c_offset, epilogue)


def _part(number: Index, extent: int, parts: int) -> Index:
    """The start of part `number` of `extent`, cut into equal parts."""
    if isinstance(number, int):
        return number * extent // parts
    if extent % parts == 0:
        return mul(number, extent // parts)
    return arith.divui(mul(number, extent), index(parts))


@contextmanager
def _blocks(low: Index, high: Index, most: Size, step: int) -> Iterator[tuple[Index, Index]]:
    """Starts and sizes of the blocks of a range, which has at most `most` elements.

    A loop of one iteration is omitted: the cost of LLVM's loop passes grows with the loop depth.
    """
    if isinstance(most, int) and most <= step:
        yield low, sub(high, low)
        return
    with loop(low, high, step) as start:
        yield start, minimum(sub(high, start), step)


@dataclass(frozen=True)
class _Block:
    """Emits one block; the columns of C are contiguous, or neither dimension is."""

    target: Target
    spec: Contraction
    a: ir.Value
    a_offset: Index
    b: ir.Value
    b_offset: Index
    c: ir.Value
    c_offset: Index

    @functools.cached_property
    def tiling(self) -> Tiling:
        return tiling_of(self.target, self.spec)

    @property
    def has_one_k_block(self) -> bool:
        return isinstance(self.spec.k, int) and self.tiling.k_blocks == 1

    def _k_blocks(self) -> Index:
        """The number of blocks of k: one at least, which also clears C where k is 0."""
        if isinstance(self.spec.k, int):
            return self.tiling.k_blocks
        return arith.maxsi(index(ceildiv(self.spec.k, self._block_depth)), index(1))

    @property
    def _block_depth(self) -> int:
        """Steps of k in a block, where k is symbolic."""
        return self.tiling.kc * self.tiling.layout.per_word

    @functools.cached_property
    def kernel(self) -> Microkernel:
        t = self.tiling
        n = self.spec.m if t.transposed else self.spec.n
        # Such as the 196 positions of a convolution: 6 panels of 32, and a vector for the last 4.
        narrow = t.layout is ELEMENTS and t.nv > 1 and isinstance(n, int) and 0 < n % t.nr <= t.vl
        return Microkernel(self.target, self.spec.acc_type, t.mr, t.nv, self.dot, narrow)

    @property
    def dot(self) -> WordDot:
        return WordDot(self.tiling.layout, self.spec.a_type, self.spec.b_type)

    @property
    def far(self) -> bool:
        """Whether a prepacked B, or A if tiles are transposed, is too large for any L2."""
        spec, transposed = self.spec, self.tiling.transposed
        size = typical((spec.m if transposed else spec.n) * spec.k) * BITS[spec.acc_type] // 8
        return (spec.packed or transposed) and size > max(self.target.l2_bytes, _LARGE_L2)

    def _multiply(self, *operands: Any) -> None:
        """C = old + A*B of packed operands, by the instruction of their packed layout."""
        if self.tiling.layout.in_tiles:
            *tiled, _ = operands  # packed rows of A are ELEMENTS
            multiply_tiles((self.spec.a_type, self.spec.b_type, self.spec.acc_type), *tiled)
        elif self.tiling.transposed:
            a, b, c, old, rows, columns, words, b_at, a_at = operands
            matrices, sizes = (b, a, c.transposed, old.transposed), (columns, rows, words)
            far = self.far
            self.kernel.multiply(*matrices, *sizes, a_at, b_at, far=far, transposed=True)
        else:
            self.kernel.multiply(*operands, far=self.far)

    def emit(self, m_lo: Index, m_hi: Index, n_lo: Index, n_hi: Index) -> None:
        t, spec = self.tiling, self.spec
        if is_number(spec.k, 0):
            if not spec.accumulate:
                self._clear(m_lo, m_hi, n_lo, n_hi)
            return
        zeros = None if spec.accumulate else self._zeros()
        word = t.layout.word_type(spec.acc_type)
        packed_a = None if t.in_place or spec.packed_rows else entry_alloca(t.a_size, word)
        packed_b = None if spec.packed else entry_alloca(t.b_size, word)

        def k_block(n: Index, columns: Index, number: Index) -> None:
            k, depth, words = self._k_range(number)
            b = self._block_of_b(n, columns, k, depth)
            right, right_at = packed_b, index(0)
            if packed_b is None:
                right, right_at = self.b, self._panels_at(n, k, depth)
            elif not t.copying:
                self._pack(b, t.panel_columns, words, packed_b)
            with _blocks(m_lo, m_hi, spec.m, t.mc) as (m, rows):
                a = self._block_of_a(m, rows, k, depth)
                c, old = self._c_and_old(m, n, zeros, number)
                if t.in_place:
                    self.kernel.multiply_rows(a, right, c, old, columns, right_at, far=self.far)
                    return
                left, left_at = packed_a, None
                if left is None:
                    left, left_at = self.a, self._micropanels_at(m, k, depth)
                else:
                    self._pack(a, t.mr, words, left, rows_of_a=True)
                if isinstance(b, Block) and t.copying:
                    self.kernel.multiply_copying(left, b, right, c, old, rows, left_at)
                else:
                    self._multiply(left, right, c, old, rows, columns, words, right_at, left_at)

        # Columns that are prepacked, or packed while they are used, need no blocking.
        whole = spec.packed or t.copying
        most, step = (1, 1) if whole else (spec.n, t.nc)
        with _blocks(n_lo, n_hi, most, step) as (n, columns):
            if self.has_one_k_block:
                k_block(n, columns, 0)
            else:
                with loop(0, self._k_blocks(), 1) as number:
                    k_block(n, columns, number)

    def emit_row_panels(
        self,
        rows: tuple[Index, Index],
        columns: tuple[Index, Index],
        most: tuple[int, int],
        c_offset: Callable[[Index], Index],
        epilogue: Callable[[Index, Index], None],
    ) -> None:
        t, spec, (low, high), (n, n_end) = self.tiling, self.spec, rows, columns
        count = sub(n_end, n)
        zeros = None if spec.accumulate else self._zeros()
        packed_a = None
        if not t.in_place and not spec.packed_rows:
            packed_a = entry_alloca(most[0] * t.kc + t.vl, spec.acc_type)
        k_blocks = [self._k_range(number) for number in range(t.k_blocks)]
        panels: list[tuple[Any, Index]] = []
        for k, depth, words in k_blocks:
            if spec.packed:
                panels.append((self.b, self._panels_at(n, k, depth)))
                continue
            width, past = t.panel_columns, t.vl if t.transposed else 0
            size = round_up(most[1], width) * t.kc + past
            panels.append((entry_alloca(size, spec.acc_type), 0))
            self._pack(self._block_of_b(n, count, k, depth), width, words, panels[-1][0])
        with _blocks(low, high, spec.m, most[0]) as (m, rows_of_panel):
            start, (ms, ns) = c_offset(m), spec.c_strides
            c = StridedMatrix(self.c, start, ms, 1 if is_number(spec.n, 1) else ns)
            for number, (k, depth, words) in enumerate(k_blocks):
                a, (right, right_at) = self._block_of_a(m, rows_of_panel, k, depth), panels[number]
                nothing = zeros is not None and number == 0
                old = StridedMatrix(zeros, 0, 0, 0) if nothing else c
                if t.in_place:
                    self.kernel.multiply_rows(a, right, c, old, count, right_at, far=self.far)
                    continue
                left, left_at = packed_a, None
                if left is None:
                    left, left_at = self.a, self._micropanels_at(m, k, depth)
                else:
                    self._pack(a, t.mr, words, left)
                sizes = rows_of_panel, count, words
                self._multiply(left, right, c, old, *sizes, right_at, left_at)
            epilogue(m, add(m, rows_of_panel))

    def _k_range(self, number: Index) -> tuple[Index, Index, Index]:
        """Start, depth and words of a block of k: sizes differ by one cut, the last is shorter."""
        k, parts, layout = self.spec.k, self.tiling.k_blocks, self.tiling.layout
        if not isinstance(k, int):
            start = mul(number, self._block_depth)
            depth = minimum(self._block_depth, sub(k, start))
            cuts = divide_up(depth, layout.per_cut)
            return start, depth, mul(cuts, layout.words_per_cut)
        cuts = -(-k // layout.per_cut)
        first = _part(number, cuts, parts)
        count = sub(_part(add(number, 1), cuts, parts), first) if cuts % parts else cuts // parts
        start, depth = mul(first, layout.per_cut), mul(count, layout.per_cut)
        if k % layout.per_cut:
            depth = minimum(depth, sub(k, start))
        return start, depth, mul(count, layout.words_per_cut)

    def _zeros(self) -> ir.Value:
        """A row of zeros: the old values of a GEMM that overwrites C."""
        zeros = entry_alloca(self.tiling.nr, self.spec.acc_type)
        row_type = vector_type(self.spec.acc_type, self.tiling.vl)
        with ir.InsertionPoint.after(zeros.owner):
            for offset in range(0, self.tiling.nr, self.tiling.vl):
                store_vector(splat(row_type, 0.0), zeros, index(offset))
        return zeros

    def _c_and_old(
        self, m: Index, n: Index, zeros: ir.Value | None, number: Index
    ) -> tuple[StridedMatrix, StridedMatrix]:
        """C from (m, n) on, and its old values: zeros before the first block of k."""
        (ms, ns), spec = self.spec.c_strides, self.spec
        start = add(self.c_offset, add(mul(m, ms), mul(n, ns)))
        c = StridedMatrix(self.c, start, ms, 1 if is_number(spec.n, 1) else ns)
        if zeros is None:
            return c, c
        nothing = StridedMatrix(zeros, 0, 0, 0)
        if self.has_one_k_block:
            return c, nothing
        first = compare(arith.CmpIPredicate.eq, number, 0)
        pairs = ((nothing.offset, start), (0, ms), (0, c.column_stride))
        numbers = [arith.select(first, index(zero), index(c_number)) for zero, c_number in pairs]
        buffer = arith.select(first, without_end(zeros), without_end(self.c))
        return c, StridedMatrix(buffer, *numbers)

    def _block_of_a(self, m: Index, rows: Index, k: Index, depth: Index) -> Block:
        (ms, ks), spec = self.spec.a_strides, self.spec
        start = add(self.a_offset, add(mul(m, ms), mul(k, ks)))
        return Block(self.a, spec.a_type, start, ms, ks, rows, depth)

    def _block_of_b(self, n: Index, columns: Index, k: Index, depth: Index) -> Block | WindowBlock:
        (ks, ns), spec = self.spec.b_strides, self.spec
        if spec.windows is not None:
            at = self.b_offset, n, k
            return WindowBlock(spec.windows, self.b, spec.b_type, *at, columns, depth)
        start = add(self.b_offset, add(mul(n, ns), mul(k, ks)))
        return Block(self.b, spec.b_type, start, ns, ks, columns, depth)

    def _micropanels_at(self, m: Index, k: Index, depth: Index) -> Index:
        """The offset of the panels of a packed A from row m, that of a panel, and step k on."""
        height = round_up(self.spec.m, self.tiling.panel_rows)
        return add(self.a_offset, add(mul(k, height), mul(m, depth)))

    def _panels_at(self, n: Index, k: Index, depth: Index) -> Index:
        """The offset of the panels of a packed B from column n, a multiple of nr, and step k on."""
        width = round_up(self.spec.n, self.tiling.nr)
        return add(self.b_offset, add(mul(k, width), mul(n, depth)))

    def _pack(
        self,
        block: Block | WindowBlock,
        width: int,
        words: Index,
        buffer: ir.Value,
        *,
        rows_of_a: bool = False,
    ) -> None:
        layout = self.tiling.layout
        if isinstance(block, WindowBlock):
            pack_windows(self.target, self.spec.acc_type, block, width, buffer)
            return
        if layout is not ELEMENTS:
            form, tiles = self.dot.format_of(rows_of_a=rows_of_a), rows_of_a and layout.in_tiles
            pack_vnni_words(self.target, form, block, width, words, buffer, tiles=tiles)
            return
        k = self.spec.k
        least = k // self.tiling.k_blocks if isinstance(k, int) else None
        pack(self.target, self.spec.acc_type, block, width, least, buffer)

    def _clear(self, m_lo: Index, m_hi: Index, n_lo: Index, n_hi: Index) -> None:
        ms, ns = self.spec.c_strides
        zero = splat(element_type(self.spec.acc_type), 0.0)
        with loop(m_lo, m_hi, 1) as m, loop(n_lo, n_hi, 1) as n:
            memref.store(zero, self.c, [index(add(self.c_offset, add(mul(m, ms), mul(n, ns))))])
