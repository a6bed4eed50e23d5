"""Predicts the time of a program on a device from its task table; nothing is run.

In: the `Tables` of a program for a device and a `DeviceModel`. Out: a `DevicePrediction`: when each
launch of its graph starts and ends, drawn like a traced run. `Model.simulate(device=...)` and `nova
trace --simulate` call `predict`; traces of runs on device `sim` show these times.

A launch takes the time of its busiest multiprocessor, by a roofline over operations and bytes, and
the latency of a kernel. The order of launches and their branches are those of the graph that the
runtime makes (native/src/gpu/graph_edges.c).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from nova import knobs
from nova.artifact.tables import KernelSpec, Tables
from nova.artifact.task_plan import plan_device_tasks
from nova.tracing.device_run import DeviceRun, Span
from nova.tracing.devices.models import DeviceModel
from nova.tracing.text import columns, format_ns

WORTH_NS = 4_000
"""EDGES_WORTH_US of graph_edges.c: a shorter kernel is not worth a branch."""


@dataclass(frozen=True)
class LaunchTime:
    """A launch on the timeline, in nanoseconds; `bound` is what its time depends on."""

    launch: int
    kernel: KernelSpec
    start: float
    end: float
    bound: str
    dependent: bool


@dataclass(frozen=True)
class DevicePrediction:
    """The predicted graph execution of one call."""

    model: DeviceModel
    launches: tuple[LaunchTime, ...]
    program: str = "program"

    @property
    def device_ns(self) -> float:
        """From the start of the first launch to the end of the last."""
        return max((launch.end for launch in self.launches), default=0.0)

    @property
    def makespan(self) -> float:
        """Nanoseconds of a call, many in a row."""
        return max(self.device_ns + self.model.boundary, self.model.call)

    @cached_property
    def run(self) -> DeviceRun:
        """The timeline as a run, for the page and for Perfetto."""
        spans = tuple(
            Span(
                "kernels",
                "kernel",
                item.kernel.name,
                round(item.start),
                round(item.end),
                kernels=(item.kernel,),
                launch=item.launch,
            )
            for item in self.launches
        )
        end = round(self.device_ns)
        name = f"{self.model.name}:0"
        return DeviceRun(self.program, name, 0, end, spans, kind="predicted", model=self.model.name)

    def __str__(self) -> str:
        dependent = sum(launch.dependent for launch in self.launches)
        rows = [("launch", "kernel", "core", "blocks", "start", "time", "bound by")]
        rows += [
            (
                str(item.launch),
                item.kernel.name,
                core_of(item.kernel),
                str(_blocks(item.kernel)),
                format_ns(round(item.start)),
                format_ns(round(item.end - item.start)),
                item.bound,
            )
            for item in self.launches
        ]
        title = (
            f"{len(self.launches)} launches on {self.model.name}: "
            f"{format_ns(round(self.makespan))} a call, "
            f"{format_ns(round(self.device_ns))} on the device, "
            f"{dependent} dependent launches"
        )
        return "\n".join([title, *columns(rows, right=(0, 3, 4, 5))])


def core_of(kernel: KernelSpec) -> str:
    """`matrix`, `vector`, `host` or `copy`: what a launch of the kernel runs on."""
    if kernel.device is not None:
        return kernel.device.core
    return kernel.core if kernel.is_linked else "copy"


def _blocks(kernel: KernelSpec) -> int:
    return prod(kernel.device.grid) if kernel.device is not None else 1


def launch_ns(kernel: KernelSpec, model: DeviceModel) -> tuple[float, str]:
    """The predicted time of a launch, and what it depends on."""
    if kernel.device is None:
        return kernel.bytes / model.memory_bytes, "copy"
    blocks = _blocks(kernel)
    if blocks == 0:
        return 0.0, "nothing"
    is_matrix = kernel.device.core == "matrix"
    rate = model.matrix_flops if is_matrix else model.vector_flops
    latency = model.matrix_latency if is_matrix else model.latency
    # The busiest multiprocessor has this many of the blocks, which share its rate.
    each = -(-blocks // model.processors)
    compute = kernel.flops / blocks * each / (rate / model.processors)
    memory = model.cache_bytes if kernel.bytes <= model.cache_size else model.memory_bytes
    used = min(blocks, model.processors)
    moving = kernel.bytes / min(memory, used * model.processor_bytes)
    if max(compute, moving) < latency / 4:
        return latency + max(compute, moving), "latency"
    return latency + max(compute, moving), "compute" if compute > moving else "memory"


def predict(tables: Tables, model: DeviceModel, program: str = "program") -> DevicePrediction:
    """The graph execution of a program for a device."""
    kernels = [tables.kernels[launch.kernel] for launch in tables.launches]
    times = [launch_ns(kernel, model) for kernel in kernels]
    waits = _dependences(tables)
    ancestors: list[set[int]] = []
    ends: list[float] = []
    items: list[LaunchTime] = []
    for number, kernel in enumerate(kernels):
        if kernel.device is not None and not _blocks(kernel):
            ancestors.append(set())
            ends.append(0.0)
            continue
        before = {number - 1} if number and waits is None else set(waits[number] if waits else ())
        if number and not _is_branch(number, kernels, times, before, ancestors, model):
            before.add(number - 1)
        above = before.union(*(ancestors[i] for i in before))
        direct = before - set().union(*(ancestors[i] for i in before))
        dependent = len(direct) == 1 and _is_dependent(kernel, model)
        gap = model.dependent_boundary if dependent else model.boundary
        start = max((ends[i] + gap for i in direct), default=0.0)
        duration, bound = times[number]
        ancestors.append(above)
        ends.append(start + duration)
        items.append(LaunchTime(number, kernel, start, start + duration, bound, dependent))
    return DevicePrediction(model, tuple(items), program)


def predicted_spans(spans: tuple[Span, ...], model: DeviceModel) -> tuple[Span, ...]:
    """The spans of a run with the predicted times of its kernels.

    Each starts when the simulator started it, or after the one before it: order, host and copies
    stay as they were.
    """
    now = 0.0
    timed: list[Span] = []
    for span in spans:
        if span.activity != "kernel" or not span.kernels:
            timed.append(span)
            continue
        kernel = span.kernels[0]
        duration, _ = launch_ns(kernel, model)
        start = max(span.start, now)
        timed.append(replace(span, start=round(start), end=round(start + duration)))
        boundary = model.dependent_boundary if _is_dependent(kernel, model) else model.boundary
        now = start + duration + boundary
    return tuple(sorted(timed, key=lambda span: (span.start, span.end)))


def _is_dependent(kernel: KernelSpec, model: DeviceModel) -> bool:
    """Whether a kernel starts before the launch before it ends, where the knob allows that."""
    is_able = kernel.device is not None and kernel.device.dependent
    return is_able and model.has_dependent_launches and knobs.device_overlap == "dependent"


def _dependences(tables: Tables) -> list[list[int]] | None:
    """The launches that each launch waits for; None where they run in order."""
    tasks = plan_device_tasks(tables, 1)
    if not tasks:
        return None
    waits: list[list[int]] = [[] for _ in tables.launches]
    for task in tasks:
        for successor in task.successors:
            waits[tasks[successor].launch].append(task.launch)
    return waits


def _is_branch(
    number: int,
    kernels: list[KernelSpec],
    times: list[tuple[float, str]],
    before: set[int],
    ancestors: list[set[int]],
    model: DeviceModel,
) -> bool:
    """Whether a launch runs concurrently with those that it does not depend on."""
    if number - 1 in before or times[number][0] < WORTH_NS:
        return False
    above = before.union(*(ancestors[i] for i in before))
    others = [i for i in range(number) if i not in above]
    most = max((_blocks(kernels[i]) for i in others), default=0)
    return (
        sum(times[i][0] for i in others) >= WORTH_NS
        and most + _blocks(kernels[number]) <= model.processors
    )
