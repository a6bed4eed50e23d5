"""Simulates the tasks of a program on cores of several types: matrix, vector, copy and host.

In: the `Tables` of a program for a device and a `TypedCores` machine. Out: a `CoresSimulation`:
which core runs which task when. Tasks are ranges of the tiles of a launch, ordered by the bytes
that they touch; the task with the longest chain of followers is next (list scheduling by critical
path, Graham 1966). `Model.simulate(cores={...})` calls `simulate_cores`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nova.artifact.tables import KernelSpec, Tables, TaskSpec
from nova.artifact.task_plan import plan_device_tasks
from nova.errors import AttributeValueError
from nova.tracing.devices.models import TypedCores
from nova.tracing.devices.predict import core_of
from nova.tracing.text import columns, format_ns, percent

CORE_TYPES = ("matrix", "vector", "copy", "host")


@dataclass(frozen=True)
class CoreTask:
    """A task on a core, in nanoseconds."""

    task: int
    core: str
    number: int
    start: float
    end: float


@dataclass(frozen=True)
class CoresSimulation:
    """The schedule of a program on a machine with typed cores."""

    machine: TypedCores
    tasks: tuple[CoreTask, ...]
    critical_ns: float

    @property
    def makespan(self) -> float:
        """Nanoseconds from the first start to the last end."""
        return max((task.end for task in self.tasks), default=0.0)

    def utilisation(self, core: str) -> float:
        """The part of the makespan that the cores of a type work."""
        busy = sum(task.end - task.start for task in self.tasks if task.core == core)
        number = self.machine.cores.get(core, 0)
        return busy / (number * self.makespan) if number and self.tasks else 0.0

    def __str__(self) -> str:
        count = Counter(task.core for task in self.tasks)
        rows = [("cores", "number", "tasks", "busy")]
        rows += [
            (core, str(number), str(count[core]), percent(self.utilisation(core), 1))
            for core, number in self.machine.cores.items()
        ]
        title = (
            f"{len(self.tasks)} tasks: {format_ns(self.makespan)}, critical path "
            f"{format_ns(self.critical_ns)}"
        )
        return "\n".join([title, *columns(rows, right=(1, 2, 3))])


def check_cores(cores: Mapping[str, int]) -> None:
    """AttributeValueError for a type that no task has, and for a number below 1."""
    for core, number in cores.items():
        if core not in CORE_TYPES or not isinstance(number, int) or number < 1:
            raise AttributeValueError(
                f"cores has {core!r}: {number!r}",
                hint=f"types of cores are {', '.join(CORE_TYPES)}; numbers are at least 1",
            )


def simulate_cores(tables: Tables, machine: TypedCores) -> CoresSimulation:
    """Schedule all tasks; a type of core that the machine does not name has one core."""
    check_cores(machine.cores)
    tasks = plan_device_tasks(tables)
    if not tasks:  # launches in order
        tasks = tuple(
            TaskSpec(i, int(i > 0), 0, tables.kernels[launch.kernel].grid, (i + 1,))
            for i, launch in enumerate(tables.launches)
        )
        tasks = (*tasks[:-1], *(TaskSpec(t.launch, t.waits, 0, t.end, ()) for t in tasks[-1:]))
    kernels = [tables.kernels[tables.launches[task.launch].kernel] for task in tasks]
    costs = [_cost(kernel, task, machine) for kernel, task in zip(kernels, tasks, strict=True)]
    longest = _followers(tasks, costs)
    types = [core_of(kernel) for kernel in kernels]
    return CoresSimulation(
        machine,
        tuple(_play(tasks, types, costs, longest, machine.cores)),
        max(longest, default=0.0),
    )


def _cost(kernel: KernelSpec, task: TaskSpec, machine: TypedCores) -> float:
    if task.begin == task.end:  # it only joins others
        return 0.0
    part = (task.end - task.begin) / max(1, kernel.grid)
    rate = machine.matrix_flops if core_of(kernel) == "matrix" else machine.vector_flops
    return machine.overhead + part * max(kernel.flops / rate, kernel.bytes / machine.core_bytes)


def _followers(tasks: Sequence[TaskSpec], costs: Sequence[float]) -> list[float]:
    """For each task, the time of the longest chain that begins with it."""
    longest = [0.0] * len(tasks)
    for number in reversed(range(len(tasks))):
        after = max((longest[s] for s in tasks[number].successors), default=0.0)
        longest[number] = costs[number] + after
    return longest


def _play(
    tasks: Sequence[TaskSpec],
    types: Sequence[str],
    costs: Sequence[float],
    longest: Sequence[float],
    cores: Mapping[str, int],
) -> list[CoreTask]:
    waits = [task.waits for task in tasks]
    idle = {core: list(range(cores.get(core, 1))) for core in CORE_TYPES}
    ready: dict[str, list[tuple[float, int]]] = {core: [] for core in CORE_TYPES}
    running: list[tuple[float, int, int]] = []
    played: list[CoreTask] = []
    now = 0.0

    def release(number: int) -> None:
        heapq.heappush(ready[types[number]], (-longest[number], number))

    for number, count in enumerate(waits):
        if count == 0:
            release(number)
    while True:
        for core in CORE_TYPES:
            while ready[core] and idle[core]:
                _, number = heapq.heappop(ready[core])
                place = heapq.heappop(idle[core])
                end = now + costs[number]
                heapq.heappush(running, (end, number, place))
                played.append(CoreTask(number, core, place, now, end))
        if not running:
            return played
        now, number, place = heapq.heappop(running)
        heapq.heappush(idle[types[number]], place)
        for successor in tasks[number].successors:
            waits[successor] -= 1
            if waits[successor] == 0:
                release(successor)
