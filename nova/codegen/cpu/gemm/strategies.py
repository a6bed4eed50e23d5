"""The list of CPU GEMM strategies: operands read in place (unpacked GEMM, GEMV), or packed.

Input: a `Contraction` (static sizes and strides), flat memrefs with offsets, and the row and column
range of C to compute. Output: the sizes of tiles, and code at the insertion point. The kernel
schedule calls `emit_block` for each task tile, whose size `tile_shape` returns. A new strategy is
one entry of `GEMM_STRATEGIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nova.codegen.common.builder import BITS, branch, loop
from nova.codegen.common.match_contraction import (
    Contraction,
    typical_contraction,
    with_unit_columns,
)
from nova.codegen.cpu.gemm.blocking import tiling_of
from nova.codegen.cpu.gemm.few_rows import emit_few_rows, takes_few_rows
from nova.codegen.cpu.gemm.packed_gemm import emit_packed
from nova.codegen.cpu.gemm.small_symbolic import emit_small, is_small, takes_small
from nova.codegen.cpu.gemm.unpacked_gemm import emit_unpacked, has_static_strides
from nova.codegen.cpu.gemm.unpacked_tiling import is_unpacked, unpacked_tile
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.targets import Target
from nova.ir.bindings import arith, ir
from nova.ir.index import add, compare, index, sub

Values3 = tuple[ir.Value, ir.Value, ir.Value]
Ranges = tuple[ir.Value, ir.Value, ir.Value, ir.Value]
"""First row, one past the last row, first column, one past the last column."""

_FEW_ROWS, _ROWS_TOGETHER = 6, (2, 1)
"""Where the number of rows is symbolic, up to so many are multiplied without packing, so many at a
time. Code for two rows reads B once for both; that for three or four takes longer to compile than
all sizes together may."""

_ROWS_IN_PLACE = 96
"""The same where `few_rows.py` has code: more rows are faster with packed panels."""

_SYMBOLIC_ROWS = 256
"""Rows of a task where their number is symbolic: several tasks at common sizes, with a last one
that is not tiny."""

_MIN_FLOPS, _MIN_SIDE = 32_768, 4
"""The least contraction for which packing pays."""


@record
class GemmTiles:
    """Rows and columns of C of a task, and of a register tile, of which a task is a multiple."""

    task: tuple[int, int]
    register: tuple[int, int]


@record
class GemmStrategy:
    """How a contraction is computed; the first strategy that matches is used.

    takes  whether its code is for these symbolic sizes; always for static ones.
    match  whether the strategy computes a contraction, whose C has unit columns.
    pays   whether it is faster than plain loops then.
    plan   the tiles; `match` and `pays` get representatives of symbolic sizes, `plan` the sizes.
    emit   the code of a range of C, from the buffers of A, B and C and their offsets.
    """

    name: str
    takes: Callable[[Contraction], bool]
    match: Callable[[Target, Contraction], bool]
    pays: Callable[[Target, Contraction], bool]
    plan: Callable[[Target, Contraction], GemmTiles]
    emit: Callable[[Target, Contraction, Values3, Values3, Ranges], None]


def flops(spec: Contraction) -> int:
    """Floating-point operations of the whole contraction."""
    return 2 * spec.m * spec.n * spec.k


def _packing_pays(target: Target, spec: Contraction) -> bool:
    """Whether there is enough work, and more than a thin slice of C."""
    short, long = sorted((spec.m, spec.n))
    lanes = target.lanes(BITS[spec.acc_type])
    return flops(spec) >= _MIN_FLOPS and short >= _MIN_SIDE and long >= lanes


def _unpacked_tiles(target: Target, spec: Contraction) -> GemmTiles:
    spec = typical_contraction(spec)
    tile = unpacked_tile(target, spec)
    return GemmTiles((spec.m, tile.columns), (tile.mr, tile.nr))


def _packed_tiles(target: Target, spec: Contraction) -> GemmTiles:
    tiling = tiling_of(target, spec)
    return GemmTiles((tiling.rows, tiling.columns), (tiling.panel_rows, tiling.panel_columns))


GEMM_STRATEGIES: tuple[GemmStrategy, ...] = (
    GemmStrategy(
        "unpacked", has_static_strides, is_unpacked, lambda *_: True, _unpacked_tiles, emit_unpacked
    ),
    GemmStrategy(
        "packed", lambda _: True, lambda *_: True, _packing_pays, _packed_tiles, emit_packed
    ),
)
"""In order of preference. The last one matches every contraction."""


def select_gemm(target: Target, spec: Contraction) -> GemmStrategy:
    """The strategy of a contraction whose C has unit columns."""
    typical = typical_contraction(spec)
    return next(
        strategy
        for strategy in GEMM_STRATEGIES
        if strategy.takes(spec) and strategy.match(target, typical)
    )


def is_worth_packing(target: Target, spec: Contraction) -> bool:
    """Whether `emit_block` beats plain loops."""
    inner = with_unit_columns(spec)
    return select_gemm(target, inner).pays(target, typical_contraction(inner))


def tile_shape(target: Target, spec: Contraction) -> tuple[int, int]:
    """Rows and columns of C that one task should compute: whole register tiles."""
    inner = with_unit_columns(spec)
    tiles = select_gemm(target, inner).plan(target, inner)
    rows, columns = tiles.task
    if not isinstance(inner.m, int):
        rows = min(rows, round_up(_SYMBOLIC_ROWS, tiles.register[0]))
    return (rows, columns) if inner is spec else (columns, rows)


def register_shape(target: Target, spec: Contraction) -> tuple[int, int]:
    """Rows and columns of C that are held in registers: a tile is a multiple of both."""
    inner = with_unit_columns(spec)
    rows, columns = select_gemm(target, inner).plan(target, inner).register
    return (rows, columns) if inner is spec else (columns, rows)


def emit_block(
    target: Target,
    spec: Contraction,
    a: ir.Value,
    a_offset: ir.Value,
    b: ir.Value,
    b_offset: ir.Value,
    c: ir.Value,
    c_offset: ir.Value,
    m_lo: ir.Value,
    m_hi: ir.Value,
    n_lo: ir.Value,
    n_hi: ir.Value,
) -> None:
    """Emit C[m_lo:m_hi, n_lo:n_hi] for the whole of k, at the current insertion point.

    a, b, c are one-dimensional memrefs of identity layout; c does not overlap with a or b. Offsets
    and ranges are `index` values. The pack buffers are allocated at the start of the enclosing
    function. Memory outside of the block of C is neither read nor written.
    """
    inner = with_unit_columns(spec)
    if inner is not spec:
        a, a_offset, b, b_offset = b, b_offset, a, a_offset
        m_lo, m_hi, n_lo, n_hi = n_lo, n_hi, m_lo, m_hi
    strategy = select_gemm(target, inner)
    offsets, ranges = (a_offset, b_offset, c_offset), (m_lo, m_hi, n_lo, n_hi)
    row = replace(inner, m=1)
    if takes_small(inner):
        branch(
            is_small(inner, ranges),
            lambda: emit_small(target, inner, (a, b, c), offsets, ranges),
            lambda: strategy.emit(target, inner, (a, b, c), offsets, ranges),
        )
        return
    if inner.is_static or not row.is_static or not is_unpacked(target, row):
        strategy.emit(target, inner, (a, b, c), offsets, ranges)
        return

    few = takes_few_rows(target, inner)

    def emit_rows(counts: tuple[int, ...]) -> None:
        """Rows in groups of these numbers; the last is one."""
        start = m_lo
        for count in counts:
            rows = replace(inner, m=count)
            if not is_unpacked(target, rows):
                continue
            end = sub(m_hi, arith.remui(index(sub(m_hi, start)), index(count)))
            with loop(start, end, count) as m:
                span = m, index(add(m, count)), n_lo, n_hi
                emit_unpacked(target, rows, (a, b, c), offsets, span, count)
            start = index(end)

    def emit_in_place() -> None:
        if not few:
            emit_rows(_ROWS_TOGETHER)
            return
        branch(
            compare(arith.CmpIPredicate.sle, sub(m_hi, m_lo), _ROWS_TOGETHER[0]),
            lambda: emit_rows(_ROWS_TOGETHER),
            lambda: emit_few_rows(target, inner, (a, b, c), offsets, ranges),
        )

    is_few = compare(arith.CmpIPredicate.sle, sub(m_hi, m_lo), _ROWS_IN_PLACE if few else _FEW_ROWS)
    if few:
        # Other tiles than those of this file may cut a vector.
        lanes = target.lanes(BITS[inner.acc_type])
        cut = arith.remui(index(sub(n_hi, n_lo)), index(lanes))
        is_few = arith.andi(is_few, compare(arith.CmpIPredicate.eq, cut, 0))
    branch(
        is_few,
        emit_in_place,
        lambda: strategy.emit(target, inner, (a, b, c), offsets, ranges),
    )
