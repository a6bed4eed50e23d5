"""The simulator finds reads before `griddepcontrol.wait` of memory that earlier launches write."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import nova
from nova import knobs, nn, optim
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.knobs import SIM_SCHEDULES

SIM: dict[str, Any] = {"target": "cuda:sm_90a", "run_mode": "sim"}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 256)).astype("f4")
W = RNG.standard_normal((256, 256)).astype("f4")


def of_computed_matrix(scale: float) -> Any:
    """A matrix that a launch writes, and its GEMV."""
    x, w = nova.tensor(X), nova.tensor(W)
    matrix = w @ w.T
    return nova.compile([x @ matrix.T * scale, matrix], inputs=[x, w], **SIM)


def of_weights() -> Any:
    x, w = nova.tensor(X), nova.tensor(W)
    return nova.compile(nova.tanh(x @ w.T) @ w.T, inputs=[x, w], **SIM)


def run_twice(program: Any) -> Any:
    """The second run has a graph."""
    program(X, W)
    return program(X, W)


def test_a_read_of_what_an_earlier_launch_writes_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with knobs.override(cache=False):
        monkeypatch.setattr(DeviceKernel, "is_unwritten", lambda kernel, value: True)
        program = of_computed_matrix(2.0)  # not the program of another test
        with pytest.raises(nova.errors.NovaError, match="too early"):
            run_twice(program)


def test_the_compiler_waits_for_a_matrix_that_a_launch_writes() -> None:
    result, _ = run_twice(of_computed_matrix(1.0))
    np.testing.assert_allclose(np.asarray(result), X @ (W @ W.T).T, rtol=1e-3, atol=1e-2)


def test_weights_are_read_before_the_wait() -> None:
    program = of_weights()
    lines = program.stages["ptx"].splitlines()
    steps = [line for line in lines if "griddepcontrol.wait" in line or "ld.global.v4" in line]
    waits = [i for i, line in enumerate(steps) if "wait" in line]
    assert len(waits) == 2 and waits[0] > 0 and waits[1] > waits[0] + 1
    expected = np.tanh(X @ W.T) @ W.T
    np.testing.assert_allclose(np.asarray(run_twice(program)), expected, atol=1e-3)


def test_a_matrix_that_two_launches_read_is_not_written() -> None:
    """The first one has it after its result, where buffers may be written."""
    x, w = nova.input((1, 256)), nova.tensor(W, name="w")
    program = nova.compile(nova.tanh(x @ w) @ w.T, inputs=[x], params=[w], **SIM)
    expected = np.tanh(X @ W) @ W.T
    for _ in range(3):
        result = np.asarray(program.run([X], [W]))
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


XB, WB = (RNG.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((256, 512), (512, 512)))


def of_wgmma(tile: str) -> Any:
    """Two GEMMs with a weight, by TMA."""
    x, w = nova.tensor(XB), nova.tensor(WB / 16)
    with knobs.override(gpu_gemm=f"wgmma-{tile}", cache=False):
        return nova.compile(nova.tanh(x @ w) @ w.T, inputs=[x, w], **SIM)


@pytest.mark.parametrize("tile", ["128x64x1x1", "128x64x1x4", "128x128x1x1"])
@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_weights_of_a_warpgroup_gemm_are_copied_before_the_wait(tile: str, schedule: str) -> None:
    with knobs.override(sim_schedule=schedule):
        program = of_wgmma(tile)
        weight = (WB / 16).astype(ml_dtypes.bfloat16)
        program(XB, weight)
        result = np.asarray(program(XB, weight))
    second = program.stages["ptx"].split(".visible .entry")[2]
    # The producer waits after its first copies, and the consumers by themselves.
    assert second.count("griddepcontrol.wait") == 2
    first = torch.tanh(torch.tensor(XB.astype("f4")) @ torch.tensor(weight.astype("f4")))
    expected = first.bfloat16().float() @ torch.tensor(weight.astype("f4")).T
    np.testing.assert_allclose(result.astype("f4"), expected, rtol=2e-2, atol=2e-2)


def test_a_weight_that_blocks_of_a_cluster_share_is_copied_after_the_wait() -> None:
    kernels = of_wgmma("128x256x2x1").stages["ptx"].split(".visible .entry")[1:]
    assert [kernel.count("griddepcontrol.wait") for kernel in kernels] == [1, 1]


def of_plain(rows: int) -> Any:
    """Two f32 GEMMs with a weight."""
    x, w = nova.input((rows, 256)), nova.tensor(W, name="w")
    return nova.compile(nova.tanh(x @ w) @ w.T, inputs=[x], params=[w], **SIM)


def test_weights_of_a_gemm_are_copied_before_the_wait() -> None:
    program = of_plain(32)
    for kernel in program.stages["ptx"].split(".visible .entry")[1:]:
        assert "cp.async.c" in kernel[: kernel.index("griddepcontrol.wait")]
    x = RNG.standard_normal((32, 256)).astype("f4")
    for _ in range(2):
        result = np.asarray(program.run([x], [W]))
    expected = torch.tanh(torch.tensor(x) @ torch.tensor(W)) @ torch.tensor(W).T
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


def test_an_early_copy_of_a_gemm_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceKernel, "is_unwritten", lambda kernel, value: True)
    with knobs.override(cache=False):
        program = of_plain(48)  # not the program of another test
    x = RNG.standard_normal((48, 256)).astype("f4")
    with pytest.raises(nova.errors.NovaError, match="too early"):
        for _ in range(2):
            program.run([x], [W])


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_a_step_reads_weights_early_that_it_updates_later(schedule: str) -> None:
    """Every run reads the weights of the run before it."""
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32))
    for number, param in enumerate(model.parameters()):
        param.data[...] = np.random.default_rng(number).standard_normal(param.shape, "f4") / 8
    params = [torch.tensor(np.array(p.data), requires_grad=True) for p in model.parameters()]
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with knobs.override(sim_schedule=schedule):
        step = nova.train_step(
            model, lambda m, x, y: nova.mse_loss(m(x), y), optimizer, launch="graph", **SIM
        )
        for seed in range(3):
            x, y = (
                np.random.default_rng(seed).standard_normal(s, "f4") for s in ((40, 64), (40, 32))
            )
            loss = float(np.asarray(step(x, y)))
            hidden = torch.relu(torch.nn.functional.linear(torch.tensor(x), *params[:2]))
            output = torch.nn.functional.linear(hidden, *params[2:])
            expected = torch.nn.functional.mse_loss(output, torch.tensor(y))
            np.testing.assert_allclose(loss, expected.item(), rtol=2e-5)
            for p, gradient in zip(params, torch.autograd.grad(expected, params), strict=True):
                p.data -= 0.1 * gradient
    ptx = step.compiled.stages["ptx"]
    assert any(
        "cp.async.c" in kernel[: kernel.index("griddepcontrol.wait")]
        for kernel in ptx.split(".visible .entry")[2:]
    )


def test_an_early_copy_of_what_an_earlier_launch_writes_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DeviceKernel, "is_unwritten", lambda kernel, value: True)
    program = of_wgmma("128x96x1x1")  # not the program of another test
    with pytest.raises(nova.errors.NovaError, match="too early"):
        for _ in range(2):
            program(XB, WB)
