"""A traced run on a device: the activity of its kernels, its copies and the calling thread.

In: the records of a run in a trace (`nova_span` of native/include/nova/device.h), the tables of its
program and the names of its tensors. Out: `DeviceRun`, with spans in three lanes. `collect.py`
creates them; the summary, the timeline file and the page use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nova.artifact.tables import BufferSpec, KernelSpec, Tables
from nova.tracing.devices.tasks import task_lanes

SPAN = np.dtype(
    [
        ("kind", "<u4"),
        ("launch", "<u4"),
        ("first", "<u4"),
        ("count", "<u4"),
        ("bytes", "<u8"),
        ("start", "<u8"),
        ("end", "<u8"),
    ]
)
"""`nova_span`; its kinds are indices of ACTIVITIES."""

ACTIVITIES = (
    "kernel",
    "copy in",
    "copy out",
    "copy within",
    "enqueue",
    "wait",
    "stage",
    "host kernel",
)
LANES = ("host", "copies", "kernels")
"""The calling thread, device copies and device kernels."""

_COPIES = {"copy in": "to device", "copy out": "to host", "copy within": "on device"}
PERSISTENT = "persistent kernel"
"""The name of the span of a launch that runs all kernels of a program."""
_NO_LAUNCH = 0xFFFFFFFF
_MOST_NAMED = 4


@dataclass(frozen=True)
class Span:
    """An activity from `start` to `end` in nanoseconds, in one of LANES.

    `tensors` are those that a copy of `bytes` moves. `kernels` are those of one launch, or of
    several consecutive host launches, with the index of the first. For a loop or branch,
    `decided_by` is `device` or `host`: on the device it is one span, and the host has a span for
    each kernel of each iteration, and for each condition that it reads.
    """

    lane: str
    activity: str
    name: str
    start: int
    end: int
    bytes: int = 0
    tensors: tuple[str, ...] = ()
    kernels: tuple[KernelSpec, ...] = ()
    launch: int | None = None
    decided_by: str = ""
    wait: int = 0
    """Nanoseconds that a task of a persistent kernel waited for others before it."""

    @property
    def duration(self) -> int:
        """Nanoseconds."""
        return self.end - self.start

    @property
    def flops(self) -> int:
        """Scalar operations of its kernels."""
        return sum(kernel.flops for kernel in self.kernels)

    @property
    def moved(self) -> int:
        """Bytes that its kernels read and write, or that it copies."""
        return sum(kernel.bytes for kernel in self.kernels) if self.kernels else self.bytes

    @property
    def location(self) -> str:
        """The user's line of its first kernel."""
        return self.kernels[0].location if self.kernels else ""

    @property
    def details(self) -> dict[str, Any]:
        """Details that a viewer shows next to name and time."""
        entries: dict[str, Any] = {"kind": self.activity}
        if self.launch is not None:
            entries["launch"] = self.launch
        if self.tensors:
            entries["tensors"] = ", ".join(self.tensors)
        if self.lane == "copies":
            entries["bytes"] = self.bytes
        if self.decided_by:
            entries["decided by"] = self.decided_by
        if self.activity == "task":
            entries["wait ns"] = self.wait
        if not self.kernels:
            return entries
        shape = self.kernels[0].device
        if shape is not None:
            entries["grid"] = "x".join(map(str, shape.grid))
            entries["block"] = "x".join(map(str, shape.block))
            entries["shared"] = shape.shared
        return {**entries, "flops": self.flops, "bytes": self.moved, "line": self.location}


@dataclass(frozen=True)
class DeviceRun:
    """A run of `program` on a device such as "cuda:0"; spans by their start; `lost` are missing.

    `model` is the maker's name of the device. `graph` describes the launches of runs that are not
    traced. With `kind` "predicted", the times of kernels are those of a device model.
    """

    program: str
    device: str
    start: int
    end: int
    spans: tuple[Span, ...]
    lost: int = 0
    kind: str = "measured"
    model: str = ""
    graph: str = ""
    tasks: tuple[Span, ...] = ()
    """Of a persistent kernel, in a lane for each block."""

    @property
    def makespan(self) -> int:
        """Nanoseconds from the call to the end of all its work."""
        return self.end - self.start

    @cached_property
    def lanes(self) -> dict[str, tuple[Span, ...]]:
        """The spans of each of LANES."""
        return {lane: tuple(s for s in self.spans if s.lane == lane) for lane in LANES}

    @cached_property
    def all_lanes(self) -> dict[str, tuple[Span, ...]]:
        """Also those of tasks, by their titles."""
        lanes = {self.lane_title(lane): spans for lane, spans in self.lanes.items()}
        return lanes | task_lanes(self.tasks)

    @property
    def number(self) -> int:
        """The device number; the simulator is device 0."""
        return int(self.device.partition(":")[2] or 0)

    def lane_title(self, lane: str) -> str:
        """`host`, `device 0 copies` or `device 0 kernels`."""
        return lane if lane == "host" else f"device {self.number} {lane}"


