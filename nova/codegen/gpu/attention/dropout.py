"""Dropout of attention weights on a GPU: draws a bit for each weight of a thread.

Input: an `Attention` with a seed, at a point of its batch. Output: code. Blocks of `mma.sync` and
the consumers of warpgroup attention use it.

The bits of a block of scores depend on the seed and on positions only, so they are computed before
the matmul of the scores begins, and take one register for 32 weights. For the accumulators of
tensor cores, a loop computes those of four at a time, which needs few registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from nova.codegen.common.builder import splat
from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.common.philox import is_kept, kept_scale, random_word, split_words
from nova.codegen.gpu.gemm.epilogue import Core
from nova.codegen.gpu.gemm.mma import TensorCore
from nova.codegen.gpu.ptx_ops import GLOBAL, global_base, load, opaque, word
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, index, mul
from nova.ir.symbolic.size_table import Extent

WORD = 32
_GROUP = 4
"""Accumulators of a thread in 8 columns of a tensor core's result: two in each of two rows."""


def bit(number: int) -> ir.Value:
    """A word (i32) with this bit set."""
    return word(1 << number if number < WORD - 1 else -(1 << number))


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
        set_bit = arith.andi(self.words[number // self.length], bit(number % self.length))
        return arith.cmpi(arith.CmpIPredicate.ne, set_bit, word(0))


@dataclass(frozen=True)
class WeightDropout:
    """The weights at one point of the batch that are kept."""

    draws: Matrix
    """Numbers them as `uniform` numbers the elements of the tensor of all weights."""
    seed: Matrix
    p: float
    is_short: bool
    """Whether all numbers are below 2**32."""

    @staticmethod
    def make(attention: Attention, matrices: dict[str, Matrix]) -> WeightDropout | None:
        """The dropout at a point of the batch; None without it."""
        if not attention.spec.has_dropout:
            return None
        sizes: list[Extent] = [attention.nest.loops[i].size for i in attention.batch]
        count = prod([*sizes, attention.size("i"), attention.size("j")])
        is_short = isinstance(count, int) and count <= 1 << WORD
        p = attention.spec.dropout
        return WeightDropout(matrices["draws"], matrices["seed"], p, is_short)

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
                for kept in self._loop(rows[pair : pair + 2], add(key, columns[0]), count, False)
            ]
            return KeptWeights(tuple(words), min(count, WORD))
        seed, bits = self._key(), dict[int, ir.Value]()
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                chunk, place = divmod(core.number(i, j), WORD)
                kept = self._keeps(seed, self._number(self.draws.at(row, add(key, column))))
                bit = arith.shli(arith.extui(seed[0].type, kept), word(place))
                bits[chunk] = arith.ori(bits[chunk], bit) if chunk in bits else bit
        return KeptWeights(tuple(bits[chunk] for chunk in sorted(bits)))

    def draw_fragment(
        self, rows: Sequence[Index], first: Index, count: int, *, transposed: bool
    ) -> KeptWeights:
        """The bits of `count` accumulators of a warpgroup: two rows, columns from `first` on.

        `first` is the column of the thread's first accumulator; transposed, rows are keys.
        """
        return KeptWeights(tuple(self._loop(rows, first, count, transposed)))

    def _loop(
        self, rows: Sequence[Index], first: Index, count: int, transposed: bool
    ) -> list[ir.Value]:
        draws = self.draws
        starts = [
            self._number(draws.at(first, row) if transposed else draws.at(row, first))
            for row in rows
        ]
        step = draws.row if transposed else draws.column
        words = []
        key = self._key()
        for low in range(0, count // _GROUP, WORD // _GROUP):
            high = min(count // _GROUP, low + WORD // _GROUP)
            op = scf.ForOp(index(low), index(high), index(1), [word(0)])
            with ir.InsertionPoint(op.body):
                # LLVM would keep the keys of all rounds in registers.
                inner_key = opaque(key[0]), opaque(key[1])
                bits = arith.shrui(op.inner_iter_args[0], word(_GROUP))
                offset = self._number(mul(op.induction_variable, mul(step, 8)))
                for number in range(_GROUP):
                    draw = arith.addi(starts[number // 2], offset)
                    if number % 2:
                        draw = arith.addi(draw, self._number(step))
                    kept = arith.extui(bits.type, self._keeps(inner_key, draw))
                    bits = arith.ori(bits, arith.shli(kept, word(WORD - _GROUP + number)))
                scf.YieldOp([bits])
            unused = WORD - _GROUP * (high - low)
            words.append(arith.shrui(op.results[0], word(unused)) if unused else op.results[0])
        return words

    def _number(self, draw: Index) -> ir.Value:
        """The number of a draw: an i32 where all numbers fit, for fewer registers; else an i64."""
        type_ = ir.IntegerType.get_signless(WORD if self.is_short else 2 * WORD)
        return arith.index_cast(type_, index(draw))

    def _key(self) -> tuple[ir.Value, ir.Value]:
        """The words of the seed, loaded where they are needed: registers are few elsewhere."""
        address = add(global_base(self.seed.buffer), mul(self.seed.start, 8))
        return split_words(load(ir.IntegerType.get_signless(64), address, GLOBAL, 8))

    def _keeps(self, key: tuple[ir.Value, ir.Value], number: ir.Value) -> ir.Value:
        """Whether the weight of a draw is kept."""
        low, high = (number, word(0)) if self.is_short else split_words(number)
        return is_kept(random_word(low, high, key), self.p)
