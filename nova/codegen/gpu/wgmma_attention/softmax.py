"""The softmax of the scores of a consumer warpgroup: a block of keys at a time (online softmax).

Input: the accumulators of scores of a thread. Output: code of the weights, and the state of its two
rows: maxima and sums, which are rescaled from block to block (Milakov & Gimelshein).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf
from typing import Any

from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.gpu.attention.dropout import DrawnWeights, KeptWeights, WeightDropout
from nova.codegen.gpu.attention.scores import AttentionScores, ScoreTiles
from nova.codegen.gpu.attention.segments import SegmentIds
from nova.codegen.gpu.block_ops import reduce_lanes
from nova.codegen.gpu.ptx_ops import wide, word
from nova.codegen.gpu.wgmma_attention import fragment as layout
from nova.codegen.gpu.wgmma_attention.fragment import Fragment
from nova.codegen.gpu.wgmma_attention.plan import GROUP_ROWS
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, add, index, minimum, sub


@dataclass(frozen=True)
class RowState:
    """Of the two rows of a thread: the maximum of the scores and this lane's sum of weights."""

    maxima: list[ir.Value]
    totals: list[ir.Value]

    @property
    def values(self) -> list[ir.Value]:
        return [*self.maxima, *self.totals]

    @staticmethod
    def of(values: Sequence[ir.Value]) -> RowState:
        return RowState(list(values[:2]), list(values[2:4]))


@dataclass(frozen=True)
class RowScores(AttentionScores):
    """The scores of a consumer's rows of a tile."""

    fragment: Fragment
    rows: list[ir.Value]
    """The two rows of the thread (index)."""
    dropout: WeightDropout | None

    @staticmethod
    def make(
        plan: ScoreTiles,
        attention: Attention,
        matrices: dict[str, Matrix],
        first: Index,
        group: ir.Value,
        thread: ir.Value,
    ) -> RowScores:
        """The scores of a thread of warpgroup `group` (both i32) in the tile with row `first`."""
        fragment = Fragment(thread)
        group_row = arith.muli(group, word(GROUP_ROWS))
        row = add(first, wide(arith.addi(group_row, fragment.first_row)))
        rows = [index(row), index(add(row, 8))]
        dropout = WeightDropout.make(attention, matrices)
        return RowScores(plan, attention, matrices, fragment, rows, dropout)

    def draw(self, key: Callable[[], Index]) -> DrawnWeights | None:
        """The weights of the keys from `key` on that dropout keeps; None, and no code, without."""
        if self.dropout is None:
            return None
        first = add(key(), wide(self.fragment.first_column))
        count = self.plan.keys // 2
        return self.dropout.draw_fragment(self.rows, first, count, transposed=False)

    def visible(self, key: Callable[[], Index]) -> KeptWeights | None:
        """The keys from `key` on of the segment of each row; None, and no code, without."""
        if not self.attention.spec.has_segments:
            return None
        ids = SegmentIds.make(self.attention, self.matrices)
        first = add(key(), wide(self.fragment.first_column))
        return ids.visible(self.rows, first, self.plan.keys // 2)

    def softmax(
        self,
        sums: list[ir.Value],
        state: RowState,
        key: Index,
        visible: KeptWeights | None,
        *,
        hides: bool,
    ) -> tuple[list[ir.Value], RowState, list[ir.Value]]:
        """Weights of a block of keys, the new state, and the factors of the sums so far.

        With `hides`, `visible` are the keys of the same segment, if there are segments.
        """
        scores = self._hide(sums, key, visible) if hides else self._scaled(sums)
        weights = list(scores)
        maxima, totals, rescales = [], [], []
        for half in range(2):
            numbers = layout.numbers_of_row(len(scores), half)
            largest = _tree(arith.maximumf, [state.maxima[half], *(scores[n] for n in numbers)])
            (largest,) = reduce_lanes([largest], arith.maximumf, 4)
            shift = self._shift(largest)
            rescale = self.weight(state.maxima[half], shift)
            total = arith.mulf(state.totals[half], rescale)
            for n in numbers:
                weights[n] = self.weight(scores[n], shift)
            total = _tree(arith.addf, [total, *(weights[n] for n in numbers)])
            maxima.append(largest)
            totals.append(total)
            rescales.append(rescale)
        return weights, RowState(maxima, totals), rescales

    def merge(self, states: Sequence[RowState]) -> tuple[RowState, list[list[ir.Value]]]:
        """The state of the keys of several states, and for each of these the factors of its sums.

        A state without keys has a maximum of -inf, and its factors are 0.
        """
        maxima, totals = [], []
        factors: list[list[ir.Value]] = [[] for _ in states]
        for half in range(2):
            largest = reduce(arith.maximumf, [state.maxima[half] for state in states])
            shift = self._shift(largest)
            for state, own in zip(states, factors, strict=True):
                own.append(self.weight(state.maxima[half], shift))
            parts = [
                arith.mulf(state.totals[half], own[half])
                for state, own in zip(states, factors, strict=True)
            ]
            maxima.append(largest)
            totals.append(reduce(arith.addf, parts))
        return RowState(maxima, totals), factors

    def _shift(self, largest: ir.Value) -> ir.Value:
        """What is subtracted from scaled scores; 0 for a row that sees no key."""
        is_empty = arith.cmpf(arith.CmpFPredicate.OEQ, largest, self.number(-inf))
        return arith.mulf(
            arith.select(is_empty, self.number(0.0), largest), self.number(self.factor)
        )

    def _scaled(self, sums: list[ir.Value]) -> list[ir.Value]:
        if self.factor != 1.0:
            return sums
        unit = self.number(self.attention.spec.scale * self.unit)
        return [arith.mulf(value, unit) for value in sums]

    def _hide(
        self, sums: list[ir.Value], key: Index, visible: KeptWeights | None
    ) -> list[ir.Value]:
        """Scaled scores of keys from `key` on; -inf for a key that the row does not see."""
        sizes = self.plan.sizes
        scores = self._scaled(sums)
        column = self.fragment.first_column
        if "mask" in self.matrices:
            first = add(key, wide(column))
            scores = [
                self.with_mask(score, self.rows[n // 2 % 2], add(first, layout.column_of(n)))
                for n, score in enumerate(scores)
            ]
        if visible is not None:
            scores = visible.keep(scores, dropped=-inf)
        limits = []
        for row in self.rows:
            limit: Index = sub(sizes.j - 1, key)
            if self.attention.spec.causal:
                limit = minimum(limit, sub(row, key))
            limits.append(arith.subi(word(limit), column))
        return layout.hide(scores, limits)


def _tree(combine: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    """Values combined in four chains, so that latencies overlap."""
    chains = [reduce(combine, values[start::4]) for start in range(min(4, len(values)))]
    return reduce(combine, chains)
