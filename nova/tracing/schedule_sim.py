"""Simulates a task graph on virtual cores, with the times of the cost model.

In: the `Tables` of a program, a number of cores, a policy and a seed. Out: `Simulation`, a timeline
with its bounds, the same on every machine for the same costs. `Model.simulate` calls this, traces
call it for the planned schedule, and `run_mode="sim"` runs the tasks in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nova import _native
from nova.artifact.tables import Tables
from nova.errors import AttributeValueError
from nova.tracing.costs import Speeds, task_costs
from nova.tracing.critical import Step, critical_path
from nova.tracing.graph import TaskGraph, make_graph
from nova.tracing.text import columns, format_ns, percent
from nova.tracing.timeline import NOT_STOLEN, RECORD, Timeline

POLICIES = ("locality", "fifo", "critical-path")
"""In the order of nova_policy."""

CURVE = (1, 2, 4, 8, 16, 24, 32, 48, 64)
"""The numbers of cores of a scaling curve."""

MOST_CORES = 65_536

_SIMULATED = np.dtype([("task", "<u4"), ("core", "<u4"), ("start", "<u8"), ("end", "<u8")])


@dataclass(frozen=True)
class Point:
    """A point on the scaling curve: times in nanoseconds; `bound` holds for every schedule."""

    cores: int
    makespan: int
    bound: int
    speedup: float
    utilisation: float


@dataclass(frozen=True)
class Simulation:
    """The schedule of a program on `cores` cores, by the cost model."""

    graph: TaskGraph
    costs: np.ndarray
    cores: int
    policy: str
    seed: int
    timeline: Timeline
    critical_cost: int
    bound: int
    speeds: Speeds | None = None  # of the costs; None if a caller gave those

    @property
    def makespan(self) -> int:
        """Nanoseconds from the first start to the last end."""
        return self.timeline.makespan

    @property
    def work(self) -> int:
        """Nanoseconds on one core."""
        return int(self.costs.sum())

    @property
    def speedup(self) -> float:
        """Relative to one core."""
        return self.work / self.makespan if self.makespan else 1.0

    @property
    def utilisation(self) -> float:
        """The fraction of the cores' time that they work."""
        return self.timeline.utilisation

    @property
    def bounds(self) -> dict[str, int]:
        """Bounds for every schedule: all the work on all cores, and the longest chain."""
        return {"work": -(-self.work // self.cores), "critical path": self.critical_cost}

    @property
    def order(self) -> np.ndarray:
        """The tasks in the order in which they start."""
        return self.timeline.records["task"]

    @cached_property
    def critical_path(self) -> tuple[Step, ...]:
        """The chain of tasks and waits that determines the makespan."""
        return critical_path(self.timeline)

    def curve(self, cores: Sequence[int] = CURVE) -> tuple[Point, ...]:
        """The same program on other numbers of cores, with the tasks for each number."""
        plays = [self._on(n) for n in cores]
        return tuple(Point(p.cores, p.makespan, p.bound, p.speedup, p.utilisation) for p in plays)

    def _on(self, cores: int) -> Simulation:
        if self.speeds is None or cores == self.cores:  # costs of a caller: they fit this graph
            return play(self.graph, self.costs, cores, self.policy, self.seed)
        return simulate(self.graph.tables, cores, self.seed, self.policy, self.speeds)

    def __str__(self) -> str:
        rows = [("cores", "time", "bound", "speed-up")]
        rows += [
            (str(p.cores), format_ns(p.makespan), format_ns(p.bound), f"{p.speedup:.1f}")
            for p in self.curve()
        ]
        tasks = f"{len(self.graph.specs)} task{'s' if len(self.graph.specs) != 1 else ''}"
        cores = f"{self.cores} simulated core{'s' if self.cores != 1 else ''}"
        lines = [
            f"{tasks} on {cores}: {format_ns(self.makespan)}, speed-up {self.speedup:.1f}, "
            f"{percent(self.utilisation, 1)} of the cores' time used",
            f"  bounds: {format_ns(self.bounds['work'])} for the work, "
            f"{format_ns(self.critical_cost)} for the critical path",
            *columns(rows, right=range(4)),
        ]
        return "\n".join(lines)


def simulate(
    tables: Tables,
    cores: int = 64,
    seed: int = 0,
    policy: str = "critical-path",
    speeds: Speeds | None = None,
) -> Simulation:
    """Simulate a program's task graph. A seed other than 0 picks among ready tasks at random."""
    _check(cores, policy, seed)
    graph = make_graph(tables, cores)
    speeds = speeds or Speeds()
    return replace(play(graph, task_costs(graph, speeds), cores, policy, seed), speeds=speeds)


def play(
    graph: TaskGraph, costs: np.ndarray, cores: int, policy: str = "critical-path", seed: int = 0
) -> Simulation:
    """Simulate a graph whose tasks take `costs` nanoseconds each."""
    _check(cores, policy, seed)
    costs = np.ascontiguousarray(costs, np.uint64)
    if not graph.specs:  # every result is an argument, or empty
        nothing = Timeline(graph, np.empty(0, RECORD), cores, 0, 0)
        return Simulation(graph, costs, cores, policy, seed, nothing, 0, 0)
    block, makespan, critical, bound = _native.simulate(
        *graph.packed(), costs.tobytes(), cores, POLICIES.index(policy), seed
    )
    timeline = _as_timeline(graph, np.frombuffer(block, _SIMULATED), cores, makespan)
    return Simulation(graph, costs, cores, policy, seed, timeline, critical, bound)


def moved(simulation: Simulation, start: int) -> Timeline:
    """The timeline shifted to begin at `start`, for comparison with a measured one."""
    old = simulation.timeline
    records = old.records.copy()
    for field in ("ready", "start", "end"):
        records[field] += np.uint64(start)
    return replace(old, records=records, start=start, end=old.end + start)


def _as_timeline(graph: TaskGraph, played: np.ndarray, cores: int, makespan: int) -> Timeline:
    records = np.empty(len(played), RECORD)
    for field, source in (("task", "task"), ("worker", "core"), ("start", "start"), ("end", "end")):
        records[field] = played[source]
    records["stolen_from"] = NOT_STOLEN
    ends = np.zeros(len(played), np.uint64)
    ends[played["task"]] = played["end"]
    records["ready"] = [
        max((ends[p] for p in graph.predecessors[task]), default=0) for task in played["task"]
    ]
    return Timeline(graph, records, cores, 0, makespan)


def _check(cores: int, policy: str, seed: int) -> None:
    if not isinstance(cores, int) or not 1 <= cores <= MOST_CORES:
        raise AttributeValueError(f"cores is {cores!r}", hint=f"a number from 1 to {MOST_CORES}")
    if policy not in POLICIES:
        raise AttributeValueError(f"policy is {policy!r}", hint=f"one of {', '.join(POLICIES)}")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise AttributeValueError(f"seed is {seed!r}", hint="a number from 0 on, of 64 bits")
