"""The tasks of a persistent kernel in a traced run: which block of which multiprocessor ran them.

In: the records of a run (`NOVA_SPAN_TASK` of native/include/nova/device.h). Out: spans with a lane
for each block, and figures of them: by launch, and the time of the blocks by reason. `collect.py`
and `device_summary.py` call this. The device has its own clock: the first task begins with the
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nova.artifact.tables import Tables
from nova.tracing.text import columns, format_ns, percent

if TYPE_CHECKING:
    from nova.tracing.device_run import Span

TASK_KIND = 8
"""Of `nova_span`."""


def read_tasks(tables: Tables, records: np.ndarray, start: int) -> tuple[Span, ...]:
    """The tasks of the records, by their start; the earliest one is ready at `start`."""
    from nova.tracing.device_run import Span  # it calls this module

    if not len(records):
        return ()
    first = int((records["start"] - records["bytes"]).min())
    spans = []
    for record in records:
        number = int(record["launch"])
        kernel = tables.kernels[tables.launches[number].kernel]
        began, ended = (int(record[name]) - first + start for name in ("start", "end"))
        lane = f"SM {int(record['first'])}, block {int(record['count'])}"
        spans.append(
            Span(
                lane,
                "task",
                kernel.name,
                began,
                ended,
                kernels=(kernel,),
                launch=number,
                wait=int(record["bytes"]),
            )
        )
    return tuple(sorted(spans, key=lambda span: (span.start, span.end, span.lane)))


def task_lanes(tasks: Sequence[Span]) -> dict[str, tuple[Span, ...]]:
    """The tasks of each block, by the numbers of multiprocessor and block."""
    lanes: dict[str, list[Span]] = {}
    for span in tasks:
        lanes.setdefault(span.lane, []).append(span)
    return {lane: tuple(lanes[lane]) for lane in sorted(lanes, key=_numbers)}


def _numbers(lane: str) -> list[int]:
    return [int(part.split()[-1]) for part in lane.split(", ")]


@dataclass(frozen=True)
class RowTime:
    """The tasks of one launch in one or more runs; times in nanoseconds, since the first task."""

    launch: int
    kernel: str
    blocks: int
    processors: int
    start: int
    end: int
    median: int
    wait: int
    """The median time that its blocks waited for tasks of other launches."""


@dataclass(frozen=True)
class TaskSummary:
    """Figures of the tasks of a run of a persistent kernel."""

    rows: tuple[RowTime, ...]
    time: int
    busy: int
    waiting: int
    """Time of all blocks: in tasks, and waiting for others."""
    blocks: int

    def lines(self) -> list[str]:
        total = self.time * self.blocks
        other = total - self.busy - self.waiting
        parts = [("in tasks", self.busy), ("waiting for tasks", self.waiting), ("other", other)]
        shares = ", ".join(f"{name} {percent(spent, total)}" for name, spent in parts)
        header = ("launch", "kernel", "blocks", "SMs", "from", "to", "of a block", "wait")
        rows = [
            (
                str(row.launch),
                row.kernel,
                str(row.blocks),
                str(row.processors),
                *(format_ns(ns) for ns in (row.start, row.end, row.median, row.wait)),
            )
            for row in self.rows
        ]
        title = f"tasks of the persistent kernel in {self.blocks} blocks: {shares}"
        return [title, *columns([header, *rows], right=range(2, 8))]


def summarize_tasks(tasks: Sequence[Span]) -> TaskSummary | None:
    """The figures of the tasks of one run; None without any."""
    if not tasks:
        return None
    first = min(span.start - span.wait for span in tasks)
    by_launch: dict[int, list[Span]] = {}
    for span in tasks:
        by_launch.setdefault(span.launch or 0, []).append(span)
    rows = tuple(_row(launch, spans, first) for launch, spans in sorted(by_launch.items()))
    return TaskSummary(
        rows,
        max(span.end for span in tasks) - first,
        sum(span.duration for span in tasks),
        sum(span.wait for span in tasks),
        len({span.lane for span in tasks}),
    )


def _row(launch: int, spans: list[Span], first: int) -> RowTime:
    lanes = {span.lane for span in spans}

    def median(values: Any) -> int:
        return int(np.median(list(values)))

    return RowTime(
        launch,
        spans[0].name,
        len(lanes),
        len({lane.partition(",")[0] for lane in lanes}),
        min(span.start for span in spans) - first,
        max(span.end for span in spans) - first,
        median(span.duration for span in spans),
        median(span.wait for span in spans),
    )
