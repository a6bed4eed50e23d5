"""The attention mask: reads one row at a time into a buffer that vectors of scores can use."""

from __future__ import annotations

from math import inf

from nova.codegen.common.builder import BITS, element_type, loop, splat
from nova.codegen.common.match_attention import Matrix
from nova.codegen.common.widening import widen
from nova.codegen.cpu.attention.tiles import Registers
from nova.codegen.cpu.shared_functions import entry_alloca
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index


class MaskRows:
    """Reads rows of a mask into a buffer and applies them to scores.

    A bool mask (bytes in memory) becomes 0 or -inf in the buffer, and the score of a masked key
    becomes -inf whatever it was; a float mask is added.
    """

    def __init__(self, r: Registers, source: Matrix, keys: int):
        self.r = r
        self.source = source
        self.is_bool = source.type not in BITS
        self.buffer = entry_alloca(keys + r.vl, r.type)

    def read(self, row: Index, key: Index, keys: Index) -> None:
        """Row `row` of the mask, for `keys` keys from `key` on."""
        with loop(0, keys, 1) as column:
            offset = [index(self.source.at(row, add(key, column)))]
            value = self._element(memref.load(self.source.buffer, offset))
            memref.store(value, self.buffer, [column])

    def _element(self, value: ir.Value) -> ir.Value:
        type_ = element_type(self.r.type)
        if self.is_bool:
            hidden = arith.cmpi(arith.CmpIPredicate.eq, value, splat(value.type, 0))
            return arith.select(hidden, splat(type_, -inf), splat(type_, 0.0))
        if BITS[self.source.type] > BITS[self.r.type]:
            return arith.truncf(type_, value)
        return widen(self.r.target, value, self.r.type)

    def apply(self, scores: ir.Value, column: Index) -> ir.Value:
        """The scores of the keys from `column` on, masked."""
        mask = vector.load(self.r.vec_type, self.buffer, [index(column)])
        if not self.is_bool:
            return arith.addf(scores, mask)
        least = splat(self.r.vec_type, -inf)
        return arith.select(arith.cmpf(arith.CmpFPredicate.OEQ, mask, least), least, scores)
