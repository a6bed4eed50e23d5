"""The tilings of kernels: their tile grids, and the bytes that each tile touches.

`pack_tilings` encodes the part of a block of tables from which the runtime derives tasks, and
`unpack_tilings` decodes it; `tables.py` calls both. docs/nova-format.md documents the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from struct import Struct

from nova.artifact.check import Buffer, fail
from nova.core.records import record

TILING = Struct("<IIII")
WORD = Struct("<q")
WORD_COUNT = Struct("<Q")


DEVICE_TASK_NS = 1
"""`task_ns` of kernels of a device, where each block is a task."""


@record
class OperandRange:
    """Bytes [low, high) of an operand that a tile touches, shifted by `strides` with its grid
    point."""

    operand: int
    writes: bool
    low: int
    high: int
    strides: tuple[int, ...]


@record
class Tiling:
    """The grid and tile of a kernel, the last dimension fastest, and the bytes that tiles touch.

    `task_ns` is the estimated time that one task should have.
    """

    grid: tuple[int, ...]
    tile: tuple[int, ...]
    ranges: tuple[OperandRange, ...]
    task_ns: int

    @property
    def tiles(self) -> int:
        """The number of tiles."""
        return prod(ceil(g / t) for g, t in zip(self.grid, self.tile, strict=True))


def pack_tilings(tilings: Sequence[Tiling | None]) -> bytes:
    """Encode the tilings of all kernels; None for copies, loops, and kernels of symbolic sizes."""
    rows = bytearray()
    words: list[int] = []
    for tiling in tilings:
        if tiling is None:
            rows += TILING.pack(len(words), 0, 0, 0)
            continue
        rows += TILING.pack(len(words), len(tiling.grid), len(tiling.ranges), tiling.task_ns)
        words += [*tiling.grid, *tiling.tile]
        for item in sorted(tiling.ranges, key=lambda r: (r.operand, r.writes)):
            words += [2 * item.operand + item.writes, item.low, item.high, *item.strides]
    return bytes(rows) + WORD_COUNT.pack(len(words)) + b"".join(map(WORD.pack, words))


def unpack_tilings(block: Buffer, position: int, count: int) -> tuple[list[Tiling | None], int]:
    """The tilings of `count` kernels at a position of a block, and the position after them."""
    end = position + TILING.size * count + WORD_COUNT.size
    if end > len(block):
        fail("tables-size", f"the tilings end at {end} of {len(block)}")
    (word_count,) = WORD_COUNT.unpack_from(block, end - WORD_COUNT.size)
    if word_count > (len(block) - end) // WORD.size:
        fail("tables-size", f"{word_count} words of tilings end after the block")
    after = end + word_count * WORD.size
    words = [word for (word,) in WORD.iter_unpack(memoryview(block)[end:after])]
    rows = TILING.iter_unpack(memoryview(block)[position : end - WORD_COUNT.size])
    return [_tiling(words, *row) for row in rows], after


def _tiling(words: list[int], first: int, rank: int, ranges: int, task_ns: int) -> Tiling | None:
    if not task_ns:
        return None
    at = first + 2 * rank
    width = 3 + rank
    if at + ranges * width > len(words):
        fail("tables-size", f"a tiling ends at word {at + ranges * width} of {len(words)}")
    rows = [words[i : i + width] for i in range(at, at + ranges * width, width)]
    return Tiling(
        tuple(words[first : first + rank]),
        tuple(words[first + rank : at]),
        tuple(
            OperandRange(number >> 1, bool(number & 1), low, high, tuple(strides))
            for number, low, high, *strides in rows
        ),
        task_ns,
    )
