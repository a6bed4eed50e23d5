"""Idle time: the gaps between tasks, by reason.

In: a `Timeline`. Out: nanoseconds of all cores together, by reason:

  - dependency: no task was ready, and some waited for tasks that were running
  - no task left: all tasks had started
  - sleeping: a task was ready; the core had not begun, or had been idle long enough to sleep
  - stealing: a task was ready, and the core took its next one from another core's queue
  - dispatch: a task was ready, and the core was starting it
"""

from __future__ import annotations

import numpy as np

from nova.tracing.timeline import NOT_STOLEN, Timeline

REASONS = ("dependency", "no task left", "sleeping", "stealing", "dispatch")

SLEEP_NS = 50_000
"""An idle core counts as asleep after this time. A guess: records do not say when it slept."""


def idle_reasons(timeline: Timeline) -> dict[str, int]:
    """Idle nanoseconds of cores, by reason; together with the busy time they make up the run."""
    idle = dict.fromkeys(REASONS, 0)
    clock = _ReadyClock(timeline)
    last_start = int(timeline.records["start"].max(initial=timeline.start))
    for lane in timeline.lanes:
        records = timeline.records[lane]
        since, first = timeline.start, True
        for record in records:
            start = int(record["start"])
            if start > since:
                ready = clock.some_ready(since, start)
                idle["dependency"] += start - since - ready
                asleep = first or start - since > SLEEP_NS
                stolen = int(record["stolen_from"]) != NOT_STOLEN
                idle["sleeping" if asleep else "stealing" if stolen else "dispatch"] += ready
            since, first = max(since, int(record["end"])), False
        if timeline.end > since:
            # After its last task: from some moment on there was nothing left to start.
            until = min(max(last_start, since), timeline.end)
            ready = clock.some_ready(since, until)
            idle["sleeping"] += ready
            idle["dependency"] += until - since - ready
            idle["no task left"] += timeline.end - until
    return idle


class _ReadyClock:
    """The accumulated time, up to a moment, in which some task was ready and not started."""

    def __init__(self, timeline: Timeline):
        times = np.concatenate([timeline.records["ready"], timeline.records["start"]])
        changes = np.repeat([1, -1], len(timeline.records))
        order = np.argsort(times, kind="stable")
        self._times = times[order].astype(np.int64)
        waiting = np.cumsum(changes[order]) > 0
        spans = np.diff(self._times, append=self._times[-1:])
        self._total = np.concatenate([[0], np.cumsum(spans * waiting)])
        self._waiting = np.concatenate([[False], waiting])

    def some_ready(self, start: int, end: int) -> int:
        return self._until(end) - self._until(start) if end > start else 0

    def _until(self, moment: int) -> int:
        at = int(np.searchsorted(self._times, moment, side="right"))
        if at == 0:
            return 0
        before = int(self._total[at - 1])
        return before + (moment - int(self._times[at - 1]) if self._waiting[at] else 0)
