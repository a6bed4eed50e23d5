"""The weights and the gradients of the scores of a consumer, in gradients of warpgroup attention.

Input: the accumulators of scores and slopes of a thread, for a block that passes its tile. Output:
code. `backward.py` calls it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.gpu.attention.block import read_number
from nova.codegen.gpu.attention.dropout import WORD, DrawnWeights, KeptWeights, WeightDropout
from nova.codegen.gpu.attention.scores import AttentionScores
from nova.codegen.gpu.attention.segments import SegmentIds, SegmentRange
from nova.codegen.gpu.ptx_ops import SHARED, fused, load, opaque, wide, word
from nova.codegen.gpu.wgmma_attention import fragment as layout
from nova.codegen.gpu.wgmma_attention.fragment import Fragment
from nova.codegen.gpu.wgmma_attention.gradient_plan import GradientPart
from nova.codegen.gpu.wgmma_attention.plan import GROUP_ROWS
from nova.ir.bindings import arith, ir, scf, vector
from nova.ir.index import Index, add, index, minimum, mul, sub


@dataclass(frozen=True)
class TileWeights(AttentionScores):
    """The weights of a consumer's rows of a tile; transposed where those are keys."""

    part: GradientPart
    fragment: Fragment
    tile_rows: list[ir.Value]
    """The two rows of the thread (index): of q, or of k and v."""
    row_statistics: list[list[ir.Value]]
    """The logsumexp, in units of the scores, and delta of the two rows, where they are of q."""
    dropout: WeightDropout | None
    segments: SegmentRange | None

    @staticmethod
    def make(
        part: GradientPart,
        attention: Attention,
        matrices: dict[str, Matrix],
        first: Index,
        group: ir.Value,
        thread: ir.Value,
        segments: SegmentRange | None,
    ) -> TileWeights:
        """Those of a thread of consumer `group` (both i32) in the tile with row `first`."""
        fragment = Fragment(thread)
        group_row = arith.muli(group, word(GROUP_ROWS))
        row = add(first, wide(arith.addi(group_row, fragment.first_row)))
        rows = [index(row), index(add(row, 8))]
        dropout = WeightDropout.make(attention, matrices)
        tile = TileWeights(part, attention, matrices, part, fragment, rows, [], dropout, segments)
        if part.has_keys:
            return tile
        last = [minimum(row, part.sizes.i - 1) for row in rows]
        shifts, deltas = (
            [read_number(matrices[name], row, "f32") for row in last]
            for name in ("logsumexp", "delta")
        )
        shifts = [arith.mulf(shift, tile.number(tile.unit)) for shift in shifts]
        return replace(tile, row_statistics=[shifts, deltas])

    def draw(self, block: Index) -> DrawnWeights | None:
        """The weights of a block that dropout keeps; None, and no code, without."""
        if self.dropout is None:
            return None
        passed = mul(block, self.part.passing)
        first, count = add(passed, wide(self.fragment.first_column)), self.part.passing // 2
        transposed = self.part.has_keys
        rows = self._rows_again()
        return self.dropout.draw_fragment(rows, first, count, transposed=transposed)

    def visible(self, block: Index) -> KeptWeights | None:
        """The pairs of a block of the same segment; None, and no code, without segments."""
        if self.segments is None:
            return None
        part, passed, count = self.part, mul(block, self.part.passing), self.part.passing // 2
        ids = SegmentIds.make(self.attention, self.matrices, transposed=part.has_keys)
        types = [ir.IntegerType.get_signless(32)] * -(-count // WORD)
        # Few blocks have pairs of different segments.
        either = scf.IfOp(self.segments.covers(passed, part.passing), types, has_else=True)
        with ir.InsertionPoint(either.then_block):
            scf.YieldOp([word(-1)] * len(types))
        with ir.InsertionPoint(either.else_block):
            first = add(passed, wide(self.fragment.first_column))
            scf.YieldOp(list(ids.visible(self._rows_again(), first, count).words))
        return KeptWeights(tuple(either.results))

    def _rows_again(self) -> list[ir.Value]:
        """The rows of the thread; LLVM computes what depends on them in each block again."""
        return [wide(opaque(word(row))) for row in self.tile_rows]

    def shifts(self, statistics: ir.Value) -> list[ir.Value]:
        """The logsumexp of the row of q of each accumulator, in units of the scores.

        `statistics` is the address of those of a block in shared memory (i32), which tiles of keys
        read.
        """
        return self._of_rows(0, statistics)

    def deltas(self, statistics: ir.Value) -> list[ir.Value]:
        """The delta of the row of q of each accumulator."""
        return self._of_rows(1, statistics)

    def _of_rows(self, which: int, statistics: ir.Value) -> list[ir.Value]:
        count = self.part.passing // 2
        if self.row_statistics:
            return [self.row_statistics[which][n // 2 % 2] for n in range(count)]
        start = arith.addi(statistics, arith.shli(self.fragment.first_column, word(2)))
        start = add(wide(start), 4 * self.part.passing * which)
        pair = ir.VectorType.get([2], ir.F32Type.get())
        values = []
        for group in range(self.part.passing // 8):
            loaded = load(pair, add(start, 32 * group), SHARED, 8)
            values += [vector.extract(loaded, [], [i]) for i in range(2)]
        return [values[n // 4 * 2 + n % 2] for n in range(count)]

    def scores_of(self, sums: list[ir.Value], passed: Index) -> list[ir.Value]:
        """Scaled scores of the block from row `passed` on; -inf where hidden."""
        scores = list(sums)
        if self.factor == 1.0:
            unit = self.number(self.attention.spec.scale * self.unit)
            scores = [arith.mulf(value, unit) for value in scores]
        column = self.fragment.first_column
        if "mask" in self.matrices:
            scores = self._masked(scores, passed)
        causal, sizes = self.attention.spec.causal, self.part.sizes
        rows = self._rows_again() if "mask" in self.matrices else self.tile_rows
        limits: list[ir.Value] = []
        if self.part.has_keys:
            if causal:
                limits = [arith.subi(word(sub(key, passed)), column) for key in rows]
                scores = layout.hide(scores, limits, after=False)
        elif causal or sizes.j % self.part.passing:
            for row in rows:
                limit: Index = sub(sizes.j - 1, passed)
                if causal:
                    limit = minimum(limit, sub(row, passed))
                limits.append(arith.subi(word(limit), column))
            scores = layout.hide(scores, limits)
        return scores

    def _masked(self, scores: list[ir.Value], passed: Index) -> list[ir.Value]:
        """Scores with the mask of their rows and keys; those beyond the last one have its mask."""
        sizes = self.part.extents
        own = [arith.minsi(word(row), word(sizes[0] - 1)) for row in self._rows_again()]
        # Positions of 32 bits, which are computed one by one: 64 sums leave few registers.
        first = arith.addi(opaque(word(passed)), self.fragment.first_column)
        masked = []
        for n, score in enumerate(scores):
            other = arith.addi(first, word(layout.column_of(n)))
            if sizes[1] % self.part.passing:
                other = arith.minsi(other, word(sizes[1] - 1))
            pair = wide(own[n // 2 % 2]), wide(other)
            row, key = pair[::-1] if self.part.has_keys else pair
            masked.append(self.with_mask(score, row, key, exists=True))
        return masked

    def weights(self, scores: list[ir.Value], shifts: list[ir.Value]) -> list[ir.Value]:
        return [self.weight(score, shift) for score, shift in zip(scores, shifts, strict=True)]

    def changes(
        self, weights: list[ir.Value], slopes: list[ir.Value], deltas: list[ir.Value]
    ) -> list[ir.Value]:
        """The gradients of the scores, before the scale, from the slopes that dropout keeps.

        The slope of a hidden value, whose weight is 0, may be NaN.
        """
        zero = self.number(0.0)
        scale = self.number(self.dropout.scale) if self.dropout else None
        spec = self.attention.spec
        hides = spec.causal or spec.masked or spec.has_segments
        changes = []
        for weight, slope, delta in zip(weights, slopes, deltas, strict=True):
            if scale is None:
                slope = arith.subf(slope, delta)
            else:
                slope = fused(slope, scale, arith.negf(delta))
            change = arith.mulf(weight, slope)
            if hides:
                hidden = arith.cmpf(arith.CmpFPredicate.OEQ, weight, zero)
                change = arith.select(hidden, zero, change)
            changes.append(change)
        return changes
