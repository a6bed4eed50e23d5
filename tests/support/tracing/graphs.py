"""Hand-made programs and runs of them, so that every figure of a trace is known in advance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables, TaskSpec
from nova.tracing.costs import Speeds, task_costs
from nova.tracing.graph import TaskGraph, make_graph
from nova.tracing.peaks import Peaks
from nova.tracing.run import Run
from nova.tracing.schedule_sim import play
from nova.tracing.timeline import NOT_STOLEN, RECORD, Timeline, make_timeline

PEAKS = Peaks(cores=4, core_flops=100e9, core_bytes=20e9, flops=400e9, bytes=40e9)


@dataclass(frozen=True)
class Program:
    """What the builder of runs asks of a native program."""

    tables: bytes
    label: str = "program"


def kernel(name: str, grid: int = 1, core: str = "vector", flops: int = 1000) -> KernelSpec:
    return KernelSpec(name, name, grid, core, flops, 8 * flops, f"model.py:{len(name)}")


def make_tables(
    kernels: Sequence[KernelSpec],
    tasks: Sequence[tuple[int, int, int]] = (),
    edges: Mapping[int, Sequence[int]] | None = None,
    buffers: Sequence[BufferSpec] = (),
    operands: Sequence[tuple[int, ...]] | None = None,
) -> Tables:
    """A launch a kernel; tasks are (launch, begin, end), edges say who comes after whom."""
    edges = edges or {}
    waits = [0] * len(tasks)
    for after in edges.values():
        for task in after:
            waits[task] += 1
    return Tables(
        buffers=tuple(buffers),
        kernels=tuple(kernels),
        launches=tuple(LaunchSpec(i, operands[i] if operands else ()) for i in range(len(kernels))),
        workspace_size=max(
            (b.value + b.nbytes for b in buffers if b.kind == "workspace"), default=0
        ),
        work=sum(k.flops for k in kernels),
        tasks=tuple(
            TaskSpec(launch, waits[i], begin, end, tuple(edges.get(i, ())))
            for i, (launch, begin, end) in enumerate(tasks)
        ),
    )


def fork_join() -> Tables:
    """`load`, four tiles of `wide`, a join, and `last`: 0 -> 1..4 -> 5 -> 6.

    `wide` writes over the workspace of `load`'s result only where it has read it.
    """
    kernels = [kernel("load"), kernel("wide", 4, "matrix", 8000), kernel("last", 1, "host")]
    tasks = [(0, 0, 1), *((1, i, i + 1) for i in range(4)), (2, 0, 0), (2, 0, 1)]
    edges = {0: (1, 2, 3, 4), 1: (5,), 2: (5,), 3: (5,), 4: (5,), 5: (6,)}
    buffers = [
        BufferSpec("arg", 0, 256),
        BufferSpec("workspace", 0, 256),
        BufferSpec("workspace", 256, 256),
        BufferSpec("output", 0, 64),
    ]
    return make_tables(kernels, tasks, edges, buffers, [(0, 1), (1, 2), (2, 3)])


def records(*rows: tuple[int, ...]) -> np.ndarray:
    """Rows of (task, worker, ready, start, end), and the worker it was stolen from."""
    created = np.empty(len(rows), RECORD)
    for i, (task, worker, ready, start, end, *stolen) in enumerate(rows):
        created[i] = (task, worker, stolen[0] if stolen else NOT_STOLEN, ready, start, end)
    return created


def fork_join_records() -> np.ndarray:
    """Two workers: the second wakes at 150, steals one tile, and finds nothing more at 320."""
    return records(
        (0, 0, 0, 10, 100),
        (1, 0, 100, 110, 200),
        (2, 1, 100, 150, 250, 0),
        (3, 0, 100, 205, 300),
        (4, 1, 100, 260, 320, 0),
        (5, 0, 320, 325, 326),
        (6, 0, 326, 330, 400),
    )


def fork_join_timeline() -> Timeline:
    return make_timeline(make_graph(fork_join()), fork_join_records(), 2, 0, 410)


def make_run(timeline: Timeline, program: str = "fork") -> Run:
    costs = task_costs(timeline.graph, Speeds())
    return Run(program, timeline, play(timeline.graph, costs, timeline.workers))


def random_graph(seed: int, launches: int = 12, most: int = 8) -> TaskGraph:
    """Launches of tiled kernels, each task after some tasks of the two launches before it."""
    random = np.random.default_rng(seed)
    modes = ("matrix", "vector", "vector", "matrix", "vector", "host")
    kernels = [
        kernel(
            f"kernel_{i}",
            int(random.integers(1, most + 1)) if modes[i % 6] != "host" else 1,
            modes[i % 6],
            int(random.integers(200_000, 4_000_000)) // (1 if modes[i % 6] == "matrix" else 12),
        )
        for i in range(launches)
    ]
    tasks = [(i, t, t + 1) for i, k in enumerate(kernels) for t in range(k.grid)]
    edges: dict[int, list[int]] = {}
    for number, (launch, _, _) in enumerate(tasks):
        before = [t for t, (second, _, _) in enumerate(tasks) if launch - 2 <= second < launch]
        for choice in random.choice(before, min(3, len(before)), replace=False) if before else ():
            edges.setdefault(int(choice), []).append(number)
    return make_graph(make_tables(kernels, tasks, {k: sorted(v) for k, v in edges.items()}))


def noisy_run(seed: int, workers: int, launches: int = 12, most: int = 8) -> Run:
    """A run of a random graph: a simulation whose tasks take longer than planned."""
    graph = random_graph(seed, launches, most)
    costs = task_costs(graph, Speeds())
    random = np.random.default_rng(seed + 1)
    chosen = np.rint(costs * random.uniform(0.8, 1.9, len(costs))).astype(np.uint64)
    measured = play(graph, chosen, workers, "locality").timeline
    return Run(f"program {seed}", measured, play(graph, costs, workers))
