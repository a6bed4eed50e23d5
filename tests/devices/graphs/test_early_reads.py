"""The simulator finds reads before `griddepcontrol.wait` of memory that earlier launches write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova import knobs
from nova.codegen.gpu.device_kernel import DeviceKernel

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
