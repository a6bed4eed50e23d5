"""What would make a run shorter: what its critical path consists of, the largest part first.

Comes in: a timeline and its critical path. Goes out: findings, each with the most that it could
gain. Called by the summary and the page.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nova.runtime.trace.critical import Step
from nova.runtime.trace.graph import Task
from nova.runtime.trace.timeline import Timeline

_WORTH_SAYING = 0.02
"""Of the makespan: what cannot gain this much is left out."""

_MOST = 6


@dataclass(frozen=True)
class Finding:
    """One way to a shorter run, and the most nanoseconds that it can gain."""

    kind: str  # tasks, tiles, reuse, cores or overhead
    gain: int
    text: str


def find_advice(timeline: Timeline, path: Sequence[Step], bound: int) -> tuple[Finding, ...]:
    """The findings that are worth saying, the largest gain first.

    `bound` is the longest chain of dependencies: more cores cannot gain more than is above it, and
    without any wait the cores still have to do all the work.
    """
    idle = timeline.makespan - timeline.busy // timeline.workers
    found = [
        *_about_kernels(timeline, path),
        *_limited(_about_reuse(timeline, path), idle),
        *_limited(_about_cores(path), timeline.makespan - bound),
        *_limited(_about_overhead(path), idle),
    ]
    least = _WORTH_SAYING * timeline.makespan
    return tuple(sorted((f for f in found if f.gain > least), key=lambda f: -f.gain)[:_MOST])


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
            yield Finding("tiles", gain, _too_few(task, count, workers, graph.by_launch))
        else:
            many = f"{len(steps)} of {totals[number]} tasks"
            yield Finding(
                "tasks", spent, f"{_name(task)}: {many} on the path; faster code counts here"
            )


def _too_few(task: Task, count: int, workers: int, by_launch: bool) -> str:
    tasks = f"{count} task" + ("s" if count != 1 else "")
    has = f"{_name(task)} has {tasks} for {workers} cores"
    if by_launch:
        return f"{has}: it was run as a whole"
    if task.kernel.grid > count:
        return f"{has}, and {task.kernel.grid} tiles: cut it into smaller tasks"
    return f"{has}, one a tile: smaller tiles (NOVA_TILE_WORK) would let more cores help"


def _about_reuse(timeline: Timeline, path: Sequence[Step]) -> Iterable[Finding]:
    """Waits that are only there because memory is used twice."""
    steps = [step for step in path if step.cause == "reuse"]
    if steps:
        longest = max(steps, key=lambda step: step.held[1] - step.held[0])
        yield Finding(
            "reuse",
            _covered(step.held for step in steps),
            f"{_count(steps, 'wait')} for workspace to be free again, most for "
            f"{_name(timeline.graph.tasks[longest.task])}: a larger workspace would avoid that",
        )


def _about_cores(path: Sequence[Step]) -> Iterable[Finding]:
    steps = [step for step in path if step.cause == "core"]
    if steps:
        yield Finding(
            "cores",
            _covered(step.held for step in steps),
            f"{_count(steps, 'task')} on the path waited for a core: more workers would help",
        )


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Nanoseconds that lie in any of the spans: those of later steps overlap."""
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
            "waking cores and starting tasks; larger tasks have less of it",
        )


def _name(task: Task) -> str:
    where = f" ({task.kernel.location})" if task.kernel.location else ""
    return f"{task.kernel.name}{where}"


def _count(items: Sequence[object], name: str) -> str:
    return f"{len(items)} {name}{'s' if len(items) != 1 else ''}"
