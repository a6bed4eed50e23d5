"""Traces of runs on the simulated device: each launch once and in order, copies, host, files."""

from __future__ import annotations

import gc
import json
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from events import check_events
from graphs import PEAKS

import nova
from nova.errors import DeviceError
from nova.tools.nova import main
from nova.tracing.device_run import LANES, DeviceRun

rng = np.random.default_rng(5)
x = rng.standard_normal((16, 24)).astype("f4")
w = (rng.standard_normal((24, 24)) / 5).astype("f4")
TARGET = "cuda:sm_80"


@pytest.fixture(autouse=True)
def no_peaks(monkeypatch):
    """A trace of a device asks for nothing of the cores."""

    def measure():
        raise AssertionError("the peaks of the cores were asked for")

    monkeypatch.setattr("nova.tracing.collect.measured_peaks", measure)


def chain():
    """Several launches: products that end in a reduction."""
    X, W = nova.tensor(x, name="X"), nova.tensor(w, name="W")
    result = nova.softmax(nova.tanh(X @ W) @ W)
    return nova.compile(result, inputs=[X], params=[W], target=TARGET, run_mode="sim")


def step():
    """A param that is updated."""
    X, W = nova.tensor(x, name="X"), nova.tensor(w, name="W")
    return nova.compile(
        [(nova.tanh(X @ W) @ W).sum()],
        inputs=[X],
        params=[W],
        updates={W: W - 0.1 * nova.tanh(W)},
        target=TARGET,
        run_mode="sim",
    )


def mixed():
    X, W = nova.tensor(x, name="X"), nova.tensor(w, name="W")
    h = nova.relu(X @ W)
    with nova.device("cpu"):
        chosen = nova.softmax(h)
    return nova.compile(chosen @ W, inputs=[X], params=[W], target=TARGET, run_mode="sim")


def launches_of(program) -> list[str]:
    """Kernels of the device in the order of the launch table."""
    tables = program._executable.tables
    kernels = [tables.kernels[launch.kernel] for launch in tables.launches]
    return [kernel.name for kernel in kernels if kernel.core == "device"]


def check(run: DeviceRun) -> None:
    """Spans lie in the run, and those of a lane do not overlap."""
    assert run.lost == 0 and run.spans
    for lane in LANES:
        spans = run.lanes[lane]
        assert all(run.start <= span.start <= span.end <= run.end for span in spans)
        assert all(a.end <= b.start for a, b in pairwise(spans)), lane


@pytest.mark.parametrize("make", [chain, step, mixed])
def test_each_launch_once_a_run_and_in_order(make) -> None:
    program = make()
    expected = program(x, w.copy())
    with nova.trace() as trace:
        for _ in range(3):
            np.testing.assert_array_equal(program(x, w.copy()), expected)
    assert len(trace.runs) == 3
    for run in trace.runs:
        assert isinstance(run, DeviceRun)
        check(run)
        assert [span.name for span in run.lanes["kernels"]] == launches_of(program)
        assert (run.program, run.device, run.kind) == (program.name, "sim", "predicted")
    assert len(launches_of(program)) >= 2
    assert all(a.end <= b.start for a, b in pairwise(trace.runs))


def test_a_traced_run_goes_launch_by_launch_and_the_next_by_a_graph() -> None:
    program = chain()
    count = len(launches_of(program))
    for _ in range(3):
        program(x, w)
    _, launches, _, graphs, _ = program._executable.program.counts()
    with nova.trace():
        program(x, w)
    assert program._executable.program.counts()[1::2] == (launches + count, graphs)
    program(x, w)
    assert program._executable.program.counts()[1::2] == (launches + count, graphs + 1)


@pytest.mark.parametrize("make", [chain, mixed])
@pytest.mark.parametrize("location", ["host", "device"])
def test_a_submitted_run_belongs_to_the_traces_of_its_start(make, location: str) -> None:
    program = make()
    arrays = [x, w] if location == "host" else [nova.to_device(a, "sim") for a in (x, w)]
    expected = program(x, w)
    early = program.submit(*arrays)
    with nova.trace() as first:
        inside = program.submit(*arrays)
    with nova.trace() as second:
        for future in (early, inside):
            np.testing.assert_array_equal(np.asarray(future.result()), expected)
    assert (len(first.runs), len(second.runs)) == (1, 0)
    check(first.runs[0])
    assert [span.name for span in first.runs[0].lanes["kernels"]] == launches_of(program)


def test_kernels_say_how_they_were_launched() -> None:
    program = chain()
    with nova.trace() as trace:
        program(x, w)
    (run,) = trace.runs
    specs = {kernel.name: kernel for kernel in program.kernels}
    for number, span in enumerate(run.lanes["kernels"]):
        shape = specs[span.name].device
        assert span.details == {
            "kind": "kernel",
            "launch": number,
            "grid": "x".join(map(str, shape.grid)),
            "block": "x".join(map(str, shape.block)),
            "shared": shape.shared,
            "flops": specs[span.name].flops,
            "bytes": specs[span.name].bytes,
            "line": specs[span.name].location,
        }
        assert __file__ in span.details["line"]


