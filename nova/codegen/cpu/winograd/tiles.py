"""Vectors over the tiles of a Winograd convolution: their places in an image, and shuffles.

The pieces of a vector are rows of tiles: each has `group` tiles, whose elements in a row of the
image are next to each other. input_transform.py loads them, and output_transform.py stores them.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.codegen.cpu.winograd.plan import WinogradPlan
from nova.core.records import record
from nova.ir.bindings import arith, ir, vector
from nova.ir.index import Index, add, compare, index, mul, sub


@record
class TileRows:
    """The rows of tiles of a block, in memory: arguments of the functions of a module.

    `count` rows of tiles, `of_image` of each image. An image has `height` rows of `width` elements
    from the start of the block on.
    """

    offset: Index
    image_stride: Index
    row_stride: Index
    count: Index
    of_image: Index
    height: Index
    width: Index

    @property
    def numbers(self) -> tuple[Index, ...]:
        return (
            *(self.offset, self.image_stride, self.row_stride, self.count),
            *(self.of_image, self.height, self.width),
        )


@record
class Piece:
    """The part of a vector in one row of tiles: its place, and the rows and columns there."""

    offset: Index
    rows: Index
    columns: Index

    def columns_in(self, row: int, least: int) -> Index:
        """The elements in a row of the tiles: none below the image; `least` rows are there."""
        if row < least:
            return self.columns
        inside = compare(arith.CmpIPredicate.slt, row, self.rows)
        return arith.select(inside, index(self.columns), index(0))


def pieces(plan: WinogradPlan, rows: TileRows, first: Index, group: Index) -> list[Piece]:
    """The pieces of the vector with rows of tiles from `first` on, in a group of columns."""
    result = []
    left = mul(group, plan.group * plan.size)
    for number in range(plan.rows_of_vector):
        row = index(add(first, number))
        image = arith.divui(row, index(rows.of_image))
        y = mul(arith.remui(row, index(rows.of_image)), plan.size)
        at = add(mul(image, rows.image_stride), add(mul(y, rows.row_stride), left))
        inside = compare(arith.CmpIPredicate.slt, row, rows.count)
        columns = arith.select(inside, index(sub(rows.width, left)), index(0))
        result.append(Piece(add(rows.offset, at), sub(rows.height, y), columns))
    return result


def piece_lanes(plan: WinogradPlan) -> int:
    """Elements of a piece that are loaded and stored together."""
    return min(plan.vl, plan.group * plan.size)


def joined(vectors: Sequence[ir.Value], lanes: int) -> list[ir.Value]:
    """Vectors of `lanes` elements with the elements of shorter ones."""
    current = list(vectors)
    while current[0].type.shape[0] < lanes:
        width = 2 * current[0].type.shape[0]
        pairs = zip(current[::2], current[1::2], strict=True)
        current = [vector.shuffle(a, b, mask=range(width)) for a, b in pairs]
    return current


def divided(vectors: Sequence[ir.Value], lanes: int) -> list[ir.Value]:
    """Vectors of `lanes` elements with the elements of longer ones."""
    result = []
    for value in vectors:
        width = value.type.shape[0]
        for start in range(0, width, lanes):
            part = range(start, start + lanes)
            whole = lanes == width
            result.append(value if whole else vector.shuffle(value, value, mask=part))
    return result


def deinterleave(vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Vector j of n has the elements j, j + n, ... of the n vectors; n is a power of two."""
    if len(vectors) == 1:
        return list(vectors)
    lanes = vectors[0].type.shape[0]
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    halves = [
        deinterleave([vector.shuffle(a, b, mask=range(odd, 2 * lanes, 2)) for a, b in pairs])
        for odd in (0, 1)
    ]
    return [value for pair in zip(*halves, strict=True) for value in pair]


def interleave(vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """The inverse of `deinterleave`."""
    if len(vectors) == 1:
        return list(vectors)
    lanes = vectors[0].type.shape[0]
    even, odd = interleave(vectors[::2]), interleave(vectors[1::2])
    order = [n for i in range(lanes) for n in (i, lanes + i)]
    return [
        vector.shuffle(a, b, mask=part)
        for a, b in zip(even, odd, strict=True)
        for part in (order[:lanes], order[lanes:])
    ]
