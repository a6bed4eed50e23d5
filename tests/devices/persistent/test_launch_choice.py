"""`launch="auto"`: the execution with the lower predicted time, and the reason for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova.artifact.cubins.ptxas import KernelUse, find_ptxas, use_of_kernels
from nova.artifact.format import read_artifact
from nova.compiler.gpu import fit_registers
from nova.errors import AttributeValueError, PersistentLaunchError
from nova.runtime.launch_choice import choose_launch
from nova.tools.nova import main
from nova.tracing.devices.models import DEVICE_MODELS, H200
from nova.tracing.devices.predict import PERSISTENT_KERNELS, predict, predict_graph
from nova.tracing.devices.predict_persistent import predict_persistent

DEVICE = {"target": "cuda:sm_90a", "run_mode": "sim"}


def chain(x: Any, length: int = 3) -> Any:
    for _ in range(length):
        x = nova.tanh(x @ x)
    return x


def compiled(launch: str, length: int = 3) -> Any:
    x = nova.input((48, 48))
    return nova.compile(chain(x, length), inputs=[x], launch=launch, **DEVICE)


def test_auto_takes_the_launch_with_the_lower_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled("auto")
    tables = program._executable.tables
    times = {
        "graph": predict_graph(tables, H200).makespan,
        "persistent": predict_persistent(tables, H200).makespan,
    }
    expected = "persistent" if times["persistent"] < 0.95 * times["graph"] else "graph"
    assert program.launch == expected
    assert expected in str(program.launch_choice) and "predicted" in str(program.launch_choice)
    slow = replace(H200, boundary=50_000, dependent_boundary=50_000)
    monkeypatch.setitem(DEVICE_MODELS, "h200", slow)
    assert choose_launch(tables, "cuda:sm_90a").launch == "persistent"
    program = compiled("auto", 4)
    assert program.launch == "persistent"
    x = np.random.default_rng(0).standard_normal((48, 48), np.float32) / 8
    np.testing.assert_array_equal(program(x), compiled("graph", 4)(x))


def test_auto_takes_the_graph_where_a_persistent_kernel_is_refused() -> None:
    x = nova.input((32, 32))
    loop = nova.scan(lambda c, _: (nova.tanh(c @ c), c.sum()), x, None, length=10)
    program = nova.compile(loop, inputs=[x], launch="auto", **DEVICE)
    assert program.launch == "graph"
    assert "loop" in str(program.launch_choice)


def attention_gradients(width: int = 64) -> tuple[Any, list[Any]]:
    inputs = [nova.input((1, 1, 64, width)) for _ in range(3)]
    out = nova.scaled_dot_product_attention(*inputs, is_causal=True)
    return nova.graph.gradients(out.sum(), inputs), inputs


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas")
def test_a_kernel_whose_tasks_would_spill_gets_one_block(tmp_path: Path) -> None:
    outputs, inputs = attention_gradients()
    program = nova.compile(outputs, inputs=inputs, launch="persistent", **DEVICE)
    ptx = program.stages["ptx"]
    bounds = ptx[ptx.index(".entry nova_persistent_chains") :]
    assert bounds.partition("{")[0].count(".minnctapersm 1") == 1
    program.save(tmp_path / "program.nova")  # ptxas checks it again
    assert use_of_kernels(ptx, "sm_90a")["nova_persistent_chains"].spilled == 0


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas")
def test_auto_says_that_registers_do_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    def spills(ptx: bytes, arch: str) -> dict[str, KernelUse]:
        return {"nova_persistent_chains": KernelUse(255, 64, 64)}

    monkeypatch.setattr(fit_registers, "spilling_kernels", spills)
    with pytest.raises(PersistentLaunchError, match="spills 64 bytes with 255 registers"):
        compiled("persistent", 5)
    slow = replace(H200, boundary=50_000, dependent_boundary=50_000)
    monkeypatch.setitem(DEVICE_MODELS, "h200", slow)
    program = compiled("auto", 5)
    assert program.launch == "graph"
    assert "spills 64 bytes" in str(program.launch_choice)


def test_auto_is_the_only_launch_of_a_cpu() -> None:
    x = nova.input((8, 8))
    program = nova.compile(chain(x), inputs=[x], launch="auto")
    assert program.launch_choice is None


def test_a_persistent_prediction_respects_dependences() -> None:
    program = compiled("persistent")
    prediction = program.simulate(device="h200")
    assert prediction.launch == "persistent" and "persistent kernel" in str(prediction)
    first, *others = prediction.launches
    for launch in others:
        assert launch.start >= first.end + H200.hop
        first = launch
    assert prediction == predict(program._executable.tables, H200, program.name)


def test_a_loop_takes_its_body_as_often_as_it_runs() -> None:
    x = nova.input((32, 32))

    def predicted(length: int) -> Any:
        loop = nova.scan(lambda c, _: (nova.tanh(c @ c), c.sum()), x, None, length=length)
        return nova.compile(loop, inputs=[x], **DEVICE).simulate(device="h200")

    ten, thirty = predicted(10), predicted(30)
    assert thirty.device_ns == pytest.approx(3 * ten.device_ns)
    assert ten.device_ns > 10 * H200.latency and not ten.assumed


def test_a_loop_of_unknown_length_is_assumed_to_run_once() -> None:
    x = nova.input((32, 32))
    loop = nova.while_loop(lambda c: c.sum() < 100.0, lambda c: nova.tanh(c @ c) + c, x)
    prediction = nova.compile(loop, inputs=[x], **DEVICE).simulate(device="h200")
    assert prediction.assumed and "assumed to run once" in str(prediction)
    assert prediction.device_ns > 0


@pytest.mark.parametrize("launch", ["graph", "persistent"])
def test_loops_and_branches_inside_of_loops(launch: str) -> None:
    def predicted(length: int) -> Any:
        def inner(c: Any) -> Any:
            return nova.scan(lambda d, _: (nova.tanh(d @ d), d.sum()), c, None, length=length)[0]

        def body(i: Any, c: Any) -> Any:
            return nova.cond(i > 1, inner, lambda c: c + 1, c)

        x, count = nova.input((32, 32)), nova.input((), "i64")
        loop = nova.fori_loop(0, count, body, x)
        program = nova.compile(loop, inputs=[count, x], launch=launch, **DEVICE)
        return program.simulate(device="h200")

    few, many = predicted(20), predicted(60)
    assert few.assumed and few.device_ns > 20 * H200.task_latency
    assert 2 * few.device_ns < many.device_ns < 3.1 * few.device_ns


@pytest.mark.parametrize("device", [3, 1.5, b"h200"])
def test_a_device_model_is_a_name(device: Any) -> None:
    with pytest.raises(AttributeValueError, match="not the name of a device model"):
        compiled("graph").simulate(device=device)


def test_inspect_says_that_a_program_is_persistent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for launch in ("graph", "persistent"):
        compiled(launch).save(tmp_path / "program.nova")
        assert main(["inspect", str(tmp_path / "program.nova")]) == 0
        assert (", persistent" in capsys.readouterr().out) == (launch == "persistent")


def test_translate_takes_auto() -> None:
    program = compiled("graph")
    translation = nova.translate(program, targets="cuda:sm_90a", launch="auto")
    choice = program.launch_choice
    names = [kernel.name for kernel in read_artifact(translation.data).tables(0).kernels]
    assert (PERSISTENT_KERNELS[0] in names) == (choice.launch == "persistent")


def test_loops_and_branches_of_a_persistent_kernel_have_a_predicted_time() -> None:
    x = nova.input((32, 32))

    def predicted(result: Any) -> Any:
        program = nova.compile(result, inputs=[x], launch="persistent", **DEVICE)
        return program.simulate(device="h200")

    def scan(length: int) -> Any:
        return nova.scan(lambda c, _: (nova.tanh(c @ c), c.sum()), x, None, length=length)

    ten, thirty = predicted(scan(10)), predicted(scan(30))
    assert ten.launch == "persistent" and not ten.assumed
    assert 2.5 * ten.device_ns < thirty.device_ns < 3.5 * ten.device_ns
    branch = nova.cond(x.sum() > 0, lambda: nova.tanh(x @ x), lambda: nova.softmax(x, -1))
    assert 0 < predicted(branch).device_ns < ten.device_ns
