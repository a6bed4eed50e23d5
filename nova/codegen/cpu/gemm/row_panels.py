"""Strips: the rows of a product's tile that are finished before the next ones are begun.

In: the nests of a kernel, its product and its tile. Out: `RowPanels`, where what is done with the
results of a product is worth doing while they are in the cache. `schedule.py` asks
`find_row_panels`, and
emits a tile by `emit_row_panels` of packed_gemm.py then: the columns of B are packed once for a
tile,
and for every strip its rows of A are packed, multiplied, and the ops behind the product run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nova.codegen.common.builder import BITS
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.match_contraction import Product
from nova.codegen.cpu.gemm.blocking import with_unit_columns
from nova.codegen.cpu.gemm.packed_gemm import row_panels_of
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root

_TOGETHER = 16 << 10
"""Bytes of rows that all ops behind a product see before they go on: less than the L1 cache."""


@record
class RowPanels:
    """How a tile is cut: `tile` is a strip's part of the grid, `loop` the one that it cuts.

    `rest` are the ops behind the product, which go through `together` rows at a time.
    """

    op: Any
    loop: int
    tile: tuple[int, ...]
    rest: tuple[Any, ...]
    together: int


def find_row_panels(
    target: Target,
    nests: Mapping[Any, LoopNest],
    products: Mapping[Any, Product],
    skipped: Collection[Any],
    grid: Sequence[int],
    tile: Sequence[int],
) -> RowPanels | None:
    """The strips of a kernel that is one product and what is done with its results; None if not.

    Also None where a tile has but one strip, or where the product has a schedule of another kind.
    """
    active = [op for op in nests if op not in skipped]
    if len(products) != 1 or len(active) < 2 or active[0] not in products:
        return None
    op, *rest = active
    product = products[op]
    swapped = with_unit_columns(product.spec) is not product.spec
    loop, other = (product.n, product.m) if swapped else (product.m, product.n)
    if any(nests[op].loops[i].size > 1 for i in product.around):
        return None
    if loop >= len(grid) or other >= len(grid):
        return None
    rows = row_panels_of(target, product.spec, tile[loop], tile[other])
    if rows is None or rows >= tile[loop]:
        return None
    strip = tuple(rows if i == loop else size for i, size in enumerate(tile))
    row = tile[other] * BITS[product.spec.acc_type] // 8 * _streams(rest)
    together = min(max(1, _TOGETHER // row), rows)
    return RowPanels(op, loop, strip, tuple(rest), together)


def _streams(ops: Sequence[Any]) -> int:
    """How many buffers the ops read and write."""
    roots = {
        buffer_root(value)
        for op in ops
        for value in op.operands
        if isinstance(value.type, ir.MemRefType)
    }
    return max(1, len(roots))
