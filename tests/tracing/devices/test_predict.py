"""Predicted times of programs on devices, and simulated machines with typed cores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import AttributeValueError
from nova.tools.nova import main
from nova.tracing.devices.models import DEVICE_MODELS, H200
from nova.tracing.devices.predict import launch_ns, predict

M, K, N = 256, 512, 384


@pytest.fixture(scope="module")
def program() -> Any:
    x = nova.tensor(np.ones((M, K), "f4"), name="x")
    w = nova.tensor(np.ones((K, N), "f4"), name="w")
    results = [nova.softmax(x @ w), nova.transpose(w) * 2.0]
    return nova.compile(results, inputs=[x, w], target="cuda:sm_90a", run_mode="sim")


def test_work_of_a_product_is_that_of_its_sizes(program: Any) -> None:
    most = max(program.kernels, key=lambda kernel: kernel.flops)
    assert most.flops == 2 * M * K * N
    assert most.bytes == 4 * (M * K + K * N + M * N)


@pytest.mark.parametrize("device", sorted(DEVICE_MODELS))
def test_a_prediction_has_every_launch_in_order(program: Any, device: str) -> None:
    prediction = program.simulate(device=device)
    model = DEVICE_MODELS[device]
    assert [item.launch for item in prediction.launches] == list(range(len(prediction.launches)))
    for item in prediction.launches:
        assert item.end - item.start >= min(model.latency, model.matrix_latency)
    starts = [item.start for item in prediction.launches]
    assert starts == sorted(starts)
    assert prediction.makespan >= prediction.device_ns == max(i.end for i in prediction.launches)
    assert prediction.run.kind == "predicted"
    assert f"on {device}" in str(prediction)


def test_time_is_at_least_that_of_the_peaks(program: Any) -> None:
    """A roofline: neither operations nor bytes can go faster than the device."""
    for kernel in program.kernels:
        ns, _ = launch_ns(kernel, H200)
        assert ns >= kernel.flops / H200.matrix_flops
        assert ns >= kernel.bytes / H200.cache_bytes


def test_few_blocks_take_longer_than_many(program: Any) -> None:
    kernel = max(program.kernels, key=lambda kernel: kernel.flops)
    few = replace(kernel, device=replace(kernel.device, grid=(4, 1, 1)))
    assert launch_ns(few, H200)[0] > 4 * launch_ns(kernel, H200)[0]


def test_dependent_launches_are_nearer(program: Any) -> None:
    tables = program._executable.tables
    on = predict(tables, H200)
    with nova.knobs.override(device_overlap="off"):
        off = predict(tables, H200)
    assert sum(item.dependent for item in on.launches) == len(on.launches) - 1
    assert not any(item.dependent for item in off.launches)
    assert off.device_ns - on.device_ns == pytest.approx(
        (H200.boundary - H200.dependent_boundary) * (len(on.launches) - 1)
    )


def test_long_independent_launches_overlap() -> None:
    x, y = (nova.input((640, 640)) for _ in range(2))  # too large to be fused
    program = nova.compile([x @ x, y @ y], inputs=[x, y], target="cuda:sm_90a", run_mode="sim")
    tables = program._executable.tables
    slow = replace(H200, vector_flops=100.0, memory_bytes=10.0, cache_bytes=10.0, processors=1000)
    first, *_, independent = predict(tables, slow).launches
    assert independent.start < first.end


def test_typed_cores_respect_types_and_order(program: Any) -> None:
    machine = {"matrix": 24, "vector": 48}
    simulation = program.simulate(cores=machine)
    assert {task.core for task in simulation.tasks} == {"vector"}
    last: dict[tuple[str, int], float] = {}
    for task in sorted(simulation.tasks, key=lambda task: (task.start, task.end)):
        assert 0 <= task.number < machine[task.core]
        assert task.start >= last.get((task.core, task.number), 0.0)
        last[task.core, task.number] = task.end
    assert simulation.makespan >= simulation.critical_ns - 1e-6
    one = program.simulate(cores={"vector": 1})
    work = sum(task.end - task.start for task in one.tasks)
    assert one.makespan == pytest.approx(work)
    # Graham's bound for list scheduling: work / cores + critical path
    assert simulation.makespan <= work / 48 + simulation.critical_ns + 1e-6
    assert "48" in str(simulation)


def test_mistakes_have_their_errors(program: Any) -> None:
    with pytest.raises(AttributeValueError, match="no device model 'h20'") as caught:
        program.simulate(device="h20")
    assert "h200" in str(caught.value.hint)
    with pytest.raises(AttributeValueError, match="'tensor': 3"):
        program.simulate(cores={"tensor": 3})
    with pytest.raises(AttributeValueError, match="no tasks of CPU cores"):
        program.simulate()
    x = nova.tensor(np.ones(4, "f4"), name="x")
    on_cpu = nova.compile(x + 1.0, inputs=[x], target="cpu")
    with pytest.raises(AttributeValueError, match="no launches on a device"):
        on_cpu.simulate(device="h200")


def test_the_command_predicts(
    program: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "program.nova", tmp_path / "timeline.json"
    path.write_bytes(program._executable.artifact.data)
    command = ["trace", str(path), "--device", "h200", "--simulate", "-o", str(out)]
    assert main(command) == 0
    assert "launches on h200" in capsys.readouterr().out
    assert "kernel_0" in out.read_text()


def test_runs_on_the_simulator_have_predicted_times(program: Any) -> None:
    x, w = np.ones((M, K), "f4"), np.ones((K, N), "f4")
    with nova.trace() as trace:
        program(x, w)
    run = trace.runs[-1]
    assert run.kind == "predicted"
    spans = [span for span in run.spans if span.activity == "kernel"]
    for span in spans:
        assert span.duration == pytest.approx(launch_ns(span.kernels[0], H200)[0], abs=1)
    assert "predicted" in str(trace.summary())
    assert "as a graph of" in str(trace.summary())


def test_loops_and_branches_inside_of_each_other() -> None:
    x = nova.input((64, 64), name="x")

    def step(carry: Any) -> Any:
        return nova.cond(carry.sum() > 0, lambda: carry * 2.0 + 1.0, lambda: carry @ carry)

    graphs = {
        "branch": step(x),
        "branch in a loop": nova.fori_loop(0, 3, lambda i, carry: step(carry), x),
        "loop in a branch": nova.cond(
            x.sum() > 0, lambda: nova.fori_loop(0, 3, lambda i, c: step(c), x), lambda: x
        ),
    }
    times = {}
    for title, graph in graphs.items():
        program = nova.compile(graph, inputs=[x], target="cuda:sm_90", run_mode="sim")
        times[title] = program.simulate(device="h200").device_ns
    assert times["branch in a loop"] > 2 * times["branch"]
    assert times["loop in a branch"] > times["branch in a loop"]


def test_simulate_needs_the_name_of_a_device(
    program: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.save(tmp_path / "x.nova")
    assert main(["trace", str(tmp_path / "x.nova"), "--simulate"]) == 1
    listing = capsys.readouterr().err
    assert "no --device is given" in listing and "h200, h100, a100" in listing
