"""How a contraction is cut: register tile, cache blocks, and the tile of C of one task.

In: a target and a `Contraction`, whose `choices` may override numbers; out: a `Tiling`, and
the tile of a task. `contraction.py` emits by it, and the schedules of kernels ask for the tile.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace

from nova.errors import ScheduleError
from nova.schedules.choices import NO_CHOICES, Choices
from nova.schedules.words import BITS
from nova.targets import Target

BUFFER_BYTES = 512 << 10
"""The most that the pack buffers of one block take from the stack."""

_FEW_TILES, _SMALL_TILE = 4, 16_000_000
"""Tasks are made smaller while there are fewer than this, and none gets fewer operations."""


@dataclass(frozen=True)
class Contraction:
    """C[m,n] (+)= sum over k of A[m,k] * B[k,n]; strides in elements.

    `choices` are what somebody has decided about its tiling; the rest follows from the sizes. With
    `packed`, B lies in panels already (constants.py), and its strides say how it lay before.
    """

    m: int
    n: int
    k: int
    a_strides: tuple[int, int]
    b_strides: tuple[int, int]
    c_strides: tuple[int, int]
    a_type: str
    b_type: str
    acc_type: str
    accumulate: bool
    choices: Choices = NO_CHOICES
    packed: bool = False


@dataclass(frozen=True)
class Tiling:
    """How a contraction is cut; a function of the target and the contraction alone."""

    vl: int
    mr: int
    nv: int
    k_blocks: int
    kc: int
    mc: int
    nc: int

    @property
    def nr(self) -> int:
        return self.nv * self.vl

    @property
    def a_size(self) -> int:
        """Elements of packed rows of A, and a vector that the last panel may write past its end."""
        return self.mc * self.kc + self.vl

    @property
    def b_size(self) -> int:
        return self.nc * self.kc


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def with_unit_columns(spec: Contraction) -> Contraction:
    """The contraction, transposed if that makes the columns of C the contiguous ones."""
    rows_first = spec.c_strides[0] == 1 and spec.m > 1
    columns_first = spec.c_strides[1] == 1 and spec.n > 1
    if not rows_first or columns_first:
        return spec
    return replace(
        spec,
        m=spec.n,
        n=spec.m,
        a_strides=spec.b_strides[::-1],
        b_strides=spec.a_strides[::-1],
        c_strides=spec.c_strides[::-1],
        a_type=spec.b_type,
        b_type=spec.a_type,
    )


@functools.cache
def choose_tiling(target: Target, spec: Contraction) -> Tiling:
    """The tiling of a contraction whose C has unit columns, or neither."""
    bits, choices = BITS[spec.acc_type], spec.choices
    vl, size = target.lanes(bits), bits // 8
    mr, nv = _register_tile(target, spec.m, spec.n, vl)
    if choices.mr is not None or choices.nv is not None:
        mr, nv = choices.mr or mr, choices.nv or nv
        _check_registers(target, mr, nv)
    # A column panel takes most of L1, next to one row panel that streams through.
    depth = choices.kc or min(max(target.l1_bytes * 7 // 10 // (nv * vl * size), 256), 384)
    k_blocks = max(1, -(-spec.k // depth))
    kc = max(1, -(-spec.k // k_blocks))
    nc = nv * vl
    budget = min(target.l2_bytes * 5 // 8, BUFFER_BYTES - kc * nc * size - (8 << 10))
    most = max(1, budget // size // kc // mr)
    if choices.mc is not None or choices.kc is not None:
        wanted = -(-(choices.mc or 1) // mr)
        if wanted > budget // size // kc // mr:
            raise ScheduleError(
                f"packed panels of mc={wanted * mr} rows and kc={kc} are more than a task may hold",
                hint=f"kc * mc is at most {max(0, budget // size)} here",
            )
        most = wanted if choices.mc is not None else most
    pieces = max(1, -(-spec.m // (most * mr)))
    mc = round_up(max(1, -(-spec.m // pieces)), mr)
    return Tiling(vl, mr, nv, k_blocks, kc, mc, nc)


def task_tile(target: Target, spec: Contraction) -> tuple[int, int]:
    """Rows and columns of C that one task should compute: whole register tiles.

    A task packs its rows of A and its columns of B once, so tiles are as tall as the packed rows
    of A may be and wide enough to keep the copying of A at a few percent; they are halved as long
    as there are too few to share out and halves are still worth a task.
    """
    tiling = choose_tiling(target, spec)
    rows, columns = tiling.mc, round_up(min(max(spec.n, 1), 512), tiling.nr)

    def tiles() -> int:
        return -(-spec.m // rows) * -(-spec.n // columns)

    while tiles() < _FEW_TILES and rows * columns * spec.k >= _SMALL_TILE:
        half_rows = round_up(rows // 2, tiling.mr)
        half_columns = round_up(columns // 2, tiling.nr)
        if columns >= rows and half_columns < columns:
            columns = half_columns
        elif half_rows < rows:
            rows = half_rows
        else:
            break
    while columns < spec.n and 2 * rows * columns * spec.k < _SMALL_TILE:
        columns += tiling.nr
    return rows, columns


def registers_used(target: Target, mr: int, nv: int) -> int:
    """Vector registers of a tile of C with what it needs beside; one is for the compiler."""
    return mr * nv + nv + (2 if target.has_fma else 3)


def _check_registers(target: Target, mr: int, nv: int) -> None:
    used = registers_used(target, mr, nv)
    if used > target.vector_registers:
        raise ScheduleError(
            f"a register tile of mr={mr} rows by nv={nv} vectors takes {used} registers, and "
            f"{target.name} has {target.vector_registers}"
        )


def _register_tile(target: Target, m: int, n: int, vl: int) -> tuple[int, int]:
    """The tile of C that is held in registers."""
    return rank_register_tiles(target, m, n, vl)[0]


def rank_register_tiles(target: Target, m: int, n: int, vl: int) -> list[tuple[int, int]]:
    """Rows, and vectors a row, of the tiles that fit into the registers, the best one first.

    A step of k costs the larger of its multiply-adds and its loads (two of each a cycle), and no
    less than the latency of one; the tile with the least total for the whole of C is best, so a
    small or odd C wastes little at its edges.
    """

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        mr, nv = tile
        step = max(mr * nv / 2, (mr + nv) / 2, 4.0) + 0.4
        return -(-m // mr) * -(-n // (nv * vl)) * step, -mr * nv

    tiles = [(mr, nv) for nv, mr in itertools.product(range(1, 5), range(1, 17))]
    return sorted(
        (t for t in tiles if registers_used(target, *t) <= target.vector_registers), key=cost
    )
