"""The summary of traced runs on devices: time by kernel, copies by direction, and host time.

In: `DeviceRun`s. Out: a `DeviceSummary` per device, whose text is part of the output of `nova
trace`; its fields are plain numbers, for JSON and for the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nova.tracing.device_run import DeviceRun, Span, covered
from nova.tracing.devices.tasks import TaskSummary, summarize_tasks
from nova.tracing.peaks import DevicePeak, find_peak
from nova.tracing.text import columns, format_ns, percent

_MOST = 20
_HOST = {
    "enqueue": "enqueueing",
    "wait": "waiting for the device",
    "stage": "copying through pinned memory",
    "host kernel": "kernels of the host",
}


@dataclass(frozen=True)
class LaunchTime:
    """All launches of a kernel, over all runs; `core` is "device", or that of a host kernel.

    Times in nanoseconds.
    """

    program: str
    name: str
    core: str
    location: str
    launches: int
    time: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class CopyTime:
    """All copies in one direction: "copy in", "copy out" or "copy within"."""

    kind: str
    copies: int
    bytes: int
    time: int


@dataclass(frozen=True)
class DeviceSummary:
    """Figures over all runs on one device; times in nanoseconds.

    `kernel_time` and `copy_time` are the times the device computed and copied, `overlap` the time
    it did both, `idle` the time it did neither during a run; `host` is the time of the calling
    threads.
    """

    device: str
    runs: int
    time: int
    kernel_time: int
    copy_time: int
    overlap: int
    idle: int
    host: dict[str, int]
    kernels: tuple[LaunchTime, ...]
    copies: tuple[CopyTime, ...]
    model: str = ""
    graphs: tuple[str, ...] = ()
    kind: str = "measured"
    tasks: TaskSummary | None = None
    """Of the last run of a persistent kernel."""

    def __str__(self) -> str:
        runs = f"{self.runs} run{'s' if self.runs != 1 else ''}"
        note = "" if self.kind == "measured" else "; the times of kernels are predicted"
        lines = [f"{runs} measured on {self.device}: {format_ns(self.time)}{note}"]
        lines += [f"  untraced runs: {graph}" for graph in self.graphs]
        rows = [
            ("kernels", self.kernel_time),
            ("copies", self.copy_time),
            ("kernels and copies at once", self.overlap),
            ("neither", self.idle),
        ]
        lines += _time_lines("time of the device", rows, self.time)
        if self.kernels:
            lines += ["", "time by kernel", *self._kernel_lines()]
        if self.tasks is not None:
            lines += ["", *self.tasks.lines()]
        if self.copies:
            lines += ["", "copies", *self._copy_lines()]
        host = [(_HOST[activity], spent) for activity, spent in self.host.items()]
        return "\n".join([*lines, "", *_time_lines("time of the host", host, self.time)[1:]])

    def _kernel_lines(self) -> list[str]:
        programs = len({kernel.program for kernel in self.kernels})
        total = sum(kernel.time for kernel in self.kernels)
        peak = find_peak(self.model)
        title = "of peak" if peak else ""
        header = ("kernel", "core", "launches", "time", "share", "GFLOP/s", "GB/s", title, "")
        rows = [
            (
                k.name if programs == 1 else f"{k.name} of {k.program}",
                k.core,
                str(k.launches),
                format_ns(k.time),
                percent(k.time, total),
                f"{k.flops / k.time:.2f}" if k.time else "-",
                f"{k.bytes / k.time:.2f}" if k.time else "-",
                _share(k, peak),
                k.location,
            )
            for k in self.kernels[:_MOST]
        ]
        lines = columns([header, *rows], right=range(2, 8))
        if len(self.kernels) > _MOST:
            lines.append(f"  and {len(self.kernels) - _MOST} more kernels")
        return lines

    def _copy_lines(self) -> list[str]:
        rows = [
            (c.kind, str(c.copies), str(c.bytes), format_ns(c.time),
             f"{c.bytes / c.time:.2f}" if c.time else "-")
            for c in self.copies
        ]  # fmt: skip
        return columns([("", "copies", "bytes", "time", "GB/s"), *rows], right=range(1, 5))


def _share(kernel: LaunchTime, peak: DevicePeak | None) -> str:
    """The larger of the shares of arithmetic and of memory bandwidth; empty if not known."""
    if peak is None or not kernel.time or kernel.core != "device":
        return ""
    seconds = kernel.time / 1e9
    return percent(max(kernel.flops / peak.flops, kernel.bytes / peak.bytes), seconds)


def _time_lines(title: str, rows: Sequence[tuple[str, int]], total: int) -> list[str]:
    cells = [(name, format_ns(spent), percent(spent, total)) for name, spent in rows if spent]
    return ["", title, *columns(cells)]


def summarize_devices(runs: Sequence[DeviceRun]) -> tuple[DeviceSummary, ...]:
    """One for each device, in the order of first use."""
    by_device: dict[str, list[DeviceRun]] = {}
    for run in runs:
        by_device.setdefault(run.device, []).append(run)
    return tuple(_summarize(device, group) for device, group in by_device.items())


def _summarize(device: str, runs: Sequence[DeviceRun]) -> DeviceSummary:
    kernel_time = sum(covered(run.lanes["kernels"]) for run in runs)
    copy_time = sum(covered(run.lanes["copies"]) for run in runs)
    busy = sum(covered(s for s in run.spans if s.lane != "host") for run in runs)
    host: dict[str, int] = {}
    for run in runs:
        for span in run.lanes["host"]:
            host[span.activity] = host.get(span.activity, 0) + span.duration
    time = sum(run.makespan for run in runs)
    return DeviceSummary(
        device=device,
        runs=len(runs),
        time=time,
        kernel_time=kernel_time,
        copy_time=copy_time,
        overlap=kernel_time + copy_time - busy,
        idle=time - busy,
        host=host,
        kernels=_launch_times(runs),
        copies=_copy_times([span for run in runs for span in run.lanes["copies"]]),
        model=runs[0].model,
        graphs=tuple(dict.fromkeys(run.graph for run in runs if run.graph)),
        kind=runs[0].kind,
        tasks=next(filter(None, (summarize_tasks(run.tasks) for run in reversed(runs))), None),
    )


def _launch_times(runs: Sequence[DeviceRun]) -> tuple[LaunchTime, ...]:
    """By program and kernel, the longest first; includes host kernels."""
    groups: dict[tuple[str, str], list[Span]] = {}
    for run in runs:
        for span in run.spans:
            if span.kernels:
                groups.setdefault((run.program, span.name), []).append(span)
    rows = []
    for (program, name), spans in groups.items():
        rows.append(
            LaunchTime(
                program,
                name,
                _core(spans[0]),
                spans[0].location,
                len(spans),
                sum(span.duration for span in spans),
                sum(span.flops for span in spans),
                sum(span.moved for span in spans),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.time))


def _core(span: Span) -> str:
    core = span.kernels[0].core
    return f"{core}, the host decides" if span.decided_by == "host" else core


def _copy_times(spans: Sequence[Span]) -> tuple[CopyTime, ...]:
    groups: dict[str, list[Span]] = {}
    for span in spans:
        groups.setdefault(span.activity, []).append(span)
    return tuple(
        CopyTime(direction, len(g), sum(s.bytes for s in g), sum(s.duration for s in g))
        for direction, g in groups.items()
    )
