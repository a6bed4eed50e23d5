"""Fixed tasks of a hybrid program, as files of format 4 have them.

In: the tasks of the host launches, and the positions of those launches in the whole program. Out:
tasks of all launches, because the format requires all or none.

A host region is a sequence of consecutive host launches; its order is that of the host tasks. Host
regions, copies and device launches are ordered as the launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nova.artifact.tables import TaskSpec


@dataclass
class _Group:
    """Tasks that finish before those of the next group start: a host region, or one launch."""

    launch: int  # first launch
    tasks: list[int] = field(default_factory=list)  # indices of host tasks; empty: one launch


def join_tasks(
    tasks: Sequence[TaskSpec], host_at: Sequence[int], launch_count: int
) -> tuple[TaskSpec, ...]:
    """Tasks for `launch_count` launches, of which those at `host_at` have `tasks`.

    None if the host launches have none.
    """
    if not tasks:
        return ()
    by_launch: dict[int, list[int]] = {}
    for number, task in enumerate(tasks):
        by_launch.setdefault(host_at[task.launch], []).append(number)
    host = set(host_at)
    groups: list[_Group] = []
    for launch in range(launch_count):
        if launch not in host or not groups or launch - 1 not in host:
            groups.append(_Group(launch))
        if launch in host:
            groups[-1].tasks += by_launch.get(launch, [])
    joined = _Joined()
    for group in groups:
        if group.launch not in host:
            joined.add_launch(group.launch)
        elif group.tasks:
            joined.add_host_region([(host_at[tasks[n].launch], n, tasks[n]) for n in group.tasks])
    return joined.specs()


class _Joined:
    """Tasks so far; the edges are successor lists."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int]] = []
        self._after: list[list[int]] = []
        self._ends: list[int] = []  # tasks of the last group without a successor in it

    def add_launch(self, launch: int) -> None:
        self._close(launch, 1)
        self._ends = [self._after_all(launch, 0, 1)]

    def add_host_region(self, rows: Sequence[tuple[int, int, TaskSpec]]) -> None:
        """Add host tasks, with their launches and their old indices."""
        old = {number for _, number, _ in rows}
        named = {s for _, _, task in rows for s in task.successors if s in old}
        self._close(rows[0][0], len(old - named))
        new_number = {}
        for launch, number, task in rows:
            if number in named:
                new_number[number] = self._append(launch, task.begin, task.end)
            else:
                new_number[number] = self._after_all(launch, task.begin, task.end)
        ends = []
        for _, number, task in rows:
            inside = [new_number[s] for s in task.successors if s in new_number]
            self._after[new_number[number]] += inside
            if not inside:
                ends.append(new_number[number])
        self._ends = ends

    def _close(self, launch: int, followers: int) -> None:
        """Insert one empty task between two groups where that saves edges."""
        if len(self._ends) > 1 and followers > 1:
            self._ends = [self._after_all(launch, 0, 0)]

    def _after_all(self, launch: int, begin: int, end: int) -> int:
        number = self._append(launch, begin, end)
        for before in self._ends:
            self._after[before].append(number)
        return number

    def _append(self, launch: int, begin: int, end: int) -> int:
        self._rows.append((launch, begin, end))
        self._after.append([])
        return len(self._rows) - 1

    def specs(self) -> tuple[TaskSpec, ...]:
        waits = [0] * len(self._rows)
        for after in self._after:
            for number in after:
                waits[number] += 1
        return tuple(
            TaskSpec(launch, waits[i], begin, end, tuple(sorted(self._after[i])))
            for i, (launch, begin, end) in enumerate(self._rows)
        )
