"""FlashAttention-2 backward on a GPU: the code of a block of rows of q, or of k and v.

Input: an `AttentionBlock`. Output: code. `kernel.py` calls `emit_gradient`.

Weights p and d = p (g v^T - delta) are recomputed from the logsumexp of each row, which the forward
pass stored: dv = p^T g, dk = d^T q, dq = d k. Blocks with rows of k and v iterate over rows of q
and g, and vice versa, so that no two blocks add to the same elements.
"""

from __future__ import annotations

from math import inf

from nova.codegen.gpu.attention.block import AttentionBlock, read_number
from nova.codegen.gpu.gemm.epilogue import Core
from nova.codegen.gpu.ptx_ops import barrier
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, add, divide, divide_up, minimum, mul, offset_by


def emit_gradient(block: AttentionBlock, role: str, number: Index) -> None:
    """Emit a block with rows `role`, by its number among those of a point of the batch."""
    plan, kind = block.plan, block.attention.kind
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
    kept = {"d": end, "p": end + plan.weights}
    weights = plan.tile("i", "j")
    for name in fixed:
        block.stager(name).copy(offset_by(block.shared, offsets[name]), first, 0)
    scores, towards = block.core(tiles["q"], tiles["k"]), block.core(tiles["g"], tiles["v"])
    # Result -> its weights, and the rows they are multiplied by.
    uses = {"q": ("d", "k")} if role == "i" else {"k": ("d", "q"), "v": ("p", "g")}
    wanted = {name: pair for name, pair in uses.items() if name in kind.results}
    left = weights if role == "i" else weights.turned
    cores = {name: block.core(left, tiles[pair[1]].turned) for name, pair in wanted.items()}
    start = [value for core in cores.values() for value in core.zeros()]

    def body(passed: Index, buffer: Index, carried: list[ir.Value]) -> list[ir.Value]:
        row, key = (first, passed) if role == "i" else (passed, first)

        def place(name: str) -> Index:
            return offset_by(block.shared, *((buffer,) if name in passing else ()), offsets[name])

        products = scores.stage(place("q"), place("k"), scores.zeros())
        slopes = towards.stage(place("g"), place("v"), towards.zeros())
        p, d = _weights(block, scores, products, slopes, row, key)
        # All warps have begun this iteration: none reads the weights of the previous one.
        block.keep(scores, d, kept["d"])
        if "v" in wanted:
            block.keep(scores, p, kept["p"])
        barrier()
        made: list[ir.Value] = []
        for name, core in cores.items():
            count = len(core.zeros())
            sums, carried = carried[:count], carried[count:]
            which, other = wanted[name]
            made += core.stage(offset_by(block.shared, kept[which]), place(other), sums)
        return made

    other = "i" if role == "j" else "j"
    size = plan.extent(other)
    low: Index = 0
    high: Index = -(-plan.sizes.of(other) // size)
    if kind.causal and role == "i":
        high = minimum(high, divide_up(add(first, plan.rows), size))
    elif kind.causal:
        low = minimum(divide(first, size), high)
    places = [offsets[name] for name in passing]
    done = block.passing(passing, places, (low, high), size, start, body)
    scale = block.number(kind.scale)
    for name, core in cores.items():
        count = len(core.zeros())
        sums, done = done[:count], done[count:]
        block.write(name, core, sums, first, None if name == "v" else lambda _: scale)


def _weights(
    block: AttentionBlock,
    core: Core,
    products: list[ir.Value],
    slopes: list[ir.Value],
    first: Index,
    key: Index,
) -> tuple[list[ir.Value], list[ir.Value]]:
    """p and d of a block of rows and keys; zeros where a row does not see a key."""
    sizes, type_ = block.plan.sizes, block.attention.type
    scores = block.scores(core, products, first, key)
    p, d = list(scores), list(slopes)
    for i, place in enumerate(core.rows()):
        row = add(first, place)
        # A row that only pads the tile uses the statistics of the last row.
        known = minimum(row, sizes.i - 1) if sizes.i % block.plan.rows else row
        shift, delta = (
            read_number(block.matrices[name], known, type_) for name in ("logsumexp", "delta")
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
