"""Advice for a shorter run: the components of its critical path, the largest first.

In: a timeline and its critical path. Out: findings, each with its maximum gain. Called by the
summary and the page.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nova import knobs
from nova.artifact.tables import KernelSpec, Tables
from nova.artifact.task_plan import WORTH_SHARING_NS, plan_tasks
from nova.tracing.costs import planned_ns, planned_tile_work
from nova.tracing.critical import Step
from nova.tracing.graph import Task, TaskGraph
from nova.tracing.timeline import Timeline

_WORTH_SAYING = 0.02
"""The least fraction of the makespan for a finding; smaller gains are omitted."""

_MOST = 6

_WIDEST = 8
"""Bytes of the widest element: a tile has at least one."""


@dataclass(frozen=True)
class Finding:
    """One way to shorten a run, and its maximum gain in nanoseconds."""

    kind: str  # tasks, tiles, reuse, cores or overhead
    gain: int
    text: str


def find_advice(timeline: Timeline, path: Sequence[Step], bound: int) -> tuple[Finding, ...]:
    """The relevant findings, the largest gain first.

    `bound` is the longest dependency chain: more cores cannot reduce the time below it, and without
    any wait the cores still have to do all the work.
    """
    idle = timeline.makespan - timeline.busy // timeline.workers
    advice = [
        *_about_kernels(timeline, path),
        *_limited(_about_reuse(timeline, path), idle),
        *_limited(_about_cores(path), timeline.makespan - bound),
        *_limited(_about_overhead(path), idle),
    ]
    least = _WORTH_SAYING * timeline.makespan
    return tuple(sorted((f for f in advice if f.gain > least), key=lambda f: -f.gain)[:_MOST])


def _limited(findings: Iterable[Finding], most: int) -> Iterable[Finding]:
    return (replace(finding, gain=min(finding.gain, most)) for finding in findings)


def _about_kernels(timeline: Timeline, path: Sequence[Step]) -> Iterable[Finding]:
    """Kernels by their time on the path: too few tasks, or simply long."""
    graph, workers = timeline.graph, timeline.workers
    on_path: dict[int, list[Step]] = defaultdict(list)
    totals: Counter[int] = Counter()
    kernels = [launch.kernel for launch in graph.tables.launches]
    for launch, count in enumerate(graph.task_counts):
        totals[kernels[launch]] += count
    for step in path:
        if not graph.tasks[step.task].is_join:
            on_path[kernels[graph.tasks[step.task].launch]].append(step)
    for number, steps in on_path.items():
        task = graph.tasks[steps[0].task]
        spent = sum(step.duration for step in steps)
        count = graph.task_counts[task.launch]
        if count < workers and task.kernel.core != "host":  # those run on the caller alone
            gain = spent - spent * count // workers
            yield Finding("tiles", gain, _too_few(graph, task, count, workers))
        else:
            many = f"{len(steps)} of {totals[number]} tasks"
            yield Finding(
                "tasks", spent, f"{_name(task)}: {many} on the path; faster code counts here"
            )


def _too_few(graph: TaskGraph, task: Task, count: int, workers: int) -> str:
    """Why a kernel does not keep the cores busy, and the settings that change that."""
    tasks = f"{count} task" + ("s" if count != 1 else "")
    has = f"{_name(task)} has {tasks} for {workers} cores"
    if graph.by_launch and plan_tasks(graph.tables, workers):
        return f"{has}: it was run as a whole"
    if graph.by_launch and sum(map(planned_ns, _launched(graph.tables))) < WORTH_SHARING_NS:
        return f"{has}: the program is too short to be shared"
    if task.kernel.grid > count:
        most = min(workers, task.kernel.grid)
        each = max(1, int(planned_ns(task.kernel) / most))
        return f"{has}, and {task.kernel.grid} tiles: NOVA_TASK_NS={each} makes {most} tasks of it"
    if _written(graph.tables, task) < 2 * _WIDEST * count:
        return f"{has}, one for each tile, and no more results to share"
    smaller = f"NOVA_TILE_WORK={planned_tile_work(task.kernel, workers)}"
    each = max(1, int(planned_ns(task.kernel) / workers))
    if each < knobs.KNOBS["task_ns"].default:  # else tiles of that size are separate tasks
        smaller += f" NOVA_TASK_NS={each}"
    return f"{has}, one for each tile: {smaller} makes more where its rows allow"


def _launched(tables: Tables) -> Iterable[KernelSpec]:
    return (tables.kernels[launch.kernel] for launch in tables.launches)


def _written(tables: Tables, task: Task) -> int:
    """Bytes of the largest buffer that a task's kernel writes."""
    launch = tables.launches[task.launch]
    buffers = [tables.buffers[b] for b in launch.buffers[launch.reads :]]
    return max((buffer.nbytes for buffer in buffers), default=0)


def _about_reuse(timeline: Timeline, path: Sequence[Step]) -> Iterable[Finding]:
    """Waits that exist only because memory is reused."""
    steps = [step for step in path if step.cause == "reuse"]
    if steps:
        longest = max(steps, key=lambda step: step.idle[1] - step.idle[0])
        yield Finding(
            "reuse",
            _covered(step.idle for step in steps),
            f"{_count(steps, 'wait')} for workspace to be free again, most for "
            f"{_name(timeline.graph.tasks[longest.task])}: memory is used again, "
            "the more the lower max_workspace is",
        )


def _about_cores(path: Sequence[Step]) -> Iterable[Finding]:
    steps = [step for step in path if step.cause == "core"]
    if steps:
        yield Finding(
            "cores",
            _covered(step.idle for step in steps),
            f"{_count(steps, 'task')} on the path waited for a core: more workers would help",
        )


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Nanoseconds in the union of the spans: those of later steps overlap."""
    total, end = 0, 0
    for low, high in sorted(spans):
        total += max(0, high - max(low, end))
        end = max(end, high)
    return total


def _about_overhead(path: Sequence[Step]) -> Iterable[Finding]:
    waited = sum(step.wait for step in path)
    if waited:
        yield Finding(
            "overhead",
            waited,
            f"{_count(path, 'step')}, {waited / len(path) / 1e3:.1f} us between two: "
            "waking cores and starting tasks; larger tasks (NOVA_TASK_NS) have less of it",
        )


def _name(task: Task) -> str:
    where = f" ({task.kernel.location})" if task.kernel.location else ""
    return f"{task.kernel.name}{where}"


def _count(items: Sequence[object], name: str) -> str:
    return f"{len(items)} {name}{'s' if len(items) != 1 else ''}"