def describe_graph(launches: int, edges: int, dependent: int, branches: int) -> str:
    """How the launches of a program run from its second run on; empty without a graph."""
    if launches < 2 or not edges:
        return ""
    parts = [f"{launches} launches as a graph of {edges} edges"]
    parts.append(f"{dependent} of them dependent launches" if dependent else "no dependent launch")
    parts.append(f"{branches} branch{'es' if branches != 1 else ''}" if branches else "no branch")
    return ", ".join(parts)


Names = tuple[Sequence[str], Sequence[str]]
"""The names of arguments and outputs."""


def read_spans(
    tables: Tables,
    names: Names,
    spans: np.ndarray,
    values: np.ndarray,
    base: int,
    host_decides: bool = False,
) -> tuple[Span, ...]:
    """The spans of a run by their start, with times relative to `base`."""
    decoded = [
        _read_control(span, tables.kernels[tables.launches[span.launch].kernel], host_decides)
        if span.launch is not None
        else span
        for span in (_read_span(tables, names, row, values, base) for row in spans)
    ]
    return tuple(sorted(decoded, key=lambda span: (span.start, span.end)))


def _read_span(tables: Tables, names: Names, span: Any, values: np.ndarray, base: int) -> Span:
    activity, number = ACTIVITIES[span["kind"]], int(span["launch"])
    launch = None if number == _NO_LAUNCH else number
    times = int(span["start"]) - base, int(span["end"]) - base
    if activity in _COPIES:
        if launch is None:
            first = int(span["first"])
            both = (*names[0], *names[1])
            moved = tuple(both[v] for v in values[first : first + int(span["count"])])
        else:
            buffer = tables.buffers[tables.launches[launch].buffers[0]]
            moved = (_name_buffer(buffer, names),)
        name = f"{_COPIES[activity]}: {_listed(moved)}"
        return Span("copies", activity, name, *times, int(span["bytes"]), moved, launch=launch)
    if launch is None and activity == "kernel":
        return Span("kernels", activity, PERSISTENT, *times)
    if launch is None:
        return Span("host", activity, activity, *times)
    count = 1 if activity == "kernel" else int(span["count"])
    run = tables.launches[launch : launch + count]
    kernels = tuple(tables.kernels[item.kernel] for item in run)
    lane = "kernels" if activity == "kernel" else "host"
    name = _listed([kernel.name for kernel in kernels])
    return Span(lane, activity, name, *times, kernels=kernels, launch=launch)


def _read_control(span: Span, kernel: KernelSpec, host_decides: bool) -> Span:
    """The span of a launch of `kernel`, if that is a loop or branch; else `span`."""
    if kernel.control is None:
        return span
    if span.activity in _COPIES:
        name = f"{_COPIES[span.activity]}: condition of {kernel.name}"
        return replace(span, name=name, tensors=(), decided_by="host")
    # The work of the loop is not that of one of its kernels.
    kernels = (replace(kernel, flops=0, bytes=0),) if host_decides else span.kernels
    return replace(span, kernels=kernels, decided_by="host" if host_decides else "device")


def _name_buffer(buffer: BufferSpec, names: Names) -> str:
    if buffer.kind in ("arg", "output"):
        return names[buffer.kind == "output"][buffer.value]
    if buffer.kind == "output_part":
        return f"{names[1][buffer.output]}[{buffer.value}:{buffer.value + buffer.nbytes}]"
    return f"{buffer.kind}[{buffer.value}:{buffer.value + buffer.nbytes}]"


def _listed(names: Sequence[str]) -> str:
    unnamed = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {unnamed} more" if unnamed > 0 else "")


def covered(spans: Iterable[Span]) -> int:
    """Nanoseconds in the union of the spans, which are sorted by start."""
    total, until = 0, 0
    for span in spans:
        total += max(0, span.end - max(span.start, until))
        until = max(until, span.end)
    return total
