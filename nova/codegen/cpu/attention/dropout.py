"""Dropout of attention weights on a CPU: draws the bits of a vector of weights."""

from __future__ import annotations

from nova.codegen.common.builder import splat
from nova.codegen.common.match_attention import Matrix
from nova.codegen.common.philox import is_kept, random_word
from nova.codegen.cpu.attention.tiles import AttentionPoint, Registers
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index


def weight_dropout(point: AttentionPoint) -> WeightDropout | None:
    """The dropout of an attention; None without it."""
    spec, at = point.attention.spec, point.at
    return (
        WeightDropout(point.r, at["draws"], at["seed"], spec.dropout) if spec.has_dropout else None
    )


class WeightDropout:
    """The weights at one point of the batch that are kept.

    `draws.at` numbers them as `uniform` numbers the elements of the tensor of all weights.
    """

    def __init__(self, r: Registers, draws: Matrix, seed: Matrix, p: float):
        self.draws, self.p = draws, p
        number = ir.IntegerType.get_signless(64)
        self.type = ir.VectorType.get([r.vl], number)
        key = memref.load(seed.buffer, [index(seed.start)])
        low, high = self._split(vector.broadcast(self.type, key))
        self.key = low, high
        steps = ir.DenseElementsAttr.get(
            [ir.IntegerAttr.get(number, lane) for lane in range(r.vl)], type=self.type
        )
        self.lanes = arith.constant(self.type, steps)

    def _split(self, numbers: ir.Value) -> tuple[ir.Value, ir.Value]:
        low = arith.andi(numbers, splat(self.type, 0xFFFFFFFF))
        return low, arith.shrui(numbers, splat(self.type, 32))

    def keeps(self, row: Index, key: Index, column: Index) -> ir.Value:
        """Flags of the lanes of a vector of weights: one row, from key `key + column` on."""
        first = self.draws.at(row, add(key, column))
        first = arith.index_cast(self.type.element_type, index(first))
        numbers = arith.addi(vector.broadcast(self.type, first), self.lanes)
        return is_kept(random_word(*self._split(numbers), self.key), self.p)
