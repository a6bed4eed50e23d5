"""A timeline: which core ran which task, and when.

Measured timelines come from `collect.py`, planned ones from `nova/tracing/schedule_sim.py`: both
are arrays of the same records, in nanoseconds, so all users of this module take either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nova.tracing.graph import TaskGraph

NOT_STOLEN = 0xFFFF

RECORD = np.dtype(
    [
        ("task", "<u4"),
        ("worker", "<u2"),
        ("stolen_from", "<u2"),  # the worker whose queue it was taken from, or NOT_STOLEN
        ("ready", "<u8"),
        ("start", "<u8"),
        ("end", "<u8"),
    ]
)
"""`nova_trace_record` of native/include/nova/scheduler.h."""


@dataclass(frozen=True)
class Timeline:
    """One run of a graph from `start` to `end` on `workers` cores; records by their start."""

    graph: TaskGraph
    records: np.ndarray
    workers: int
    start: int
    end: int

    @property
    def makespan(self) -> int:
        """Nanoseconds from the beginning to the end of the run."""
        return self.end - self.start

    @property
    def busy(self) -> int:
        """Nanoseconds that all cores together spent in tasks."""
        return int(self.durations.sum())

    @property
    def utilisation(self) -> float:
        """The fraction of the cores' time that they spent in tasks."""
        return self.busy / (self.makespan * self.workers) if self.makespan else 0.0

    @cached_property
    def durations(self) -> np.ndarray:
        """Nanoseconds of each record, in the order of the records."""
        return (self.records["end"] - self.records["start"]).astype(np.int64)

    @cached_property
    def lanes(self) -> tuple[np.ndarray, ...]:
        """The indices of the records of each worker, by their start."""
        return tuple(np.flatnonzero(self.records["worker"] == w) for w in range(self.workers))

    @cached_property
    def record_of(self) -> dict[int, int]:
        """The index of each task's record."""
        return {int(task): index for index, task in enumerate(self.records["task"])}

    def task_durations(self) -> np.ndarray:
        """Nanoseconds of each task of the graph; 0 for one whose record was lost."""
        durations = np.zeros(len(self.graph.specs), np.int64)
        durations[self.records["task"]] = self.durations
        return durations


def make_timeline(
    graph: TaskGraph, records: np.ndarray, workers: int, start: int, end: int
) -> Timeline:
    """A timeline of records in any order.

    Clocks of cores may differ a little: nothing is before `start`, and no task begins before it is
    ready.
    """
    ordered = records[np.lexsort((records["end"], records["start"]))].copy()
    ordered["start"] = np.maximum(ordered["start"], start)
    ordered["end"] = np.maximum(ordered["end"], ordered["start"])
    ordered["ready"] = np.clip(ordered["ready"], start, ordered["start"])
    last = int(ordered["end"].max(initial=start))
    return Timeline(graph, ordered, workers, start, max(end, last))
