"""What the tasks of a persistent kernel wait for, by tiles, as the runtime derives it.

In: the `Tables` of a program for a device. Out: the bands of its launches, which are adjacent
blocks, and the bands that each of them waits for
(native/src/gpu/persistent/persistent_bands.c). `nova inspect` and the prediction of persistent
execution read them.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.artifact.tables import KernelSpec, Tables, TaskSpec
from nova.artifact.task_plan import plan_device_tasks
from nova.core.records import record

PERSISTENT_BANDS = 32
"""Most bands of a launch."""
PERSISTENT_TASKS = 4096
"""Most bands of a program."""


@record
class TileWait:
    """A launch that waits for another one: in `bands`, each for at most `part` of its `blocks`."""

    before: int
    after: int
    bands: int
    part: int
    blocks: int

    @property
    def is_by_tile(self) -> bool:
        return self.part < self.blocks


def has_flow(kernel: KernelSpec) -> bool:
    """Whether a kernel is a loop or a branch."""
    return kernel.control is not None or kernel.core == "while"


def plan_bands(tables: Tables) -> tuple[TaskSpec, ...]:
    """The bands of all launches; those without blocks join others. None if launches run in order.

    A program with loops or branches has one band for each launch.
    """
    most = min(PERSISTENT_BANDS, max(1, PERSISTENT_TASKS // (len(tables.launches) + 1)))
    is_straight = not any(has_flow(kernel) for kernel in tables.kernels)
    return plan_device_tasks(tables, most if is_straight else 1)


def awaited_bands(bands: Sequence[TaskSpec]) -> list[set[int]]:
    """The bands that each band waits for; joins are replaced by those that they wait for."""
    awaited: list[set[int]] = [set() for _ in bands]
    for number, band in enumerate(bands):
        signals = {number} if band.begin < band.end else awaited[number]
        for successor in band.successors:
            awaited[successor] |= signals
    return awaited


def tile_waits(tables: Tables) -> list[TileWait]:
    """The launches that wait for others, and for how much of them, in order."""
    bands = plan_bands(tables)
    blocks: dict[tuple[int, int], int] = {}
    waiting: dict[tuple[int, int], int] = {}
    totals: dict[int, int] = {}
    for band, awaited in zip(bands, awaited_bands(bands), strict=True):
        if band.begin == band.end:
            continue
        size = band.end - band.begin
        totals[band.launch] = totals.get(band.launch, 0) + size
        parts: dict[int, int] = {}
        for number in awaited:
            other = bands[number]
            parts[other.launch] = parts.get(other.launch, 0) + other.end - other.begin
        for before, part in parts.items():
            edge = before, band.launch
            blocks[edge] = max(blocks.get(edge, 0), part)
            waiting[edge] = waiting.get(edge, 0) + 1
    return [
        TileWait(before, after, waiting[before, after], part, totals[before])
        for (before, after), part in sorted(blocks.items(), key=lambda item: item[0][::-1])
    ]
