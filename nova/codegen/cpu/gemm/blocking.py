"""Blocking of a contraction: register tile, cache blocks (GotoBLAS/BLIS), and the tile of a task.

Input: a target and a `Contraction`, whose `overrides` may override numbers. Output: a `Tiling`, and
the tile of a task. `packed_gemm.py` emits it, and the schedules of kernels use the tile.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace

from nova.codegen.common.builder import BITS
from nova.codegen.common.match_contraction import Contraction, typical_contraction
from nova.codegen.common.overrides import NO_OVERRIDES
from nova.codegen.cpu.gemm.packed_layout import (
    ELEMENTS,
    TILE,
    PackedLayout,
    choose_packed_layout,
)
from nova.codegen.cpu.vectorize import has_masks
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.targets import Target
from nova.errors import ScheduleError

_B_BYTES, _MAX_A_BYTES, _MAX_ALONE = 1 << 20, 384 << 10, 768 << 10
"""Upper bounds of the packed columns of B, in the cache that cores share, and of the packed rows of
A, the last where no packed columns of B are next to them. They are on the stack."""

_TILE_WORDS, _TILE_A_BYTES = 512, 256 << 10
"""The depth of panels for AMX tile registers, and the upper bound of the rows of A then. Tiles load
from L2 fast enough, but not as fast as they are multiplied: deep panels move C less often."""

_MAX_ROWS, _MAX_COLUMNS = 1024, 512
"""Of a task: A is then packed for 512 columns and B for 1024 rows, at a few percent of the time."""

_SMALL_TILE, _LARGE_TILE = 2_000_000, 100_000_000
"""Multiply-adds of a task: one is cut in two if each half has at least half the first number, and
in four if each quarter has at least half the second."""

_SHORT_ROW = 256
"""Columns of a task below which packing its rows of A takes too long: only two cores get less."""

_SYMBOLIC_MR = 8
"""Rows of a micropanel where the number of rows is symbolic, at most."""

_MAX_IN_PLACE = 128
"""Rows of A up to which A is not packed where B is prepacked."""

TileCost = Callable[[tuple[int, int], int, int, int], float]
"""The cost of a tile (rows, vectors) for m rows and n columns of C, in vectors of this many
elements."""

_MIN_TRANSPOSED_DEPTH, _TRANSPOSE_GAIN = 128, 0.9
"""Steps of k from which it pays to transpose register tiles when they are stored, and the share of
the other cost that their cost must be below."""

_ODD_TILE_GAIN = 0.96
"""A register tile other than the largest must take less than this share of its time: GEMMs of a
program with the same register tile share its functions."""


@record
class Tiling:
    """The tiling of a contraction; a function of the target and the contraction alone.

    A register tile is `mr` rows of `nv` vectors of `vl` elements; k is cut into `k_blocks` of at
    most `kc` words (`layout`); `mc` rows and `nc` columns are packed at a time; `rows` and
    `columns` are the tile of a task.
    """

    vl: int
    mr: int
    nv: int
    k_blocks: int
    kc: int
    mc: int
    nc: int
    rows: int
    columns: int
    copying: bool
    """Whether all rows of a task are packed at once, and columns of B while the first panel uses
    them."""
    layout: PackedLayout = ELEMENTS
    in_place: bool = False
    """Whether rows of A are read in place."""
    transposed: bool = False
    """Whether vectors are along the rows of C: a register tile is `mr` columns by `nv` vectors of
    rows, and is transposed when it is stored (store_tile.py). A is prepacked then."""

    @property
    def nr(self) -> int:
        return self.nv * self.vl

    @property
    def panel_rows(self) -> int:
        """Rows of C of a register tile, and lanes of a packed panel of A."""
        return self.nr if self.transposed else self.mr

    @property
    def panel_columns(self) -> int:
        """Columns of C of a register tile, and lanes of a packed panel of B."""
        return self.mr if self.transposed else self.nr

    @property
    def a_size(self) -> int:
        """Words of packed rows of A, plus what the last panel may write past its end."""
        return self.mc * self.kc + (self.vl if self.layout is ELEMENTS else TILE * (self.mr + TILE))

    @property
    def b_size(self) -> int:
        past = 0 if self.layout is ELEMENTS else TILE * self.nr
        past = self.vl if self.transposed else past
        return (self.nr if self.copying else self.nc) * self.kc + past


@functools.cache
def choose_tiling(target: Target, spec: Contraction) -> Tiling:
    """The tiling of a contraction whose C has unit columns, or no unit stride."""
    bits, overrides = BITS[spec.acc_type], spec.overrides
    vl, size = target.lanes(bits), bits // 8
    layout = choose_packed_layout(target, spec)
    tiles = layout.in_tiles
    mr, nv = (2 * TILE, 2) if tiles else _register_tile(target, spec.m, spec.n, vl)
    if overrides.mr is not None or overrides.nv is not None:
        mr, nv = overrides.mr or mr, overrides.nv or nv
        _check_registers(target, mr, nv)
    # A column panel fills L1, and micropanels stream through: a shorter panel, which stays there as
    # a whole, moves C more often.
    depth = min(max(target.l1_bytes // (nv * vl * size), 256), 384)
    depth = _TILE_WORDS if tiles else depth
    depth = -(-overrides.kc // layout.per_word) if overrides.kc else depth
    cuts, most_cuts = -(-spec.k // layout.per_cut), max(1, depth // layout.words_per_cut)
    k_blocks = max(1, -(-cuts // most_cuts))
    kc = max(1, -(-cuts // k_blocks)) * layout.words_per_cut
    if _is_transposed(target, spec, layout):
        # The blocks of k are the same: so are the sums, whether weights are constants or not.
        mr, nv = _register_tile(target, spec.n, spec.m, vl)
        rows, columns = _task_tile(spec, nv * vl, mr)
        nc = min(columns, max(1, _MAX_A_BYTES // size // kc // mr) * mr)
        return Tiling(
            vl, mr, nv, k_blocks, kc, rows, nc, rows, columns, copying=False, transposed=True
        )
    rows, columns = _task_tile(spec, mr, nv * vl)
    nc = min(columns, max(1, _B_BYTES // size // kc // (nv * vl)) * nv * vl)
    alone = _is_copied_in_use(spec) and overrides.mc is overrides.kc is None
    in_l2 = target.l2_bytes * 3 // 8
    if alone and rows * kc * size <= min(in_l2, _MAX_ALONE):
        return Tiling(vl, mr, nv, k_blocks, kc, rows, nc, rows, columns, copying=True)
    most_a = _MAX_ALONE if spec.packed else _MAX_A_BYTES
    budget = min(in_l2, _TILE_A_BYTES if tiles else most_a) // size
    most = max(1, budget // kc // mr)
    if overrides.mc is not None or overrides.kc is not None:
        micropanels = -(-(overrides.mc or 1) // mr)
        if micropanels > most or kc * mr > budget:
            raise ScheduleError(
                f"packed panels of mc={micropanels * mr} rows and kc={kc * layout.per_word} are "
                "more than a task may hold",
                hint=f"kc * mc is at most {budget * layout.per_word} here",
            )
        most = micropanels if overrides.mc is not None else most
    pieces = max(1, -(-rows // (most * mr)))
    mc = round_up(max(1, -(-rows // pieces)), mr)
    copying = pieces == 1 and _is_copied_in_use(spec)
    in_place = _is_read_in_place(spec, layout)
    return Tiling(vl, mr, nv, k_blocks, kc, mc, nc, rows, columns, copying, layout, in_place)


def tiling_of(target: Target, spec: Contraction) -> Tiling:
    """The tiling of a contraction that may have symbolic sizes.

    A symbolic number of rows may be small, so its micropanels are short: few rows then waste
    little, and many rows lose about 2 %.
    """
    tiling = choose_tiling(target, typical_contraction(spec))
    few = isinstance(spec.m, int) or tiling.mr <= _SYMBOLIC_MR or tiling.nv == 1
    if few or tiling.layout is not ELEMENTS or spec.overrides.mr is not None:
        return tiling
    return replace(tiling, mr=_SYMBOLIC_MR, mc=round_up(tiling.mc, _SYMBOLIC_MR))


def _is_read_in_place(spec: Contraction, layout: PackedLayout) -> bool:
    """Whether packing A does not pay: adjacent tasks would pack the same rows."""
    along_k = spec.a_strides[1] == 1 and spec.a_type == spec.acc_type
    return spec.packed and along_k and layout is ELEMENTS and spec.m <= _MAX_IN_PLACE


def _is_transposed(target: Target, spec: Contraction, layout: PackedLayout) -> bool:
    """Whether vectors along the rows of C waste less than vectors along its columns.

    This is so for the few positions of a late convolution, whose weights are A: 49 columns take
    four vectors of 16. Weights are packed once, so that either layout is free.
    """
    plain = spec.packed_rows and not spec.packed and spec.overrides == NO_OVERRIDES
    if not plain or layout is not ELEMENTS or not spec.is_static or spec.b_strides[1] != 1:
        return False
    vl = target.lanes(BITS[spec.acc_type])
    if spec.k < _MIN_TRANSPOSED_DEPTH or spec.m < vl or not has_masks(target, BITS[spec.acc_type]):
        return False
    along_columns = _register_tile(target, spec.m, spec.n, vl)
    along_rows = _register_tile(target, spec.n, spec.m, vl)
    if along_rows[0] > vl:
        return False
    cost = _tile_cost(along_rows, spec.n, spec.m, vl)
    return cost < _TRANSPOSE_GAIN * _tile_cost(along_columns, spec.m, spec.n, vl)


def _is_copied_in_use(spec: Contraction) -> bool:
    """Whether rows of B are contiguous and have the accumulator's type."""
    in_memory = not spec.packed and spec.windows is None
    return spec.b_strides[1] == 1 and spec.b_type == spec.acc_type and in_memory


