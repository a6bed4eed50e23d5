"""Programs for a device with ops that are pinned to the host: results, copies, files and texts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import errors
from nova._native import DeviceArray
from nova.artifact.tables import Tables
from nova.graph.interpret import evaluate
from nova.plan.build import build_plan
from nova.plan.text import parse_plan
from nova.runtime.devices import open_device
from nova.tools.nova import main as nova_tool

rng = np.random.default_rng(3)
x = rng.standard_normal((24, 16)).astype("f4")
w = (rng.standard_normal((16, 16)) / 4).astype("f4")
TARGET = "cuda:sm_80"


def pinned(value: Callable[[], Any]) -> Any:
    with nova.device("cpu"):
        return value()


def start(X: Any, W: Any) -> Any:
    return nova.tanh(pinned(lambda: nova.exp(X) * 0.5) @ W)


def middle(X: Any, W: Any) -> Any:
    h = nova.relu(X @ W)
    return pinned(lambda: nova.softmax(h @ W)).sum(axis=1)


def end(X: Any, W: Any) -> Any:
    h = nova.gelu(X @ W)
    return pinned(lambda: h - h.mean(axis=0))


def two_host_regions(X: Any, W: Any) -> Any:
    a = pinned(lambda: nova.sin(X))
    b = a @ W
    return pinned(lambda: nova.softmax(b + a)) @ W


def beside(X: Any, W: Any) -> Any:
    """Both sides work on the argument, and neither waits for the other until the end."""
    a = nova.tanh(X @ W)
    b = pinned(lambda: nova.cos(X) @ W)
    return a * b + a.T.reshape(X.shape)


def everything(X: Any, W: Any) -> Any:
    return pinned(lambda: nova.softmax(nova.relu(X @ W) @ W))


def bools(X: Any, W: Any) -> Any:
    mask = X > 0.25
    chosen = pinned(lambda: nova.where(mask, X, -X) > 0.5)
    return nova.where(chosen, X @ W, 0.0)


def constants(X: Any, W: Any) -> Any:
    table = np.linspace(0, 1, x.size, dtype="f4").reshape(x.shape)
    h = X + table
    return pinned(lambda: (h * table) @ W) - table


def views(X: Any, W: Any) -> Any:
    h = (X @ W).reshape(12, 32)
    return pinned(lambda: h.T.reshape(16, 24)) @ X


def attention(X: Any, W: Any) -> Any:
    heads = (X @ W).reshape(1, 24, 2, 8).transpose((0, 2, 1, 3))
    made = pinned(lambda: nova.scaled_dot_product_attention(heads, heads, heads, causal=True))
    return nova.scaled_dot_product_attention(made, heads, heads)


PROGRAMS = [
    attention,
    start,
    middle,
    end,
    two_host_regions,
    beside,
    everything,
    bools,
    constants,
    views,
]


def leaves() -> tuple[Any, Any]:
    return nova.tensor(x, name="X"), nova.tensor(w, name="W", requires_grad=True)


def compiled(program: Callable[[Any, Any], Any], target: str = TARGET) -> Any:
    X, W = leaves()
    mode = "sim" if target.startswith("cuda") else "native"
    return nova.compile(program(X, W), inputs=[X], params=[W], target=target, run_mode=mode)


def cores(tables: Tables) -> list[str]:
    """Where the launches run, in order: `device`, `host`, or a copy."""
    words = [tables.kernels[launch.kernel].core for launch in tables.launches]
    return ["host" if word in ("matrix", "vector") else word for word in words]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_results_are_those_of_the_oracle(program: Callable[[Any, Any], Any]) -> None:
    X, W = leaves()
    (wanted,) = evaluate([program(X, W)])
    made = compiled(program)
    assert "host" in cores(made._executable.tables)
    for _ in range(3):  # the same memory of both sides is used again
        np.testing.assert_allclose(made.run([x], [w]), wanted, rtol=2e-5, atol=2e-5)


def test_values_are_copied_where_they_are_needed() -> None:
    assert cores(compiled(middle)._executable.tables) == [
        *("to_host", "device", "to_host", "host", "to_device", "device")
    ]
    assert cores(compiled(everything)._executable.tables) == [
        *("to_host", "to_host", "host", "host", "to_device")
    ]


def test_what_both_sides_read_is_copied_once() -> None:
    tables = compiled(two_host_regions)._executable.tables
    copied = [
        (tables.kernels[launch.kernel].core, tables.buffers[launch.buffers[0]])
        for launch in tables.launches
        if tables.kernels[launch.kernel].core in ("to_host", "to_device")
    ]
    assert len(copied) == len(set(copied)) == 4  # X in, sin(X) out, the product in, softmax out


def train(target: str, program: Callable[[Any, Any], Any], pin_update: bool) -> list[np.ndarray]:
    X, W = leaves()
    loss = (program(X, W) ** 2).mean()
    nova.backward(loss)
    with nova.device("cpu" if pin_update else "cuda"):
        new = W - 0.1 * W.grad
    mode = "sim" if target.startswith("cuda") else "native"
    step = nova.compile(
        [loss], inputs=[X], params=[W], updates={W: new}, target=target, run_mode=mode
    )
    own = w.copy()
    return [*(np.array(step.run([x], [own])) for _ in range(3)), own]


@pytest.mark.parametrize("pin_update", [False, True])
@pytest.mark.parametrize("program", [middle, two_host_regions, nova.checkpoint(middle)])
def test_training(program: Callable[[Any, Any], Any], pin_update: bool) -> None:
    hybrid = train(TARGET, program, pin_update)
    for own, wanted in zip(hybrid, train("cpu", program, pin_update), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=2e-5, atol=2e-6)
    assert not np.array_equal(hybrid[-1], w)


def test_gradients_are_pinned_like_their_ops() -> None:
    X, W = leaves()
    h = X @ W
    loss = pinned(lambda: nova.softmax(h)).sum()
    nova.backward(loss)
    plan = build_plan([W.grad], [X], [W])
    host = {step.op for step in plan.steps if step.device == "cpu"}
    assert "softmax" in host and "sub" in host
    assert not any(step.op == "matmul" and step.device for step in plan.steps)


def test_cuda_inside_cpu_is_not_pinned() -> None:
    X, _ = leaves()
    with nova.device("cpu"):
        a = nova.exp(X)
        with nova.device("cuda"):
            b = nova.exp(a)
        c = nova.exp(b)
    assert [t.device for t in (a, b, c)] == ["cpu", "", "cpu"]


def test_an_unknown_device_is_an_error() -> None:
    raises = pytest.raises(errors.AttributeValueError, match="no device 'tpu'")
    with raises as caught, nova.device("tpu"):
        pass
    assert "test_hybrid.py" in str(caught.value)


def test_the_plan_is_text() -> None:
    X, W = leaves()
    plan = build_plan([two_host_regions(X, W)], [X], [W])
    assert " @cpu : f32[24,16]" in str(plan)
    assert parse_plan(str(plan)) == plan
    with pytest.raises(errors.PlanSyntaxError, match="no device 'tpu'"):
        parse_plan(str(plan).replace("@cpu", "@tpu"))


def test_on_a_cpu_pins_change_nothing() -> None:
    def plain(X: Any, W: Any) -> Any:
        return nova.softmax(nova.relu(X @ W) @ W).sum(axis=1)

    made = [compiled(program, "cpu") for program in (plain, middle)]
    texts = [program.stages["loops"].split("loc(")[0] for program in made]
    assert texts[0] == texts[1]
    assert np.array_equal(*(program.run([x], [w]) for program in made))


def test_a_call_inside_of_device_does_not_pin_a_jitted_function() -> None:
    @nova.jit(target=TARGET, run_mode="sim")
    def f(a: Any) -> Any:
        return nova.exp(a)

    with nova.device("cpu"):
        result = f(x)
    np.testing.assert_allclose(result, np.exp(x), rtol=1e-5)
    assert " @cpu" not in f.lower(x).stages["plan"]


def test_a_file_for_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hybrid.nova"
    made = compiled(middle)
    nova.translate(made, targets=[os.uname().machine, TARGET, "cuda:sm_90a"]).save(path)
    wanted = made.run([x], [w])
    on_sim = nova.load(path, device="sim")
    np.testing.assert_allclose(on_sim.run([x], [w]), wanted, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(nova.load(path).run([x], [w]), wanted, rtol=2e-5, atol=2e-6)
    assert nova_tool(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "copy_to_host" in shown and "to_device" in shown


def test_arrays_on_the_device() -> None:
    made = compiled(two_host_regions)
    wanted = made.run([x], [w])
    device = open_device("sim")
    given = DeviceArray.of(device, x), DeviceArray.of(device, w)
    results = [made.run([given[0]], [given[1]]) for _ in range(2)]
    for result in results:
        assert isinstance(result, DeviceArray)
        np.testing.assert_array_equal(result.numpy(), wanted)


def test_later_stages_alone_lack_the_code_of_the_host(tmp_path: Path) -> None:
    text = tmp_path / "outlined.mlir"
    text.write_text(compiled(middle).stages["outlined"])
    with pytest.raises(errors.LoweringError, match="is pinned to the host"):
        nova.translate(text, targets=[TARGET], start_from="outlined")
