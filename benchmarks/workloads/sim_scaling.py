"""How the training step of the GPT would scale: its task graph on 1 to 64 simulated cores.

Times are those of the schedule, not of the simulation. The first contender takes tasks as long as
the cost model says, the second as they took on one core of this machine. The bound is what no
schedule of the same tasks can beat: the longest of the critical path and all the work on all cores.
"""

import importlib

TITLE = "Training step of `train_gpt` on simulated cores"
MODE = "fresh"
KEEP_CACHES = True
UNIT = "ms"
SLOW = ()
STARTS = 1
CORES = (1, 2, 4, 8, 16, 32, 64)
STEPS = 5


def _step():
    """A training whose first step was run and checked."""
    from harness.case import read_all, worst_error

    module = importlib.import_module("workloads.train_gpt")
    data = module.arrays()
    training = module.nova_training(data)
    loss = training.step()
    worst_error(read_all(loss), module.oracle(data, steps=1), module.TOLERANCE)
    return training


def _points(simulation):
    points = simulation.curve(CORES)
    assert all(p.bound <= p.makespan for p in points), "a schedule beats its bound"
    makespans = {f"{p.cores} core{'s' * (p.cores > 1)}": p.makespan / 1e9 for p in points}
    return {**makespans, f"bound on {CORES[-1]}": points[-1].bound / 1e9}


def modelled():
    return _points(_step().program.compiled.simulate(CORES[-1]))


def measured():
    import numpy as np

    import nova
    from nova.tracing.schedule_sim import play

    training = _step()
    with nova.knobs.override(threads=1), nova.trace() as trace:
        for _ in range(STEPS):
            training.step()
    timelines = [run.measured for run in trace.runs if len(run.measured.graph.specs) > 1]
    assert len(timelines) == STEPS
    # The least of several runs: other processes make tasks longer, never shorter.
    durations = np.minimum.reduce([timeline.task_durations() for timeline in timelines])
    return _points(play(timelines[0].graph, durations, CORES[-1], "locality"))


CONTENDERS = {
    "Nova, cost model": ("nova", modelled),
    "Nova, measured tasks": ("nova", measured),
}
