"""The critical path: the chain of tasks and waits that determines a run's time.

In: a `Timeline`. Out: the steps of the chain, from the beginning to the end of the run, and the
last cause that each waited for; their durations and waits add up to the makespan. `longest_path` is
the bound of the graph alone. Called by `advice.py`, the summary and the viewers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nova.tracing.graph import TaskGraph
from nova.tracing.timeline import Timeline


@dataclass(frozen=True)
class Step:
    """A task on the critical path, and the last cause that it waited for.

    cause     `start` of the run; `data` or `reuse` of memory (`EdgeCauses`), or a `join` of them,
              for a task before it; `core` for the task that occupied its core.
    wait      nanoseconds between the end of the cause and its own start.
    duration  nanoseconds that it ran.
    idle      the interval in which only the cause delayed it: only if memory or a core was the
              cause, else empty.
    """

    task: int
    cause: str
    wait: int
    duration: int
    idle: tuple[int, int] = (0, 0)


def critical_path(timeline: Timeline) -> tuple[Step, ...]:
    """The critical path of a run, first step first."""
    if not len(timeline.records):
        return ()
    return _Walk(timeline).steps()


class _Walk:
    """Walks from the last task back to the start."""

    def __init__(self, timeline: Timeline):
        self.timeline = timeline
        self.causes = EdgeCauses(timeline.graph)
        self.ends = {int(r["task"]): int(r["end"]) for r in timeline.records}
        self.previous: dict[int, int] = {}  # the previous task on the same core
        tasks = timeline.records["task"]
        for lane in timeline.lanes:
            self.previous |= {int(tasks[b]): int(tasks[a]) for a, b in pairwise(lane)}

    def steps(self) -> tuple[Step, ...]:
        task: int | None = max(self.ends, key=lambda t: (self.ends[t], t))
        steps = []
        while task is not None:
            step, task = self._step(task)
            steps.append(step)
        return tuple(reversed(steps))

    def _step(self, task: int) -> tuple[Step, int | None]:
        timeline, ends = self.timeline, self.ends
        record = timeline.records[timeline.record_of[task]]
        start = int(record["start"])
        predecessors = [p for p in timeline.graph.predecessors[task] if p in ends]
        cause, before, since = "start", None, timeline.start
        free = int(record["ready"])  # earliest start without the cause
        if predecessors:
            before = max(predecessors, key=lambda p: (ends[p], p))
            cause, since = self.causes.cause(before, task), ends[before]
        previous = self.previous.get(task)
        if previous is not None and ends[previous] > since and previous != before:
            cause, before, since = "core", previous, ends[previous]
        elif cause == "reuse":
            data = [ends[p] for p in predecessors if self.causes.cause(p, task) != "reuse"]
            free = max(data, default=timeline.start)
        idle = (free, since) if cause in ("core", "reuse") and free < since else (0, 0)
        wait, duration = max(0, start - since), int(record["end"]) - start
        return Step(task, cause, wait, duration, idle), before


def longest_path(graph: TaskGraph, durations: np.ndarray) -> tuple[int, tuple[int, ...]]:
    """The most expensive dependency chain, and its cost: a bound for any number of cores."""
    if not graph.specs:
        return 0, ()
    cost = [0] * len(graph.specs)
    following = [-1] * len(graph.specs)
    for number in range(len(graph.specs) - 1, -1, -1):
        for successor in graph.specs[number].successors:
            if cost[successor] > cost[number] or following[number] < 0:
                cost[number], following[number] = cost[successor], successor
        cost[number] += int(durations[number])
    task = max(range(len(cost)), key=cost.__getitem__)
    total, path = cost[task], []
    while task >= 0:
        path.append(task)
        task = following[task]
    return total, tuple(path)


class EdgeCauses:
    """The cause of an edge: a task reads the result of another, or only waits for its memory.

    `data`, `reuse`, or `join` for an edge into a task without tiles. `reuse` edges are
    write-after-read and write-after-write: a larger workspace would remove them. The cause depends
    on the launches at both ends; each pair is computed once.
    """

    def __init__(self, graph: TaskGraph):
        self._graph = graph
        self._causes: dict[tuple[int, int], str] = {}

    def cause(self, before: int, after: int) -> str:
        """`data` if task `after` reads a result of task `before`, else `reuse`."""
        tasks = self._graph.tasks
        if tasks[after].is_join:
            return "join"
        if tasks[before].is_join:
            # A join stands for all its predecessors: one that provides data is sufficient.
            causes = {self.cause(p, after) for p in self._graph.predecessors[before]}
            return "reuse" if causes == {"reuse"} else "data"
        pair = (tasks[before].launch, tasks[after].launch)
        if pair not in self._causes:
            self._causes[pair] = self._find(*pair)
        return self._causes[pair]

    def _find(self, before: int, after: int) -> str:
        first, second = self._graph.tables.launches[before], self._graph.tables.launches[after]
        if self._graph.by_launch or not first.reads or not second.reads:
            return "data"  # program order; the dependence is unknown
        buffers = self._graph.tables.buffers
        written = [buffers[b] for b in first.buffers[first.reads :]]
        read = [buffers[b] for b in second.buffers[: second.reads]]
        return "data" if any(w.overlaps(r) for w in written for r in read) else "reuse"
