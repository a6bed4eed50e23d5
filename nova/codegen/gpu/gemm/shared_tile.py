"""A tile of an operand in shared memory: the offset of each 16-byte chunk (swizzle or padding).

`plan.py` chooses tiles; their writers and readers (`pipelined_copies.py`, `mma.py`, `fma.py`) ask
for offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from nova.ir.bindings import ir
from nova.ir.index import Index, add, divide, exclusive_or, modulo, mul

CHUNK = 16
"""Bytes that one access moves."""

WARP = 32
LANES = (4, 8)
"""Threads of a warp along rows and along columns, of FMA matmuls."""

Clean = Callable[[ir.Value], ir.Value]
"""Transforms an operand read from a tile: an element, or a word of elements for tensor cores."""


@dataclass(frozen=True)
class SharedTile:
    """`outer` rows of A or columns of B, `depth` steps of k.

    Its rows run along k or along the outer dimension, as the operand in global memory does. Chunks
    of swizzled tiles are permuted within a row by the row number (in steps of `swizzled` chunks),
    so that the chunks of the same number in eight rows are in different banks. Rows of `padded`
    tiles are a chunk longer, for the same purpose.
    """

    outer: int
    depth: int
    element: int
    along_k: bool
    swizzled: int
    padded: bool = False

    @property
    def rows(self) -> int:
        return self.outer if self.along_k else self.depth

    @property
    def row_bytes(self) -> int:
        return self.element * (self.depth if self.along_k else self.outer)

    @property
    def pitch(self) -> int:
        return self.row_bytes + (CHUNK if self.padded else 0)

    @property
    def nbytes(self) -> int:
        return self.rows * self.pitch

    @property
    def transposed(self) -> SharedTile:
        """The same memory for a matmul along the other dimension."""
        return replace(self, outer=self.depth, depth=self.outer, along_k=not self.along_k)

    @property
    def per_chunk(self) -> int:
        """Elements of a chunk."""
        return CHUNK // self.element

    def key(self, row: Index) -> Index:
        """The swizzle key that is XORed with the chunk numbers of a row."""
        chunks = min(8, self.row_bytes // CHUNK)
        if not self.swizzled or chunks <= 1:
            return 0
        # Several rows that are shorter than all banks share one pass over the banks.
        number = modulo(divide(row, 8 // chunks), max(1, chunks // self.swizzled))
        return mul(number, self.swizzled)

    def at(self, row: Index, chunk: Index) -> Index:
        """Offset in bytes of a chunk."""
        swizzled_chunk = exclusive_or(chunk, self.key(row))
        return add(mul(row, self.pitch), mul(swizzled_chunk, CHUNK))


@dataclass(frozen=True)
class TileMatmul:
    """A matmul of two tiles, and its distribution over warps.

    `warps` are those along rows and along columns; each of `split` groups of warps computes a part
    of the steps. `element` is the operand type, and `reach` the bytes of k that an FMA matmul reads
    together. `lanes` are the threads of a warp along rows and columns in an FMA matmul; where they
    are fewer than 32, groups of that many lanes share the steps of the warp (`lane_groups`).
    """

    lhs: SharedTile
    rhs: SharedTile
    element: str
    warps: tuple[int, int]
    split: int = 1
    reach: int = CHUNK
    lanes: tuple[int, int] = LANES

    @property
    def threads(self) -> int:
        return 32 * prod(self.warps) * self.split

    @property
    def lane_groups(self) -> int:
        return WARP // prod(self.lanes)

    @property
    def warp(self) -> tuple[int, int]:
        """Rows and columns of one warp."""
        return self.lhs.outer // self.warps[0], self.rhs.outer // self.warps[1]

    @property
    def steps(self) -> int:
        """Steps of k of one group of lanes."""
        return self.lhs.depth // (self.split * self.lane_groups)
