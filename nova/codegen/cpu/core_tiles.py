"""Tiles of GEMM kernels for many cores, and blocks of tiles for few.

The schedule of a GEMM kernel chooses a block of C that amortizes the packing of its operands. A
large machine needs more parts than there are such blocks. So the tile, the unit that tasks are cut
into, is a part of a block where the work allows it (`tile_for_cores`); and the code of a kernel
merges the tiles of a range into rectangles and computes those in blocks (`emit_blocks`). A range of
many tiles is then as fast as the blocks alone, and no element of C depends on how tiles are cut.

Tiles are numbered along the columns of tiles, rows fastest: a range of tiles is then a strip of all
rows, which packs its columns of B once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod

from nova.codegen.common.builder import loop
from nova.core.rounding import round_up
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, add, compare, divide, divide_up, index, minimum, modulo, mul, sub

MERGED_TASK_NS = 300_000_000
"""The longest task of a kernel that merges tiles: it is only cut for the cores of the machine."""

_TILES_AND_WORK = ((32, 16_000_000), (64, 128_000_000), (128, 512_000_000))
"""Numbers of tiles of a product, and the least operations of a tile for each: a few for every core
of a common server, even where packing takes a tenth of the time; more for a large one."""

_LEAST_SIDE = 64

_WIDE = 8
"""Columns of a tile for each of its rows where packing A takes as long as reading a packed B."""

_FEW_TILES = 64
"""Tiles up to which a core of a common server gets so few that unequal ones do not even out."""


def tile_for_cores(
    grid: Sequence[int], block: Sequence[int], units: Sequence[int], work: int, rows: int
) -> tuple[int, ...]:
    """A part of `block` so that the grid, of two dimensions and `work` operations, has more tiles.

    The sides are multiples of `units`, the register tile. If there are few tiles, those along
    dimension `rows` are equal instead: a shorter last one would leave its core idle.
    """
    tile = list(block)
    for most, least in _TILES_AND_WORK:
        while (tiles := _count(grid, tile)) < most and work >= 2 * least * tiles:
            half = {i: round_up(-(-tile[i] // 2), units[i]) for i in range(len(tile))}
            shorter = {
                i: size for i, size in half.items() if size < tile[i] and size >= _LEAST_SIDE
            }
            if not shorter:
                break
            longest = max(shorter, key=lambda i: tile[i])
            tile[longest] = shorter[longest]
    if tuple(tile) != tuple(block) and _count(grid, tile) <= _FEW_TILES:
        tile[rows] = ceil(grid[rows] / ceil(grid[rows] / tile[rows]))
    return tuple(tile)


def wide_tile_for_cores(
    grid: Sequence[int], units: Sequence[int], work: int, rows: int
) -> tuple[int, ...]:
    """Like `tile_for_cores`, for a matmul whose right operand is packed: tiles of long rows.

    A tile packs its rows of A, and only reads B. So the packing takes a share of the time that
    falls with the columns of the tile, and reading B one that falls with its rows, `_WIDE` times
    less. The tiles are equal along the rows, and whole panels along the columns.
    """
    parts = [1] * len(grid)

    def sides() -> list[int]:
        even = [ceil(size / count) for size, count in zip(grid, parts, strict=True)]
        return [size if i == rows else round_up(size, units[i]) for i, size in enumerate(even)]

    for most, least in _TILES_AND_WORK:
        while prod(parts) < most and work >= 2 * least * prod(parts):
            tile = sides()
            order = (rows, 1 - rows) if tile[rows] * _WIDE > tile[1 - rows] else (1 - rows, rows)
            cut = next((i for i in order if 2 * tile[i] >= 3 * _LEAST_SIDE), None)
            if cut is None:
                break
            parts[cut] *= 2
    return tuple(sides())


def emit_blocks(
    begin: ir.Value,
    end: ir.Value,
    grid: Sequence[int],
    tile: Sequence[int],
    block: Sequence[int],
    units: Sequence[int],
    emit: Callable[[tuple[ir.Value, ir.Value], tuple[ir.Value, ir.Value]], None],
) -> None:
    """Emit tiles [begin, end) of two dimensions as blocks of at most `block` points.

    The range is the rest of a column of tiles, whole columns, and the start of one: each a
    rectangle, which may be empty.
    """
    count = ceil(grid[0] / tile[0])
    first, row = divide(begin, count), modulo(begin, count)
    last, last_row = divide(end, count), modulo(end, count)
    starts_inside = compare(arith.CmpIPredicate.ne, row, 0)
    whole = add(first, arith.select(starts_inside, index(1), index(0)))
    is_inside = compare(arith.CmpIPredicate.ugt, whole, last)  # of one column

    def choose(part: ir.Value, head: Index, middle: Index, tail: Index) -> ir.Value:
        is_head = compare(arith.CmpIPredicate.eq, part, 0)
        is_middle = compare(arith.CmpIPredicate.eq, part, 1)
        rest = arith.select(is_middle, index(middle), index(tail))
        return arith.select(is_head, index(head), rest)

    head_end = arith.select(is_inside, index(last_row), index(count))
    head_end = arith.select(starts_inside, head_end, index(0))
    tail_end = arith.select(is_inside, index(0), index(last_row))
    with loop(0, 3, 1) as part:
        low = choose(part, row, 0, 0)
        high = choose(part, head_end, count, tail_end)
        left = choose(part, first, whole, last)
        right = choose(part, add(first, 1), last, add(last, 1))
        rows = mul(low, tile[0]), minimum(mul(high, tile[0]), grid[0])
        columns = mul(left, tile[1]), minimum(mul(right, tile[1]), grid[1])
        steps = [
            _even_step(*span, most, unit)
            for span, most, unit in zip((rows, columns), block, units, strict=True)
        ]
        with loop(*columns, steps[1]) as n, loop(*rows, steps[0]) as m:
            row_end = minimum(add(m, steps[0]), rows[1])
            column_end = minimum(add(n, steps[1]), columns[1])
            emit((m, index(row_end)), (n, index(column_end)))


def _even_step(low: Index, high: Index, most: int, unit: int) -> ir.Value:
    """The size of equal parts of a range, at most `most` and in whole units; at least one unit."""
    length = arith.maxsi(index(sub(high, low)), index(1))
    parts = index(divide_up(length, most))
    part = arith.divui(arith.subi(arith.addi(length, parts), index(1)), parts)
    return index(mul(divide_up(part, unit), unit))


def _count(grid: Sequence[int], tile: Sequence[int]) -> int:
    return prod(ceil(g / t) for g, t in zip(grid, tile, strict=True))
