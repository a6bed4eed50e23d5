"""The tile of a block number: grouped tile order, and the positions of the enclosing loops.

Both GEMM kernels, by `mma.sync` and by `wgmma`, visit their tiles in this order.
"""

from __future__ import annotations

from typing import Any

from nova.core.sizes import is_multiple
from nova.ir.bindings import arith
from nova.ir.index import Index, add, divide, index, minimum, modulo, mul, sub


def tile_position(plan: Any, number: Index) -> tuple[tuple[Index, Index], tuple[Index, ...]]:
    """Row and column of the tile with a number, and the positions of the enclosing loops.

    Tiles are visited in groups of rows, each column by column (grouped tile order), so that
    concurrent blocks share rows of A and columns of B in the L2 cache.
    """
    (rows, columns), group = plan.tiles, plan.group
    within: Index = modulo(number, rows * columns)
    batch_number: Index = divide(number, rows * columns)
    enclosing: list[Index] = []
    for loop in reversed(plan.gemm.enclosing):
        if loop.parallel:
            enclosing.insert(0, modulo(batch_number, loop.size))
            batch_number = divide(batch_number, loop.size)
        else:
            enclosing.insert(0, 0)
    first = mul(divide(within, group * columns), group)
    within = modulo(within, group * columns)
    if is_multiple(rows, group):
        tile = add(first, modulo(within, group)), divide(within, group)
    else:
        high = index(minimum(sub(rows, first), group))
        within = index(within)
        tile = add(first, arith.remui(within, high)), arith.divui(within, high)
    return tile, tuple(enclosing)
