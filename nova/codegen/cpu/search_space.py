"""The search space of the tuner: alternative schedules of a kernel.

Input: a kernel at the stage `buffers` and its target. Output: the decisions of its schedule, the
most promising first, each with alternatives to the default. The tuner tries one decision after
another, on top of the best overrides so far. Called by `nova.tuning`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from nova.codegen.common.match_contraction import Contraction, with_unit_columns
from nova.codegen.common.overrides import ScheduleOverrides
from nova.codegen.cpu.gemm.blocking import choose_tiling, rank_register_tiles
from nova.codegen.cpu.schedule import KernelSchedule
from nova.core.targets import Target

_REGISTER_TILES = 8
_TILE_WORK = (16_384, 262_144, 1_048_576)
_TASK_NS = (12_500, 25_000, 100_000, 200_000)


def list_variants(
    kernel: Any, target: Target, tile_work: int, threads: int
) -> list[list[ScheduleOverrides]]:
    """The decisions about a kernel, each as a list of overrides of that decision alone."""
    ops = [op.operation for op in kernel.entry_block.operations][:-1]

    def schedule(work: int) -> KernelSchedule:
        return KernelSchedule(kernel, ops, target, work)

    default = schedule(tile_work)
    decisions: list[list[ScheduleOverrides]] = []
    if default.contractions:
        largest = max((p.spec for p in default.contractions.values()), key=_size)
        decisions += _gemm_variants(target, largest)
        tiles = [*_resized(default.tile, default.grid)]
    else:
        tiles = [schedule(work).tile for work in _TILE_WORK]
    if default.core != "host":
        tiles_to_try = dict.fromkeys(tile for tile in tiles if tile and tile != default.tile)
        decisions.append([ScheduleOverrides(tile=tile) for tile in tiles_to_try])
        if threads > 1 and prod(default.grid) > 1:
            decisions.append([ScheduleOverrides(task_ns=ns) for ns in _TASK_NS])
    return [decision for decision in decisions if decision]


def merge(base: ScheduleOverrides, more: ScheduleOverrides) -> ScheduleOverrides:
    """`base` with the overrides of `more` on top."""
    return replace(base, **more.explicit)


def _size(spec: Contraction) -> int:
    return spec.m * spec.n * spec.k


def _gemm_variants(target: Target, spec: Contraction) -> list[list[ScheduleOverrides]]:
    inner = with_unit_columns(spec)
    tiling = choose_tiling(target, inner)
    tiles = rank_register_tiles(target, inner.m, inner.n, tiling.vl)[: _REGISTER_TILES + 1]
    registers = [
        ScheduleOverrides(mr=mr, nv=nv) for mr, nv in tiles if (mr, nv) != (tiling.mr, tiling.nv)
    ]
    depths = {64, 128, 192, 256, 320, 384, 512, 768, spec.k} - {tiling.kc * tiling.layout.per_word}
    rows = {tiling.mc // 4, tiling.mc // 2, tiling.mc * 2, tiling.mc * 4}
    return [
        registers,
        [ScheduleOverrides(kc=kc) for kc in sorted(depths) if kc <= spec.k],
        [ScheduleOverrides(mc=mc) for mc in sorted(rows) if 0 < mc < 2 * spec.m],
    ]


def _resized(tile: tuple[int, ...], grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tile with its sides halved and doubled, one at a time and in pairs."""
    for i, size in enumerate(tile):
        for new_size in (size // 2, size * 2, size * 4, grid[i]):
            if 0 < min(new_size, grid[i]) != size:
                resized = (*tile[:i], min(new_size, grid[i]), *tile[i + 1 :])
                yield resized
                for j in range(i + 1, len(tile)):
                    if tile[j] > 1 and new_size > size:
                        yield (*resized[:j], max(1, resized[j] // 2), *resized[j + 1 :])
