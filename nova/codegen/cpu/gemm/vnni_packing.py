"""Packs a block of a bf16 matrix into panels of VNNI pairs: words of two steps of k of one lane.

Input: a `Block` of bf16 and the depth of its panels in words. Output: a call that fills a buffer of
32-bit words. `packed_gemm.py` calls `pack_vnni_pairs`. Panels are stored one after another. A panel
of `width` lanes is stored `[word][lane]`, for vector loads of lanes, or, for the rows of AMX tile
registers, in squares of `[lane][16 words]`. Steps of k past the end of the block are zeros, so a
dot product may include them; the content of lanes past the end is undefined.

There is one shared function for each width, order and way of reading the source. Loads are masked:
targets with bf16 dot products have mask instructions for 16-bit elements.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.codegen.common.builder import branch, element_type, loop, splat, vector_type
from nova.codegen.cpu.gemm.packed_layout import TILE
from nova.codegen.cpu.gemm.packing import Block
from nova.codegen.cpu.shared_functions import call_shared
from nova.codegen.cpu.transpose_registers import transpose
from nova.core.records import record
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, compare, index, minimum, mul, sub


def pack_vnni_pairs(
    block: Block, width: int, words: Index, buffer: ir.Value, *, tiles: bool
) -> None:
    """Fill `buffer` with all panels of a bf16 block, whose strides are static `int`s.

    A panel is `words` words of k deep. It is written in squares of 16 words by 16 lanes, in memory
    order: a square overwrites what the previous one wrote past its end, and the buffer has room for
    one extra square.
    """
    method = "lanes" if block.lane_stride == 1 else "steps" if block.k_stride == 1 else "scalars"

    def body(source: ir.Value, into: ir.Value, *numbers: ir.Value) -> None:
        offset, lane_stride, k_stride, lanes, depth, count = numbers
        lane: Index = 1 if method == "lanes" else lane_stride
        step: Index = 1 if method == "steps" else k_stride
        inner = Block(source, block.type, offset, lane, step, lanes, depth)
        _Packer(inner, width, count, into, tiles).pack(method)

    numbers = (block.offset, block.lane_stride, block.k_stride, block.lanes, block.depth, words)
    name = f"nova_pack_{'tiles' if tiles else 'pairs'}_{method}_{width}"
    values = [index(n) for n in numbers]
    call_shared(name, (block.source, buffer), values, 2, body, scalar_loops=method == "scalars")


@record
class _Packer:
    """The body of one packing function."""

    block: Block
    width: int
    words: Index
    buffer: ir.Value
    tiles: bool

    def pack(self, method: str) -> None:
        with (
            loop(0, self.block.lanes, self.width) as first,
            loop(0, self.words, TILE) as word,
            loop(0, self.width, TILE) as start,
        ):
            lane, panel = add(first, start), mul(first, self.words)
            if self.tiles:
                offset = add(panel, add(mul(word, self.width), mul(start, TILE)))
            else:
                offset = add(panel, add(mul(word, self.width), start))
            if method == "lanes":
                self._pack_lanes(lane, word, offset)
            elif method == "steps":
                self._pack_steps(lane, word, offset)
            else:
                self._pack_scalars(lane, word, offset)

    def _store(self, square: list[ir.Value], offset: Index, by_lane: bool) -> None:
        """Store a square, passed as the words of each lane or as the lanes of each word."""
        vectors = square if by_lane == self.tiles else transpose(square, 32)
        pitch = TILE if self.tiles else self.width
        for number, value in enumerate(vectors):
            vector.store(value, self.buffer, [index(add(offset, number * pitch))])

    def _pack_lanes(self, lane: Index, word: Index, offset: Index) -> None:
        """The source is contiguous along lanes: two interleaved rows are the lanes of a word."""
        block, remaining = self.block, sub(self.block.lanes, lane)
        narrow = vector_type("bf16", TILE)
        flags = ir.VectorType.get([TILE], ir.IntegerType.get_signless(1))
        wide = vector_type("i32", TILE)
        half = ir.VectorType.get([TILE], ir.IntegerType.get_signless(16))
        zero = splat(narrow, 0.0)

        def pack(mask_of: Callable[[Index], ir.Value], last: Index | None) -> None:
            def row(step: int) -> ir.Value:
                k = add(mul(word, 2), step)
                offset = block.at(lane, k if last is None else minimum(k, last))
                value = vector.maskedload(narrow, block.source, [offset], mask_of(k), zero)
                return arith.extui(wide, vector.bitcast(half, value))

            square = []
            for step in range(0, 2 * TILE, 2):
                low, high = row(step), row(step + 1)
                square.append(arith.ori(low, arith.shli(high, splat(wide, 16))))
            self._store(square, offset, by_lane=False)

        def full() -> None:
            mask = vector.create_mask(flags, [index(remaining)])
            pack(lambda k: mask, None)

        def part() -> None:
            def mask_of(k: Index) -> ir.Value:
                exists = compare(arith.CmpIPredicate.slt, k, block.depth)
                return vector.create_mask(flags, [arith.select(exists, index(remaining), index(0))])

            pack(mask_of, sub(block.depth, 1))

        remaining_steps = sub(block.depth, mul(word, 2))
        branch(compare(arith.CmpIPredicate.sge, remaining_steps, 2 * TILE), full, part)

    def _pack_steps(self, lane: Index, word: Index, offset: Index) -> None:
        """The source is contiguous along k: a vector of it consists of words already."""
        block, last = self.block, sub(self.block.lanes, 1)
        narrow, wide = vector_type("bf16", 2 * TILE), vector_type("i32", TILE)
        flags = ir.VectorType.get([2 * TILE], ir.IntegerType.get_signless(1))
        k = mul(word, 2)
        mask = vector.create_mask(flags, [index(sub(block.depth, k))])
        zero = splat(narrow, 0.0)
        square = []
        for number in range(TILE):
            at = block.at(minimum(add(lane, number), last), k)
            value = vector.maskedload(narrow, block.source, [at], mask, zero)
            square.append(vector.bitcast(wide, value))
        self._store(square, offset, by_lane=True)

    def _pack_scalars(self, lane: Index, word: Index, offset: Index) -> None:
        block = self.block
        last, last_k = sub(block.lanes, 1), sub(block.depth, 1)
        word_type, half_type = element_type("i32"), ir.IntegerType.get_signless(16)

        def element(row: Index, k: Index) -> ir.Value:
            where = block.at(minimum(row, last), minimum(k, last_k))
            bits = arith.bitcast(half_type, memref.load(block.source, [where]))
            exists = compare(arith.CmpIPredicate.slt, k, block.depth)
            return arith.select(exists, arith.extui(word_type, bits), splat(word_type, 0))

        # In memory order, as the squares are: the panel of a narrow tile has fewer than 16 lanes.
        with loop(0, TILE, 1) as outer, loop(0, TILE, 1) as inner:
            row, number = (outer, inner) if self.tiles else (inner, outer)
            k = mul(add(word, number), 2)
            low, high = element(add(lane, row), k), element(add(lane, row), add(k, 1))
            value = arith.ori(low, arith.shli(high, splat(word_type, 16)))
            pitch = TILE if self.tiles else self.width
            at = index(add(offset, add(mul(outer, pitch), inner)))
            memref.store(value, self.buffer, [at])
