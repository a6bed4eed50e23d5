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
from nova.codegen.cpu.shared_functions import call_shared_numbers
from nova.core.rounding import round_up
from nova.ir.bindings import arith, ir
from nova.ir.index import add, compare, index, minimum, mul

MERGED_TASK_NS = 300_000_000
"""The longest task of a kernel that merges tiles: it is only cut for the cores of the machine."""

_TILES_AND_WORK = ((32, 16_000_000), (64, 128_000_000), (128, 512_000_000))
"""Numbers of tiles of a product, and the least operations of a tile for each: a few for every core
of a common server, even where packing takes a tenth of the time; more for a large one."""

_LEAST_SIDE = 64

_WIDE = 8
"""Columns of a tile for each of its rows where packing A takes as long as reading a packed B."""

_PART = "nova_part_of_tiles"

_FEW_TILES = 64
"""Tiles up to which a core of a common server gets so few that unequal ones do not even out."""


def tile_for_cores(
    grid: Sequence[int],
    block: Sequence[int],
    units: Sequence[int],
    work: int,
    rows: int,
    count: int | None = None,
    *,
    in_units: bool = False,
) -> tuple[int, ...]:
    """A part of `block` so that the grid, of two dimensions and `work` operations, has more tiles.

    The sides are multiples of `units`, the register tile. If there are few tiles, those along
    dimension `rows` are equal instead: a shorter last one would leave its core idle. With
    `in_units`, for a matmul whose left operand is packed, they are multiples nevertheless. With
    `count` there are so many tiles, or as few more as possible.
    """
    tile = list(block)
    for most, least in _TILES_AND_WORK if count is None else [(count, 1)]:
        while (tiles := _count(grid, tile)) < most and work >= 2 * least * tiles:
            half = {i: round_up(-(-tile[i] // 2), units[i]) for i in range(len(tile))}
            shorter = {
                i: size for i, size in half.items() if size < tile[i] and size >= _LEAST_SIDE
            }
            if not shorter:
                break
            longest = max(shorter, key=lambda i: tile[i])
            tile[longest] = shorter[longest]
    is_cut = count is not None or tuple(tile) != tuple(block)
    if is_cut and _count(grid, tile) <= _FEW_TILES:
        even = ceil(grid[rows] / ceil(grid[rows] / tile[rows]))
        tile[rows] = round_up(even, units[rows]) if in_units else even
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
    sizes = [n for side in zip(tile, grid, block, units, strict=True) for n in side]
    with loop(0, 3, 1) as part:
        low, high, left, right, *counts = call_shared_numbers(
            _PART, [begin, end, part, *map(index, (count, *sizes))], _emit_part
        )
        rows = mul(low, tile[0]), minimum(mul(high, tile[0]), grid[0])
        columns = mul(left, tile[1]), minimum(mul(right, tile[1]), grid[1])
        # Multiplications by constants: the code generator sees that steps are whole register tiles.
        steps = [mul(number, unit) for number, unit in zip(counts, units, strict=True)]
        with loop(*columns, steps[1]) as n, loop(*rows, steps[0]) as m:
            row_end = minimum(add(m, steps[0]), rows[1])
            column_end = minimum(add(n, steps[1]), columns[1])
            emit((m, index(row_end)), (n, index(column_end)))


def _emit_part(
    begin: ir.Value, end: ir.Value, part: ir.Value, count: ir.Value, *sizes: ir.Value
) -> list[ir.Value]:
    """The rectangle `part` of tiles [begin, end), and the steps of its blocks in register tiles.

    `count` is the number of tiles in a column; `sizes` are tile, grid, block and register tile of
    rows, then of columns. Results: first and last row of tiles, first and last column of tiles, and
    the two steps. All kernels that merge tiles share this function: it is a third of their code.
    """
    zero, one = index(0), index(1)
    first, row = arith.divui(begin, count), arith.remui(begin, count)
    last, last_row = arith.divui(end, count), arith.remui(end, count)
    starts_inside = compare(arith.CmpIPredicate.ne, row, 0)
    whole = arith.addi(first, arith.select(starts_inside, one, zero))
    is_inside = compare(arith.CmpIPredicate.ugt, whole, last)  # of one column
    is_head = compare(arith.CmpIPredicate.eq, part, 0)
    is_middle = compare(arith.CmpIPredicate.eq, part, 1)

    def choose(head: ir.Value, middle: ir.Value, tail: ir.Value) -> ir.Value:
        return arith.select(is_head, head, arith.select(is_middle, middle, tail))

    head_end = arith.select(is_inside, last_row, count)
    head_end = arith.select(starts_inside, head_end, zero)
    tail_end = arith.select(is_inside, zero, last_row)
    low, high = choose(row, zero, zero), choose(head_end, count, tail_end)
    left = choose(first, whole, last)
    right = choose(arith.addi(first, one), last, arith.addi(last, one))
    rows, columns = sizes[:4], sizes[4:]
    steps = [_even_step(low, high, *rows), _even_step(left, right, *columns)]
    return [low, high, left, right, *steps]


def _even_step(
    low: ir.Value, high: ir.Value, tile: ir.Value, extent: ir.Value, most: ir.Value, unit: ir.Value
) -> ir.Value:
    """The number of units of equal parts of a range of tiles, of at most `most`; at least one."""
    end = arith.minsi(arith.muli(high, tile), extent)
    length = arith.maxsi(arith.subi(end, arith.muli(low, tile)), index(1))
    parts = _divide_up(length, most)
    return _divide_up(_divide_up(length, parts), unit)


def _divide_up(number: ir.Value, by: ir.Value) -> ir.Value:
    return arith.divui(arith.subi(arith.addi(number, by), index(1)), by)


def _count(grid: Sequence[int], tile: Sequence[int]) -> int:
    return prod(ceil(g / t) for g, t in zip(grid, tile, strict=True))
