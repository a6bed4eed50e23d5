"""Traces of persistent kernels: the tasks of every block, by the simulated clock."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova.artifact.tile_waits import tile_waits

DEVICE = {"target": "cuda:sm_90a", "run_mode": "sim", "launch": "persistent"}


@pytest.fixture(scope="module")
def program() -> Any:
    x = nova.input((64, 48))
    a, b = nova.tanh(x @ x.T), nova.softmax(x, -1)
    return nova.compile([(a @ b).sum(0), a.max()], inputs=[x], **DEVICE)


def traced(program: Any, path: Path | None = None) -> Any:
    with nova.trace(path) as trace:
        program(np.ones((64, 48), np.float32))
    (run,) = trace.runs
    return run, trace.summary()


def test_every_launch_has_its_tasks(program: Any) -> None:
    run, _ = traced(program)
    launches = program.simulate(device="h200").launches
    assert {span.launch for span in run.tasks} == {item.launch for item in launches}
    for item in launches:
        lanes = {span.lane for span in run.tasks if span.launch == item.launch}
        assert 1 <= len(lanes) <= item.kernel.device.grid[0]


def test_a_block_runs_one_task_at_a_time(program: Any) -> None:
    run, _ = traced(program)
    lanes = {title: spans for title, spans in run.all_lanes.items() if title.startswith("SM ")}
    assert lanes
    for spans in lanes.values():
        for before, after in pairwise(spans):
            assert before.end <= after.start - after.wait


def test_a_task_starts_after_the_tasks_that_it_waits_for(program: Any) -> None:
    run, _ = traced(program)
    waits = tile_waits(program._executable.tables)
    edges = [(wait.before, wait.after) for wait in waits if not wait.is_by_tile]
    assert edges
    for first, second in edges:
        end = max(span.end for span in run.tasks if span.launch == first)
        assert end <= min(span.start for span in run.tasks if span.launch == second)


def test_results_are_those_of_runs_that_are_not_traced(program: Any) -> None:
    x = np.random.default_rng(0).standard_normal((64, 48), np.float32)
    expected = program(x)
    with nova.trace():
        for result, other in zip(program(x), expected, strict=True):
            np.testing.assert_array_equal(result, other)
    for result, other in zip(program(x), expected, strict=True):
        np.testing.assert_array_equal(result, other)


def test_files_have_a_lane_for_each_block(program: Any, tmp_path: Path) -> None:
    run, summary = traced(program, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {span.lane for span in run.tasks} <= names
    assert sum(e["args"].get("kind") == "task" for e in events) == len(run.tasks)
    assert "tasks of the persistent kernel" in str(summary)
    traced(program, tmp_path / "trace.html")
    assert "SM 0, block 0" in (tmp_path / "trace.html").read_text()
