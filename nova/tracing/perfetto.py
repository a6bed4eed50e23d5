"""The timeline as a JSON file for https://ui.perfetto.dev and chrome://tracing.

In: runs. Out: the events of the Trace Event Format: one process for the measured and one for the
planned schedule, each with a lane per worker, the critical path as a separate lane, the number of
ready tasks as a counter, and the edges of the graph as flows. A device is a process with its own
lanes (`device_events.py`). Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nova.tracing.critical import critical_path
from nova.tracing.device_events import DeviceLanes
from nova.tracing.device_run import DeviceRun
from nova.tracing.run import AnyRun, Run
from nova.tracing.schedule_sim import moved
from nova.tracing.timeline import NOT_STOLEN, Timeline

MOST_FLOWS = 100_000
"""The limit on edges in one file; the edges of later runs are omitted, which the file says."""

_COLORS = {
    "matrix": "thread_state_running",
    "vector": "thread_state_runnable",
    "host": "generic_work",
}
_PATH_LANE = 100_000  # below all workers


def to_json(runs: Sequence[AnyRun], summary: str) -> str:
    """The text of the file."""
    writer = _Writer()
    for run in runs:
        if isinstance(run, DeviceRun):
            writer.add_device_run(run)
        else:
            writer.add_run(run)
    return json.dumps(
        {
            "traceEvents": writer.events,
            "displayTimeUnit": "ns",
            "otherData": {"summary": summary, "edges_left_out": writer.left_out},
        },
        separators=(",", ":"),
    )


class _Writer:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.left_out = 0
        self._flows = 0
        self._busy: dict[str, list[int]] = {}  # per process group: when each becomes free
        self._processes: dict[tuple[str, int], int] = {}
        self._named: set[tuple[int, int]] = set()
        self._planned: set[tuple[str, int]] = set()
        self._devices = DeviceLanes(lambda device: self._number(device, 0), self._name_lane)

    def add_device_run(self, run: DeviceRun) -> None:
        """The activity of the host, the copies and the kernels of the device."""
        self.events += self._devices.events(run)

    def add_run(self, run: Run) -> None:
        """The run; and its plan, once per program, because it is the same every time."""
        self._add(run.kind, run, run.measured)
        key = (run.program, run.measured.workers)
        if key not in self._planned:
            self._planned.add(key)
            self._add("planned", run, moved(run.plan, run.measured.start))

    def _add(self, group: str, run: Run, timeline: Timeline) -> None:
        pid = self._process(group, timeline)
        path = critical_path(timeline) if group == "planned" else run.critical
        on_path = {step.task for step in path}
        self._name_lanes(pid, timeline.workers)
        tasks = timeline.graph.tasks
        for record in timeline.records:
            number = int(record["task"])
            task, critical = tasks[number], number in on_path
            details = {
                "program": run.program,
                "task": number,
                "tiles": f"{task.begin}:{task.end} of {task.kernel.grid}",
                "core": task.kernel.core,
                "flops": round(task.flops),
                "bytes": round(task.bytes),
                "waited_us": _us(int(record["start"]) - int(record["ready"])),
                "critical": critical,
                "line": task.kernel.location,
            }
            if int(record["stolen_from"]) != NOT_STOLEN:
                details["stolen_from"] = int(record["stolen_from"])
            color = "terrible" if critical else _COLORS[task.kernel.core]
            self._slice(pid, int(record["worker"]), task.title, record, details, color)
        for step in path:
            record = timeline.records[timeline.record_of[step.task]]
            details = {"waited_for": step.cause, "waited_us": _us(step.wait)}
            self._slice(pid, _PATH_LANE, tasks[step.task].title, record, details, "terrible")
        self.events += _ready_counter(pid, timeline)
        self._add_edges(pid, timeline)

    def _slice(
        self, pid: int, lane: int, name: str, record: Any, details: dict[str, Any], color: str
    ) -> None:
        self.events.append(
            {
                "ph": "X",
                "pid": pid,
                "tid": lane,
                "name": name,
                "cat": "task",
                "ts": _us(record["start"]),
                "dur": _us(int(record["end"]) - int(record["start"])),
                "cname": color,
                "args": details,
            }
        )

    def _add_edges(self, pid: int, timeline: Timeline) -> None:
        index = timeline.record_of
        for number, spec in enumerate(timeline.graph.specs):
            for successor in spec.successors:
                if number not in index or successor not in index:
                    continue
                if self._flows >= MOST_FLOWS:
                    self.left_out += 1
                    continue
                self._flows += 1
                before, after = timeline.records[index[number]], timeline.records[index[successor]]
                edge = {"cat": "edge", "name": "edge", "id": self._flows, "pid": pid}
                # The flow leaves inside the slice it belongs to, not at its end.
                leaves = max(int(before["start"]), int(before["end"]) - 1)
                self.events += [
                    {**edge, "ph": "s", "tid": int(before["worker"]), "ts": _us(leaves)},
                    {**edge, "ph": "f", "bp": "e", "tid": int(after["worker"]),
                     "ts": _us(after["start"])},
                ]  # fmt: skip

    # --- processes and lanes ----------------------------------------------------------------------

    def _process(self, group: str, timeline: Timeline) -> int:
        """The first process of a group without a run at that time."""
        free = self._busy.setdefault(group, [])
        slot = next((i for i, end in enumerate(free) if end <= timeline.start), len(free))
        free[slot : slot + 1] = [timeline.end]
        return self._number(group, slot)

    def _number(self, group: str, slot: int) -> int:
        """The number of a process, which is named on first use."""
        pid = self._processes.setdefault((group, slot), len(self._processes) + 1)
        if (pid, -1) not in self._named:
            self._named.add((pid, -1))
            name = group if slot == 0 else f"{group} ({slot + 1})"
            self.events += [
                _name_event("process_name", pid, 0, {"name": name}),
                _name_event("process_sort_index", pid, 0, {"sort_index": pid}),
            ]
        return pid

    def _name_lanes(self, pid: int, workers: int) -> None:
        lanes = {worker: f"worker {worker}" for worker in range(workers)}
        lanes[_PATH_LANE] = "critical path"
        for lane, name in lanes.items():
            self._name_lane(pid, lane, name)

    def _name_lane(self, pid: int, lane: int, name: str) -> None:
        if (pid, lane) not in self._named:
            self._named.add((pid, lane))
            self.events += [
                _name_event("thread_name", pid, lane, {"name": name}),
                _name_event("thread_sort_index", pid, lane, {"sort_index": lane}),
            ]


def _ready_counter(pid: int, timeline: Timeline) -> Iterator[dict[str, Any]]:
    """The number of ready tasks that have not started, over time."""
    times = np.concatenate([timeline.records["ready"], timeline.records["start"]])
    changes = np.repeat([1, -1], len(timeline.records))
    order = np.argsort(times, kind="stable")
    counts = np.cumsum(changes[order])
    moments = times[order]
    # The last value among those at the same time counts.
    last = np.ones(len(moments), bool)
    last[:-1] = moments[1:] != moments[:-1]
    for moment, count in zip(moments[last], counts[last], strict=True):
        yield {
            "ph": "C",
            "pid": pid,
            "name": "ready tasks",
            "ts": _us(moment),
            "args": {"ready": int(count)},
        }


def _name_event(name: str, pid: int, lane: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": lane, "name": name, "args": args}


def _us(nanoseconds: Any) -> float:
    return int(nanoseconds) / 1000
