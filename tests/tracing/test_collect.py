"""`nova.trace` on real runs: what is collected, and that nothing is when no block is open."""

from __future__ import annotations

import json
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from events import check_events
from graphs import PEAKS, Program, fork_join, fork_join_records
from programs import two_chains
from task_counts import count_tasks

import nova
from nova import _native
from nova.artifact.tables import pack_tables
from nova.errors import TraceError
from nova.tracing import peaks as peaks_module
from nova.tracing.collect import Trace, _Builder
from nova.tracing.critical import critical_path
from nova.tracing.peaks import Peaks, measured_peaks
from nova.tracing.timeline import NOT_STOLEN


@pytest.fixture(autouse=True)
def known_peaks(monkeypatch):
    """No test here needs to measure the machine, but those that say so."""
    monkeypatch.setattr("nova.tracing.collect.measured_peaks", lambda: PEAKS)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("policy", ["locality", "fifo", "critical-path"])
def test_every_task_is_recorded_once(threads, policy):
    program, inputs = two_chains()
    expected = program(*inputs)
    with nova.knobs.override(threads=threads, policy=policy), nova.trace() as trace:
        np.testing.assert_array_equal(program(*inputs), expected)
    (run,) = trace.runs
    timeline, graph = run.measured, run.measured.graph
    assert not graph.by_launch and len(graph.specs) == count_tasks(program, threads) > 2
    assert sorted(timeline.records["task"]) == list(range(len(graph.specs))) and run.lost == 0
    assert 1 <= timeline.workers <= threads
    assert timeline.records["worker"].max() < timeline.workers
    assert (timeline.records["ready"] <= timeline.records["start"]).all()
    assert timeline.start == 0 and timeline.records["end"].max() <= timeline.end
    ends = {int(r["task"]): int(r["end"]) for r in timeline.records}
    starts = {int(r["task"]): int(r["start"]) for r in timeline.records}
    for task, before in enumerate(graph.predecessors):
        assert all(ends[b] <= starts[task] for b in before)
    for lane in timeline.lanes:
        rows = timeline.records[lane]
        assert (rows["end"][:-1] <= rows["start"][1:]).all()
    stolen = timeline.records["stolen_from"]
    assert ((stolen == NOT_STOLEN) | (stolen != timeline.records["worker"])).all()
    assert sum(s.wait + s.duration for s in critical_path(timeline)) <= timeline.makespan
    assert run.planned.workers == timeline.workers and run.plan.policy == policy


def test_a_small_program_has_a_task_a_launch():
    x = np.ones(8, "f4")
    tensor = nova.tensor(x, name="x")
    program = nova.compile(tensor + tensor, inputs=[tensor])
    assert program._executable.program.is_inline
    with nova.trace() as trace:
        result = program(x)
    np.testing.assert_array_equal(result, 2 * x)
    (run,) = trace.runs
    assert run.measured.graph.by_launch and run.measured.workers == 1
    assert [t.kernel.name for t in run.measured.graph.tasks] == ["kernel_0"]
    assert run.measured.records["task"].tolist() == [0]
    assert run.program == program.name


def test_a_program_without_kernels():
    x = nova.tensor(np.ones((0, 3), "f4"), name="x")
    program = nova.compile(x + x, inputs=[x])
    with nova.trace() as trace:
        assert program(x.data).shape == (0, 3)
    (run,) = trace.runs
    assert run.critical == () or run.measured.graph.specs
    assert str(trace.summary())


def test_jit_submit_and_threads_are_traced():
    @nova.jit
    def double(x):
        return x + x

    program, inputs = two_chains()
    x = np.ones(4, "f4")
    double(x)
    with nova.trace() as trace:
        double(x)
        program.submit(*inputs).result()
        worker = threading.Thread(target=lambda: double(x))
        worker.start()
        worker.join()
    names = sorted(run.program for run in trace.runs)
    assert names == sorted(["double", "double", program.name])
    submitted = next(run for run in trace.runs if run.program == program.name)
    tasks = count_tasks(program)
    assert sorted(submitted.measured.records["task"]) == list(range(tasks))
    assert submitted.measured.makespan > 0


def test_a_submitted_run_belongs_to_the_traces_of_its_start(tmp_path):
    program, inputs = two_chains()
    early = program.submit(*inputs)
    with nova.trace() as first:
        inside = program.submit(*inputs)
        with nova.trace() as inner:
            both = program.submit(*inputs)
    with nova.trace() as second:
        for future in (early, inside, both):
            future.result()
    assert [len(trace.runs) for trace in (first, inner, second)] == [2, 1, 0]
    tasks = count_tasks(program)
    for run in first.runs:
        assert sorted(run.measured.records["task"]) == list(range(tasks)) and run.lost == 0

    path = tmp_path / "run.json"
    with nova.trace(path) as third:
        futures = [program.submit(*inputs) for _ in range(3)]
    assert len(third.runs) == 3, "a file has all runs of its block"
    events = json.loads(path.read_text())["traceEvents"]
    assert check_events(events) == [] and all(future.done() for future in futures)


def test_a_run_that_nobody_waited_for_is_seen_when_it_has_ended():
    program, inputs = two_chains()
    with nova.trace() as trace:
        future = program.submit(*inputs)
    while not trace.runs:
        time.sleep(0.001)
    (run,) = trace.runs
    assert len(run.measured.records) == len(run.measured.graph.specs)
    assert future.done()


