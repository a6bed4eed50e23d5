"""Which matrix products read their operands where they lie, and the tiles of those.

In: a target and a `Contraction` whose C has unit columns. Out: whether it is direct, and its
`UnpackedTile`. `packed_gemm.py` asks, and `unpacked_gemm.py` emits by it.

A right operand that lies along k makes dot products. Else a small product has one chunk of k; one
with few rows goes through all columns before the next chunk, so that B, which is read once, is
read as a few long streams.
"""

from __future__ import annotations

import functools
from math import isqrt

from nova.codegen.common.builder import BITS
from nova.codegen.common.cascade_sum import LONG
from nova.codegen.common.overrides import NO_CHOICES
from nova.codegen.cpu.gemm.blocking import Contraction, rank_register_tiles, round_up, step_cost
from nova.codegen.cpu.vectorize import has_masks
from nova.core.records import record
from nova.core.targets import Target

_LEAST_WORK, _MOST_WORK = 256, 1 << 21
"""Multiply-adds of a small product: plain loops do what is less, panels pay for what is more."""

_MOST_RIGHT = 256 << 10
"""Bytes of B of a small product: it is read again for every few rows, and has to stay in L2."""

_MOST_IN_PLACE = 1 << 19
"""Multiply-adds of a small product that does without panels also where they cost nothing."""

_NARROW = 1 << 16
"""Multiply-adds up to which also a product with few rows has the tiles of a small one."""

_FEW_ROWS = 4
"""A right operand of any size is not copied for so many rows."""

_STREAMS, _STREAMS_OF_ONE = 8, 4
"""Steps of k, and rows of B that are read side by side, of a product with few rows, or with one."""

_LARGE_RIGHT = 1 << 20
"""Bytes of B from which on a product with few rows is cut in two: memory is slow for one core."""

_MOST_DOT_ROWS = 16
"""Rows of a product along k up to which its right operand is not transposed."""

_TWO_TASKS = 2_000_000
"""Multiply-adds that are two tasks."""

_MOST_SUMS = 256 << 10
"""Bytes of the sums of a block of k, next to C: they lie on the stack."""

_MOST_AHEAD = 16 << 10
"""Bytes of B that may be fetched ahead: they wait in L1, next to a row of C."""


@record
class UnpackedTile:
    """`mr` rows of `nv` vectors of `vl` elements, for `chunk` steps of k; columns of a task."""

    mr: int
    nv: int
    vl: int
    chunk: int
    columns: int
    ahead: bool = False
    """Whether the rows of B of the next chunk are fetched while those of one are used."""
    block: int = 0
    """Steps of k that are summed by themselves, whole chunks; 0 where all of them are."""

    @property
    def nr(self) -> int:
        return self.nv * self.vl


@record
class GemvTile:
    """`mr` rows and `nr` columns of dot products in vectors of `vl` steps of k; columns of a task.

    A turn of the loop over k takes `vectors`, which go to the `parts` sums of an element in turn.
    """

    mr: int
    nr: int
    vl: int
    parts: int
    vectors: int
    columns: int
    ahead: bool
    """Whether what the next columns have at the same steps of k is fetched while one is used."""


def is_unpacked(target: Target, spec: Contraction) -> bool:
    """Whether a contraction, whose C has unit columns, is computed without copies of operands."""
    bits = BITS[spec.acc_type]
    if not spec.a_type == spec.b_type == spec.acc_type or spec.packed:
        return False
    if spec.choices != NO_CHOICES or spec.n < 4:
        return False
    if _is_along_k(spec):
        whole = spec.k % target.lanes(bits) == 0 or has_masks(target, bits)
        least = 16 if spec.m <= _FEW_ROWS else 4 * target.lanes(bits)
        return whole and spec.m <= _MOST_DOT_ROWS and spec.k >= least
    if spec.b_strides[1] != 1 or spec.c_strides[1] != 1:
        return False
    if spec.n % target.lanes(bits) and not has_masks(target, bits):
        return False
    work, right = spec.m * spec.n * spec.k, spec.n * spec.k * bits // 8
    small = work <= _MOST_WORK and right <= _MOST_RIGHT
    return work >= _LEAST_WORK and (spec.m <= _FEW_ROWS or small)


def is_best_in_place(target: Target, spec: Contraction) -> bool:
    """Whether a product is direct even where its right operand could be packed beforehand."""
    few = spec.m <= _FEW_ROWS or spec.m * spec.n * spec.k <= _MOST_IN_PLACE
    return few and is_unpacked(target, spec)


def _is_along_k(spec: Contraction) -> bool:
    """Whether both operands have unit steps of k, and B none of columns."""
    return spec.a_strides[1] == 1 and spec.b_strides[0] == 1 and spec.b_strides[1] != 1


@functools.cache
def unpacked_tile(target: Target, spec: Contraction) -> UnpackedTile | GemvTile:
    """The tiles of a product that is direct."""
    return _gemv_tile(target, spec) if _is_along_k(spec) else _column_tile(target, spec)


def _gemv_tile(target: Target, spec: Contraction) -> GemvTile:
    """A tile whose sums, and what is loaded for them, fit the registers."""
    bits = BITS[spec.acc_type]
    vl, mr, nr = target.lanes(bits), min(spec.m, 4), 4
    if mr * nr + mr + nr > target.vector_registers:
        mr = 3 if spec.m % 3 == 0 or spec.m > 4 else 2
    size = spec.k * spec.n * bits // 8
    columns = spec.n
    if size >= _LARGE_RIGHT or spec.m * spec.n * spec.k >= _TWO_TASKS:
        columns = round_up(-(-spec.n // 2), nr)
    # One row has few sums, and would wait for each: it has two in turn.
    parts = 2 if spec.m == 1 else 1
    vectors = max(parts, 512 // bits // vl)
    ahead = nr * spec.k * bits // 8 <= _MOST_AHEAD
    return GemvTile(mr, nr, vl, parts, vectors, columns, ahead)


def _column_tile(target: Target, spec: Contraction) -> UnpackedTile:
    """A tile of a product whose B has unit columns."""
    bits = BITS[spec.acc_type]
    vl = target.lanes(bits)
    while vl // 2 >= spec.n:
        vl //= 2
    work = spec.m * spec.n * spec.k
    if spec.m > _FEW_ROWS or work <= _NARROW:
        mr, nv = rank_register_tiles(target, spec.m, spec.n, vl, _exact_cost)[0]
        columns = round_up(-(-spec.n // 2), nv * vl) if work >= _TWO_TASKS else spec.n
        return UnpackedTile(min(mr, spec.m), nv, vl, spec.k, min(columns, spec.n))
    nv = {1: 4, 2: 3}.get(spec.m, 2)
    columns = spec.n
    if spec.k * spec.n * bits // 8 >= _LARGE_RIGHT:
        columns = round_up(-(-spec.n // 2), nv * vl)
    chunk = _STREAMS_OF_ONE if spec.m == 1 else _STREAMS
    block = _k_block(spec.k, chunk)
    if block:
        most = _MOST_SUMS * 8 // bits // spec.m // (nv * vl) * (nv * vl)
        columns = min(columns, most)
    ahead = chunk * columns * bits // 8 <= _MOST_AHEAD
    return UnpackedTile(spec.m, nv, vl, chunk, columns, ahead, block)


def _k_block(k: int, chunk: int) -> int:
    """Steps of a block of k: about as many as there are blocks, where those are many."""
    block = round_up(max(LONG, isqrt(k)), chunk)
    return block if k >= 2 * block else 0


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
