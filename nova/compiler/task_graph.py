"""The task graph: ranges of tiles, and the dependences between them.

In: the kernels of a module at the `loops` stage, with the access footprints of their tiles
(`nova/codegen/common/footprint.py`) and the bounds of their tasks (`plan-tasks`), and the launches
with their buffers. Out: the task records of the file, in topological order. `tables.py` calls this.

Two tasks of different launches that touch the same bytes, one of them writing, are ordered as the
launches are, directly or transitively. Buffers of the workspace share bytes, so this also orders
the last reader of a buffer and the writer of the buffer that reuses its memory. Tasks of one launch
are never ordered: no tile touches bytes that another one writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

from nova.artifact.tables import BufferSpec, LaunchSpec, TaskSpec
from nova.codegen.common.cost_model import estimate_ns
from nova.codegen.common.footprint import Bounds, load_footprint
from nova.compiler.memory_dependencies import MemoryDependencies
from nova.core.records import record
from nova.ir.buffers import nbytes
from nova.ir.control_flow.functions import is_control
from nova.ir.kernel import Kernel
from nova.passes.kernels.plan_tasks import kernel_ns

_WORTH_SHARING_NS = 40_000
"""Below this, waking a second core takes longer than the time it saves."""

_JOIN_COSTS = 8
"""The cost of starting a task, in edges: the time to decrement this many counters."""


def make_tasks(
    kernels: Sequence[Any], launches: Sequence[LaunchSpec], buffers: Sequence[BufferSpec]
) -> tuple[TaskSpec, ...]:
    """The tasks of a program; none if one core runs the launches in order."""
    if sum(_cost_ns(kernels[launch.kernel]) for launch in launches) < _WORTH_SHARING_NS:
        return ()
    tiles_of: dict[int, _Tiles] = {}
    graph = _Graph()
    for number, launch in enumerate(launches):
        if launch.kernel not in tiles_of:
            tiles_of[launch.kernel] = _read_tiles(kernels[launch.kernel])
        tiles = tiles_of[launch.kernel]
        graph.add_launch(number, tiles, [buffers[b] for b in launch.buffers])
    return graph.tasks() if graph.is_wide() else ()


def _cost_ns(kernel: Any) -> float:
    if is_control(kernel):
        return estimate_ns("vector", Kernel(kernel).work, 0)
    return kernel_ns(kernel)


# --- access footprints of the tasks of a kernel ---------------------------------------------------

_Local = dict[tuple[int, int], list[int]]
"""Bytes of an argument and the tasks of the kernel that touch them."""


@record
class _Tiles:
    """A kernel's tasks: their tile ranges, and their byte ranges of each argument."""

    cuts: tuple[int, ...]
    reads: tuple[_Local, ...]
    writes: tuple[_Local, ...]


def _read_control(kernel: Any) -> _Tiles:
    """A loop or branch is one task, which touches all of its buffers."""
    sizes = [nbytes(t) for t in kernel.type.inputs]
    whole: list[_Local] = [{(0, size): [0]} if size else {} for size in sizes]
    ins = Kernel(kernel).ins
    nothing: _Local = {}
    reads = (*whole[:ins], *[nothing] * (len(sizes) - ins))
    writes = (*[nothing] * ins, *whole[ins:])
    return _Tiles((0, 1), reads, writes)


def _read_tiles(kernel: Any) -> _Tiles:
    if is_control(kernel):
        return _read_control(kernel)
    cuts = Kernel(kernel).tasks
    footprint = load_footprint(kernel)

    def local(bounds: Bounds | None) -> _Local:
        spans: _Local = {}
        if bounds is not None:
            for task, (low, high) in enumerate(zip(*bounds, strict=True)):
                spans.setdefault((int(low), int(high)), []).append(task)
        return spans

    return _Tiles(
        cuts,
        tuple(local(footprint.touched(byte_ranges, cuts)) for byte_ranges in footprint.reads),
        tuple(local(footprint.touched(byte_ranges, cuts)) for byte_ranges in footprint.writes),
    )


# --- the graph ------------------------------------------------------------------------------------