def test_a_run_keeps_a_trace_only_until_it_has_ended():
    program, inputs = two_chains()
    with nova.trace() as trace:
        future = program.submit(*inputs)
    future.result()
    removed = weakref.ref(trace)
    alive = sys.getrefcount(trace._items)
    assert alive == 2, "by the trace and by the call that counts"
    del trace
    assert removed() is None and future.done()


def test_nothing_is_collected_outside():
    program, inputs = two_chains()
    with nova.trace() as outer:
        program(*inputs)
        with nova.trace() as inner:
            program(*inputs)
        program(*inputs)
    program(*inputs)
    assert (len(outer.runs), len(inner.runs)) == (3, 1)
    with outer:
        program(*inputs)
    assert len(outer.runs) == 4, "a trace can be continued"
    with outer, pytest.raises(TraceError, match="open already"), outer:
        pass


def test_a_failed_block_still_writes(tmp_path):
    program, inputs = two_chains()
    path = tmp_path / "run.json"
    with pytest.raises(ZeroDivisionError), nova.trace(path):
        program(*inputs)
        _ = 1 / 0
    events = json.loads(path.read_text())["traceEvents"]
    assert check_events(events) == [] and any(e["ph"] == "X" for e in events)


def test_a_run_that_fails_is_not_lost():
    program, inputs = two_chains()
    with nova.trace() as trace, pytest.raises(nova.errors.RunTimeoutError):
        program.run(inputs, timeout=1e-9)
    (run,) = trace.runs
    assert len(run.measured.records) < len(run.measured.graph.specs)
    assert "1 run measured" in str(trace.summary())


def test_files_by_their_names(tmp_path):
    program, inputs = two_chains()
    with nova.trace(tmp_path / "run.html") as trace:
        program(*inputs)
    trace.save(tmp_path / "run.json")
    assert (tmp_path / "run.html").read_text().startswith("<!DOCTYPE html>")
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["otherData"]["summary"] == str(trace.summary())


@pytest.mark.parametrize(
    ("path", "why"), [("", "is a folder"), ("missing/run.json", "there is no folder")]
)
def test_places_that_cannot_be_written(tmp_path, path, why):
    with pytest.raises(TraceError, match=why) as caught:
        nova.trace(tmp_path / path)
    assert caught.value.where.startswith(__file__)


def test_a_place_that_goes_away(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(TraceError, match="cannot be written"), nova.trace(folder / "run.json"):
        folder.rmdir()


def test_runs_of_a_program_share_its_graph_and_plan():
    program, inputs = two_chains()
    with nova.trace() as trace:
        for _ in range(3):
            program(*inputs)
    assert len(trace.runs) == 3
    assert len({id(run.measured.graph) for run in trace.runs}) == 1
    assert len({id(run.plan) for run in trace.runs}) == 1


def test_items_of_the_native_module():
    program = Program(pack_tables(fork_join()), "mine")
    rows = fork_join_records()
    for name in ("ready", "start", "end"):
        rows[name] += 10_000
    late = rows.copy()
    for name in ("ready", "start", "end"):
        late[name] += 1000
    items = [
        (program, 11_000, 11_410, 2, 1, 4, late.tobytes(), 0),
        (program, 10_000, 10_410, 2, 1, 0, rows.tobytes(), 0),
    ]
    first, second = _Builder(lambda: PEAKS).build(items)
    assert (first.program, first.measured.start, first.measured.end) == ("mine", 0, 410)
    assert (second.measured.start, second.lost) == (1000, 4)
    assert first.measured.records["start"][0] == 10 and first.plan.policy == "fifo"


def test_sinks_are_checked():
    for wrong in ([], (1,), None):
        with pytest.raises(TypeError, match="tuple of lists"):
            _native.trace_into(wrong)


# --- peaks ----------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Short measurements, in a folder of their own."""
    monkeypatch.setattr(peaks_module, "_SECONDS", 0.002)
    monkeypatch.setattr(peaks_module, "_COPIED", 1 << 20)
    with nova.knobs.override(cache_dir=tmp_path / "cache"):
        peaks_module._peaks_in.cache_clear()
        yield tmp_path / "cache"
    peaks_module._peaks_in.cache_clear()


def test_peaks_are_measured_once(quick, monkeypatch):
    result = measured_peaks()
    assert result.core_flops > 1e8 and result.core_bytes > 1e7
    assert result.flops >= result.core_flops and result.bytes >= result.core_bytes
    (path,) = quick.glob("peaks-*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(peaks_module, "_measure", lambda cores: pytest.fail("measured again"))
    assert measured_peaks() is result
    peaks_module._peaks_in.cache_clear()
    assert measured_peaks() == result, "from the file"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", '{"cores": 1}', json.dumps(vars(Peaks(1, -1.0, 1.0, 1.0, 1.0)))],
)
def test_a_damaged_file_is_measured_again(quick, text):
    measured_peaks()
    (path,) = quick.glob("peaks-*.json")
    path.write_text(text)
    peaks_module._peaks_in.cache_clear()
    assert measured_peaks().core_flops > 0
    assert json.loads(path.read_text())["cores"] >= 1


def test_a_folder_that_cannot_be_used_is_left_alone(tmp_path, monkeypatch, quick):
    folder = tmp_path / "others"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with nova.knobs.override(cache_dir=folder):
        assert measured_peaks().core_flops > 0
    assert list(folder.iterdir()) == []


def test_traces_are_made_of_this_module():
    assert isinstance(nova.trace(), Trace)
