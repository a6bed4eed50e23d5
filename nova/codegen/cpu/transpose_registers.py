"""Transposes a square of vectors in registers; the packing functions call `transpose`."""

from __future__ import annotations

from collections.abc import Sequence

from nova.ir.bindings import ir, vector


def transpose(rows: Sequence[ir.Value], bits: int) -> list[ir.Value]:
    """The transpose of a square of n vectors of n lanes, in n*log2(n) two-operand shuffles.

    Inside 128-bit blocks the steps are the interleavings that SSE, AVX and NEON have as one
    instruction; between blocks they exchange whole blocks.
    """
    n = len(rows)
    per_block = min(n, 128 // bits)
    values, group = list(rows), 1
    while group < per_block:
        values = _interleave(values, group, per_block)
        group *= 2
    # Interleaving leaves the columns of a block in bit-reversed order.
    digits = per_block.bit_length() - 1
    order = [int(f"{q:0{digits}b}"[::-1], 2) if digits else 0 for q in range(per_block)]
    values = [values[p + q] for p in range(0, n, per_block) for q in order]
    while group < n:
        values = _exchange(values, group)
        group *= 2
    return values


def _interleave(values: list[ir.Value], group: int, per_block: int) -> list[ir.Value]:
    """Interleave rows at distance `group` by runs of `group` lanes inside each 128-bit block."""
    n, half = len(values), per_block // 2
    result = list(values)
    for first in range(n):
        if first & group:
            continue
        for upper in (0, 1):
            mask: list[int] = []
            for block in range(upper * half, n, per_block):
                for run in range(block, block + half, group):
                    mask += [*range(run, run + group), *range(n + run, n + run + group)]
            pair = values[first], values[first | group]
            result[first | (group * upper)] = vector.shuffle(*pair, mask)
    return result


def _exchange(values: list[ir.Value], group: int) -> list[ir.Value]:
    """The butterfly step of a transpose: swap off-diagonal runs of `group` lanes."""
    n = len(values)
    result: list[ir.Value] = list(values)
    for first in range(n):
        if first & group:
            continue
        low, high = values[first], values[first | group]
        keep = [lane if not lane & group else n + lane - group for lane in range(n)]
        move = [lane + group if not lane & group else n + lane for lane in range(n)]
        result[first] = vector.shuffle(low, high, keep)
        result[first | group] = vector.shuffle(low, high, move)
    return result
