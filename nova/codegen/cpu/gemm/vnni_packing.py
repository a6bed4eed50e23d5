"""Packs a block of a matrix into panels of VNNI words: several steps of k of one lane in 32 bits.

Input: a `Block` of bf16 or of bytes, and a `WordFormat`. Output: a call that fills a buffer of
32-bit words. `packed_gemm.py` calls `pack_vnni_words`. Panels are stored one after another. A panel
of `width` lanes is stored `[word][lane]`, for vector loads of lanes, or, for the rows of AMX tile
registers, in squares of `[lane][16 words]`. Steps of k past the end of the block are zeros, so a
dot product may include them; the content of lanes past the end is undefined.

There is one shared function for each format, width, order and way of reading the source. Where the
target has mask instructions for narrow elements, loads at the edges are masked; elsewhere squares
that are not full are packed by scalars.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.codegen.common.builder import BITS, branch, element_type, loop, splat, vector_type
from nova.codegen.cpu.gemm.packing import Block
from nova.codegen.cpu.shared_functions import call_shared
from nova.codegen.cpu.transpose_registers import transpose
from nova.codegen.cpu.vectorize import has_masks
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, compare, divide_up, index, minimum, mul, sub
from nova.ir.symbolic.size_table import is_number


@record
class WordFormat:
    """A word has `per_word` steps of elements of `type`, widened to its share of 32 bits.

    With `flipped`, the sign bit of every byte is inverted: u8 becomes i8 less 128, and i8 becomes
    u8 plus 128. Steps past the end may then be other than zero: those of the other operand are.
    """

    type: str
    per_word: int
    flipped: bool = False

    @property
    def step_bits(self) -> int:
        return 32 // self.per_word

    @property
    def name(self) -> str:
        """The part of a function's name."""
        return f"{self.type}x{self.per_word}" + ("_flipped" if self.flipped else "")

    def bits_of(self, value: ir.Value) -> ir.Value:
        """The bits of elements in a word: a scalar or vector of integers of `step_bits`."""
        bits = _like(value.type, ir.IntegerType.get_signless(self.step_bits))
        if not isinstance(_element(value.type), ir.IntegerType):
            return arith.bitcast(bits, value)
        if self.flipped:
            value = arith.xori(value, splat(value.type, -128))
        if BITS[self.type] == self.step_bits:
            return value
        return (arith.extui if self.type[0] == "u" else arith.extsi)(bits, value)


