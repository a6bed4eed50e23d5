"""Which matmuls use the unpacked GEMM, which reads its operands in place, and their tiles.

Input: a target and a `Contraction` whose C has unit columns. Output: whether it is unpacked, and
its `UnpackedTile`. `packed_gemm.py` asks, and `unpacked_gemm.py` emits the tile.

A right operand that is contiguous along k makes a GEMV of dot products. Otherwise a small matmul
has one chunk of k. A matmul with few rows visits all columns before the next chunk, so that B,
which is read once, is read as a few long streams.
"""

from __future__ import annotations

import functools
from math import isqrt

from nova.codegen.common.builder import BITS
from nova.codegen.common.cascade_sum import LONG
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.common.overrides import NO_OVERRIDES
from nova.codegen.cpu.gemm.blocking import rank_register_tiles, step_cost
from nova.codegen.cpu.vectorize import has_masks
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.targets import Target

_MIN_WORK, _MAX_WORK = 256, 1 << 21
"""Multiply-adds of a small matmul: plain loops handle less, packed panels pay for more."""

_MAX_RIGHT = 256 << 10
"""Bytes of B of a small matmul: B is read again for every few rows and must stay in L2."""

_MAX_IN_PLACE = 1 << 19
"""Multiply-adds of a small matmul that is unpacked even where packed panels are free."""

_NARROW = 1 << 16
"""Multiply-adds up to which a matmul with few rows has the tiles of a small matmul."""

_FEW_ROWS = 4
"""A right operand of any size is not packed for this many rows."""

_STREAMS, _STREAMS_OF_ONE = 8, 4
"""Steps of k, thus concurrent streams of rows of B, of a matmul with few rows, or with one."""

_LARGE_RIGHT = 1 << 20
"""Bytes of B from which a matmul with few rows is cut in two: one core does not saturate memory."""

_MAX_DOT_ROWS = 16
"""Rows of a matmul along k up to which its right operand is not transposed."""

_TWO_TASKS = 2_000_000
"""Multiply-adds that are worth two tasks."""

_MAX_SUMS = 256 << 10
"""Bytes of the partial sums of a block of k, next to C: they are on the stack."""

_MAX_AHEAD = 16 << 10
"""Bytes of B that may be prefetched: they wait in L1, next to a row of C."""


@record
class UnpackedTile:
    """`mr` rows of `nv` vectors of `vl` elements, for `chunk` steps of k; the columns of a task."""

    mr: int
    nv: int
    vl: int
    chunk: int
    columns: int
    ahead: bool = False
    """Whether the rows of B of the next chunk are prefetched during the current chunk."""
    block: int = 0
    """Steps of k that are summed separately, in whole chunks; 0 for a single sum over k."""

    @property
    def nr(self) -> int:
        return self.nv * self.vl


@record
class GemvTile:
    """`mr` rows and `nr` columns of dot products in vectors of `vl` steps of k; columns of a task.

    An iteration of the k loop takes `vectors`, which go round-robin to the `parts` sums of an
    element.
    """

    mr: int
    nr: int
    vl: int
    parts: int
    vectors: int
    columns: int
    ahead: bool
    """Whether the next columns at the same steps of k are prefetched during the current ones."""


def is_unpacked(target: Target, spec: Contraction) -> bool:
    """Whether a contraction, whose C has unit columns, is computed without packing its operands."""
    bits = BITS[spec.acc_type]
    if spec.acc_type == "i32":
        return False  # its code is in floats
    if not spec.a_type == spec.b_type == spec.acc_type or spec.packed or spec.windows:
        return False
    if spec.overrides != NO_OVERRIDES or spec.n < 4:
        return False
    if _is_along_k(spec):
        vectorizes = spec.k % target.lanes(bits) == 0 or has_masks(target, bits)
        least = 16 if spec.m <= _FEW_ROWS else 4 * target.lanes(bits)
        return vectorizes and spec.m <= _MAX_DOT_ROWS and spec.k >= least
    if spec.b_strides[1] != 1 or spec.c_strides[1] != 1:
        return False
    if spec.n % target.lanes(bits) and not has_masks(target, bits):
        return False
    work, right = spec.m * spec.n * spec.k, spec.n * spec.k * bits // 8
    small = work <= _MAX_WORK and right <= _MAX_RIGHT
    return work >= _MIN_WORK and (spec.m <= _FEW_ROWS or small)


def is_best_in_place(target: Target, spec: Contraction) -> bool:
    """Whether a matmul is unpacked even where its right operand could be prepacked."""
    few = spec.m <= _FEW_ROWS or spec.m * spec.n * spec.k <= _MAX_IN_PLACE
    return few and is_unpacked(target, spec)


def _is_along_k(spec: Contraction) -> bool:
    """Whether both operands have unit stride along k, and B not along its columns."""
    return spec.a_strides[1] == 1 and spec.b_strides[0] == 1 and spec.b_strides[1] != 1


@functools.cache
def unpacked_tile(target: Target, spec: Contraction) -> UnpackedTile | GemvTile:
    """The tile of an unpacked GEMM."""
    return _gemv_tile(target, spec) if _is_along_k(spec) else _column_tile(target, spec)


def _gemv_tile(target: Target, spec: Contraction) -> GemvTile:
    """A tile whose accumulators and loaded operands fit the registers."""
    bits = BITS[spec.acc_type]
    vl, mr, nr = target.lanes(bits), min(spec.m, 4), 4
    if mr * nr + mr + nr > target.vector_registers:
        mr = 3 if spec.m % 3 == 0 or spec.m > 4 else 2
    size = spec.k * spec.n * bits // 8
    columns = spec.n
    if size >= _LARGE_RIGHT or spec.m * spec.n * spec.k >= _TWO_TASKS:
        columns = round_up(-(-spec.n // 2), nr)
    # One row has few accumulators and would wait for each: it alternates between two.
    parts = 2 if spec.m == 1 else 1
    vectors = max(parts, 512 // bits // vl)
    ahead = nr * spec.k * bits // 8 <= _MAX_AHEAD
    return GemvTile(mr, nr, vl, parts, vectors, columns, ahead)


def _column_tile(target: Target, spec: Contraction) -> UnpackedTile:
    """A tile of a matmul whose B has unit columns."""
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
        most = _MAX_SUMS * 8 // bits // spec.m // (nv * vl) * (nv * vl)
        columns = min(columns, most)
    ahead = chunk * columns * bits // 8 <= _MAX_AHEAD
    return UnpackedTile(spec.m, nv, vl, chunk, columns, ahead, block)


def _k_block(k: int, chunk: int) -> int:
    """Steps of a block of k: about the number of blocks, where there are many."""
    block = round_up(max(LONG, isqrt(k)), chunk)
    return block if k >= 2 * block else 0


def _exact_cost(tile: tuple[int, int], m: int, n: int, vl: int) -> float:
    """Estimated cycles of a step of k for the whole of C, with edge tiles at their exact sizes."""
    mr, nv = tile
    rows, (panels, remaining) = divmod(m, mr), divmod(n, nv * vl)
    total = panels * _panel_cost(rows, mr, nv)
    return total + (_panel_cost(rows, mr, -(-remaining // vl)) if remaining else 0.0)


def _panel_cost(rows: tuple[int, int], mr: int, nv: int) -> float:
    """The cost of one column panel: whole tiles, and the remaining rows."""
    full, remaining = rows
    return full * step_cost(mr, nv) + (step_cost(remaining, nv) if remaining else 0.0)
