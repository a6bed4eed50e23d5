"""Dropout of attention weights on a GPU: draws the bits of the weights of a thread.

Input: an `Attention` with a seed, at a point of its batch. Output: code. Blocks of `mma.sync` and
the consumers of warpgroup attention use it. The bits are those of the row `kept_weights`.

The bits of a block of scores depend on the seed and on positions only, so they are computed before
the matmul of the scores begins, and take one register for 32 weights. A thread of a tensor core has
all eight weights of a call of Philox: two of adjacent columns in each word of the result, whose
lower 15 bits of both halves are compared with the probability by one addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nova.codegen.common.builder import splat
from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.common.philox import split_words, weight_words
from nova.codegen.gpu.block_ops import shuffle_xor
from nova.codegen.gpu.gemm.epilogue import Core
from nova.codegen.gpu.gemm.mma import TensorCore
from nova.codegen.gpu.ptx_ops import GLOBAL, global_base, load, opaque, permute_bytes, word
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, index, mul
from nova.ops.attention.kept_weights import UNIT, kept_scale, least_kept

WORD = 32
_CALL = 8
"""Accumulators of a thread in 16 columns of a tensor core's result: four in each of two rows."""
_TOGETHER = 2
"""Calls in an iteration: they share the keys of the rounds, and their latencies overlap."""
_HALVES = 0x10001
_SIGNS = 0x80008000
"""The upper bits of both halves of a word."""


def bit(number: int) -> ir.Value:
    """A word (i32) with this bit set."""
    return _bits(1 << number)


def _bits(value: int) -> ir.Value:
    return word(value - (1 << WORD) if value >> (WORD - 1) else value)


