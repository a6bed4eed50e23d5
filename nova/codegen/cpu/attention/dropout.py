"""Dropout of attention weights on a CPU: draws the flags of a row of weights.

The flags are those of the row `kept_weights`. Vectors of calls of Philox give 16 keys of a row for
four calls; a buffer has a byte for each key of a block, because blocks may begin at any key.
"""

from __future__ import annotations

from nova.codegen.common.builder import loop, splat
from nova.codegen.common.match_attention import Matrix
from nova.codegen.common.philox import weight_words
from nova.codegen.cpu.attention.tiles import AttentionPoint, Registers
from nova.codegen.cpu.shared_functions import entry_alloca
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index, modulo, sub
from nova.ops.attention.kept_weights import UNIT, least_kept

_WINDOW = 16
"""Keys whose weights in a row are those of four adjacent counters."""
_CALLS = 4


def weight_dropout(point: AttentionPoint) -> WeightDropout | None:
    """The dropout of an attention; None without it."""
    spec, at = point.attention.spec, point.at
    if not spec.has_dropout:
        return None
    return WeightDropout(point.r, point.keys, at["point"].start, at["seed"], spec.dropout)


class WeightDropout:
    """The weights at one point of the batch that are kept, in blocks of up to `keys` keys."""

    def __init__(self, r: Registers, keys: int, point: Index, seed: Matrix, p: float):
        self.p, self.r = p, r
        number = ir.IntegerType.get_signless(64)
        self.calls = max(_CALLS, r.vl)
        self.type = ir.VectorType.get([self.calls], number)
        key = vector.broadcast(self.type, memref.load(seed.buffer, [index(seed.start)]))
        self.key = self._and(key, 0xFFFFFFFF), self._shift(key, 32)
        self.point = self._and(self._spread(point), 0xFFFFFFFF)
        steps = ir.DenseElementsAttr.get(
            [ir.IntegerAttr.get(number, lane) for lane in range(self.calls)], type=self.type
        )
        self.lanes = arith.constant(self.type, steps)
        # The first key may be any of a window, and both loops may end a vector later.
        drawn = self.calls // _CALLS * _WINDOW
        self.flags = entry_alloca(keys + _WINDOW + drawn + r.vl, "i8")

    def _spread(self, position: Index) -> ir.Value:
        scalar = arith.index_cast(self.type.element_type, index(position))
        return vector.broadcast(self.type, scalar)

    def _and(self, numbers: ir.Value, bits: int) -> ir.Value:
        return arith.andi(numbers, splat(self.type, bits))

    def _shift(self, numbers: ir.Value, count: int) -> ir.Value:
        return arith.shrui(numbers, splat(self.type, count))

    def draw(self, row: Index, key: Index, keys: Index) -> None:
        """Draw the flags of one row, and `keys` keys from `key` on."""
        i = self._spread(row)
        block = arith.muli(self._shift(i, 4), splat(self.type, 8))
        rows = arith.addi(block, self._and(i, 7))
        is_lower = arith.cmpi(arith.CmpIPredicate.ne, self._and(i, 8), splat(self.type, 0))
        within = modulo(key, _WINDOW)
        first = arith.addi(self._shift(self._spread(sub(key, within)), 2), self.lanes)
        with loop(0, add(within, keys), self.calls // _CALLS * _WINDOW) as column:
            columns = arith.addi(first, self._shift(self._spread(column), 2))
            words = weight_words(columns, rows, self.point, self.key)
            halves = [self._pairs(arith.select(is_lower, words[n + 1], words[n])) for n in (0, 2)]
            # A window: four pairs of keys of its first half, then those of its second half.
            order = [
                half * self.calls + window + pair
                for window in range(0, self.calls, _CALLS)
                for half in range(2)
                for pair in range(_CALLS)
            ]
            pairs = vector.shuffle(*halves, order)
            byte = ir.VectorType.get([4 * self.calls], ir.IntegerType.get_signless(8))
            vector.store(vector.bitcast(byte, pairs), self.flags, [index(column)])

    def _pairs(self, words: ir.Value) -> ir.Value:
        """The flags of two adjacent keys as bytes of i16: those of both halves of words."""
        short = ir.VectorType.get([self.calls], ir.IntegerType.get_signless(16))
        least = splat(self.type, least_kept(self.p))
        lower, upper = (
            arith.extui(
                short,
                arith.cmpi(arith.CmpIPredicate.sge, self._and(numbers, UNIT - 1), least),
            )
            for numbers in (words, self._shift(words, 16))
        )
        return arith.ori(lower, arith.shli(upper, splat(short, 8)))

    def keeps(self, key: Index, column: Index) -> ir.Value:
        """Flags of the lanes of a vector of weights of the row, from key `key + column` on."""
        byte = ir.VectorType.get([self.r.vl], ir.IntegerType.get_signless(8))
        at = index(add(modulo(key, _WINDOW), column))
        flags = vector.load(byte, self.flags, [at])
        return arith.cmpi(arith.CmpIPredicate.ne, flags, splat(byte, 0))
