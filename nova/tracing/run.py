"""One traced run: the measured and the planned schedule, and its critical path.

`collect.py` creates them; the summary, the timeline file and the page use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from nova.tracing.advice import Finding, find_advice
from nova.tracing.critical import Step, critical_path, longest_path
from nova.tracing.device_run import DeviceRun
from nova.tracing.schedule_sim import Simulation, play
from nova.tracing.timeline import Timeline


@dataclass(frozen=True)
class Run:
    """A run of `program`; `lost` records did not fit.

    `kind` is "replayed" if the times of its tasks were measured, but not their schedule.
    """

    program: str
    measured: Timeline
    plan: Simulation  # of the same tasks, on as many cores
    lost: int = 0
    kind: str = "measured"

    @property
    def planned(self) -> Timeline:
        """The schedule predicted by the cost model, starting at time 0."""
        return self.plan.timeline

    @cached_property
    def critical(self) -> tuple[Step, ...]:
        """The chain of tasks and waits that determines its time."""
        return critical_path(self.measured)

    @cached_property
    def bound(self) -> int:
        """Nanoseconds of its longest dependency chain, with the measured durations."""
        return longest_path(self.measured.graph, self.measured.task_durations())[0]

    @cached_property
    def advice(self) -> tuple[Finding, ...]:
        """Advice for a shorter run, the largest gain first."""
        return find_advice(self.measured, self.critical, self.bound)


AnyRun = Run | DeviceRun


def replay(run: Run, cores: int) -> Run:
    """The tasks of a run, with their measured times, on another number of cores."""
    plan, graph = run.plan, run.measured.graph
    played = play(graph, run.measured.task_durations(), cores, plan.policy)
    planned = play(graph, plan.costs, cores, plan.policy)
    return Run(run.program, played.timeline, planned, run.lost, "replayed")
