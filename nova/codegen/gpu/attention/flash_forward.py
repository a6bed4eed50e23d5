"""FlashAttention-2 forward on a GPU, without the matrix of scores: code of a block of rows of q.

Input: an `AttentionBlock`. Output: code. `kernel.py` calls `emit_forward`.

The loop visits keys and values in blocks. A warp has whole rows of scores in its registers: their
maxima and sums need no other warp. Both are rescaled from block to block (online softmax, Milakov &
Gimelshein), and so is the result, which stays in registers until the end. With `causal`, a block
stops at the last key that its last row may see; of packed sequences, it visits the blocks with keys
of its segments.
"""

from __future__ import annotations

from functools import partial, reduce
from math import inf

from nova.codegen.common.builder import BITS
from nova.codegen.gpu.attention.block import AttentionBlock
from nova.codegen.gpu.attention.dropout import WeightDropout
from nova.codegen.gpu.attention.masked_nonfinite import multiply_seen
from nova.codegen.gpu.attention.segments import SegmentRange, block_range
from nova.codegen.gpu.block_ops import reduce_lanes
from nova.codegen.gpu.gemm.fma import PlainCore
from nova.codegen.gpu.gemm.mma import Fragments, TensorCore
from nova.codegen.gpu.ptx_ops import (
    GLOBAL,
    barrier,
    commit_copies,
    global_base,
    store,
    wait_for_copies,
    warp_barrier,
)
from nova.ir.bindings import arith, ir, math, scf
from nova.ir.index import Index, add, compare, divide_up, minimum, modulo, mul, offset_by

_MAX_FRAGMENT_REGISTERS = 32
"""Registers of a thread that may hold its part of q."""


