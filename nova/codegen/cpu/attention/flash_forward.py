"""FlashAttention-2 forward on a CPU: attention without the matrix of scores.

Input: an `Attention` and the ranges of its loops that a tile computes. Output: code at the
insertion point. `schedule.py` calls `tile_rows` and `emit_attention`.

A block of rows of q stays on the stack while the loop visits blocks of keys and values. Each block
is packed, then used by micropanels of as many rows as the registers hold. Only the scores of one
panel against one block exist at a time. The maximum and the sum of a row, and its result, are
rescaled from block to block (online softmax, Milakov & Gimelshein). With `causal`, a panel stops at
the last key that its last row may see; of packed sequences, a block of rows visits the keys of its
segments only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import inf, prod
from typing import Any

from nova.codegen.common.builder import branch, element_type, loop, splat
from nova.codegen.common.match_attention import Attention
from nova.codegen.cpu.attention.dropout import WeightDropout, weight_dropout
from nova.codegen.cpu.attention.flash_backward import emit_gradient
from nova.codegen.cpu.attention.mask import ScoreMasks
from nova.codegen.cpu.attention.tiles import (
    AttentionPoint,
    Lhs,
    Rhs,
    block_rows,
    blocks,
    choose_registers,
    clear,
    each_column,
    each_panel,
    fill_panel,
    lanes_below,
    load_tile,
    multiply,
    over_batch,
    read_rows,
    span,
    store_tile,
    whole_panels,
)
from nova.codegen.cpu.gemm.packing import Block, pack
from nova.codegen.cpu.loops import Range
from nova.codegen.cpu.shared_functions import entry_alloca
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.sizes import Size
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, math, memref, scf, vector
from nova.ir.index import Index, add, compare, index, minimum, mul, sub
from nova.ir.symbolic.size_table import is_number, typical
from nova.ops.attention.kept_weights import kept_scale

_BLOCK_BYTES, _BLOCK_ROWS = 64 << 10, 256
"""Bytes and rows of a block of rows, keys or values, at most. Four such blocks are in use at a
time. Keys and values are packed for each block of rows, and results rescaled for each block of
keys."""

_GRADIENT_BYTES = 32 << 10
"""Bytes of the rows of a tile of the backward pass."""

_FEW_TILES = 8
"""Blocks of rows are halved while there are fewer tiles than this."""


def tile_rows(target: Target, attention: Attention) -> int:
    """The number of rows of q (or of k and v, in their gradient) in a tile."""
    size = attention.size("j" if attention.spec.results[0] in ("k", "v") else "i")
    if attention.spec.op == "attend_gradient":
        most = block_rows(attention, size, _GRADIENT_BYTES)
    else:
        # Whole panels: rows that pad the last one take as long as others.
        most = _forward_rows(target, attention, size)
        most = round_up(most, choose_registers(target, attention.type, most).mr)
    rows, batch = (
        typical(size),
        typical(prod(attention.nest.loops[i].size for i in attention.batch)),
    )
    while batch * -(-rows // most) < _FEW_TILES and most >= 64:
        most //= 2
    return most


def _forward_rows(target: Target, attention: Attention, rows: Size) -> int:
    """Rows, or keys, of a block."""
    nbytes = min(_BLOCK_BYTES, target.l2_bytes // 8)
    return block_rows(attention, rows, nbytes, _BLOCK_ROWS)


def emit_attention(
    target: Target, attention: Attention, buffers: Sequence[Any], ranges: Sequence[Range | None]
) -> None:
    """Emit the code of one tile; `buffers` are flat, `ranges` are those of the grid."""
    if attention.spec.op == "attend_gradient":
        emit_gradient(target, attention, buffers, ranges)
        return
    low, high = span(attention, "i", ranges)
    full = list(ranges) + [None] * (len(attention.nest.loops) - len(ranges))
    over_batch(attention, buffers, full, lambda at: _Forward(target, attention, at).emit(low, high))


@record
class _Forward(AttentionPoint):
    """The forward pass at one point of the batch."""

    panel_rows: int = 0
    """Rows of a panel, in the code of one."""

    def block_rows(self, rows: Size) -> int:
        return _forward_rows(self.target, self.attention, rows)

    @cached_property
    def panel(self) -> tuple[int, int]:
        """The vectors in a panel of values, and the number of panels."""
        return self.r.columns(self.attention.size("f"))

    @property
    def width(self) -> int:
        return self.panel[0] * self.panel[1] * self.r.vl

    @cached_property
    def half_panel(self) -> int:
        """The rows of a lower panel for the last rows of a symbolic number of them; 0: none."""
        if isinstance(self.attention.size("i"), int) or self.several or self.r.mr % 2:
            return 0
        return self.r.mr // 2

    @property
    def key_panel(self) -> int:
        """Keys in a packed panel: a vector of them where one vector of scores may be enough."""
        return self.r.nr if isinstance(self.attention.size("j"), int) else self.r.vl

    def emit(self, low: Index, high: Index) -> None:
        a, r = self.attention, self.r
        # Packing may write up to a vector past the end of the packed data.
        self_buffers = {
            "q": self.rows * a.size("e"),
            "k": self.keys * a.size("e") + r.vl,
            "v": self.keys * self.width + r.vl,
            "p": r.mr * self.keys,
            "o": self.rows * self.width,
            "row_max": self.rows,
            "sum": self.rows,
            "lane_max": r.mr * r.vl,
            "shift": r.mr,
            "rescale": round_up(r.mr, r.vl),
        }
        buffers = {name: entry_alloca(size, a.type) for name, size in self_buffers.items()}
        mask = ScoreMasks.of(self)
        dropout = weight_dropout(self)
        keys = a.size("j")
        if isinstance(keys, int):
            self._emit_rows(buffers, mask, dropout, low, high)
            return
        # Few keys need neither the statistics of a row between blocks nor their rescaling.
        few = replace(self, one_block=True)
        branch(
            compare(arith.CmpIPredicate.sle, keys, self.keys),
            lambda: few._emit_rows(buffers, mask, dropout, low, high),
            lambda: self._emit_rows(buffers, mask, dropout, low, high),
        )

    def _emit_rows(
        self,
        buffers: dict[str, Any],
        mask: ScoreMasks,
        dropout: WeightDropout | None,
        low: Index,
        high: Index,
    ) -> None:
        a = self.attention
        most = a.size("j") if self.several else self.keys
        with blocks(low, high, self.rows, a.size("i")) as (first, rows):
            self._start(buffers, first, rows)
            begin, end = self.visible_range("i", first, rows)
            if a.spec.causal:
                end = minimum(end, add(first, rows))
            if a.spec.has_segments:
                end = arith.maxsi(index(begin), index(end))
            with blocks(begin, end, self.keys, most) as (key, keys):
                self._pack(buffers, key, keys)
                mask.start_keys(key, keys)
                self._panels(buffers, mask, dropout, first, rows, key, keys)
            self._normalize(buffers, first, rows)

    def _start(self, buffers: dict[str, Any], first: Index, rows: Index) -> None:
        a, r = self.attention, self.r
        features = a.size("e")
        read_rows(r, self.at["q"], first, rows, features, buffers["q"], features, a.spec.scale)
        lowest = replace(r, mr=self.half_panel or r.mr)
        fill_panel(lowest, buffers["q"], rows, features)
        if self.several:
            clear(r, buffers["o"], 0, self.rows * self.width)
            zero, low = (splat(element_type(a.type), value) for value in (0.0, -inf))
            with loop(0, self.rows, 1) as row:
                memref.store(low, buffers["row_max"], [index(row)])
                memref.store(zero, buffers["sum"], [index(row)])

    def _pack(self, buffers: dict[str, Any], key: Index, keys: Index) -> None:
        a, r, (nv, _) = self.attention, self.r, self.panel
        k, v = self.at["k"], self.at["v"]
        block = Block(k.buffer, k.type, k.at(key), k.row, k.column, keys, a.size("e"))
        pack(self.target, a.type, block, self.key_panel, a.size("e"), buffers["k"])
        if self.key_panel < r.nr:
            # The second vector of a tile of scores may have no keys.
            low, high = (whole_panels(keys, n) for n in (r.vl, r.nr))
            high = arith.select(self._fit_in_vector(keys), index(low), index(high))
            clear(r, buffers["k"], mul(low, a.size("e")), mul(high, a.size("e")))
        features = a.size("f")
        block = Block(v.buffer, v.type, v.at(key), v.column, v.row, features, keys)
        least = keys if isinstance(keys, int) else 1
        pack(self.target, a.type, block, nv * r.vl, least, buffers["v"])

    def _fit_in_vector(self, keys: Index) -> ir.Value:
        """Whether the keys of a block, which has a symbolic number of them, fit in one vector."""
        return compare(arith.CmpIPredicate.sle, keys, self.r.vl)

    def _panels(
        self,
        buffers: dict[str, Any],
        mask: ScoreMasks,
        dropout: WeightDropout | None,
        first: Index,
        rows: Index,
        key: Index,
        keys: Index,
    ) -> None:
        a, r = self.attention, self.r
        begin: Index = 0
        if a.spec.causal and self.several:
            # Panels whose last row is before the first key see no key of this block.
            lag = arith.maxsi(index(sub(key, first)), index(0))
            begin = mul(arith.divui(lag, index(r.mr)), r.mr)

        def panel(row: Index, height: int) -> None:
            point = replace(self, panel_rows=height)
            point._panel(buffers, mask, dropout, (first, rows), (key, keys), row)

        each_panel(r.mr, self.half_panel, begin, rows, panel)

    def _panel(
        self,
        buffers: dict[str, Any],
        mask: ScoreMasks,
        dropout: WeightDropout | None,
        row_block: tuple[Index, Index],
        key_block: tuple[Index, Index],
        row: Index,
    ) -> None:
        """The panel at `row` of a block of rows, against a block of keys."""
        a, (nv, _) = self.attention, self.panel
        r = replace(self.r, mr=self.panel_rows)
        (first, rows), (key, keys) = row_block, key_block
        ahead = sub(first, key)
        visible_keys, own_end = keys, None
        if a.spec.causal:
            visible_keys = minimum(keys, add(add(ahead, row), r.mr))
            own_end = add(add(ahead, row), 1)

        def limit(i: Index) -> Index:
            """The number of keys of the block that row `i` of the panel sees."""
            return minimum(keys, add(add(ahead, row), add(i, 1))) if a.spec.causal else keys

        limits = None if mask.parts else [limit(i) for i in range(r.mr)]
        scores = partial(self._scores, buffers, row, visible_keys, limits)
        if self.one_block:
            branch(self._fit_in_vector(keys), partial(scores, 1), partial(scores, r.nv))
        else:
            scores(r.nv)
        used: Index = r.mr
        if not isinstance(a.size("i"), int):
            used = minimum(sub(rows, row), r.mr)  # without those that pad the panel
        if limits is None:
            with loop(0, used, 1) as i:
                mask.read(add(first, minimum(add(row, i), sub(rows, 1))), key, visible_keys)
                self._mask_row(buffers, mask, i, visible_keys, limit(i))
        self._update_maxima(buffers, row)
        with loop(0, used, 1) as i:
            keeps = None
            if dropout is not None:
                dropout.draw(add(first, add(row, i)), key, visible_keys)
                keeps = partial(dropout.keeps, key)
            self._weights(buffers, keeps, row, i, visible_keys)
        lhs = Lhs(buffers["p"], 0, self.keys, 1)
        with blocks(0, self.width, nv * r.vl, self.width) as (column, _):
            start = add(mul(row, self.width), column)
            before = None
            if self.several:
                before = load_tile(r, buffers["o"], start, self.width, nv)
                before = self._rescaled(buffers["rescale"], before, nv)
            rhs = Rhs(buffers["v"], mul(column, keys), nv * r.vl)
            tile = multiply(r, lhs, rhs, (0, visible_keys), nv, before, own_end)
            store_tile(r, tile, buffers["o"], start, self.width, nv)

    def _rescaled(self, rescale: ir.Value, tile: list[Any], nv: int) -> list[Any]:
        r = self.r
        factors = [
            vector.broadcast(r.vec_type, memref.load(rescale, [index(i)]))
            for i in range(len(tile) // nv)
        ]
        return [arith.mulf(value, factors[n // nv]) for n, value in enumerate(tile)]

    def _scores(
        self,
        buffers: dict[str, Any],
        row: Index,
        visible_keys: Index,
        limits: list[Index] | None,
        nv: int,
    ) -> None:
        """Scores of the panel at `row`, in tiles of `nv` vectors; those from the limit of their row
        on become -inf.

        The maximum of each lane of a row is computed here, while the scores are in registers;
        without `limits` `_mask_row` does both.
        """
        features = self.attention.size("e")
        r = replace(self.r, mr=self.panel_rows, nv=nv)
        lhs = Lhs(buffers["q"], mul(row, features), features, 1)
        least = splat(r.vec_type, -inf)
        initial = [least] * (len(limits) if limits else 0)
        op = scf.ForOp(index(0), index(visible_keys), index(r.nr), initial)
        with ir.InsertionPoint(op.body):
            column = op.induction_variable
            next_vector = r.vl * features if self.key_panel == r.vl else r.vl
            rhs = Rhs(buffers["k"], mul(column, features), self.key_panel, next_vector)
            tile = multiply(r, lhs, rhs, (0, features), r.nv)
            maxima = list(op.inner_iter_args)
            if limits:
                for number, score in enumerate(tile):
                    i, v = divmod(number, r.nv)
                    if not (isinstance(limits[i], int) and limits[i] % r.nr == 0):
                        visible = lanes_below(r, add(column, v * r.vl), limits[i])
                        tile[number] = arith.select(visible, score, least)
                    maxima[i] = _maximum(tile[number], maxima[i])
            store_tile(r, tile, buffers["p"], column, self.keys, r.nv)
            scf.YieldOp(maxima)
        for i, value in enumerate(op.results):
            vector.store(value, buffers["lane_max"], [index(i * r.vl)])

    def _mask_row(
        self, buffers: dict[str, Any], mask: ScoreMasks, i: Index, visible_keys: Index, limit: Index
    ) -> None:
        """Mask the scores of row `i` of the panel, and compute the maximum of each lane."""
        r, p = self.r, buffers["p"]
        start, least = mul(i, self.keys), splat(r.vec_type, -inf)
        op = scf.ForOp(index(0), index(visible_keys), index(r.vl), [least])
        with ir.InsertionPoint(op.body):
            column = op.induction_variable
            where = [index(add(start, column))]
            score = mask.apply(vector.load(r.vec_type, p, where), column)
            score = arith.select(lanes_below(r, column, limit), score, least)
            vector.store(score, p, where)
            scf.YieldOp([_maximum(score, op.inner_iter_args[0])])
        vector.store(op.results[0], buffers["lane_max"], [index(mul(i, r.vl))])

    def _update_maxima(self, buffers: dict[str, Any], row: Index) -> None:
        """The new maxima of the rows of the panel at `row`, and the factors of their old sums.

        Rows are independent of each other here: a processor overlaps their chains of reductions.
        """
        r, scalar = self.r, self.r.vec_type.element_type
        for i in range(self.panel_rows):
            row_offset = [index(add(row, i))]
            row_max = max_lanes(vector.load(r.vec_type, buffers["lane_max"], [index(i * r.vl)]))
            if self.several:
                before = memref.load(buffers["row_max"], row_offset)
                row_max = _maximum(row_max, before)
            memref.store(row_max, buffers["row_max"], row_offset)
            is_least = arith.cmpf(arith.CmpFPredicate.OEQ, row_max, splat(scalar, -inf))
            shift = arith.select(is_least, splat(scalar, 0.0), row_max)
            memref.store(shift, buffers["shift"], [index(i)])
            if self.several:
                memref.store(arith.subf(before, shift), buffers["rescale"], [index(i)])
        for i in range(0, self.panel_rows if self.several else 0, r.vl):
            # Lanes after the last row are not used.
            change = vector.load(r.vec_type, buffers["rescale"], [index(i)])
            vector.store(math.exp(change), buffers["rescale"], [index(i)])

    def _weights(
        self,
        buffers: dict[str, Any],
        keeps: Callable[[Index], ir.Value] | None,
        row: Index,
        i: Index,
        visible_keys: Index,
    ) -> None:
        """Scores of row `i` of the panel at `row` to weights; `_normalize` divides by their sum.

        `keeps` are the flags of the weights that dropout keeps; the sum is that of all weights.
        """
        r, p = self.r, buffers["p"]
        start, row_offset = mul(i, self.keys), [index(add(row, i))]
        spread = vector.broadcast(r.vec_type, memref.load(buffers["shift"], [index(i)]))
        op = scf.ForOp(index(0), index(visible_keys), index(r.vl), [splat(r.vec_type, 0.0)])
        with ir.InsertionPoint(op.body):
            where = [index(add(start, op.induction_variable))]
            weight = math.exp(arith.subf(vector.load(r.vec_type, p, where), spread))
            used = weight
            if keeps is not None:
                kept = keeps(op.induction_variable)
                used = arith.select(kept, weight, splat(r.vec_type, 0.0))
            vector.store(used, p, where)
            scf.YieldOp([arith.addf(op.inner_iter_args[0], weight)])
        total = add_lanes(op.results[0])
        if self.several:
            rescale = memref.load(buffers["rescale"], [index(i)])
            old = memref.load(buffers["sum"], row_offset)
            total = arith.addf(arith.mulf(old, rescale), total)
        memref.store(total, buffers["sum"], row_offset)

    def _normalize(self, buffers: dict[str, Any], first: Index, rows: Index) -> None:
        """Divide by the sums and write the requested results."""
        with loop(0, rows, 1) as row:
            total = memref.load(buffers["sum"], [row])
            zero, unit = splat(total.type, 0.0), splat(total.type, 1.0)
            empty = arith.cmpf(arith.CmpFPredicate.OEQ, total, zero)
            if "to_out" in self.at:
                scale = unit
                if self.attention.spec.has_dropout:
                    scale = splat(total.type, kept_scale(self.attention.spec.dropout))
                factor = arith.select(empty, zero, arith.divf(scale, total))
                self._write(buffers["o"], row, add(first, row), factor)
            if "to_logsumexp" in self.at:
                row_max = memref.load(buffers["row_max"], [row])
                logsumexp = arith.addf(row_max, math.log(arith.select(empty, unit, total)))
                value = arith.select(empty, splat(total.type, inf), logsumexp)
                out = self.at["to_logsumexp"]
                memref.store(value, out.buffer, [index(out.at(add(first, row)))])

    def _write(self, buffer: ir.Value, row: Index, to: Index, factor: ir.Value) -> None:
        r, out = self.r, self.at["to_out"]
        spread = vector.broadcast(r.vec_type, factor)

        def store_scaled(column: Index, vectors: bool) -> None:
            source, target = [index(add(mul(row, self.width), column))], [index(out.at(to, column))]
            if vectors:
                value = arith.mulf(vector.load(r.vec_type, buffer, source), spread)
                vector.store(value, out.buffer, target)
            else:
                memref.store(arith.mulf(memref.load(buffer, source), factor), out.buffer, target)

        unit = is_number(out.column, 1)
        each_column(r, self.attention.size("f"), unit, store_scaled)


def _maximum(a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger one; b where a is NaN."""
    return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, a, b), a, b)


def max_lanes(value: ir.Value) -> ir.Value:
    """The largest lane of a vector without NaNs, as a tree: a NaN would need a chain of lanes."""
    flags = ir.Attribute.parse("#arith.fastmath<nnan>")
    combine = vector.CombiningKind.MAXNUMF
    return vector.reduction(value.type.element_type, combine, value, fastmath=flags)


def add_lanes(value: ir.Value) -> ir.Value:
    """The sum of the lanes of a vector, halves first (a pairwise tree)."""
    flags = ir.Attribute.parse("#arith.fastmath<reassoc>")
    combine = vector.CombiningKind.ADD
    return vector.reduction(value.type.element_type, combine, value, fastmath=flags)