@dataclass(frozen=True)
class KeptWeights:
    """A bit for each accumulator of a thread: whether it is kept; `length` in a word."""

    words: tuple[ir.Value, ...]
    length: int = WORD

    def keep(
        self, values: Sequence[ir.Value], scale: float = 1.0, dropped: float = 0.0
    ) -> list[ir.Value]:
        """Accumulators times `scale`; `dropped` for those that are not kept."""
        results = []
        for number, value in enumerate(values):
            if scale != 1.0:
                value = arith.mulf(value, splat(value.type, scale))
            results.append(arith.select(self._bit(number), value, splat(value.type, dropped)))
        return results

    def _bit(self, number: int) -> ir.Value:
        flags = self.words[number // self.length]
        set_bit = arith.andi(flags, bit(self._place(number % self.length)))
        return arith.cmpi(arith.CmpIPredicate.ne, set_bit, word(0))

    def _place(self, number: int) -> int:
        """The bit of an accumulator in its word."""
        return number


@dataclass(frozen=True)
class DrawnWeights(KeptWeights):
    """Those of dropout: pairs of accumulators have the same bit of both halves of a word."""

    def _place(self, number: int) -> int:
        return number // 2 + WORD // 2 * (number % 2)

    def keep_pairs(self, pairs: Sequence[ir.Value]) -> list[ir.Value]:
        """Accumulators, rounded to 16 bits and packed in pairs; zeros where they are dropped."""
        results = []
        for number, pair in enumerate(pairs):
            flags, place = divmod(number, self.length // 2)
            moved = arith.shli(self.words[flags], word(WORD // 2 - 1 - place))
            # The upper bit of each half, 16 times.
            mask = permute_bytes(moved, moved, word(0xBB99))
            results.append(arith.andi(pair, mask))
        return results


@dataclass(frozen=True)
class WeightDropout:
    """The weights at one point of the batch that are kept."""

    point: Index
    """The number of the point."""
    seed: Matrix
    p: float

    @staticmethod
    def make(attention: Attention, matrices: dict[str, Matrix]) -> WeightDropout | None:
        """The dropout at a point of the batch; None without it."""
        if not attention.spec.has_dropout:
            return None
        return WeightDropout(matrices["point"].start, matrices["seed"], attention.spec.dropout)

    @property
    def scale(self) -> float:
        """The factor of the weights that are kept."""
        return kept_scale(self.p)

    def draw(self, core: Core, first: Index, key: Index) -> KeptWeights:
        """The bits of a thread's weights of a block of rows and keys, in the order of `core`."""
        rows, columns = ([add(first, row) for row in core.rows()], core.columns())
        if isinstance(core, TensorCore):
            count = 2 * len(columns)
            words = [
                kept
                for pair in range(0, len(rows), 2)
                for kept in self._loop(rows[pair], add(key, columns[0]), count, False)
            ]
            return DrawnWeights(tuple(words), min(count, WORD))
        seed, bits = self._key(), dict[int, ir.Value]()
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                chunk, place = divmod(core.number(i, j), WORD)
                kept = self._keeps(seed, word(row), word(add(key, column)))
                flag = arith.shli(arith.extui(seed[0].type, kept), word(place))
                bits[chunk] = arith.ori(bits[chunk], flag) if chunk in bits else flag
        return KeptWeights(tuple(bits[chunk] for chunk in sorted(bits)))

    def draw_fragment(
        self, rows: Sequence[Index], first: Index, count: int, *, transposed: bool
    ) -> DrawnWeights:
        """The bits of `count` accumulators of a warpgroup: two rows, columns from `first` on.

        `first` is the column of the thread's first accumulator; transposed, rows are keys.
        """
        return DrawnWeights(tuple(self._loop(rows[0], first, count, transposed)))

    def _loop(self, row: Index, first: Index, count: int, transposed: bool) -> list[ir.Value]:
        """The words of two rows, `row` and that + 8: those of 32 accumulators each.

        Transposed, two lanes have the weights of a call: the keys of one are even. Each draws the
        calls of one of two adjacent rows of q, and they exchange what they do not need.
        """
        seed, own, other = self._key(), word(row), word(first)
        odd = arith.andi(own, word(1))
        # Of the counters, one word is that of the rows, and the other moves along the columns.
        if transposed:
            fixed, start, step = _column(own), _row(arith.addi(other, odd)), _CALL
        else:
            fixed, start, step = _row(own), _column(other), _CALL // 2
        calls, words = count // _CALL, []
        for low in range(0, calls, WORD // _CALL):
            high = min(calls, low + WORD // _CALL)
            together = _TOGETHER if (high - low) % _TOGETHER == 0 else 1
            op = scf.ForOp(index(low), index(high), index(together), [word(0)])
            with ir.InsertionPoint(op.body):
                # LLVM would keep the keys of all rounds in registers.
                key = opaque(seed[0]), opaque(seed[1])
                moved = arith.addi(start, word(mul(op.induction_variable, step)))
                flags = op.inner_iter_args[0]
                for call in range(together):
                    at = arith.addi(moved, word(call * step)) if call else moved
                    counter = (fixed, at) if transposed else (at, fixed)
                    drawn = weight_words(*counter, word(self.point), key)
                    for number in (0, 2, 1, 3) if transposed else range(4):
                        flags = self._push(flags, drawn[number])
                scf.YieldOp([flags])
            unused = (WORD - _CALL * (high - low)) // 2
            flags = arith.shrui(op.results[0], word(unused)) if unused else op.results[0]
            words.append(_exchange(flags, odd) if transposed else flags)
        return words

    def _push(self, flags: ir.Value, drawn: ir.Value) -> ir.Value:
        """The flags of two more weights, in the upper bits of the halves; the others move down."""
        numbers = arith.andi(drawn, _bits(~_SIGNS & 0xFFFFFFFF))
        # Each half overflows into its upper bit where its number is not below the threshold.
        sums = arith.addi(numbers, _bits((UNIT - least_kept(self.p)) * _HALVES))
        moved = arith.andi(arith.shrui(flags, word(1)), _bits(~_SIGNS & 0xFFFFFFFF))
        return arith.ori(moved, arith.andi(sums, _bits(_SIGNS)))

    def _key(self) -> tuple[ir.Value, ir.Value]:
        """The words of the seed, loaded where they are needed: registers are few elsewhere."""
        address = add(global_base(self.seed.buffer), mul(self.seed.start, 8))
        return split_words(load(ir.IntegerType.get_signless(64), address, GLOBAL, 8))

    def _keeps(self, seed: tuple[ir.Value, ir.Value], row: ir.Value, key: ir.Value) -> ir.Value:
        """Whether a single weight is kept."""
        words = weight_words(_column(key), _row(row), word(self.point), seed)
        pair = [arith.select(_is_set(row, 8), words[n + 1], words[n]) for n in (0, 2)]
        drawn = arith.select(_is_set(key, 8), pair[1], pair[0])
        drawn = arith.select(_is_set(key, 1), arith.shrui(drawn, word(16)), drawn)
        number = arith.andi(drawn, word(UNIT - 1))
        return arith.cmpi(arith.CmpIPredicate.uge, number, word(least_kept(self.p)))


def _column(key: ir.Value) -> ir.Value:
    """The first word of the counter of a key (i32)."""
    block = arith.shli(arith.shrui(key, word(4)), word(2))
    return arith.addi(block, arith.andi(arith.shrui(key, word(1)), word(3)))


def _row(row: ir.Value) -> ir.Value:
    """The second word of the counter of a row of q (i32)."""
    block = arith.shli(arith.shrui(row, word(4)), word(3))
    return arith.addi(block, arith.andi(row, word(7)))


def _is_set(number: ir.Value, bits: int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.ne, arith.andi(number, word(bits)), word(0))


def _exchange(flags: ir.Value, odd: ir.Value) -> ir.Value:
    """The flags of a lane, of those that it and the lane of the adjacent key have drawn.

    A lane has drawn those of the even key in the lower half, for rows of q of its own parity. It
    needs those of its own key: of even rows in the lower half, and of odd rows in the upper one.
    """
    others = shuffle_xor(flags, 4)
    is_odd = arith.cmpi(arith.CmpIPredicate.ne, odd, word(0))
    return permute_bytes(flags, others, arith.select(is_odd, word(0x3276), word(0x5410)))
