"""Dropout of attention weights on a CPU: draws the bits of a vector of weights."""

from __future__ import annotations

from nova.codegen.common.builder import splat
from nova.codegen.common.match_attention import Matrix
from nova.codegen.common.philox import weight_words
from nova.codegen.cpu.attention.tiles import AttentionPoint, Registers
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index
from nova.ops.attention.kept_weights import UNIT, least_kept


def weight_dropout(point: AttentionPoint) -> WeightDropout | None:
    """The dropout of an attention; None without it."""
    spec, at = point.attention.spec, point.at
    if not spec.has_dropout:
        return None
    return WeightDropout(point.r, at["point"].start, at["seed"], spec.dropout)


class WeightDropout:
    """The weights at one point of the batch that are kept: those of the row `kept_weights`."""

    def __init__(self, r: Registers, point: Index, seed: Matrix, p: float):
        self.p = p
        number = ir.IntegerType.get_signless(64)
        self.type = ir.VectorType.get([r.vl], number)
        key = vector.broadcast(self.type, memref.load(seed.buffer, [index(seed.start)]))
        self.key = self._and(key, 0xFFFFFFFF), self._shift(key, 32)
        self.point = self._and(self._spread(point), 0xFFFFFFFF)
        steps = ir.DenseElementsAttr.get(
            [ir.IntegerAttr.get(number, lane) for lane in range(r.vl)], type=self.type
        )
        self.lanes = arith.constant(self.type, steps)

    def _spread(self, position: Index) -> ir.Value:
        scalar = arith.index_cast(self.type.element_type, index(position))
        return vector.broadcast(self.type, scalar)

    def _and(self, numbers: ir.Value, bits: int) -> ir.Value:
        return arith.andi(numbers, splat(self.type, bits))

    def _shift(self, numbers: ir.Value, count: int) -> ir.Value:
        return arith.shrui(numbers, splat(self.type, count))

    def _scaled(self, numbers: ir.Value, factor: int) -> ir.Value:
        return arith.muli(numbers, splat(self.type, factor))

    def _is_set(self, numbers: ir.Value, bits: int) -> ir.Value:
        zero = splat(self.type, 0)
        return arith.cmpi(arith.CmpIPredicate.ne, self._and(numbers, bits), zero)

    def keeps(self, row: Index, key: Index, column: Index) -> ir.Value:
        """Flags of the lanes of a vector of weights: one row, from key `key + column` on."""
        i = self._spread(row)
        j = arith.addi(self._spread(add(key, column)), self.lanes)
        columns = arith.addi(self._scaled(self._shift(j, 4), 4), self._shift(self._and(j, 7), 1))
        rows = arith.addi(self._scaled(self._shift(i, 4), 8), self._and(i, 7))
        words = weight_words(columns, rows, self.point, self.key)
        is_lower = self._is_set(i, 8)
        pair = [arith.select(is_lower, words[n + 1], words[n]) for n in (0, 2)]
        word = arith.select(self._is_set(j, 8), pair[1], pair[0])
        word = arith.select(self._is_set(j, 1), self._shift(word, 16), word)
        least = splat(self.type, least_kept(self.p))
        return arith.cmpi(arith.CmpIPredicate.sge, self._and(word, UNIT - 1), least)
