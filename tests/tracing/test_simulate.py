"""Simulation: hand-made graphs against what they have to take, and programs with run_mode="sim"."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import fork_join, kernel, make_tables, random_graph
from programs import two_chains
from task_counts import count_tasks

import nova
from nova import _native
from nova.errors import AttributeValueError
from nova.tracing.costs import Speeds, speeds_of, task_costs
from nova.tracing.graph import make_graph
from nova.tracing.peaks import Peaks
from nova.tracing.schedule_sim import POLICIES, moved, play, simulate

COSTS = np.array([10, 40, 40, 40, 40, 1, 5])


def test_two_cores_by_hand():
    played = play(make_graph(fork_join()), COSTS, 2)
    assert (played.makespan, played.work) == (10 + 80 + 1 + 5, 176)
    assert played.bounds == {"work": 88, "critical path": 56} and played.bound == 88
    assert played.speedup == pytest.approx(176 / 96)
    assert played.utilisation == pytest.approx(176 / (2 * 96))
    assert sum(s.wait + s.duration for s in played.critical_path) == 96
    ready = dict(zip(played.order.tolist(), played.timeline.records["ready"].tolist(), strict=True))
    assert ready == {0: 0, 1: 10, 2: 10, 3: 10, 4: 10, 5: 90, 6: 91}


def test_more_cores_reach_the_critical_path():
    points = play(make_graph(fork_join()), COSTS, 1).curve((1, 2, 4, 64))
    assert [p.makespan for p in points] == [176, 96, 56, 56]
    assert [p.bound for p in points] == [176, 88, 56, 56]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cores", [1, 3, 64])
def test_a_schedule_respects_the_graph(policy, cores):
    graph = random_graph(4)
    costs = task_costs(graph, Speeds())
    played = play(graph, costs, cores, policy, seed=0)
    start = np.zeros(len(costs), np.int64)
    end = np.zeros(len(costs), np.int64)
    start[played.order] = played.timeline.records["start"]
    end[played.order] = played.timeline.records["end"]
    assert (end - start == costs).all()
    for task, before in enumerate(graph.predecessors):
        assert all(end[b] <= start[task] for b in before)
    for lane in played.timeline.lanes:
        lane_records = played.timeline.records[lane]
        assert (lane_records["end"][:-1] <= lane_records["start"][1:]).all()
        modes = {graph.tasks[t].kernel.core for t in lane_records["task"]}
        assert "host" not in modes or lane is played.timeline.lanes[0]
    assert (
        played.bound
        <= played.makespan
        <= played.work // cores
        + played.critical_cost
        + 1
        + sum(int(c) for t, c in enumerate(costs) if graph.tasks[t].kernel.core == "host")
    )


def test_seeds_are_deterministic_and_differ():
    graph = random_graph(9)
    costs = task_costs(graph, Speeds())
    orders = {seed: tuple(play(graph, costs, 4, seed=seed).order) for seed in range(4)}
    assert len(set(orders.values())) > 1
    again = {seed: tuple(play(graph, costs, 4, seed=seed).order) for seed in range(4)}
    assert again == orders


def test_costs_take_the_longer_of_work_and_memory():
    tables = make_tables([replace(kernel("a", 2, "matrix", 6400), bytes=80), kernel("b")])
    costs = task_costs(make_graph(tables), Speeds(task=7))
    assert costs.tolist() == [107, 1007], "100 ns of products, 8000 bytes at 8 a ns"
    speeds = speeds_of(Peaks(2, 100e9, 10e9, 200e9, 15e9))
    assert speeds.matrix == pytest.approx(70) and speeds.bytes == pytest.approx(8)


def test_a_timeline_can_be_moved():
    timeline = moved(play(make_graph(fork_join()), COSTS, 2), 1000)
    assert (timeline.start, timeline.end) == (1000, 1096)
    assert timeline.records["start"].min() == 1000 and timeline.records["end"].max() == 1096


def test_an_empty_program_takes_no_time():
    played = simulate(make_tables([]), 8)
    assert (played.makespan, played.speedup, played.order.tolist()) == (0, 1.0, [])
    assert "0 tasks" in str(played)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"cores": 0}, "cores"),
        ({"cores": 2.5}, "cores"),
        ({"policy": "random"}, "policy"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_options(wrong, hint):
    with pytest.raises(AttributeValueError, match=hint):
        simulate(fork_join(), **wrong)


@pytest.mark.parametrize(
    "broken",
    [
        lambda tasks, after, modes, costs: (tasks[:-1], after, modes, costs),
        lambda tasks, after, modes, costs: (tasks, after, modes[1:], costs),
        lambda tasks, after, modes, costs: (tasks, after, modes, costs[8:]),
        lambda tasks, after, modes, costs: (tasks, after[:-4] + b"\xff" * 4, modes, costs),
        lambda tasks, after, modes, costs: (tasks, after, b"\x09" * len(modes), costs),
        lambda tasks, after, modes, costs: (b"", b"", b"", b""),
    ],
)
def test_broken_graphs_are_refused(broken):
    arrays = (*make_graph(fork_join()).packed(), COSTS.astype("<u8").tobytes())
    assert _native.simulate(*arrays, 2, 0, 0)[1] == 96
    with pytest.raises(ValueError, match="not a task graph"):
        _native.simulate(*broken(*arrays), 2, 0, 0)
    with pytest.raises(ValueError, match="simulated"):
        _native.simulate(*arrays, 0, 0, 0)


# --- programs -------------------------------------------------------------------------------------


def test_sim_gives_the_results_of_a_native_run():
    native, inputs = two_chains()
    expected = native(*inputs)
    orders = set()
    for seed in (0, 1, 2):
        program, _ = two_chains(run_mode="sim", sim_cores=4, sim_seed=seed)
        np.testing.assert_array_equal(program(*inputs), expected)
        orders.add(tuple(program.simulation.order))
        assert program.simulation.cores == 4
        assert program.simulation.order.size == count_tasks(native, 4)
    assert len(orders) > 1, "a seed is an order"
    assert native.simulation is None


def test_the_order_is_for_sim_programs_only():
    """Both come from one cache entry, and the second must not change the first."""
    native, inputs = two_chains()
    two_chains(run_mode="sim")
    assert native.submit(*inputs).result() is not None
    program, _ = two_chains(run_mode="sim")
    with pytest.raises(AttributeValueError, match="cannot be submitted"):
        program.submit(*inputs)


def test_simulate_of_a_program():
    program, _ = two_chains()
    single, many = program.simulate(1), program.simulate(cores=64, seed=5)
    assert single.makespan == single.work > many.makespan >= many.critical_cost
    assert "64 simulated cores" in str(many)
    slow = program.simulate(1, speeds=Speeds(matrix=1.0))
    assert slow.makespan > single.makespan


def test_jit_in_sim_mode():
    @nova.jit(run_mode="sim", sim_cores=3)
    def double(x):
        return x + x

    x = np.arange(6, dtype="f4")
    np.testing.assert_array_equal(double(x), 2 * x)
    assert double.lower(x).simulation.cores == 3
    gradient = nova.grad(nova.jit(lambda v: (v * v).sum(), run_mode="sim"))
    np.testing.assert_array_equal(gradient(x), 2 * x)


def test_the_order_must_be_possible():
    program, _ = two_chains()
    order = program.simulate(2).order.astype("<u4")
    created = type(program._executable)(program._executable.artifact).program
    for wrong in (order[:-1], order[::-1].copy(), np.zeros_like(order), b"\x01"):
        with pytest.raises(ValueError, match="cannot run in this order"):
            created.set_order(wrong, 2)
    created.set_order(order, 2)
    with pytest.raises(ValueError, match="set already"):
        created.set_order(order, 2)
