"""A tile of an operand in shared memory: where each 16 bytes of it lie.

`plan.py` chooses tiles; those who write and read them (`pipelined_copies.py`,
`mma.py`, `fma.py`) ask for offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from nova.codegen.common.builder import Index, add, mul
from nova.codegen.gpu.ptx_ops import divide, exclusive_or, modulo
from nova.ir.bindings import ir

CHUNK = 16
"""Bytes that are moved at once."""

Clean = Callable[[ir.Value], ir.Value]
"""What changes a factor on its way from a tile: an element, or a word of some for tensor cores."""


@dataclass(frozen=True)
class SharedTile:
    """`outer` rows of A or columns of B, `depth` steps of k.

    Its rows run along k or along the outer direction, as the operand in global memory does. Chunks
    of swizzled tiles change places within a row by the number of the row (in steps of `swizzled`
    chunks), so that eight rows' chunks of the same number lie in different banks. Rows of `padded`
    tiles are a chunk longer, to the same end.
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
    def turned(self) -> SharedTile:
        """The same memory for a product along the other direction."""
        return replace(self, outer=self.depth, depth=self.outer, along_k=not self.along_k)

    @property
    def per_chunk(self) -> int:
        """Elements of a chunk."""
        return CHUNK // self.element

    def key(self, row: Index) -> Index:
        """What the chunk numbers of a row are mixed with."""
        chunks = min(8, self.row_bytes // CHUNK)
        if not self.swizzled or chunks <= 1:
            return 0
        # Rows shorter than all banks lie side by side in them.
        number = modulo(divide(row, 8 // chunks), max(1, chunks // self.swizzled))
        return mul(number, self.swizzled)

    def at(self, row: Index, chunk: Index) -> Index:
        """Offset in bytes of a chunk."""
        place = exclusive_or(chunk, self.key(row))
        return add(mul(row, self.pitch), mul(place, CHUNK))


@dataclass(frozen=True)
class TileMatmul:
    """The product of two tiles, and how warps share it.

    `warps` are those along rows and along columns; `split` groups of so many warps have a part of
    the steps each. `element` is the type of the factors, and `reach` how many bytes of k plain
    products read together.
    """

    left: SharedTile
    right: SharedTile
    element: str
    warps: tuple[int, int]
    split: int = 1
    reach: int = CHUNK

    @property
    def threads(self) -> int:
        return 32 * prod(self.warps) * self.split

    @property
    def warp(self) -> tuple[int, int]:
        """Rows and columns of one warp."""
        return self.left.outer // self.warps[0], self.right.outer // self.warps[1]

    @property
    def steps(self) -> int:
        """Steps of k of one group of warps."""
        return self.left.depth // self.split
