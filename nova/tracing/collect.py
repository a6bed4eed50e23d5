"""`nova.trace`: collects the runs of a `with` block, and writes their timeline.

    with nova.trace("run.json") as trace:
        program.run([x])
    print(trace.summary())

In: every run of every program in this process that starts while a block is open, even if it ends
later: a run refers to the traces that were open at its start. Out: `Run`s, or `DeviceRun`s for runs
on devices, and a file: a page for a name that ends in `.html`, else JSON for Perfetto. The workers
write the records into memory that is allocated before the run starts, and device records are events
of its driver; everything else happens on access. With no block open, a call reads one extra word.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from nova import _native
from nova.artifact.files import write_atomically
from nova.artifact.tables import Tables, unpack_tables
from nova.core.location import user_location
from nova.core.user_facing import user_facing, user_facing_class
from nova.errors import ArgumentTypeError, TraceError
from nova.tracing.costs import speeds_of, task_costs
from nova.tracing.device_run import PERSISTENT, SPAN, DeviceRun, describe_graph, read_spans
from nova.tracing.devices.models import H200
from nova.tracing.devices.predict import predicted_spans
from nova.tracing.devices.tasks import TASK_KIND, read_tasks
from nova.tracing.graph import TaskGraph, make_graph
from nova.tracing.page import to_html
from nova.tracing.peaks import Peaks, measured_peaks
from nova.tracing.perfetto import to_json
from nova.tracing.run import AnyRun, Run
from nova.tracing.schedule_sim import POLICIES, Simulation, play
from nova.tracing.summary import Summary, summarize
from nova.tracing.timeline import RECORD, make_timeline

_lock = threading.Lock()
_open: list[list[Any]] = []  # run lists of the open blocks

_ON_DEVICE = 2  # record of a device run: the program, and unread events


@user_facing_class
class Trace:
    """The runs of a block; created by `nova.trace`."""

    def __init__(self, path: str | os.PathLike[str] | None = None):
        self._path = None if path is None else Path(path)
        if self._path is not None:
            check_folder(self._path)
        self._items: list[Any] = []
        self._runs: tuple[AnyRun, ...] | None = None

    def __enter__(self) -> Trace:
        with _lock:
            if any(items is self._items for items in _open):
                raise TraceError(
                    "the trace is open already", where=str(user_location()), hint="make another one"
                )
            _open.append(self._items)
            _native.trace_into(tuple(_open))
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and write the file; also if the block failed, when it is needed most.

        A file has all runs of its block: it waits for those still in flight. A block that failed
        does not wait, and its file has the finished runs.
        """
        with _lock:
            _open[:] = [items for items in _open if items is not self._items]
            _native.trace_into(tuple(_open))
        if self._path is None:
            return
        try:
            if error_type is None:
                _native.await_traced(self._items)
        finally:  # also when Ctrl-C ends the wait
            self.save(self._path)

    @property
    def runs(self) -> tuple[AnyRun, ...]:
        """The finished runs, by their start; waits for those of a device."""
        _native.reap()  # a submitted run without a waiter may have ended
        if self._runs is None or len(self._runs) < len(self._items):
            self._runs = _Builder(lambda: self.peaks).build(list(self._items))
        return self._runs

    @cached_property
    def peaks(self) -> Peaks:
        """The peak rates of this machine; measured on first use on a machine."""
        return measured_peaks()

    def summary(self) -> Summary:
        """Time by kernel, idle time by reason, the critical path and advice to shorten it."""
        runs = self.runs
        on_host = any(isinstance(run, Run) for run in runs)
        return summarize(runs, self.peaks if on_host else None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline: a page for `.html`, else JSON for https://ui.perfetto.dev."""
        save_runs(Path(path), self.runs, self.summary(), as_page=_is_page(Path(path)))


def save_runs(path: Path, runs: Sequence[AnyRun], summary: Summary, *, as_page: bool) -> None:
    """Write a page or JSON; TraceError on failure."""
    text = to_html(runs, summary) if as_page else to_json(runs, str(summary))
    try:
        write_atomically(path, text.encode(), sync=False)
    except OSError as error:
        raise _cannot_write(path, error.strerror or str(error)) from None


@user_facing
def trace(path: str | os.PathLike[str] | None = None) -> Trace:
    """Trace the runs of a `with` block; `path` gets a page (`.html`) or JSON for Perfetto."""
    if path is not None and not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError(
            f"trace: the path is a str, not a {type(path).__name__}",
            hint="nova.trace traces runs; the sum of a diagonal is nova.matrix_trace(x)",
        ).located(str(user_location()))
    return Trace(path)


class _Builder:
    """Converts native records to runs."""

    def __init__(self, peaks: Callable[[], Peaks]):
        self._peaks = peaks  # measured if a run was on this machine's cores
        self._tables: dict[int, Tables] = {}
        self._graphs: dict[tuple[int, int], TaskGraph] = {}  # by program and threads of its tasks
        self._plans: dict[tuple[int, ...], Simulation] = {}

    def build(self, items: list[Any]) -> tuple[AnyRun, ...]:
        read: list[tuple[Any, Callable[..., AnyRun]]] = []
        for item in items:
            if len(item) == _ON_DEVICE:
                item = (item[0], *_native.read_device_trace(item[1]))
                read.append((item, self._device_run))
            else:
                read.append((item, self._run))
        read.sort(key=lambda pair: pair[0][1])
        base = read[0][0][1] if read else 0
        return tuple(build(base, *item) for item, build in read)

    def _device_run(
        self, base: int, program: Any, start: int, end: int, lost: int, spans: bytes, values: bytes
    ) -> DeviceRun:
        tables = self._tables_of(program)
        records = np.frombuffer(spans, SPAN)
        is_task = records["kind"] == TASK_KIND
        decoded = read_spans(
            tables,
            program.names,
            records[~is_task],
            np.frombuffer(values, "<u4"),
            base,
            program.host_decides,
        )
        label = program.label or "program"
        device = program.device
        times = start - base, end - base
        kind = "measured"
        if device.name.partition(":")[0] == "sim":
            # The simulator's own time says nothing about a GPU.
            decoded, kind = predicted_spans(decoded, H200), "predicted"
            times = times[0], max(times[1], *(span.end for span in decoded), times[0])
        started = next((s.start for s in decoded if s.name == PERSISTENT), 0)
        tasks = read_tasks(tables, records[is_task], started)
        if tasks and kind == "predicted":  # the simulated clock counts instructions
            end = max(span.end for span in tasks)
            decoded = tuple(replace(s, end=end) if s.name == PERSISTENT else s for s in decoded)
        times = times[0], max(times[1], *(span.end for span in tasks), times[0])
        graph = "" if tasks else describe_graph(*program.graph_shape())
        return DeviceRun(
            label, device.name, *times, decoded, lost, kind, device.model, graph, tasks
        )

    def _tables_of(self, program: Any) -> Tables:
        key = id(program)  # the item keeps it alive
        if key not in self._tables:
            self._tables[key] = unpack_tables(program.tables)
        return self._tables[key]

    def _run(
        self,
        base: int,
        program: Any,
        start: int,
        end: int,
        workers: int,
        policy: int,
        lost: int,
        block: bytes,
        tasks_for: int,
    ) -> Run:
        key = id(program), tasks_for
        if key not in self._graphs:
            self._graphs[key] = make_graph(self._tables_of(program), max(1, tasks_for))
        graph = self._graphs[key]
        records = np.frombuffer(block, RECORD)
        if not graph.specs:
            records = records[:0]  # drops the one dummy task of an empty program
        else:
            records = records.copy()
            for field in ("ready", "start", "end"):
                records[field] -= np.minimum(records[field], np.uint64(base))
        timeline = make_timeline(graph, records, workers, start - base, end - base)
        return Run(program.label or "program", timeline, self._plan(*key, workers, policy), lost)

    def _plan(self, *key: int) -> Simulation:
        if key not in self._plans:
            program, tasks_for, workers, policy = key
            graph = self._graphs[program, tasks_for]
            costs = task_costs(graph, speeds_of(self._peaks()))
            self._plans[key] = play(graph, costs, workers, POLICIES[policy])
        return self._plans[key]


def _is_page(path: Path) -> bool:
    return path.suffix in (".html", ".htm")


def check_folder(path: Path) -> None:
    """Check the output path first: a block may run for hours."""
    folder = path.parent
    if path.is_dir():
        raise _cannot_write(path, "it is a folder")
    if not folder.is_dir():
        raise _cannot_write(path, f"there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise _cannot_write(path, f"the folder {folder} is read-only")


def _cannot_write(path: Path, why: str) -> TraceError:
    return TraceError(f"the trace cannot be written to {path}: {why}", where=str(user_location()))