def test_copies_name_what_they_move() -> None:
    program = step()
    with nova.trace() as trace:
        program.run([x], [w.copy()])
    (run,) = trace.runs
    first, last = run.lanes["copies"]
    assert (first.name, first.tensors) == ("to device: X, W", ("X", "W"))
    assert first.bytes >= x.nbytes + w.nbytes
    assert last.activity == "copy out" and set(last.tensors) == {"W", "y0"}
    assert last.bytes >= w.nbytes + 4
    kernels = run.lanes["kernels"]
    assert first.end <= kernels[0].start and kernels[-1].end <= last.start


def test_many_tensors_are_one_copy() -> None:
    tensors = [nova.tensor(np.ones(4, "f4"), name=f"t{i}") for i in range(7)]
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    program = nova.compile(total, inputs=tensors, target=TARGET, run_mode="sim")
    with nova.trace() as trace:
        program(*(t.data for t in tensors))
    first = trace.runs[0].lanes["copies"][0]
    assert first.name == "to device: t0, t1, t2, t3 and 3 more"
    assert first.tensors == tuple(f"t{i}" for i in range(7))


def test_large_arrays_are_copied_one_by_one() -> None:
    large = np.ones(400_000, "f4")
    A, B = nova.tensor(large, name="A"), nova.tensor(large, name="B")
    program = nova.compile(A[:64] + B[:64], inputs=[A, B], target=TARGET, run_mode="sim")
    with nova.trace() as trace:
        np.testing.assert_array_equal(program(large, large), 2)
    (run,) = trace.runs
    check(run)
    assert [span.name for span in run.lanes["copies"]] == [
        "to device: A",
        "to device: B",
        "to host: y0",
    ]
    assert [span.bytes for span in run.lanes["copies"][:2]] == [large.nbytes, large.nbytes]
    assert "stage" in {span.activity for span in run.lanes["host"]}


def test_the_host_enqueues_waits_and_runs_islands() -> None:
    program = mixed()
    with nova.trace() as trace:
        program(x, w)
    (run,) = trace.runs
    host = run.lanes["host"]
    assert all(a.end == b.start for a, b in pairwise(host)), "it does something all the time"
    modes = [span.activity for span in host]
    island = modes.index("host kernel")
    assert modes[0] == "enqueue" and modes[island - 1] == "wait" and "wait" in modes[island:]
    cores = {kernel.name: kernel.core for kernel in program.kernels}
    assert cores[host[island].name] in ("vector", "matrix", "host")
    arrived, out, back, result = (span.name.partition("[")[0] for span in run.lanes["copies"])
    assert (arrived, result) == ("to device: X, W", "to host: y0")
    assert (out, back) == ("to host: workspace", "to device: workspace")
    before, trailing = run.lanes["kernels"]
    assert before.end <= host[island].start and host[island].end <= trailing.start


def test_arrays_on_the_device_are_not_waited_for() -> None:
    """The run returns when it is enqueued, and its kernels are later: when somebody looks."""
    program = chain()
    present, weights = nova.to_device(x, "sim"), nova.to_device(w, "sim")
    program(present, weights)
    with nova.trace() as trace:
        results = [program(present, weights) for _ in range(3)]
    assert [len(run.lanes["copies"]) for run in trace.runs] == [0, 0, 0]
    for run in trace.runs:
        check(run)
        (host,) = run.lanes["host"]
        assert host.activity == "enqueue" and host.end <= run.lanes["kernels"][0].start
    np.testing.assert_array_equal(results[0].numpy(), results[2].numpy())


def test_more_runs_than_are_kept_open() -> None:
    program = chain()
    present, weights = nova.to_device(x, "sim"), nova.to_device(w, "sim")
    with nova.trace() as trace:
        for _ in range(80):
            program(present, weights)
    assert len(trace.runs) == 80
    for run in trace.runs:
        check(run)
        assert [span.name for span in run.lanes["kernels"]] == launches_of(program)


def test_a_trace_outlives_its_program_and_may_never_be_read() -> None:
    program = chain()
    with nova.trace() as trace:
        program(x, w)
    with nova.trace():
        program(nova.to_device(x, "sim"), nova.to_device(w, "sim"))
    names = launches_of(program)
    del program
    gc.collect()
    assert [span.name for span in trace.runs[0].lanes["kernels"]] == names