def emit_forward(block: AttentionBlock, number: Index) -> None:
    """Emit the block with this number among those of one point of the batch."""
    plan, attention = block.plan, block.attention
    first = mul(number, plan.rows)
    q, k, v = (block.tile(name) for name in "qkv")
    weights = plan.tile("i", "j")
    ring = q.nbytes
    weights_offset = ring + plan.stages * (k.nbytes + v.nbytes)
    scores, values = block.core(q, k), block.core(weights, v.transposed)
    dropout = WeightDropout.make(attention, block.matrices)
    segments = SegmentRange.of_tile(attention, block.matrices, "i", first, plan.rows)
    block.copies("q").copy(block.shared, first, 0)
    commit_copies()
    rows = len(scores.rows())
    zero, unit = block.number(0.0), block.number(block.factor)
    start = [block.number(-inf)] * rows + [zero] * rows + values.zeros()
    fragments: list[Fragments] = []

    def begin() -> None:
        """Keep the fragments of q in registers over all iterations, if they are few."""
        if isinstance(scores, TensorCore) and plan.fragment_registers <= _MAX_FRAGMENT_REGISTERS:
            wait_for_copies(1)
            barrier()
            fragments.extend(scores.load_fragments(block.shared))

    def multiply(buffer: Index) -> list[ir.Value]:
        rhs = offset_by(block.shared, buffer, ring)
        if isinstance(scores, TensorCore) and fragments:
            return scores.stage_from_registers(fragments, rhs, scores.zeros())
        return scores.stage(block.shared, rhs, scores.zeros())

    def add_values(
        key: Index, buffer: Index, new_weights: list[ir.Value], out: list[ir.Value]
    ) -> list[ir.Value]:
        rhs = offset_by(block.shared, buffer, ring + k.nbytes)
        if isinstance(scores, TensorCore) and isinstance(values, TensorCore):
            lhs = scores.as_lhs(new_weights)
            multiply_values = partial(values.stage_from_registers, lhs, rhs, out)
        else:
            assert isinstance(values, PlainCore)
            # A warp reads only the weights that it wrote itself.
            warp_barrier()
            block.store_weights(scores, new_weights, weights_offset)
            warp_barrier()
            multiply_values = partial(
                values.stage, offset_by(block.shared, weights_offset), rhs, out
            )
        return multiply_seen(block, values, rhs, first, key, multiply_values)

    def body(key: Index, buffer: Index, carried: list[ir.Value]) -> list[ir.Value]:
        row_maxes, sums, out = carried[:rows], carried[rows : 2 * rows], carried[2 * rows :]
        kept = dropout.draw(scores, first, key) if dropout else None
        is_inner = segments.covers(key, plan.keys) if segments else None
        block_scores = block.scores(scores, multiply(buffer), first, key, is_inner)
        columns = range(len(scores.columns()))
        new_weights, new_maxes, new_sums = list(block_scores), [], []
        for i in range(rows):
            numbers = [scores.number(i, j) for j in columns]
            row_max = reduce(_maximum, (block_scores[n] for n in numbers), row_maxes[i])
            (row_max,) = reduce_lanes([row_max], lambda a, b: _maximum(b, a), scores.row_lanes)
            is_empty = arith.cmpf(arith.CmpFPredicate.OEQ, row_max, block.number(-inf))
            shift = arith.mulf(arith.select(is_empty, zero, row_max), unit)
            rescale = block.weight(row_maxes[i], shift)
            total = arith.mulf(sums[i], rescale)
            for n in numbers:
                new_weights[n] = block.weight(block_scores[n], shift)
                total = arith.addf(total, new_weights[n])
            for j in range(len(values.columns())):
                n = values.number(i, j)
                out[n] = arith.mulf(out[n], rescale)
            new_maxes.append(row_max)
            new_sums.append(total)
        if kept is not None:
            new_weights = kept.keep(new_weights)
        return [*new_maxes, *new_sums, *add_values(key, buffer, new_weights, out)]

    low, count = block_range(segments, plan.keys, plan.sizes.j)
    if attention.spec.causal:
        count = minimum(count, divide_up(add(first, plan.rows), plan.keys))
    totals_and_out = block.pipelined_loop(
        "kv", (ring, ring + k.nbytes), (low, count), plan.keys, start, body, begin
    )
    row_maxes, sums, out = (
        totals_and_out[:rows],
        totals_and_out[rows : 2 * rows],
        totals_and_out[2 * rows :],
    )
    totals = [_sum_lanes(value, scores.row_lanes) for value in sums]
    unit_value = block.number(1.0)
    empty = [arith.cmpf(arith.CmpFPredicate.OEQ, total, zero) for total in totals]
    if "out" in attention.spec.results:
        scale = unit_value if dropout is None else block.number(dropout.scale)
        factors = [
            arith.select(is_empty, zero, arith.divf(scale, total))
            for is_empty, total in zip(empty, totals, strict=True)
        ]
        block.write("out", values, out, first, lambda i: factors[i])
    if "logsumexp" in attention.spec.results:
        # All lanes of a row have it, and the first one writes it.
        lane = modulo(block.thread, scores.row_lanes)
        for i, tile_row in enumerate(scores.rows()):
            row = add(first, tile_row)
            scaled_max = arith.mulf(row_maxes[i], block.number(block.factor / block.unit))
            value = arith.addf(scaled_max, math.log(arith.select(empty[i], unit_value, totals[i])))
            value = arith.select(empty[i], block.number(inf), value)
            is_first_lane = compare(arith.CmpIPredicate.eq, lane, 0)
            exists = compare(arith.CmpIPredicate.slt, row, plan.sizes.i)
            only = scf.IfOp(arith.andi(is_first_lane, exists))
            with ir.InsertionPoint(only.then_block):
                matrix, size = block.matrices["to_logsumexp"], BITS[attention.type] // 8
                address = add(global_base(matrix.buffer), mul(matrix.at(row), size))
                store(value, address, GLOBAL, size)
                scf.YieldOp([])


def _maximum(a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger one; NaN if either is, and then all weights of the row are NaN."""
    return arith.maximumf(a, b)


def _sum_lanes(value: ir.Value, lanes: int) -> ir.Value:
    """The sum over the lanes of a row, in each of them."""
    return reduce_lanes([value], arith.addf, lanes)[0]
