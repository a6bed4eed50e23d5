"""FlashAttention-2 forward on a GPU, without the matrix of scores: code of a block of rows of q.

Input: an `AttentionBlock`. Output: code. `kernel.py` calls `emit_forward`.

The loop visits keys and values in blocks. A warp has whole rows of scores in its registers: their
maxima and sums need no other warp. Both are rescaled from block to block (online softmax, Milakov &
Gimelshein), and so is the result, which stays in registers until the end. With `causal`, a block
stops at the last key that its last row may see.
"""

from __future__ import annotations

from functools import partial, reduce
from math import inf

from nova.codegen.common.builder import BITS
from nova.codegen.gpu.attention.block import AttentionBlock
from nova.codegen.gpu.attention.hidden import multiply_seen
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

_MOST_HELD = 32
"""Registers of a thread that may hold its part of q."""


def emit_forward(block: AttentionBlock, number: Index) -> None:
    """Emit the block with this number among those of one point of the batch."""
    plan, attention = block.plan, block.attention
    first = mul(number, plan.rows)
    q, k, v = (block.tile(name) for name in "qkv")
    weights = plan.tile("i", "j")
    ring = q.nbytes
    kept = ring + plan.stages * (k.nbytes + v.nbytes)
    scores, values = block.core(q, k), block.core(weights, v.turned)
    block.stager("q").copy(block.shared, first, 0)
    commit_copies()
    rows = len(scores.rows())
    zero, unit = block.number(0.0), block.number(block.factor)
    start = [block.number(-inf)] * rows + [zero] * rows + values.zeros()
    held: list[Fragments] = []

    def begin() -> None:
        """Keep the fragments of q in registers over all iterations, if they are few."""
        if isinstance(scores, TensorCore) and plan.held <= _MOST_HELD:
            wait_for_copies(1)
            barrier()
            held.extend(scores.hold(block.shared))

    def multiply(buffer: Index) -> list[ir.Value]:
        right = offset_by(block.shared, buffer, ring)
        if isinstance(scores, TensorCore) and held:
            return scores.stage_held(held, right, scores.zeros())
        return scores.stage(block.shared, right, scores.zeros())

    def add_values(
        key: Index, buffer: Index, made: list[ir.Value], out: list[ir.Value]
    ) -> list[ir.Value]:
        right = offset_by(block.shared, buffer, ring + k.nbytes)
        if isinstance(scores, TensorCore) and isinstance(values, TensorCore):
            left = scores.as_left(made)
            product = partial(values.stage_held, left, right, out)
        else:
            assert isinstance(values, PlainCore)
            # A warp reads only the weights that it wrote itself.
            warp_barrier()
            block.keep(scores, made, kept)
            warp_barrier()
            product = partial(values.stage, offset_by(block.shared, kept), right, out)
        return multiply_seen(block, values, right, first, key, product)

    def body(key: Index, buffer: Index, carried: list[ir.Value]) -> list[ir.Value]:
        tops, sums, out = carried[:rows], carried[rows : 2 * rows], carried[2 * rows :]
        found = block.scores(scores, multiply(buffer), first, key)
        columns = range(len(scores.columns()))
        made, new_tops, new_sums = list(found), [], []
        for i in range(rows):
            numbers = [scores.number(i, j) for j in columns]
            top = reduce(_larger, (found[n] for n in numbers), tops[i])
            (top,) = reduce_lanes([top], lambda a, b: _larger(b, a), scores.row_lanes)
            nothing = arith.cmpf(arith.CmpFPredicate.OEQ, top, block.number(-inf))
            shift = arith.mulf(arith.select(nothing, zero, top), unit)
            fade = block.weight(tops[i], shift)
            total = arith.mulf(sums[i], fade)
            for n in numbers:
                made[n] = block.weight(found[n], shift)
                total = arith.addf(total, made[n])
            for j in range(len(values.columns())):
                n = values.number(i, j)
                out[n] = arith.mulf(out[n], fade)
            new_tops.append(top)
            new_sums.append(total)
        return [*new_tops, *new_sums, *add_values(key, buffer, made, out)]

    count: Index = -(-plan.sizes.j // plan.keys)
    if attention.kind.causal:
        count = minimum(count, divide_up(add(first, plan.rows), plan.keys))
    done = block.passing("kv", (ring, ring + k.nbytes), (0, count), plan.keys, start, body, begin)
    tops, sums, out = done[:rows], done[rows : 2 * rows], done[2 * rows :]
    totals = [_summed(value, scores.row_lanes) for value in sums]
    one = block.number(1.0)
    empty = [arith.cmpf(arith.CmpFPredicate.OEQ, total, zero) for total in totals]
    if "out" in attention.kind.results:
        factors = [
            arith.select(nothing, zero, arith.divf(one, total))
            for nothing, total in zip(empty, totals, strict=True)
        ]
        block.write("out", values, out, first, lambda i: factors[i])
    if "logsumexp" in attention.kind.results:
        # All lanes of a row have it, and the first one writes it.
        lane = modulo(block.thread, scores.row_lanes)
        for i, place in enumerate(scores.rows()):
            row = add(first, place)
            known = arith.mulf(tops[i], block.number(block.factor / block.unit))
            value = arith.addf(known, math.log(arith.select(empty[i], one, totals[i])))
            value = arith.select(empty[i], block.number(inf), value)
            mine = compare(arith.CmpIPredicate.eq, lane, 0)
            exists = compare(arith.CmpIPredicate.slt, row, plan.sizes.i)
            only = scf.IfOp(arith.andi(mine, exists))
            with ir.InsertionPoint(only.then_block):
                matrix, size = block.matrices["to_logsumexp"], BITS[attention.type] // 8
                address = add(global_base(matrix.buffer), mul(matrix.at(row), size))
                store(value, address, GLOBAL, size)
                scf.YieldOp([])


def _larger(a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger one; NaN if either is, and then all weights of the row are NaN."""
    return arith.maximumf(a, b)


def _summed(value: ir.Value, lanes: int) -> ir.Value:
    """The sum over the lanes of a row, in each of them."""
    return reduce_lanes([value], arith.addf, lanes)[0]
