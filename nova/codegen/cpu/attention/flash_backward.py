"""FlashAttention-2 backward on a CPU: the gradient of attention without the matrix of scores.

Input: an `Attention` of kind `attend_gradient` and the ranges of its loops. Output: code at the
insertion point; `flash_forward.py` calls `emit_gradient`. The weights p are recomputed from the
logsumexp, for a block of rows of q against a block of keys:

    p = exp(q k^T scale - logsumexp)        d = p * (g v^T - delta)
    dv += p^T g      dk += d^T q scale      dq += d k scale

With dropout, p of dv and the gradients g v^T are those of the weights that are kept.

The outer loop runs over blocks of keys: dk and dv stay on the stack until the inner loop has
visited all rows. dq is added to the result, always in the order of the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import inf
from typing import Any

from nova.codegen.common.builder import loop, splat
from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.cpu.attention.dropout import WeightDropout, weight_dropout
from nova.codegen.cpu.attention.mask import ScoreMasks
from nova.codegen.cpu.attention.tiles import (
    AttentionPoint,
    Lhs,
    Rhs,
    block_rows,
    blocks,
    clear,
    each_column,
    fill_panel,
    lanes_below,
    load_tile,
    may_exceed,
    multiply,
    over_batch,
    read_rows,
    scale_buffer,
    span,
    store_tile,
    write_rows,
)
from nova.codegen.cpu.gemm.packing import Block, pack
from nova.codegen.cpu.loops import Range
from nova.codegen.cpu.shared_functions import entry_alloca
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.sizes import Size
from nova.core.targets import Target
from nova.ir.attention_ops import AttentionKind
from nova.ir.bindings import arith, ir, math, memref, vector
from nova.ir.index import Index, add, index, minimum, mul, sub
from nova.ir.symbolic.size_table import is_number, typical
from nova.ops.attention.kept_weights import kept_scale


def emit_gradient(
    target: Target, attention: Attention, buffers: Sequence[Any], ranges: Sequence[Range | None]
) -> None:
    """Emit the code of one tile; `buffers` are flat, `ranges` are those of the grid."""
    rows, keys = (span(attention, role, ranges) for role in "ij")
    full = list(ranges) + [None] * (len(attention.nest.loops) - len(ranges))
    over_batch(
        attention, buffers, full, lambda at: _Gradient(target, attention, at).emit(rows, keys)
    )


_BLOCK_BYTES = 16 << 10
"""Bytes of a block of rows or keys: about ten such blocks are in use at a time."""


@record
class _Gradient(AttentionPoint):
    """The backward pass at one point of the batch."""

    def block_rows(self, rows: Size) -> int:
        return block_rows(self.attention, rows, _BLOCK_BYTES)

    @property
    def spec(self) -> AttentionKind:
        return self.attention.spec

    @property
    def max_rows(self) -> int:
        return max(typical(self.attention.size("i")), typical(self.attention.size("j")))

    @cached_property
    def pitch(self) -> int:
        """Row stride of the weights; keys are columns here, and rows in two matmuls."""
        return round_up(round_up(self.keys, self.r.mr), self.r.vl)

    def width(self, role: str) -> int:
        nv, panels = self.r.columns(self.attention.size(role))
        return nv * panels * self.r.vl

    def emit(self, i: tuple[Index, Index], j: tuple[Index, Index]) -> None:
        a, r = self.attention, self.r
        e, f, keys = self.width("e"), self.width("f"), round_up(self.keys, r.mr)
        sizes = {
            "kt": self.keys * a.size("e") + r.vl,
            "vt": self.keys * a.size("f") + r.vl,
            "q": self.rows * e,
            "g": self.rows * f,
            "p": self.rows * self.pitch,
            "d": self.rows * self.pitch,
        }
        if "q" in self.spec.results:
            sizes |= {"k": self.keys * e, "to_q": self.rows * e}
        if "k" in self.spec.results:
            sizes["to_k"] = keys * e
        if "v" in self.spec.results:
            sizes["to_v"] = keys * f
        buffers = {name: entry_alloca(size, a.type) for name, size in sizes.items()}
        mask = ScoreMasks.of(self)
        dropout = weight_dropout(self)
        if "q" in self.spec.results and self._adds_rows:
            self._clear_rows(self.at["to_q"], i)
        if self.spec.results == ("q",):
            j = self._overlap(j, self.visible_range("i", i[0], sub(i[1], i[0])))
        with blocks(*j, self.keys, a.size("j")) as (key, count):
            self._start_keys(buffers, key, count)
            mask.start_keys(key, count)
            begin, end = self._overlap(i, self.visible_range("j", key, count))
            if self.spec.causal and may_exceed(a.size("i"), self.rows):
                # Blocks of rows that are all before the first key see no key of this block.
                lag = arith.maxsi(index(sub(key, begin)), index(0))
                begin = add(begin, mul(arith.divui(lag, index(self.rows)), self.rows))
            with blocks(begin, end, self.rows, a.size("i")) as (first, rows):
                self._rows(buffers, mask, dropout, first, rows, key, count)
            for name in ("k", "v"):
                if name in self.spec.results:
                    role = "e" if name == "k" else "f"
                    out, buffer = self.at[f"to_{name}"], buffers[f"to_{name}"]
                    if name == "v" and dropout is not None:
                        scale_buffer(r, buffer, keys * f, kept_scale(dropout.p))
                    write_rows(r, buffer, self.width(role), (0, count), a.size(role), out, key)

    @property
    def _adds_rows(self) -> bool:
        """Whether blocks of keys add to the gradient of q: several do, or some rows see none."""
        return self.several or self.spec.has_segments

    def _overlap(
        self, ranges: tuple[Index, Index], visible: tuple[Index, Index]
    ) -> tuple[Index, Index]:
        """The part of a range that is in the visible one, if there are segments."""
        if not self.spec.has_segments:
            return ranges
        begin = arith.maxsi(index(ranges[0]), index(visible[0]))
        return begin, arith.maxsi(begin, arith.minsi(index(ranges[1]), index(visible[1])))

    def _clear_rows(self, out: Matrix, i: tuple[Index, Index]) -> None:
        r = self.r

        def store_zeros(row: Index, column: Index, vectors: bool) -> None:
            offset = [index(out.at(row, column))]
            if vectors:
                vector.store(splat(r.vec_type, 0.0), out.buffer, offset)
            else:
                memref.store(splat(r.vec_type.element_type, 0.0), out.buffer, offset)

        with loop(*i, 1) as row:
            unit = is_number(out.column, 1)
            each_column(
                r, self.attention.size("e"), unit, lambda column, v: store_zeros(row, column, v)
            )

    def _start_keys(self, buffers: dict[str, Any], key: Index, keys: Index) -> None:
        a, r = self.attention, self.r
        k, v = self.at["k"], self.at["v"]
        for matrix, role, buffer in ((k, "e", "kt"), (v, "f", "vt")):
            source = (matrix.buffer, matrix.type, matrix.at(key), matrix.row, matrix.column)
            block = Block(*source, keys, a.size(role))
            pack(self.target, a.type, block, r.nr, a.size(role), buffers[buffer])
        if "k" in buffers:
            width = self.width("e")
            read_rows(r, k, key, keys, a.size("e"), buffers["k"], width, self.spec.scale)
        for name, role in (("to_k", "e"), ("to_v", "f")):
            if name in buffers:
                clear(r, buffers[name], 0, round_up(self.keys, r.mr) * self.width(role))

    def _rows(
        self,
        buffers: dict[str, Any],
        mask: ScoreMasks,
        dropout: WeightDropout | None,
        first: Index,
        rows: Index,
        key: Index,
        keys: Index,
    ) -> None:
        """Add the terms of the rows from `first` on to the gradients, for one block of keys."""
        a, r, spec = self.attention, self.r, self.spec
        e, f = self.width("e"), self.width("f")
        read_rows(r, self.at["q"], first, rows, a.size("e"), buffers["q"], e, spec.scale)
        read_rows(r, self.at["g"], first, rows, a.size("f"), buffers["g"], f)
        fill_panel(r, buffers["q"], rows, e)
        fill_panel(r, buffers["g"], rows, f)
        ahead = sub(first, key)
        begin: Index = 0
        if spec.causal and (self.several or may_exceed(a.size("i"), self.rows)):
            lag = arith.maxsi(index(sub(key, first)), index(0))
            begin = mul(arith.divui(lag, index(r.mr)), r.mr)
        with loop(begin, rows, r.mr) as row:
            computed, visible_keys = keys, keys
            if spec.causal:
                visible_keys = minimum(keys, add(add(ahead, row), r.mr))
                # The matmuls below use this many keys at a time, from any row that sees the first.
                computed = minimum(keys, add(add(ahead, row), 2 * r.mr))
            self._weights(buffers, mask, dropout, first, rows, row, key, keys, computed)
            if "q" in spec.results:
                lhs = Lhs(buffers["d"], mul(row, self.pitch), self.pitch, 1)
                keys_of, to = Rhs(buffers["k"], 0, e), buffers["to_q"]
                own_end = add(add(ahead, row), 1) if spec.causal else None
                self._multiply_rows(lhs, keys_of, (0, visible_keys), to, row, "e", own_end=own_end)
        if "q" in spec.results:
            rows_of_q = (r, buffers["to_q"], e, (begin, rows), a.size("e"), self.at["to_q"], first)
            write_rows(*rows_of_q, accumulate=self._adds_rows)
        with loop(0, keys, r.mr) as row:
            since: Index = 0
            if spec.causal:
                since = arith.maxsi(index(sub(row, ahead)), index(0))
            for name, weights, rhs, role in (("k", "d", "q", "e"), ("v", "p", "g", "f")):
                if name in spec.results:
                    lhs = Lhs(buffers[weights], row, 1, self.pitch)
                    target = buffers[f"to_{name}"]
                    source = Rhs(buffers[rhs], 0, self.width(role))
                    self._multiply_rows(lhs, source, (since, rows), target, row, role, add_to=True)

    def _multiply_rows(
        self,
        lhs: Lhs,
        rhs: Rhs,
        k: tuple[Index, Index],
        buffer: ir.Value,
        row: Index,
        role: str,
        *,
        add_to: bool = False,
        own_end: Index | None = None,
    ) -> None:
        """Set rows of a buffer, from `row` on, to left times right, or add it to them."""
        r, width = self.r, self.width(role)
        nv, _ = r.columns(self.attention.size(role))
        with blocks(0, width, nv * r.vl, width) as (column, _):
            start = add(mul(row, width), column)
            before = load_tile(r, buffer, start, width, nv) if add_to else None
            part = Rhs(rhs.buffer, add(rhs.start, column), rhs.step)
            tile = multiply(r, lhs, part, k, nv, before, own_end)
            store_tile(r, tile, buffer, start, width, nv)

    def _weights(
        self,
        buffers: dict[str, Any],
        mask: ScoreMasks,
        dropout: WeightDropout | None,
        first: Index,
        rows: Index,
        row: Index,
        key: Index,
        keys: Index,
        computed: Index,
    ) -> None:
        """p and d of the panel at `row`, for `computed` keys; zeros where a row sees no key."""
        a, r = self.attention, self.r
        for lhs_name, rhs_name, role, to in (("q", "kt", "e", "p"), ("g", "vt", "f", "d")):
            size, width = a.size(role), self.width(role)
            operand = Lhs(buffers[lhs_name], mul(row, width), width, 1)
            with loop(0, computed, r.nr) as column:
                panel = Rhs(buffers[rhs_name], mul(column, size), r.nr)
                tile = multiply(r, operand, panel, (0, size), r.nv)
                start = add(mul(row, self.pitch), column)
                store_tile(r, tile, buffers[to], start, self.pitch, r.nv)
        with loop(0, r.mr, 1) as i:
            limit: Index = keys
            if self.spec.causal:
                limit = minimum(keys, add(add(sub(first, key), row), add(i, 1)))
            # A row that only pads the panel uses the statistics of the last row.
            source_row = add(first, minimum(add(row, i), sub(rows, 1)))
            mask.read(source_row, key, computed)
            if dropout is not None:
                dropout.draw(source_row, key, computed)
            statistics = [
                memref.load(self.at[n].buffer, [index(self.at[n].at(source_row))])
                for n in ("logsumexp", "delta")
            ]
            shift, delta = (vector.broadcast(r.vec_type, value) for value in statistics)
            start = mul(add(row, i), self.pitch)
            with loop(0, computed, r.vl) as column:
                offset = [index(add(start, column))]
                score = mask.apply(vector.load(r.vec_type, buffers["p"], offset), column)
                weight = math.exp(arith.subf(score, shift))
                visible, zero = lanes_below(r, column, limit), splat(r.vec_type, 0.0)
                if mask.parts:
                    unmasked = arith.cmpf(arith.CmpFPredicate.UNE, score, splat(r.vec_type, -inf))
                    visible = arith.andi(visible, unmasked)
                weight = arith.select(visible, weight, zero)
                kept = None if dropout is None else dropout.keeps(key, column)
                used = weight if kept is None else arith.select(kept, weight, zero)
                vector.store(used, buffers["p"], offset)
                slope = vector.load(r.vec_type, buffers["d"], offset)
                if dropout is not None:
                    scale = splat(r.vec_type, kept_scale(dropout.p))
                    slope = arith.select(kept, arith.mulf(slope, scale), zero)
                towards = arith.subf(slope, delta)
                # The gradient of a masked value may be NaN.
                change = arith.select(visible, arith.mulf(weight, towards), zero)
                vector.store(change, buffers["d"], offset)
