"""FlashAttention-2 backward on a GPU: separate dQ and dK/dV blocks, no atomics.

Input: an `AttentionBlock`. Output: code. `kernel.py` calls `emit_gradient`.

Weights p and d = p (g v^T - delta) are recomputed from the logsumexp of each row, which the forward
pass stored: dv = p^T g, dk = scale d^T q, dq = scale d k. A block has rows of k and v and iterates
over rows of q and g, or vice versa, so that no two blocks add to the same elements. The blocks of
FlashAttention-2 are all of the first sort, and add to dq with atomics.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from nova.codegen.gpu.attention.block import AttentionBlock, read_number
from nova.codegen.gpu.attention.dropout import WeightDropout
from nova.codegen.gpu.attention.segments import SegmentRange, block_range
from nova.codegen.gpu.gemm.epilogue import Core
from nova.codegen.gpu.ptx_ops import barrier
from nova.core.sizes import is_multiple
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, add, divide, divide_up, index, minimum, mul, offset_by


def emit_gradient(block: AttentionBlock, role: str, number: Index) -> None:
    """Emit a block with rows `role`, by its number among those of a point of the batch."""
    plan, spec = block.plan, block.attention.spec
    first = mul(number, plan.extent(role))
    fixed, passing = ("kv", "qg") if role == "j" else ("qg", "kv")
    tiles = {name: block.tile(name) for name in "gqkv"}
    offsets: dict[str, int] = {}
    end = 0
    for name in fixed:
        offsets[name] = end
        end += tiles[name].nbytes
    ring = end
    for name in passing:
        offsets[name] = end
        end += tiles[name].nbytes
    end = ring + plan.stages * (end - ring)
    weight_offsets = {"d": end, "p": end + plan.weights}
    weights = plan.tile("i", "j")
    for name in fixed:
        block.copies(name).copy(offset_by(block.shared, offsets[name]), first, 0)
    scores, towards = block.core(tiles["q"], tiles["k"]), block.core(tiles["g"], tiles["v"])
    # Result -> its weights, and the rows they are multiplied by.
    uses = {"q": ("d", "k")} if role == "i" else {"k": ("d", "q"), "v": ("p", "g")}
    matmuls = {name: pair for name, pair in uses.items() if name in spec.results}
    lhs = weights if role == "i" else weights.transposed
    cores = {name: block.core(lhs, tiles[pair[1]].transposed) for name, pair in matmuls.items()}
    start = [value for core in cores.values() for value in core.zeros()]
    dropout = WeightDropout.make(block.attention, block.matrices)
    segments = SegmentRange.of_tile(block.attention, block.matrices, role, first, plan.extent(role))
    loop_role = "i" if role == "j" else "j"
    size = plan.extent(loop_role)

    def body(passed: Index, buffer: Index, carried: list[ir.Value]) -> list[ir.Value]:
        row, key = (first, passed) if role == "i" else (passed, first)

        def tile_address(name: str) -> Index:
            return offset_by(block.shared, *((buffer,) if name in passing else ()), offsets[name])

        # Before the matmuls that need registers for scores and slopes.
        kept = dropout.draw(scores, row, key) if dropout else None
        scores_sums = scores.stage(tile_address("q"), tile_address("k"), scores.zeros())
        slopes = towards.stage(tile_address("g"), tile_address("v"), towards.zeros())
        if kept and dropout:
            slopes = kept.keep(slopes, dropout.scale)
        is_inner = segments.covers(passed, size) if segments else None
        p, d = _weights(block, scores, scores_sums, slopes, row, key, is_inner)
        if kept:
            p = kept.keep(p)
        # All warps have begun this iteration: none reads the weights of the previous one.
        block.store_weights(scores, d, weight_offsets["d"])
        if "v" in matmuls:
            block.store_weights(scores, p, weight_offsets["p"])
        barrier()
        results: list[ir.Value] = []
        for name, core in cores.items():
            count = len(core.zeros())
            sums, carried = carried[:count], carried[count:]
            weights_name, rows_name = matmuls[name]
            results += core.stage(
                offset_by(block.shared, weight_offsets[weights_name]), tile_address(rows_name), sums
            )
        return results

    low, high = block_range(segments, size, plan.sizes.of(loop_role))
    if spec.causal and role == "i":
        high = minimum(high, divide_up(add(first, plan.rows), size))
    elif spec.causal:
        reached = minimum(divide(first, size), high)
        low = arith.maxsi(index(low), index(reached)) if segments else reached
    tile_offsets = [offsets[name] for name in passing]
    totals = block.pipelined_loop(passing, tile_offsets, (low, high), size, start, body)
    scale = block.number(spec.scale)
    factors: dict[str, Callable[[int], ir.Value]] = {"q": lambda _: scale, "k": lambda _: scale}
    if dropout is not None:
        kept_scale = block.number(dropout.scale)
        factors["v"] = lambda _: kept_scale
    for name, core in cores.items():
        count = len(core.zeros())
        sums, totals = totals[:count], totals[count:]
        block.write(name, core, sums, first, factors.get(name))


def _weights(
    block: AttentionBlock,
    core: Core,
    scores_sums: list[ir.Value],
    slopes: list[ir.Value],
    first: Index,
    key: Index,
    is_inner: ir.Value | None,
) -> tuple[list[ir.Value], list[ir.Value]]:
    """p and d of a block of rows and keys; zeros where a row does not see a key."""
    sizes, type_ = block.plan.sizes, block.attention.type
    scores = block.scores(core, scores_sums, first, key, is_inner)
    p, d = list(scores), list(slopes)
    for i, tile_row in enumerate(core.rows()):
        row = add(first, tile_row)
        # A row that only pads the tile uses the statistics of the last row.
        is_padded = not is_multiple(sizes.i, block.plan.rows)
        statistics_row = minimum(row, sizes.i - 1) if is_padded else row
        shift, delta = (
            read_number(block.matrices[name], statistics_row, type_)
            for name in ("logsumexp", "delta")
        )
        shift = arith.mulf(shift, block.number(block.unit))
        for j in range(len(core.columns())):
            n = core.number(i, j)
            p[n] = block.weight(scores[n], shift)
            change = arith.mulf(p[n], arith.subf(slopes[n], delta))
            # The gradient of a masked value may be NaN.
            hidden = arith.cmpf(arith.CmpFPredicate.OEQ, scores[n], block.number(-inf))
            d[n] = arith.select(hidden, block.number(0.0), change)
    return p, d
