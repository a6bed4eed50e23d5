"""Row panels: rows of a GEMM tile whose epilogue runs before the next rows are computed.

Input: the loop nests of a kernel, its GEMM and its tile. Output: `RowPanels`, where it pays to run
the epilogue while the results of the GEMM are in the cache. `schedule.py` calls `find_row_panels`,
and then emits a tile by `emit_kernel_row_panels`: the columns of B are packed once per
tile; for every row panel, its rows of A are packed and multiplied, and then the epilogue runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nova.codegen.common.builder import BITS
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.match_contraction import LoopContraction, with_unit_columns
from nova.codegen.cpu.gemm.packed_gemm import emit_row_panels, row_panels_of
from nova.codegen.cpu.loops import Range, index
from nova.codegen.cpu.tile_local_buffers import first_point
from nova.core.records import record
from nova.core.sizes import Size
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, scf
from nova.ir.buffers import buffer_root
from nova.ir.symbolic.size_table import is_number

if TYPE_CHECKING:
    from nova.codegen.cpu.schedule import KernelSchedule

_TOGETHER = 16 << 10
"""Bytes of rows that all ops of an epilogue process before the next rows: less than L1."""


@record
class RowPanels:
    """How a tile is cut: `tile` is the part of the grid of one row panel, `loop` the loop it cuts.

    `epilogue` are the ops of the epilogue, which process `together` rows at a time.
    """

    op: Any
    loop: int
    tile: tuple[int, ...]
    epilogue: tuple[Any, ...]
    together: int


def find_row_panels(
    target: Target,
    nests: Mapping[Any, LoopNest],
    contractions: Mapping[Any, LoopContraction],
    skipped: Collection[Any],
    grid: Sequence[Size],
    tile: Sequence[int],
) -> RowPanels | None:
    """The row panels of a kernel that consists of one GEMM and its epilogue; None for others.

    Also None where a tile has a single row panel, or where the GEMM has another schedule. A
    symbolic number of rows may be small: its columns of B are packed while they are used.
    """
    active = [op for op in nests if op not in skipped]
    if len(contractions) != 1 or len(active) < 2 or active[0] not in contractions:
        return None
    op, *epilogue = active
    contraction = contractions[op]
    swapped = with_unit_columns(contraction.spec) is not contraction.spec
    loop, column_loop = (
        (contraction.n, contraction.m) if swapped else (contraction.m, contraction.n)
    )
    if any(not is_number(nests[op].loops[i].size, 0, 1) for i in contraction.enclosing):
        return None
    if loop >= len(grid) or column_loop >= len(grid) or not isinstance(grid[loop], int):
        return None
    rows = row_panels_of(target, contraction.spec, tile[loop], tile[column_loop])
    if rows is None or rows >= tile[loop]:
        return None
    panel_tile = tuple(rows if i == loop else size for i, size in enumerate(tile))
    row = tile[column_loop] * BITS[contraction.spec.acc_type] // 8 * _streams(epilogue)
    together = min(max(1, _TOGETHER // row), rows)
    return RowPanels(op, loop, panel_tile, tuple(epilogue), together)


def _streams(ops: Sequence[Any]) -> int:
    """The number of buffers that the ops read and write."""
    roots = {
        buffer_root(value)
        for op in ops
        for value in op.operands
        if isinstance(value.type, ir.MemRefType)
    }
    return max(1, len(roots))


def emit_kernel_row_panels(
    schedule: KernelSchedule, panels: RowPanels, ranges: list[Range | None]
) -> None:
    """Emit one GEMM, and after each of its row panels the epilogue."""
    nest, contraction = schedule.nests[panels.op], schedule.contractions[panels.op]
    inner = with_unit_columns(contraction.spec)
    column_loop = contraction.m if inner is not contraction.spec else contraction.n

    def span(loop: int) -> Range:
        return ranges[loop] or (index(0), index(schedule.grid[loop]))

    def part(low: Any, high: Any) -> list[Range | None]:
        return [(low, high) if i == panels.loop else r for i, r in enumerate(ranges)]

    def c_offset(row: Any) -> Any:
        start = index(nest.offsets[2])
        if 2 in schedule.tile_local.operands(nest):
            first = first_point(nest, 2, part(row, None))
            start = arith.subi(start, first) if first is not None else start
        (ms, ns), (low, _) = inner.c_strides, span(column_loop)
        start = arith.addi(start, arith.muli(row, index(ms)))
        return arith.addi(start, arith.muli(low, index(ns)))

    def emit_epilogue(low: Any, high: Any) -> None:
        if len(panels.epilogue) == 1:
            schedule.emit_epilogue(panels.epilogue, part(low, high))
            return
        nested = scf.ForOp(low, high, index(panels.together))
        with ir.InsertionPoint(nested.body):
            row = nested.induction_variable
            end = arith.addi(row, index(panels.together))
            # A row panel may end early, with its tile or with the grid.
            tiles = (panels.tile, schedule.block_tile, schedule.tile, schedule.grid)
            sizes = (t[panels.loop] for t in tiles)
            if any(not isinstance(n, int) or n % panels.together for n in sizes):
                end = arith.minui(end, high)
            schedule.emit_epilogue(panels.epilogue, part(row, end), part(low, high))
            scf.YieldOp([])

    with panels.op.location:
        a, b, c = (schedule.flat_buffer(v) for v in panels.op.operands)
        emit_row_panels(
            schedule.target,
            contraction.spec,
            (a, b, c),
            (index(nest.offsets[0]), index(nest.offsets[1]), c_offset),
            span(panels.loop),
            span(column_loop),
            (panels.tile[panels.loop], panels.tile[column_loop]),
            emit_epilogue,
        )
