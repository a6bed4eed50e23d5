"""Which matrix products read their operands where they lie, and the tiles of those.

In: a target and a `Contraction` whose C has unit columns. Out: whether it is direct, and its
`DirectTile`. `contraction.py` asks, and `direct.py` emits by it.

A small product has one chunk of k. One with few rows goes through all columns before the next
chunk, so that B, which is read once, is read as a few long streams.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from nova.schedules.choices import NO_CHOICES
from nova.schedules.lanes import has_masks
from nova.schedules.tiling import Contraction, rank_register_tiles, round_up, step_cost
from nova.schedules.words import BITS
from nova.targets import Target

_LEAST_WORK, _MOST_WORK = 256, 1 << 19
"""Multiply-adds of a small product: plain loops do what is less, panels pay for what is more."""

_FEW_ROWS = 4
"""A right operand of any size is not copied for so many rows."""

_STREAMS, _STREAMS_OF_ONE = 8, 4
"""Steps of k, and rows of B that are read side by side, of a product with few rows, or with one."""

_LARGE_RIGHT = 1 << 20
"""Bytes of B from which on a product with few rows is cut in two: memory is slow for one core."""

_MOST_AHEAD = 16 << 10
"""Bytes of B that may be fetched ahead: they wait in L1, next to a row of C."""


@dataclass(frozen=True)
class DirectTile:
    """`mr` rows of `nv` vectors of `vl` elements, for `chunk` steps of k; columns of a task."""

    mr: int
    nv: int
    vl: int
    chunk: int
    columns: int
    ahead: bool = False
    """Whether the rows of B of the next chunk are fetched while those of one are used."""

    @property
    def nr(self) -> int:
        return self.nv * self.vl


def is_direct(target: Target, spec: Contraction) -> bool:
    """Whether a contraction, whose C has unit columns, is computed without copies of operands."""
    bits = BITS[spec.acc_type]
    if not spec.a_type == spec.b_type == spec.acc_type or spec.packed:
        return False
    if spec.b_strides[1] != 1 or spec.c_strides[1] != 1 or spec.choices != NO_CHOICES:
        return False
    if spec.n < 4 or (spec.n % target.lanes(bits) and not has_masks(target, bits)):
        return False
    work = spec.m * spec.n * spec.k
    return work >= _LEAST_WORK and (spec.m <= _FEW_ROWS or work <= _MOST_WORK)


@functools.cache
def direct_tile(target: Target, spec: Contraction) -> DirectTile:
    """The tiles of a product that is direct."""
    bits = BITS[spec.acc_type]
    vl = target.lanes(bits)
    while vl // 2 >= spec.n:
        vl //= 2
    if spec.m > _FEW_ROWS or spec.m * spec.n * spec.k <= _MOST_WORK // 8:
        mr, nv = rank_register_tiles(target, spec.m, spec.n, vl, _exact_cost)[0]
        return DirectTile(min(mr, spec.m), nv, vl, spec.k, spec.n)
    nv = {1: 4, 2: 3}.get(spec.m, 2)
    columns = spec.n
    if spec.k * spec.n * bits // 8 >= _LARGE_RIGHT:
        columns = round_up(-(-spec.n // 2), nv * vl)
    chunk = _STREAMS_OF_ONE if spec.m == 1 else _STREAMS
    ahead = chunk * columns * bits // 8 <= _MOST_AHEAD
    return DirectTile(spec.m, nv, vl, chunk, columns, ahead)


def _exact_cost(tile: tuple[int, int], m: int, n: int, vl: int) -> float:
    """About the cycles of a step of k for the whole of C, whose edges have tiles of their sizes."""
    mr, nv = tile
    rows, (panels, left) = divmod(m, mr), divmod(n, nv * vl)
    total = panels * _strip(rows, mr, nv)
    return total + (_strip(rows, mr, -(-left // vl)) if left else 0.0)


def _strip(rows: tuple[int, int], mr: int, nv: int) -> float:
    """One panel of columns: whole tiles, and what is left of the rows."""
    whole, left = rows
    return whole * step_cost(mr, nv) + (step_cost(left, nv) if left else 0.0)