def _element(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def _like(type_: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType.get(type_.shape, element) if isinstance(type_, ir.VectorType) else element


def pack_vnni_words(
    target: Target,
    form: WordFormat,
    block: Block,
    width: int,
    words: Index,
    buffer: ir.Value,
    *,
    tiles: bool,
) -> None:
    """Fill `buffer` with all panels of a block, whose strides are numbers or symbolic sizes.

    A panel is `words` words of k deep. It is written in squares of as many words and lanes as a
    vector has words, in memory order: a square overwrites what the previous one wrote past its end,
    and the buffer has room for one extra square.
    """
    along_k = "steps" if is_number(block.k_stride, 1) else "scalars"
    method = "lanes" if is_number(block.lane_stride, 1) else along_k

    def body(source: ir.Value, into: ir.Value, *numbers: ir.Value) -> None:
        offset, lane_stride, k_stride, lanes, depth, count = numbers
        lane: Index = 1 if method == "lanes" else lane_stride
        step: Index = 1 if method == "steps" else k_stride
        inner = Block(source, block.type, offset, lane, step, lanes, depth)
        _Packer(target, form, inner, width, count, into, tiles).pack(method)

    numbers = (block.offset, block.lane_stride, block.k_stride, block.lanes, block.depth, words)
    name = f"nova_pack_{'tiles' if tiles else 'words'}_{method}_{form.name}_{width}"
    values = [index(n) for n in numbers]
    call_shared(name, (block.source, buffer), values, 2, body, scalar_loops=method == "scalars")


@record
class _Packer:
    """The body of one packing function."""

    target: Target
    form: WordFormat
    block: Block
    width: int
    words: Index
    buffer: ir.Value
    tiles: bool

    @property
    def side(self) -> int:
        """Words, and lanes, of a square."""
        return self.target.lanes(32)

    @property
    def masked(self) -> bool:
        return has_masks(self.target, BITS[self.form.type])

    def pack(self, method: str) -> None:
        """Squares side by side are written together where the last one passes the panel's end."""
        together = self.width % self.side != 0 or self.width == self.side
        if method == "lanes" and self.width % self.side == 0:
            self._pack_rows()
            return
        with (
            loop(0, self.block.lanes, self.width) as first,
            loop(0, self.words, self.side) as word,
        ):
            panel = add(mul(first, self.words), mul(word, self.width))
            if together:
                starts: Sequence[Index] = range(0, self.width, self.side)
                self._pack_squares(method, first, word, panel, starts)
                return
            with loop(0, self.width, self.side) as start:
                self._pack_squares(method, first, word, panel, [start])

    def _pack_rows(self) -> None:
        """Words for all panels before the next words: rows of the source are read as streams.

        The last words come first: what they write past the end of a panel is overwritten.
        """
        last = sub(divide_up(self.words, self.side), 1)
        with loop(0, add(last, 1), 1) as number:
            is_first = compare(arith.CmpIPredicate.eq, number, 0)
            chunk = arith.select(is_first, index(last), index(sub(number, 1)))
            word = mul(chunk, self.side)
            with (
                loop(0, self.block.lanes, self.width) as first,
                loop(0, self.width, self.side) as start,
            ):
                panel = add(mul(first, self.words), mul(word, self.width))
                self._pack_squares("lanes", first, word, panel, [start])

    def _pack_squares(
        self, method: str, first: Index, word: Index, panel: Index, starts: Sequence[Index]
    ) -> None:
        lanes = [add(first, start) for start in starts]

        def store(squares: list[list[ir.Value]], by_lane: bool) -> None:
            """Store squares, passed as the words of each lane or as the lanes of each word."""
            if by_lane != self.tiles:
                squares = [transpose(square, 32) for square in squares]
            pitch = self.side if self.tiles else self.width
            for number in range(self.side):
                for start, square in zip(starts, squares, strict=True):
                    at = add(self._square_at(panel, start), number * pitch)
                    vector.store(square[number], self.buffer, [index(at)])

        def by_scalars() -> None:
            self._pack_scalars(lanes[0], word, self._square_at(panel, starts[0]), len(starts))

        remaining_lanes = sub(self.block.lanes, lanes[-1])
        remaining_steps = sub(self.block.depth, mul(word, self.form.per_word))
        has_all_steps = compare(
            arith.CmpIPredicate.sge, remaining_steps, self.side * self.form.per_word
        )
        if method == "lanes":
            has_all_lanes = compare(arith.CmpIPredicate.sge, remaining_lanes, self.side)

            def full() -> None:
                store([self._lanes(lane, word, ends=False) for lane in lanes], False)

            def part() -> None:
                store([self._lanes(lane, word, ends=True) for lane in lanes], False)

            if self.masked:
                branch(has_all_steps, full, part)
                return
            branch(has_all_lanes, lambda: branch(has_all_steps, full, part), by_scalars)
        elif method == "steps":

            def by_steps() -> None:
                store([self._steps(lane, word) for lane in lanes], True)

            branch(True if self.masked else has_all_steps, by_steps, by_scalars)
        else:
            by_scalars()

    def _square_at(self, panel: Index, start: Index) -> Index:
        return add(panel, mul(start, self.side) if self.tiles else start)

    def _lanes(self, lane: Index, word: Index, *, ends: bool) -> list[ir.Value]:
        """The source is contiguous along lanes: interleaved rows are the lanes of each word.

        With `ends`, the last steps of k may be in the square.
        """
        block, per_word = self.block, self.form.per_word
        narrow, wide = vector_type(self.form.type, self.side), vector_type("i32", self.side)
        flags = ir.VectorType.get([self.side], ir.IntegerType.get_signless(1))
        zero, last = splat(narrow, 0.0), sub(block.depth, 1)
        remaining = sub(block.lanes, lane)
        mask = vector.create_mask(flags, [index(remaining)]) if self.masked else None

        def row(step: int) -> ir.Value:
            k = add(mul(word, per_word), step)
            at = block.at(lane, minimum(k, last) if ends else k)
            exists = compare(arith.CmpIPredicate.slt, k, block.depth) if ends else None
            if mask is not None:
                row_mask = mask
                if exists is not None:
                    count = arith.select(exists, index(remaining), index(0))
                    row_mask = vector.create_mask(flags, [count])
                value = vector.maskedload(narrow, block.source, [at], row_mask, zero)
                return arith.extui(wide, self.form.bits_of(value))
            value = vector.load(narrow, block.source, [at])
            value = arith.extui(wide, self.form.bits_of(value))
            return value if exists is None else arith.select(exists, value, splat(wide, 0))

        square = []
        for number in range(self.side):
            value = row(number * per_word)
            for step in range(1, per_word):
                shift = splat(wide, step * self.form.step_bits)
                value = arith.ori(value, arith.shli(row(number * per_word + step), shift))
            square.append(value)
        return square

    def _steps(self, lane: Index, word: Index) -> list[ir.Value]:
        """The source is contiguous along k: a vector of it consists of words already."""
        block, last = self.block, sub(self.block.lanes, 1)
        count = self.side * self.form.per_word
        narrow, wide = vector_type(self.form.type, count), vector_type("i32", self.side)
        k = mul(word, self.form.per_word)
        if self.masked:
            flags = ir.VectorType.get([count], ir.IntegerType.get_signless(1))
            mask = vector.create_mask(flags, [index(sub(block.depth, k))])
            zero = splat(narrow, 0.0)

            def load(at: ir.Value) -> ir.Value:
                return vector.maskedload(narrow, block.source, [at], mask, zero)
        else:

            def load(at: ir.Value) -> ir.Value:
                return vector.load(narrow, block.source, [at])

        square = []
        for number in range(self.side):
            value = load(block.at(minimum(add(lane, number), last), k))
            square.append(vector.bitcast(wide, self.form.bits_of(value)))
        return square

    def _pack_scalars(self, lane: Index, word: Index, offset: Index, squares: int) -> None:
        """Adjacent squares from a lane and a word on, in memory order."""
        block, per_word = self.block, self.form.per_word
        last, last_k = sub(block.lanes, 1), sub(block.depth, 1)
        word_type = element_type("i32")

        def element(row: Index, k: Index) -> ir.Value:
            where = block.at(minimum(row, last), minimum(k, last_k))
            bits = self.form.bits_of(memref.load(block.source, [where]))
            exists = compare(arith.CmpIPredicate.slt, k, block.depth)
            return arith.select(exists, arith.extui(word_type, bits), splat(word_type, 0))

        lanes = min(self.width, squares * self.side)
        sizes = (lanes, self.side) if self.tiles else (self.side, lanes)
        with loop(0, sizes[0], 1) as outer, loop(0, sizes[1], 1) as inner:
            row, number = (outer, inner) if self.tiles else (inner, outer)
            k = mul(add(word, number), per_word)
            value = element(add(lane, row), k)
            for step in range(1, per_word):
                shift = splat(word_type, step * self.form.step_bits)
                value = arith.ori(value, arith.shli(element(add(lane, row), add(k, step)), shift))
            pitch = self.side if self.tiles else self.width
            at = index(add(offset, add(mul(outer, pitch), inner)))
            memref.store(value, self.buffer, [at])