class _Graph:
    """Tasks so far. A set of tasks is an int with a bit for each."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, int]] = []
        self._waits: list[list[int]] = []
        self._above: list[int] = []  # per task: all predecessors (transitive), and itself
        self._memory: dict[tuple[str, int], MemoryDependencies] = {}
        self._joins: dict[int, int] = {}

    def add_launch(self, number: int, tiles: _Tiles, buffers: Sequence[BufferSpec]) -> None:
        """Add the tasks of a launch, after the tasks that they depend on."""
        count = len(tiles.cuts) - 1
        needed = [0] * count
        for spans, writing in ((tiles.reads, False), (tiles.writes, True)):
            for local, buffer in zip(spans, buffers, strict=False):
                if buffer.kind == "constant":
                    continue
                memory, start = self._address(buffer)
                for (low, high), tasks in local.items():
                    before = memory.before(start + low, start + high, writing=writing)
                    for task in tasks:
                        needed[task] |= before
        first = self._add_tasks(number, tiles.cuts, needed)
        self._record(tiles, buffers, first)

    def _address(self, buffer: BufferSpec) -> tuple[MemoryDependencies, int]:
        """The address space of a buffer, and its offset in it."""
        inside = buffer.kind == "workspace"
        space = (buffer.kind, 0 if inside else buffer.value)
        return self._memory.setdefault(space, MemoryDependencies()), buffer.value if inside else 0

    def _record(self, tiles: _Tiles, buffers: Sequence[BufferSpec], first: int) -> None:
        touched: dict[MemoryDependencies, tuple[list[Any], list[Any]]] = {}
        for access, spans in enumerate((tiles.reads, tiles.writes)):
            for local, buffer in zip(spans, buffers, strict=False):
                if buffer.kind == "constant" or not local:
                    continue
                memory, start = self._address(buffer)
                placed = {
                    (start + low, start + high): sum(1 << (first + t) for t in tasks)
                    for (low, high), tasks in local.items()
                }
                touched.setdefault(memory, ([], []))[access].append(placed)
        for memory, (reads, writes) in touched.items():
            memory.record(reads, writes)

    # --- edges ------------------------------------------------------------------------------------

    def _add_tasks(self, launch: int, cuts: Sequence[int], needed: list[int]) -> int:
        """Add the joins and tasks of a launch; returns the index of its first task."""
        common = reduce(and_, needed, -1) if needed else 0
        join = self._join(launch, self._newest(common, None), len(needed))
        groups: dict[tuple[int, ...], list[int]] = {}
        for task, before in enumerate(needed):
            groups.setdefault(tuple(self._newest(before, join)), []).append(task)
        waits: dict[int, list[int]] = {}
        for before_group, tasks in groups.items():
            group_join = self._join(launch, list(before_group), len(tasks))
            waits |= {t: list(before_group) if group_join is None else [group_join] for t in tasks}
        first = len(self._ranges)
        for task in range(len(needed)):
            self._append(launch, cuts[task], cuts[task + 1], waits[task])
        return first

    def _join(self, launch: int, waits: list[int], followers: int) -> int | None:
        """A task without tiles that waits for all of `waits`, if that saves enough edges."""
        if len(waits) * followers <= len(waits) + followers + _JOIN_COSTS:
            return None
        key = sum(1 << task for task in waits)
        if key not in self._joins:
            self._joins[key] = self._append(launch, 0, 0, waits)
        return self._joins[key]

    def _newest(self, tasks: int, join: int | None) -> list[int]:
        """The tasks of a set without a successor in it; `join` replaces the tasks it joins."""
        remaining = tasks if join is None else tasks & ~self._above[join]
        newest: list[int] = []
        covered = 0
        while remaining:
            task = remaining.bit_length() - 1  # the last one: no task in the set waits for it
            newest.append(task)
            covered |= self._above[task]
            remaining &= ~covered
        if join is not None and self._above[join] & ~covered & ~(1 << join):
            newest.append(join)
        return sorted(newest)

    def _append(self, launch: int, begin: int, end: int, waits: list[int]) -> int:
        number = len(self._ranges)
        above = 1 << number
        for task in waits:
            above |= self._above[task]
        self._ranges.append((launch, begin, end))
        self._waits.append(waits)
        self._above.append(above)
        return number

    # --- results ----------------------------------------------------------------------------------

    def is_wide(self) -> bool:
        """Whether any two tasks may run concurrently."""
        return any(above + 1 != 1 << (i + 1) for i, above in enumerate(self._above))

    def tasks(self) -> tuple[TaskSpec, ...]:
        successors: list[list[int]] = [[] for _ in self._ranges]
        for task, waits in enumerate(self._waits):
            for before in waits:
                successors[before].append(task)
        return tuple(
            TaskSpec(launch, len(self._waits[i]), begin, end, tuple(successors[i]))
            for i, (launch, begin, end) in enumerate(self._ranges)
        )
