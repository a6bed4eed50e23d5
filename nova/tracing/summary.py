"""The summary of a trace: time by kernel, idle time by reason, rates against the machine's peaks.

In: measured runs with their planned schedules. Out: `Summary`, whose text is the output of `nova
trace`; its fields are plain numbers, for JSON and for the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nova.tracing.advice import Finding
from nova.tracing.device_run import DeviceRun
from nova.tracing.device_summary import DeviceSummary, summarize_devices
from nova.tracing.idle import idle_reasons
from nova.tracing.peaks import Peaks
from nova.tracing.text import columns, format_ns, percent

if TYPE_CHECKING:
    from nova.tracing.run import AnyRun, Run


@dataclass(frozen=True)
class KernelTime:
    """All tasks of a kernel, over all runs; times in nanoseconds, rates in units per second."""

    program: str
    name: str
    core: str
    location: str
    tasks: int
    time: int
    share: float  # of the time in tasks
    flops: float
    bytes: float

    @property
    def flop_rate(self) -> float:
        """Operations per second while the kernel ran, on one core."""
        return 1e9 * self.flops / self.time if self.time else 0.0

    @property
    def byte_rate(self) -> float:
        """Bytes per second while the kernel ran, on one core."""
        return 1e9 * self.bytes / self.time if self.time else 0.0


@dataclass(frozen=True)
class Summary:
    """Figures over all runs of a trace; times in nanoseconds.

    All but `devices` and `lost` cover the runs on this machine's cores.
    """

    runs: int
    kind: str
    lost: int
    workers: int
    time: int
    planned: int
    busy: int
    idle: dict[str, int]
    kernels: tuple[KernelTime, ...]
    path: dict[str, int]  # of the longest run: components of its critical path
    bound: int  # of the longest run: its longest dependency chain
    advice: tuple[Finding, ...]
    peaks: Peaks | None  # of this machine; None if nothing ran on its cores
    devices: tuple[DeviceSummary, ...] = ()

    @property
    def flop_rate(self) -> float:
        """Operations per second over the whole time."""
        return 1e9 * sum(k.flops for k in self.kernels) / self.time if self.time else 0.0

    @property
    def byte_rate(self) -> float:
        """Bytes per second over the whole time."""
        return 1e9 * sum(k.bytes for k in self.kernels) / self.time if self.time else 0.0

    def __str__(self) -> str:
        parts = [str(device) for device in self.devices]
        if self.runs and self.peaks is not None:
            parts.insert(0, self._describe(self.peaks))
        if self.lost:
            parts.append(f"{self.lost} records were lost: there was no memory or no event for them")
        return "\n\n".join(parts) or "no run was traced"

    def _describe(self, peaks: Peaks) -> str:
        """The runs on the cores of this machine."""
        total = self.busy + sum(self.idle.values())
        runs = f"{self.runs} run{'s' if self.runs != 1 else ''}"
        workers = f"{self.workers} worker{'s' if self.workers != 1 else ''}"
        lines = [
            f"{runs} {self.kind} on {workers}: {format_ns(self.time)} "
            f"(planned {format_ns(self.planned)})",
            f"  {self.flop_rate / 1e9:.2f} GFLOP/s, {percent(self.flop_rate, peaks.flops)} of this "
            f"machine's {peaks.flops / 1e9:.0f} on {peaks.cores} cores",
            f"  {self.byte_rate / 1e9:.2f} GB/s, {percent(self.byte_rate, peaks.bytes)} of its "
            f"{peaks.bytes / 1e9:.1f} (operands count once; what stays in caches is not moved)",
            "",
            "time by kernel",
            *_kernel_lines(self.kernels, peaks),
            "",
            "time of the cores",
            *columns(
                [
                    ("in tasks", format_ns(self.busy), percent(self.busy, total)),
                    *(
                        (f"idle: {reason}", format_ns(spent), percent(spent, total))
                        for reason, spent in self.idle.items()
                        if spent
                    ),
                ]
            ),
            "",
            "critical path of the longest run",
            *columns([(name, format_ns(spent)) for name, spent in self.path.items()]),
            f"  at least {format_ns(self.bound)} on any number of cores",
        ]
        if self.advice:
            lines += ["", "what would shorten it, at most by"]
            lines += [f"  {format_ns(f.gain):>10}  {f.text}" for f in self.advice]
        return "\n".join(lines)


def summarize(traced: Sequence[AnyRun], peaks: Peaks | None) -> Summary:
    """The summary of all runs.

    The critical path is that of the longest run on this machine's cores, whose peaks are needed
    only if there is one.
    """
    on_devices = [run for run in traced if isinstance(run, DeviceRun)]
    runs = [run for run in traced if not isinstance(run, DeviceRun)]
    idle: dict[str, int] = {}
    for run in runs:
        for reason, spent in idle_reasons(run.measured).items():
            idle[reason] = idle.get(reason, 0) + spent
    longest = max(runs, key=lambda run: run.measured.makespan, default=None)
    return Summary(
        runs=len(runs),
        kind=" and ".join(sorted({run.kind for run in runs})),
        lost=sum(run.lost for run in traced),
        workers=max((run.measured.workers for run in runs), default=0),
        time=sum(run.measured.makespan for run in runs),
        planned=sum(run.planned.makespan for run in runs),
        busy=sum(run.measured.busy for run in runs),
        idle=idle,
        kernels=_kernel_times(runs),
        path={} if longest is None else path_parts(longest),
        bound=0 if longest is None else longest.bound,
        advice=() if longest is None else longest.advice,
        peaks=peaks,
        devices=summarize_devices(on_devices),
    )


def _kernel_times(runs: Sequence[Run]) -> tuple[KernelTime, ...]:
    """By program and kernel, the longest first; joins have no kernel."""
    rows: dict[tuple[str, str], list[float]] = {}
    facts = {}
    for run in runs:
        tasks = run.measured.graph.tasks
        for number, spent in zip(run.measured.records["task"], run.measured.durations, strict=True):
            task = tasks[number]
            key = (run.program, "join" if task.is_join else task.kernel.name)
            facts[key] = task
            row = rows.setdefault(key, [0, 0, 0.0, 0.0])
            row[0] += 1
            row[1] += int(spent)
            row[2] += task.flops
            row[3] += task.bytes
    total = sum(row[1] for row in rows.values())
    kernels = [
        KernelTime(
            program,
            name,
            "" if facts[program, name].is_join else facts[program, name].kernel.core,
            "" if facts[program, name].is_join else facts[program, name].kernel.location,
            int(count),
            int(spent),
            spent / total if total else 0.0,
            flops,
            moved,
        )
        for (program, name), (count, spent, flops, moved) in rows.items()
    ]
    return tuple(sorted(kernels, key=lambda kernel: -kernel.time))


def path_parts(run: Run) -> dict[str, int]:
    """The makespan as a sum: work and waits along the critical path."""
    path = run.critical
    parts = {"in tasks": sum(step.duration for step in path)}
    for step in path:
        name = _WAITS[step.cause]
        parts[name] = parts.get(name, 0) + step.wait
    parts["before the end"] = run.measured.makespan - sum(parts.values())
    return {name: spent for name, spent in parts.items() if spent > 0}


_WAITS = {
    "start": "before the first task",
    "data": "from a result to the task that needs it",
    "join": "from a result to the task that needs it",
    "reuse": "from free memory to the task that needs it",
    "core": "from a free core to its next task",
}


def _kernel_lines(kernels: Sequence[KernelTime], peaks: Peaks, most: int = 20) -> list[str]:
    """The table; it says what is omitted."""
    programs = len({kernel.program for kernel in kernels})
    header = ("kernel", "core", "tasks", "time", "share", "GFLOP/s", "of peak", "GB/s", "")
    rows = [
        (
            kernel.name if programs == 1 else f"{kernel.name} of {kernel.program}",
            kernel.core,
            str(kernel.tasks),
            format_ns(kernel.time),
            f"{100 * kernel.share:.1f} %",
            f"{kernel.flop_rate / 1e9:.2f}",
            percent(kernel.flop_rate, peaks.core_flops),
            f"{kernel.byte_rate / 1e9:.2f}",
            kernel.location,
        )
        for kernel in kernels[:most]
    ]
    lines = columns([header, *rows], right=(2, 3, 4, 5, 6, 7))
    if len(kernels) > most:
        lines.append(f"  and {len(kernels) - most} more kernels")
    return lines
