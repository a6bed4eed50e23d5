"""The task graph of a program, for traces and simulations.

In: the `Tables` of a file, and a number of threads. Out: `TaskGraph`, with the operations and bytes
of each task, its dependences, and their reasons (`critical.py`). A program without tasks runs its
launches in order: it gets one task per launch, each after the previous one. Used by everything in
this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nova.artifact.tables import CORES, SUCCESSOR, TASK, KernelSpec, Tables, TaskSpec
from nova.artifact.task_plan import plan_tasks


@dataclass(frozen=True)
class Task:
    """Tiles [begin, end) of a launch. A join has none: it only waits for many tasks."""

    number: int
    launch: int
    kernel: KernelSpec
    begin: int
    end: int
    successors: tuple[int, ...]

    @property
    def is_join(self) -> bool:
        """Whether it stands for edges only, and calls no kernel."""
        return self.begin == self.end

    @property
    def share(self) -> float:
        """Its fraction of the kernel's tiles."""
        return (self.end - self.begin) / self.kernel.grid if self.kernel.grid else 0.0

    @property
    def flops(self) -> float:
        """Scalar operations that it computes."""
        return self.share * self.kernel.flops

    @property
    def bytes(self) -> float:
        """Bytes that it reads and writes, each once."""
        return self.share * self.kernel.bytes

    @property
    def title(self) -> str:
        """`kernel_3[4:8]`, or the name alone if it is the whole kernel."""
        if self.is_join:
            return "join"
        is_full = self.end - self.begin == self.kernel.grid
        return self.kernel.name if is_full else f"{self.kernel.name}[{self.begin}:{self.end}]"


@dataclass(frozen=True)
class TaskGraph:
    """Tasks in topological order; `by_launch` if each is a whole launch, run in order."""

    tables: Tables
    specs: tuple[TaskSpec, ...]
    by_launch: bool

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The task records of the file, with their kernels."""
        launches, kernels = self.tables.launches, self.tables.kernels
        return tuple(
            Task(
                number,
                spec.launch,
                kernels[launches[spec.launch].kernel],
                spec.begin,
                spec.end,
                spec.successors,
            )
            for number, spec in enumerate(self.specs)
        )

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """The tasks that each task waits for."""
        predecessors: list[list[int]] = [[] for _ in self.specs]
        for number, spec in enumerate(self.specs):
            for successor in spec.successors:
                predecessors[successor].append(number)
        return tuple(map(tuple, predecessors))

    @cached_property
    def task_counts(self) -> tuple[int, ...]:
        """The number of tasks with tiles of each launch."""
        counts = [0] * len(self.tables.launches)
        for task in self.tasks:
            counts[task.launch] += not task.is_join
        return tuple(counts)

    def packed(self) -> tuple[bytes, bytes, bytes]:
        """Tasks, successors and core types as the structs of native/include/nova/tables.h."""
        records, successors = bytearray(), bytearray()
        for spec in self.specs:
            first = len(successors) // SUCCESSOR.size
            records += TASK.pack(
                spec.launch, spec.waits, spec.begin, spec.end, first, len(spec.successors)
            )
            successors += np.array(spec.successors, "<u4").tobytes()
        cores = bytes(CORES.index(task.kernel.core) for task in self.tasks)
        return bytes(records), bytes(successors), cores


def make_graph(tables: Tables, workers: int = 1, *, by_launch: bool = False) -> TaskGraph:
    """The tasks of a program on `workers` threads; `by_launch` for a run that did not use them."""
    tasks = () if by_launch else plan_tasks(tables, workers)
    if tasks:
        return TaskGraph(tables, tasks, False)
    last = len(tables.launches) - 1
    chain = tuple(
        TaskSpec(
            number,
            int(number > 0),
            0,
            tables.kernels[launch.kernel].grid,
            (number + 1,) if number < last else (),
        )
        for number, launch in enumerate(tables.launches)
    )
    return TaskGraph(tables, chain, True)
