"""Attention scores on a GPU and their softmax weights: scaled and masked.

Input: this thread's part of the matmul of q and k. Output: code. `AttentionBlock` derives from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import e, inf, log2
from typing import Protocol

from nova.codegen.common.builder import BITS, element_type, splat
from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.gpu.attention.plan import AttentionSizes
from nova.codegen.gpu.attention.segments import read_id
from nova.codegen.gpu.gemm.epilogue import Core
from nova.codegen.gpu.ptx_ops import GLOBAL, exponential2, fused, global_base, load
from nova.core.sizes import is_multiple
from nova.ir.bindings import arith, ir, math, scf
from nova.ir.index import Index, add, compare, minimum, mul

_LARGEST_MASK = 2.0**127
"""Larger mask values are limited to it: times log2(e), it is a finite f32."""


class ScoreTiles(Protocol):
    """What scores depend on: the sizes, and the rows and keys of a block of scores."""

    @property
    def sizes(self) -> AttentionSizes: ...
    @property
    def rows(self) -> int: ...
    @property
    def keys(self) -> int: ...


@dataclass(frozen=True)
class AttentionScores:
    """The scores at one point of the batch; `matrices` are the operands and results there."""

    plan: ScoreTiles
    attention: Attention
    matrices: dict[str, Matrix]

    @property
    def unit(self) -> float:
        """The factor that converts scores to the base of `power`."""
        return log2(e) if self.attention.type == "f32" else 1.0

    def power(self, value: ir.Value) -> ir.Value:
        return exponential2(value) if self.attention.type == "f32" else math.exp(value)

    def number(self, value: float) -> ir.Value:
        return splat(element_type(self.attention.type), value)

    @cached_property
    def factor(self) -> float:
        """The factor still to be applied to scores: 1 where there is a mask to add.

        Scores are compared before that, so it must keep their order.
        """
        factor = self.attention.spec.scale * self.unit
        return 1.0 if "mask" in self.matrices or factor <= 0 else factor

    def scores(
        self,
        core: Core,
        sums: Sequence[ir.Value],
        first: Index,
        key: Index,
        is_inner: ir.Value | None = None,
    ) -> list[ir.Value]:
        """Scores of a block of rows and keys; -inf for a key that the row does not see.

        In units of `power`, with the mask, or still to be multiplied by `factor`. `is_inner` says
        that the block has no rows and keys of different segments, if there are segments.
        """
        scores = list(sums)
        if self.factor == 1.0:
            unit = self.number(self.attention.spec.scale * self.unit)
            scores = [arith.mulf(value, unit) for value in scores]
        if "mask" in self.matrices:
            for n, row, column in self._elements(core, first, key):
                scores[n] = self.with_mask(scores[n], row, column)
        edge = self._edge(first, key, is_inner)
        if edge is None:
            return scores
        # Few blocks contain masked scores; the others skip the test of each score.
        hiding = scf.IfOp(edge, [score.type for score in scores], has_else=True)
        with ir.InsertionPoint(hiding.then_block):
            visible = list(scores)
            if is_inner is not None:
                visible = self._same_segments(core, visible, first, key)
            for n, row, column in self._elements(core, first, key):
                for hidden in self._hidden(row, column):
                    visible[n] = arith.select(hidden, self.number(-inf), visible[n])
            scf.YieldOp(visible)
        with ir.InsertionPoint(hiding.else_block):
            scf.YieldOp(scores)
        return list(hiding.results)

    def weight(self, score: ir.Value, shift: ir.Value) -> ir.Value:
        """The power of a score minus `shift`, which is scaled already."""
        if self.factor == 1.0:
            return self.power(arith.subf(score, shift))
        return self.power(fused(score, self.number(self.factor), arith.negf(shift)))

    def _elements(self, core: Core, first: Index, key: Index) -> Iterator[tuple[int, Index, Index]]:
        """Each element of a thread: its number, its row and its key."""
        columns = [add(key, column) for column in core.columns()]
        for i, tile_row in enumerate(core.rows()):
            row = add(first, tile_row)
            for j, column in enumerate(columns):
                yield core.number(i, j), row, column

    def _same_segments(
        self, core: Core, scores: Sequence[ir.Value], first: Index, key: Index
    ) -> list[ir.Value]:
        """Scores; -inf where the row and the key are of different segments."""
        sizes, visible = self.plan.sizes, list(scores)
        rows, keys = (self.matrices[name] for name in ("q_segment", "k_segment"))
        key_ids = [read_id(keys, minimum(add(key, n), sizes.j - 1)) for n in core.columns()]
        for i, tile_row in enumerate(core.rows()):
            row_id = read_id(rows, minimum(add(first, tile_row), sizes.i - 1))
            for j, key_id in enumerate(key_ids):
                n = core.number(i, j)
                differs = arith.cmpi(arith.CmpIPredicate.ne, row_id, key_id)
                visible[n] = arith.select(differs, self.number(-inf), visible[n])
        return visible

    def _edge(self, first: Index, key: Index, is_inner: ir.Value | None) -> ir.Value | None:
        """Whether a block of rows and keys contains masked scores; None if no block does."""
        sizes, plan = self.plan.sizes, self.plan
        conditions = []
        if is_inner is not None:
            truth = ir.IntegerType.get_signless(1)
            conditions.append(arith.xori(is_inner, arith.constant(truth, 1)))
        if not is_multiple(sizes.j, plan.keys):
            conditions.append(compare(arith.CmpIPredicate.sgt, key, sizes.j - plan.keys))
        if not is_multiple(sizes.i, plan.rows):
            conditions.append(compare(arith.CmpIPredicate.sgt, first, sizes.i - plan.rows))
        if self.attention.spec.causal:
            conditions.append(compare(arith.CmpIPredicate.sgt, add(key, plan.keys - 1), first))
        return reduce(arith.ori, conditions) if conditions else None

    def _hidden(self, row: Index, key: Index) -> list[ir.Value]:
        sizes, plan = self.plan.sizes, self.plan
        conditions = []
        if not is_multiple(sizes.j, plan.keys):
            conditions.append(compare(arith.CmpIPredicate.sge, key, sizes.j))
        if not is_multiple(sizes.i, plan.rows):
            conditions.append(compare(arith.CmpIPredicate.sge, row, sizes.i))
        if self.attention.spec.causal:
            conditions.append(compare(arith.CmpIPredicate.sgt, key, row))
        return conditions

    def with_mask(
        self, score: ir.Value, row: Index, key: Index, *, exists: bool = False
    ) -> ir.Value:
        """A score in units of `power`, with the mask of its row and key.

        With `exists` both are known to be in bounds.
        """
        if not exists:
            sizes = self.plan.sizes
            row, key = minimum(row, sizes.i - 1), minimum(key, sizes.j - 1)
        return self.apply_mask(score, self.load_mask(row, key))

    def load_mask(self, row: Index, key: Index) -> ir.Value:
        """The mask of a row and a key that exist, as it is stored."""
        mask = self.matrices["mask"]
        size = BITS.get(mask.type, 8) // 8
        address = add(global_base(mask.buffer), mul(mask.at(row, key), size))
        return load(mask.buffer.type.element_type, address, GLOBAL, size)

    def apply_mask(self, score: ir.Value, value: ir.Value) -> ir.Value:
        """A score in units of `power`, with a mask that `load_mask` loaded."""
        mask = self.matrices["mask"]
        stored = mask.buffer.type.element_type
        if mask.type.startswith("i"):
            hidden = arith.cmpi(arith.CmpIPredicate.eq, value, splat(stored, 0))
            return arith.select(hidden, self.number(-inf), score)
        wide = element_type(self.attention.type)
        if BITS[mask.type] != BITS[self.attention.type]:
            narrower = BITS[mask.type] < BITS[self.attention.type]
            value = (arith.extf if narrower else arith.truncf)(wide, value)
        if self.unit != 1.0 and mask.type != "f16":
            value = self._bounded(value)
        return arith.addf(score, arith.mulf(value, self.number(self.unit)))

    def _bounded(self, value: ir.Value) -> ir.Value:
        """A mask value that stays finite in units of `power` if it is finite; -inf stays -inf.

        A row that is masked with the lowest finite number has equal weights, as in torch.
        """
        visible = arith.cmpf(arith.CmpFPredicate.OGT, value, self.number(-inf))
        bounded = arith.maximumf(value, self.number(-_LARGEST_MASK))
        return arith.select(visible, bounded, value)
