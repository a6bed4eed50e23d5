"""The page: one self-contained HTML file, to be opened in a browser without a network.

In: runs and their summary. Out: the text of `page.html` with the data in it. The data may come from
a hostile file: the page gets it as JSON and writes it as text, never as markup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from nova.tracing.critical import Step, critical_path
from nova.tracing.device_page import describe_device_run, describe_graph, table_rows
from nova.tracing.device_run import DeviceRun
from nova.tracing.graph import TaskGraph
from nova.tracing.idle import idle_reasons
from nova.tracing.run import AnyRun
from nova.tracing.schedule_sim import CURVE, play
from nova.tracing.summary import Summary, path_parts
from nova.tracing.timeline import NOT_STOLEN, Timeline

MOST_RECORDS = 60_000
"""The limit on one page; the shortest runs beyond it are omitted, and the page says so."""

_TEMPLATE = Path(__file__).with_name("page.html")


def to_html(runs: Sequence[AnyRun], summary: Summary) -> str:
    """The text of the page."""
    text = json.dumps(_page_data(runs, summary), separators=(",", ":"), allow_nan=False)
    # Only this sequence can end a script element.
    return _TEMPLATE.read_text().replace("@DATA@", text.replace("<", "\\u003c"), 1)


def _page_data(runs: Sequence[AnyRun], summary: Summary) -> dict[str, Any]:
    chosen = _choose(runs)
    graphs = _Graphs()
    described = [_describe_run(run, graphs) for run in chosen]
    longest = max(range(len(chosen)), key=lambda i: _makespan(chosen[i]), default=0)
    return {
        "peaks": None if summary.peaks is None else asdict(summary.peaks),
        "table": [
            {**asdict(k), "flop_rate": k.flop_rate, "byte_rate": k.byte_rate}
            for k in summary.kernels
        ]
        + list(table_rows(summary.devices)),
        "kernels": graphs.kernels,
        "graphs": graphs.described,
        "runs": described,
        "longest": longest,
        "left_out": len(runs) - len(chosen),
    }


def _makespan(run: AnyRun) -> int:
    return run.makespan if isinstance(run, DeviceRun) else run.measured.makespan


def _choose(runs: Sequence[AnyRun]) -> list[AnyRun]:
    """As many of the longest runs as fit, at least one, in the order of their starts."""
    chosen: list[int] = []
    room = MOST_RECORDS
    for number in sorted(range(len(runs)), key=lambda n: -_makespan(runs[n])):
        run = runs[number]
        room -= len(run.spans if isinstance(run, DeviceRun) else run.measured.records)
        if room < 0 and chosen:
            break
        chosen.append(number)
    return [runs[number] for number in sorted(chosen)]


class _Graphs:
    """Each task graph once, and each kernel once."""

    def __init__(self) -> None:
        self.kernels: list[dict[str, Any]] = []
        self.described: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._graphs: list[TaskGraph] = []  # an id stays in use as long as its object lives

    def number(self, graph: TaskGraph) -> int:
        if id(graph) not in self._numbers:
            self._graphs.append(graph)
            self._numbers[id(graph)] = len(self.described)
            self.described.append(self._describe(graph))
        return self._numbers[id(graph)]

    def place_spans(self, run: DeviceRun) -> int:
        """The spans of a run on a device, in the form of a graph."""
        described, kernels = describe_graph(run, len(self.kernels))
        self.kernels += kernels
        self.described.append(described)
        return len(self.described) - 1

    def _describe(self, graph: TaskGraph) -> dict[str, Any]:
        first = len(self.kernels)
        self.kernels += [
            {"name": k.name, "core": k.core, "grid": k.grid, "location": k.location}
            for k in graph.tables.kernels
        ]
        launches = graph.tables.launches
        return {
            "kernel": [first + launches[task.launch].kernel for task in graph.tasks],
            "begin": [task.begin for task in graph.tasks],
            "end": [task.end for task in graph.tasks],
            "flops": [round(task.flops) for task in graph.tasks],
            "bytes": [round(task.bytes) for task in graph.tasks],
            "successors": [list(task.successors) for task in graph.tasks],
        }


def _describe_run(run: AnyRun, graphs: _Graphs) -> dict[str, Any]:
    if isinstance(run, DeviceRun):
        return describe_device_run(run, graphs.place_spans(run))
    measured = run.measured
    tasks = [measured.graph.tasks[number] for number in measured.records["task"]]
    return {
        "program": run.program,
        "kind": run.kind,
        "graph": graphs.number(measured.graph),
        "workers": measured.workers,
        "makespan": measured.makespan,
        "planned_makespan": run.planned.makespan,
        "busy": measured.busy,
        "flops": sum(task.flops for task in tasks),
        "bytes": sum(task.bytes for task in tasks),
        "bound": run.bound,
        "lost": run.lost,
        "idle": idle_reasons(measured),
        "path": path_parts(run),
        "advice": [asdict(finding) for finding in run.advice],
        "curve": _curve(measured),
        "measured": _describe_timeline(measured, run.critical),
        "planned": _describe_timeline(run.planned, critical_path(run.planned)),
    }


def _describe_timeline(timeline: Timeline, path: Sequence[Step]) -> dict[str, Any]:
    """The columns of the records, in nanoseconds from the start of the run."""
    records = timeline.records
    stolen = records["stolen_from"].astype(np.int64)
    return {
        "task": records["task"].tolist(),
        "worker": records["worker"].tolist(),
        "stolen": np.where(stolen == NOT_STOLEN, -1, stolen).tolist(),
        **{name: (records[name] - timeline.start).tolist() for name in ("ready", "start", "end")},
        "critical": [step.task for step in path],
        "causes": [step.cause for step in path],
    }


def _curve(measured: Timeline) -> list[dict[str, float]]:
    """The scaling of the measured tasks; `limit` is the bound on the speed-up of any schedule."""
    durations = np.maximum(measured.task_durations(), 1)
    if len(durations) < 2:
        return []
    work = int(durations.sum())
    return [
        {
            "cores": p.cores,
            "makespan": p.makespan,
            "speedup": work / p.makespan,
            "limit": work / p.bound,
        }
        for p in (play(measured.graph, durations, cores) for cores in CURVE)
    ]
