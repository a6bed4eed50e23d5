"""Critical path, idle time, edges and advice, on runs whose every figure is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import (
    fork_join,
    fork_join_records,
    fork_join_timeline,
    kernel,
    make_run,
    make_tables,
    noisy_run,
    records,
)

from nova.artifact.tables import BufferSpec, LaunchSpec
from nova.tracing.critical import EdgeCauses, critical_path, longest_path
from nova.tracing.graph import make_graph
from nova.tracing.idle import idle_reasons
from nova.tracing.timeline import make_timeline


def test_tasks_have_their_share_of_the_kernel():
    graph = make_graph(fork_join())
    wide, join = graph.tasks[2], graph.tasks[5]
    assert (wide.title, wide.flops, wide.bytes) == ("wide[1:2]", 2000, 16000)
    assert join.is_join and (join.title, join.flops) == ("join", 0)
    assert graph.tasks[0].title == "load"
    assert graph.task_counts == (1, 4, 1)
    assert graph.predecessors == ((), (0,), (0,), (0,), (0,), (1, 2, 3, 4), (5,))


def test_a_program_without_tasks_has_one_a_launch():
    graph = make_graph(make_tables([kernel("a", 3), kernel("b", 5)]))
    assert graph.by_launch
    assert [(t.title, t.begin, t.end, t.successors) for t in graph.tasks] == [
        ("a", 0, 3, (1,)),
        ("b", 0, 5, ()),
    ]
    assert make_graph(make_tables([])).tasks == ()
    assert make_graph(fork_join(), by_launch=True).predecessors == ((), (0,), (1,))


def test_makespan_busy_and_utilisation():
    timeline = fork_join_timeline()
    assert (timeline.makespan, timeline.busy) == (410, 90 + 90 + 100 + 95 + 60 + 1 + 70)
    assert timeline.utilisation == pytest.approx(506 / 820)
    assert [lane.tolist() for lane in timeline.lanes] == [[0, 1, 3, 5, 6], [2, 4]]
    assert timeline.task_durations().tolist() == [90, 90, 100, 95, 60, 1, 70]


def test_records_out_of_order_and_clocks_that_differ():
    rows = fork_join_records()[::-1].copy()
    rows["start"][rows["task"] == 0] = 3  # before the caller's own clock
    rows["ready"][rows["task"] == 6] = 999  # after its start
    timeline = make_timeline(make_graph(fork_join()), rows, 2, 5, 390)
    assert timeline.records["task"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert timeline.records["start"][0] == 5 and timeline.records["ready"][6] == 330
    assert timeline.end == 400


def test_the_critical_path_adds_up_to_the_run():
    path = critical_path(fork_join_timeline())
    assert [(s.task, s.cause) for s in path] == [
        (0, "start"),
        (2, "data"),
        (4, "core"),
        (5, "join"),
        (6, "data"),
    ]
    assert [s.wait for s in path] == [10, 50, 10, 5, 4]
    assert path[2].idle == (100, 250), "ready at 100, its core was free at 250"
    assert sum(s.wait + s.duration for s in path) == 400


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_the_path_of_any_run_adds_up(seed, workers):
    run = noisy_run(seed, workers)
    path = critical_path(run.measured)
    assert sum(s.wait + s.duration for s in path) == run.measured.makespan
    assert run.bound <= run.measured.makespan
    tasks = [s.task for s in path]
    assert len(set(tasks)) == len(tasks)


def test_no_records_no_path():
    timeline = make_timeline(make_graph(fork_join()), records(), 2, 0, 10)
    assert critical_path(timeline) == () and timeline.makespan == 10


def test_the_longest_path_is_the_bound():
    total, path = longest_path(make_graph(fork_join()), np.array([90, 90, 100, 95, 60, 1, 70]))
    assert (total, path) == (261, (0, 2, 5, 6))
    assert longest_path(make_graph(make_tables([])), np.array([])) == (0, ())


def test_idle_time_by_reason():
    timeline = fork_join_timeline()
    idle = idle_reasons(timeline)
    assert sum(idle.values()) + timeline.busy == 2 * timeline.makespan
    # Worker 1: 50 ns ready work until it woke, 10 ns to steal the second tile; from 320 on nothing
    # was ready but the join and `last`, each for as long as worker 0 took to start it.
    assert idle["stealing"] == 10
    assert idle["no task left"] == 80 + 10, "worker 1 from 330, worker 0 from 400"
    assert idle["sleeping"] == 10 + 10 + 50 + 5 + 4
    assert idle["dispatch"] == 10 + 5 + 5 + 4
    assert idle["dependency"] == 90 + 20 + 1


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_idle_and_busy_time_are_all_time(workers):
    timeline = noisy_run(11, workers).measured
    idle = idle_reasons(timeline)
    assert sum(idle.values()) + timeline.busy == workers * timeline.makespan
    assert all(spent >= 0 for spent in idle.values())


# --- edges ----------------------------------------------------------------------------------------


def reusing():
    """`c` reads what `a` wrote and writes over what `b` has read: 0 -> 1, 0 -> 2, 1 -> 2."""
    buffers = [
        BufferSpec("arg", 0, 64),
        BufferSpec("workspace", 0, 64),
        BufferSpec("workspace", 64, 64),
        BufferSpec("workspace", 96, 64),  # over the end of the one before
        BufferSpec("output", 0, 64),
    ]
    tables = make_tables(
        [kernel("a"), kernel("b"), kernel("c")],
        [(0, 0, 1), (1, 0, 1), (2, 0, 1)],
        {0: (1, 2), 1: (2,)},
        buffers,
        [(0, 1, 2), (2, 4), (1, 3)],
    )
    launches = [replace(launch, reads=1) for launch in tables.launches]
    return replace(tables, launches=tuple(launches))


def test_an_edge_is_for_data_or_for_memory():
    causes = EdgeCauses(make_graph(reusing()))
    assert [causes.cause(0, 1), causes.cause(0, 2), causes.cause(1, 2)] == ["data", "data", "reuse"]


def test_what_is_not_known_counts_as_data():
    tables = reusing()
    unknown = replace(
        tables, launches=tuple(LaunchSpec(x.kernel, x.buffers) for x in tables.launches)
    )
    assert EdgeCauses(make_graph(unknown)).cause(1, 2) == "data"


def test_a_join_passes_on_what_it_joins():
    causes = EdgeCauses(make_graph(fork_join()))
    assert (causes.cause(1, 5), causes.cause(5, 6)) == ("join", "data")


def test_buffers_that_share_bytes():
    a, b = BufferSpec("workspace", 0, 64), BufferSpec("workspace", 64, 64)
    assert not a.overlaps(b) and a.overlaps(BufferSpec("workspace", 63, 1))
    assert not BufferSpec("constant", 0, 8).overlaps(BufferSpec("constant", 0, 8))
    assert BufferSpec("arg", 1, 8).overlaps(BufferSpec("arg", 1, 8))
    assert not BufferSpec("arg", 1, 8).overlaps(BufferSpec("output", 1, 8))
    output, part = BufferSpec("output", 1, 256), BufferSpec("output_part", 64, 64, 1)
    assert output.overlaps(part) and part.overlaps(output) and part.overlaps(part)
    assert not part.overlaps(BufferSpec("output_part", 128, 64, 1))
    assert not part.overlaps(BufferSpec("output_part", 64, 64, 2))
    assert not part.overlaps(BufferSpec("output", 2, 256)) and not part.overlaps(b)


# --- advice ---------------------------------------------------------------------------------------


def test_advice_about_memory():
    rows = records((0, 0, 0, 0, 100), (1, 0, 100, 100, 600), (2, 1, 600, 600, 900))
    run = make_run(make_timeline(make_graph(reusing()), rows, 2, 0, 900))
    (result,) = [f for f in run.advice if f.kind == "reuse"]
    assert result.gain == 900 - 900 // 2, "all the work on both cores: no less"
    assert "1 wait for workspace" in result.text and "c (model.py:1)" in result.text


def test_advice_about_tiles_cores_and_tasks():
    run = make_run(fork_join_timeline())
    by_kind = {finding.kind: finding for finding in reversed(run.advice)}
    assert by_kind["tasks"].text.startswith("wide (model.py:4): 2 of 4 tasks")
    assert by_kind["tasks"].gain == 160
    assert by_kind["cores"].gain == 410 - 261, "no more than down to the bound"
    assert by_kind["tiles"].text.startswith(
        "load (model.py:4) has 1 task for 2 cores, one for each tile"
    )
    assert not any("last" in f.text and f.kind == "tiles" for f in run.advice), "it is the host's"
    assert [f.gain for f in run.advice] == sorted((f.gain for f in run.advice), reverse=True)


def test_a_perfect_run_needs_no_waits():
    rows = records((0, 0, 0, 0, 100))
    graph = make_graph(make_tables([kernel("a")], [(0, 0, 1)]))
    run = make_run(make_timeline(graph, rows, 1, 0, 100))
    assert [f.kind for f in run.advice] == ["tasks"]