def test_threads(tmp_path: Path) -> None:
    program = chain()

    def work() -> None:
        for _ in range(3):
            program(x, w)

    threads = [threading.Thread(target=work) for _ in range(3)]
    with nova.trace(tmp_path / "t.json") as trace:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(trace.runs) == 9
    for run in trace.runs:
        check(run)
    assert check_events(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == []


def test_the_timeline_file(tmp_path: Path) -> None:
    program = mixed()
    with nova.trace(tmp_path / "t.json") as trace:
        program(x, w)
        program(x, w)
    written = json.loads((tmp_path / "t.json").read_text())
    events = written["traceEvents"]
    assert check_events(events) == []
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(names.values()) == ["device 0 copies", "device 0 kernels", "host"]
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == ["sim"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == sum(len(run.spans) for run in trace.runs)
    kernels = [e for e in slices if names[e["pid"], e["tid"]] == "device 0 kernels"]
    assert [e["name"] for e in kernels] == 2 * launches_of(program)
    assert {"grid", "block", "shared", "line", "program"} <= set(kernels[0]["args"])
    copies = [e for e in slices if names[e["pid"], e["tid"]] == "device 0 copies"]
    assert all(e["args"]["bytes"] > 0 and e["args"]["tensors"] for e in copies)
    assert written["otherData"]["summary"] == str(trace.summary())


def test_runs_of_both_kinds(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("nova.tracing.collect.measured_peaks", lambda: PEAKS)
    X = nova.tensor(x, name="X")
    on_cores, program = nova.compile(X * 2, inputs=[X]), chain()
    with nova.trace(tmp_path / "t.json") as trace:
        on_cores(x)
        program(x, w)
    assert [isinstance(run, DeviceRun) for run in trace.runs] == [False, True]
    summary = trace.summary()
    assert (summary.runs, [d.runs for d in summary.devices]) == (1, [1])
    output = str(summary)
    assert output.startswith("1 run measured on 1 worker") and "\n\n1 run measured on sim" in output
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert check_events(events) == []
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == ["measured", "planned", "sim"]


def test_the_summary() -> None:
    program = step()
    with nova.trace() as trace:
        program.run([x], [w.copy()])
        program.run([x], [w.copy()])
    (device,) = trace.summary().devices
    runs = trace.runs
    assert (device.device, device.runs) == ("sim", 2)
    assert device.time == sum(run.makespan for run in runs)
    assert device.kernel_time + device.copy_time - device.overlap + device.idle == device.time
    assert sum(kernel.launches for kernel in device.kernels) == 2 * len(launches_of(program))
    assert sum(kernel.time for kernel in device.kernels) == device.kernel_time
    assert [(copy.kind, copy.copies) for copy in device.copies] == [("copy in", 2), ("copy out", 2)]
    assert sum(device.host.values()) <= device.time
    output = str(trace.summary())
    for expected in ("2 runs measured on sim: ", "time of the device\n", "time by kernel\n",
                   "copies\n", "time of the host\n", "waiting for the device"):  # fmt: skip
        assert expected in output
    assert all(name in output for name in launches_of(program))


def test_the_page(tmp_path: Path) -> None:
    program = mixed()
    with nova.trace(tmp_path / "t.html") as trace:
        program(x, w)
    text = (tmp_path / "t.html").read_text()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    (run,) = data["runs"]
    assert run["lanes"] == ["host", "device 0 copies", "device 0 kernels"]
    assert len(run["measured"]["task"]) == len(trace.runs[0].spans)
    parts = run["parts"]["Time of the device"]
    assert sum(parts.values()) == run["makespan"]
    graph = data["graphs"][run["graph"]]
    listing = [data["kernels"][k]["name"] for k in graph["kernel"]]
    assert listing == [span.name for span in trace.runs[0].spans]
    assert {row["name"] for row in data["table"]} >= set(launches_of(program))


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    chain().save("model.nova", weights="embed")
    return "model.nova"


def test_the_command(model, capsys, tmp_path) -> None:
    words = ["--device", "sim", "--random", "--repeat", "2", "-o", "t.json", "--html", "t.html"]
    assert main(["trace", model, *words]) == 0
    output = capsys.readouterr().out
    assert output.startswith("model.nova: 2 runs measured on sim: ")
    assert "time of the device" in output
    assert check_events(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == []
    assert "device 0 kernels" in (tmp_path / "t.html").read_text()
    assert main(["trace", model, "--device", "sim", "--random", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (device,) = answer["devices"]
    assert (device["device"], device["runs"], answer["runs"]) == ("sim", 1, 0)


@pytest.mark.parametrize("option", ["--sim", "--threads"])
def test_options_for_cores_are_refused(model, capsys, option) -> None:
    assert main(["trace", model, "--device", "sim", "--random", option, "4"]) == 1
    output = capsys.readouterr()
    assert output.out == "" and f"{option} " in output.err
    assert "runs on a device" in output.err and f"leave {option} out" in output.err


def test_a_device_that_is_none(model, capsys) -> None:
    assert main(["trace", model, "--device", "tpu", "--random"]) == 1
    assert "device 'tpu' is not known" in capsys.readouterr().err
    with pytest.raises(DeviceError):
        nova.load(model, device="tpu")