def _task_tile(spec: Contraction, mr: int, nr: int) -> tuple[int, int]:
    """Rows and columns of C that one task should compute: whole register tiles.

    A task packs its rows of A and its columns of B once, so tiles are large enough to keep the
    packing at a few percent. A GEMM of few tiles is cut for two cores if it is worth two tasks, and
    for four if a quarter is still large and not too narrow.
    """
    rows, columns = _even(spec.m, _MAX_ROWS, mr), _even(spec.n, _MAX_COLUMNS, nr)

    def tiles() -> int:
        return -(-spec.m // rows) * -(-spec.n // columns)

    for min_tiles, size in ((2, _SMALL_TILE), (4, _LARGE_TILE)):
        while tiles() < min_tiles and rows * columns * spec.k >= size:
            half_rows, half_columns = round_up(rows // 2, mr), round_up(columns // 2, nr)
            if rows >= columns and half_rows < rows:
                rows = half_rows
            elif half_columns < columns and (min_tiles == 2 or half_columns >= _SHORT_ROW):
                columns = half_columns
            else:
                break
    while columns < spec.n and 2 * rows * columns * spec.k < _SMALL_TILE:
        columns += nr
    return rows, columns


def _even(extent: int, most: int, step: int) -> int:
    """The size of the parts of `extent`, at most `most` each and about equal, in whole steps.

    Their number is even, or one: two cores then have equal work.
    """
    parts = max(1, -(-extent // most))
    parts += parts % 2 if parts > 1 else 0
    return round_up(max(1, -(-extent // parts)), step)


def registers_used(target: Target, mr: int, nv: int) -> int:
    """Vector registers of a tile of C plus its operands; one is for the compiler."""
    return mr * nv + nv + (2 if target.has_fma else 3)


def _check_registers(target: Target, mr: int, nv: int) -> None:
    used = registers_used(target, mr, nv)
    if used > target.vector_registers:
        raise ScheduleError(
            f"a register tile of mr={mr} rows by nv={nv} vectors takes {used} registers, and "
            f"{target.name} has {target.vector_registers}"
        )


def _register_tile(target: Target, m: int, n: int, vl: int) -> tuple[int, int]:
    """The register tile of C."""
    ranked = rank_register_tiles(target, m, n, vl)
    usual = rank_register_tiles(target, 1 << 20, 1 << 20, vl)[0]
    worth = _ODD_TILE_GAIN * _tile_cost(usual, m, n, vl)
    return ranked[0] if _tile_cost(ranked[0], m, n, vl) < worth else usual


def rank_register_tiles(
    target: Target, m: int, n: int, vl: int, cost: TileCost | None = None
) -> list[tuple[int, int]]:
    """Rows, and vectors per row, of the tiles that fit into the registers, best first.

    The tile with the least `cost` for the whole of C is best, so a small or odd C wastes little at
    its edges. By default the cost is that of packed panels.
    """
    total = cost or _tile_cost
    tiles = [(mr, nv) for nv, mr in itertools.product(range(1, 5), range(1, 17))]
    return sorted(
        (t for t in tiles if registers_used(target, *t) <= target.vector_registers),
        key=lambda tile: (total(tile, m, n, vl), -tile[0] * tile[1]),
    )


def edge_rows(mr: int) -> int:
    """Rows of the shorter tile for the rows below the last whole one."""
    return mr // 2 + 1


def step_cost(mr: int, nv: int) -> float:
    """Estimated cycles of a step of k of one tile.

    The larger of its multiply-adds and its loads (two of each per cycle), and at least the latency
    of one.
    """
    return max(mr * nv / 2, (mr + nv) / 2, 4.0) + 0.4


def _tile_cost(tile: tuple[int, int], m: int, n: int, vl: int) -> float:
    """Estimated cycles of a step of k for the whole of C."""
    mr, nv = tile
    full, remaining = divmod(m, mr)
    edge = edge_rows(mr) if full and remaining <= edge_rows(mr) else mr
    rows = full * step_cost(mr, nv) + (step_cost(edge, nv) if remaining else 0.0)
    return -(-n // (nv * vl)) * rows
