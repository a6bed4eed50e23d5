"""Hidden scores: a mask, whose rows are read into a buffer one at a time, and segments of keys."""

from __future__ import annotations

from math import inf

from nova.codegen.common.builder import BITS, element_type, loop, splat
from nova.codegen.common.match_attention import Matrix
from nova.codegen.common.widening import widen
from nova.codegen.cpu.attention.tiles import AttentionPoint, Registers
from nova.codegen.cpu.shared_functions import entry_alloca
from nova.core.records import record
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index


@record
class ScoreMasks:
    """What hides scores at one point of the batch: a mask and segments, if there are any."""

    parts: tuple[MaskRows | SegmentRows, ...]

    @staticmethod
    def of(point: AttentionPoint) -> ScoreMasks:
        spec, at = point.attention.spec, point.at
        parts: list[MaskRows | SegmentRows] = []
        if spec.masked:
            parts.append(MaskRows(point.r, at["mask"], point.keys))
        if spec.has_segments:
            parts.append(SegmentRows(point.r, at["q_segment"], at["k_segment"], point.keys))
        return ScoreMasks(tuple(parts))

    def start_keys(self, key: Index, keys: Index) -> None:
        """Begin with a block of `keys` keys from `key` on."""
        for part in self.parts:
            part.start_keys(key, keys)

    def read(self, row: Index, key: Index, keys: Index) -> None:
        """Begin with row `row` of q, and `keys` keys from `key` on."""
        for part in self.parts:
            part.read(row, key, keys)

    def apply(self, scores: ir.Value, column: Index) -> ir.Value:
        """The scores of the keys from `column` on, masked."""
        for part in self.parts:
            scores = part.apply(scores, column)
        return scores


class SegmentRows:
    """Hides the keys of other segments than that of a row."""

    def __init__(self, r: Registers, rows: Matrix, keys: Matrix, most: int):
        self.r, self.rows, self.keys = r, rows, keys
        self.type = ir.VectorType.get([r.vl], element_type("i32"))
        self.buffer = entry_alloca(most + r.vl, "i32")
        self.row_buffer = entry_alloca(1, "i32")

    def start_keys(self, key: Index, keys: Index) -> None:
        with loop(0, keys, 1) as column:
            segment = memref.load(self.keys.buffer, [index(self.keys.at(add(key, column)))])
            memref.store(segment, self.buffer, [column])

    def read(self, row: Index, key: Index, keys: Index) -> None:
        segment = memref.load(self.rows.buffer, [index(self.rows.at(row))])
        memref.store(segment, self.row_buffer, [index(0)])

    def apply(self, scores: ir.Value, column: Index) -> ir.Value:
        row = vector.broadcast(self.type, memref.load(self.row_buffer, [index(0)]))
        keys = vector.load(self.type, self.buffer, [index(column)])
        same = arith.cmpi(arith.CmpIPredicate.eq, row, keys)
        return arith.select(same, scores, splat(self.r.vec_type, -inf))


class MaskRows:
    """Reads rows of a mask into a buffer and applies them to scores.

    A bool mask (bytes in memory) becomes 0 or -inf in the buffer, and the score of a masked key
    becomes -inf whatever it was; a float mask is added.
    """

    def __init__(self, r: Registers, source: Matrix, keys: int):
        self.r = r
        self.source = source
        self.is_bool = source.type.startswith("i")
        self.buffer = entry_alloca(keys + r.vl, r.type)

    def start_keys(self, key: Index, keys: Index) -> None:
        """Rows are read one at a time."""

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
