"""Predicts the time of a program on a device from its task table; nothing is run.

In: the `Tables` of a program for a device and a `DeviceModel`. Out: a `DevicePrediction`: when each
launch starts and ends, drawn like a traced run. `Model.simulate(device=...)` and `nova trace
--simulate` call `predict`; traces of runs on device `sim` show these times. `predict_graph` is the
execution as a graph, also of programs with a persistent kernel (`predict_persistent.py`).

A launch takes the time of its busiest multiprocessor, by a roofline over operations and bytes, and
the latency of a kernel. The order of launches and their branches are those of the graph that the
runtime makes (native/src/gpu/graph_edges.c). A loop takes the time of its body as often as it runs;
where only the run says how often, it is assumed to be once, and a branch takes its longest region.
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

PERSISTENT_KERNELS = (
    "nova_persistent_chains",
    "nova_persistent_ring",
    "nova_persistent_tiles",
    "nova_persistent_loops",
    "nova_persistent",
    "nova_persistent_flow",
)
"""The kernels that `link-persistent-kernel` adds: of a program without and with loops or branches;
the last two are of older files."""
SMALL_FLOPS = 1_000_000
"""Operations of a block that is too short to reach the rate of its multiprocessor."""
WORTH_NS = 4_000
"""EDGES_WORTH_US of graph_edges.c: a shorter kernel is not worth a branch."""

_MOST_DEPENDENT_NS = 15_000
"""A launch after a longer one is not dependent (native/src/gpu/graph_edges.c)."""


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
    """The predicted execution of one call, as a graph or by a persistent kernel.

    `assumed` are the loops that are assumed to run once.
    """

    model: DeviceModel
    launches: tuple[LaunchTime, ...]
    program: str = "program"
    launch: str = "graph"
    assumed: tuple[str, ...] = ()

    @property
    def device_ns(self) -> float:
        """From the start of the first launch to the end of the last."""
        return max((launch.end for launch in self.launches), default=0.0)

    @property
    def makespan(self) -> float:
        """Nanoseconds of a call, many in a row."""
        is_graph = self.launch == "graph"
        after = self.model.boundary if is_graph else self.model.cooperative_call
        return max(self.device_ns + after, self.model.call)

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
                str(block_count(item.kernel)),
                format_ns(round(item.start)),
                format_ns(round(item.end - item.start)),
                item.bound,
            )
            for item in self.launches
        ]
        is_graph = self.launch == "graph"
        title = (
            f"{len(self.launches)} launches on {self.model.name}: "
            f"{format_ns(round(self.makespan))} a call, "
            f"{format_ns(round(self.device_ns))} on the device, "
            + (f"{dependent} dependent launches" if is_graph else "tasks of a persistent kernel")
        )
        notes = [f"  {name} is assumed to run once" for name in self.assumed]
        return "\n".join([title, *columns(rows, right=(0, 3, 4, 5)), *notes])


def core_of(kernel: KernelSpec) -> str:
    """`matrix`, `vector`, `host` or `copy`: what a launch of the kernel runs on."""
    if kernel.device is not None:
        return kernel.device.core
    return kernel.core if kernel.is_linked else "copy"


def block_count(kernel: KernelSpec) -> int:
    return prod(kernel.device.grid) if kernel.device is not None else 1


def launch_ns(kernel: KernelSpec, model: DeviceModel) -> tuple[float, str]:
    """The predicted time of a launch, and what it depends on."""
    if kernel.device is None:
        return kernel.bytes / model.memory_bytes, "copy"
    blocks = block_count(kernel)
    if blocks == 0:
        return 0.0, "nothing"
    is_matrix = kernel.device.core == "matrix"
    rate = model.matrix_flops if is_matrix else model.vector_flops
    latency = model.matrix_latency if is_matrix else model.latency
    # The busiest multiprocessor has this many of the blocks, which share its rate.
    each = -(-blocks // model.processors)
    compute = kernel.flops / blocks * each / (rate / model.processors)
    if not is_matrix and kernel.flops < SMALL_FLOPS * blocks:
        compute = max(compute, kernel.flops / blocks / model.block_flops)
    memory = model.cache_bytes if kernel.bytes <= model.cache_size else model.memory_bytes
    used = min(blocks, model.processors)
    moving = kernel.bytes / min(memory, used * model.processor_bytes)
    if max(compute, moving) < latency / 4:
        return latency + max(compute, moving), "latency"
    return latency + max(compute, moving), "compute" if compute > moving else "memory"


def predict(tables: Tables, model: DeviceModel, program: str = "program") -> DevicePrediction:
    """The execution of a program for a device, in the way that it was compiled for."""
    if any(kernel.name in PERSISTENT_KERNELS for kernel in tables.kernels):
        from nova.tracing.devices.predict_persistent import predict_persistent  # it imports this

        return predict_persistent(tables, model, program)
    return predict_graph(tables, model, program)


def predict_graph(tables: Tables, model: DeviceModel, program: str = "program") -> DevicePrediction:
    """The execution of a program, or of a region, as a graph of its launches."""
    assumed: list[str] = []
    kernels = [tables.kernels[launch.kernel] for launch in tables.launches]
    times = [_time_of(kernel, tables, model, assumed) for kernel in kernels]
    waits = dependences(tables)
    ancestors: list[set[int]] = []
    ends: list[float] = []
    items: list[LaunchTime] = []
    for number, kernel in enumerate(kernels):
        if kernel.control is None and kernel.device is not None and not block_count(kernel):
            ancestors.append(set())
            ends.append(0.0)
            continue
        before = {number - 1} if number and waits is None else set(waits[number] if waits else ())
        if number and not _is_branch(number, kernels, times, before, ancestors, model):
            before.add(number - 1)
        above = before.union(*(ancestors[i] for i in before))
        direct = before - set().union(*(ancestors[i] for i in before))
        longest = max((times[i][0] for i in direct), default=0.0)
        dependent = len(direct) == 1 and _is_dependent(kernel, longest, model)
        gap = model.dependent_boundary if dependent else model.boundary
        start = max((ends[i] + gap for i in direct), default=0.0)
        duration, bound = times[number]
        ancestors.append(above)
        ends.append(start + duration)
        items.append(LaunchTime(number, kernel, start, start + duration, bound, dependent))
    return DevicePrediction(model, tuple(items), program, assumed=tuple(dict.fromkeys(assumed)))


def _time_of(
    kernel: KernelSpec, tables: Tables, model: DeviceModel, assumed: list[str]
) -> tuple[float, str]:
    """The time of a launch, a loop or a branch, and what it depends on."""
    if kernel.core == "while":  # its body follows it: the launches after it
        assumed.append(kernel.name)
        return 0.0, "its condition"
    control = kernel.control
    if control is None:
        return launch_ns(kernel, model)
    bodies = [predict_graph(tables.region(n), model, kernel.name) for n in control.regions]
    assumed += [name for body in bodies for name in body.assumed]
    longest = max((body.device_ns for body in bodies), default=0.0)
    if control.construct not in ("for", "while"):
        return model.branch + longest, "its longest branch"
    if control.construct == "while":
        assumed.append(kernel.name)
    iterations = control.length if control.construct == "for" else 1
    return iterations * (model.iteration + longest), f"{iterations} iterations"


def predicted_spans(spans: tuple[Span, ...], model: DeviceModel) -> tuple[Span, ...]:
    """The spans of a run with the predicted times of its kernels.

    Each starts when the simulator started it, or after the one before it: order, host and copies
    stay as they were.
    """
    now = last = 0.0
    timed: list[Span] = []
    for span in spans:
        if span.activity != "kernel" or not span.kernels:
            timed.append(span)
            continue
        kernel = span.kernels[0]
        duration, _ = launch_ns(kernel, model)
        start = max(span.start, now)
        timed.append(replace(span, start=round(start), end=round(start + duration)))
        dependent = _is_dependent(kernel, last, model)
        boundary = model.dependent_boundary if dependent else model.boundary
        now, last = start + duration + boundary, duration
    return tuple(sorted(timed, key=lambda span: (span.start, span.end)))


def _is_dependent(kernel: KernelSpec, before_ns: float, model: DeviceModel) -> bool:
    """Whether a kernel starts before the launch before it ends, where the knob allows that."""
    is_able = kernel.device is not None and kernel.device.dependent
    overlap = knobs.device_overlap
    is_allowed = overlap == "dependent" or (overlap == "auto" and before_ns <= _MOST_DEPENDENT_NS)
    return is_able and model.has_dependent_launches and is_allowed


def dependences(tables: Tables) -> list[list[int]] | None:
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
    most = max((block_count(kernels[i]) for i in others), default=0)
    return (
        sum(times[i][0] for i in others) >= WORTH_NS
        and most + block_count(kernels[number]) <= model.processors
    )
