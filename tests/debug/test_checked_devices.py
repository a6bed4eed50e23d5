"""Checked runs on a device: the simulated GPU is checked where it runs, not on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import planted_bugs
import pytest

import nova
from nova.api.compile import clear_memory_cache
from nova.debug import check_plan, minimize
from nova.debug.checked import CheckedProgram
from nova.errors import ArgumentShapeError, CheckError, NonFiniteError

X = np.random.default_rng(0).standard_normal((6, 8)).astype("f4")
SIM = {"target": "cuda:sm_80", "run_mode": "sim"}


@pytest.fixture(autouse=True)
def own_programs() -> Iterator[None]:
    clear_memory_cache()
    yield
    clear_memory_cache()


def checked(mode: str = "1"):
    return nova.knobs.override(check=mode)


@pytest.mark.parametrize("mode", ["1", "nan"])
def test_a_right_program_passes_on_the_simulator(mode: str) -> None:
    x, w = X, np.ascontiguousarray(X.T)
    tensors = nova.tensor(x, name="x"), nova.tensor(w, name="w", requires_grad=True)
    loss = nova.softmax(nova.tanh(tensors[0] @ tensors[1])).sum()
    options = {"inputs": tensors[:1], "params": tensors[1:], "include_backward": True}
    with checked(mode):
        step = nova.compile(loss, **options, **SIM)
        assert isinstance(step._program, CheckedProgram)
        result = step.run([x], [w])
    assert step._program._checker.observed._executable.device_name == "sim"
    plain = nova.compile(loss, **options, **SIM).run([x], [w])
    expected = nova.compile(loss, **options).run([x], [w])
    for actual, identical, want in zip(result, plain, expected, strict=True):
        np.testing.assert_array_equal(actual, identical)
        np.testing.assert_allclose(actual, want, rtol=1e-4, atol=1e-6)


def test_the_environment_asks_for_it_too() -> None:
    code = """
import numpy as np, nova
X = nova.tensor(np.ones((3, 4), "f4"), name="X")
print(nova.compile(nova.tanh(X), inputs=[X], target="cuda:sm_80", run_mode="sim")(X.data)[0, 0])
"""
    completed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NOVA_CHECK": "1"},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr
    assert float(completed.stdout) == pytest.approx(np.tanh(1.0), rel=1e-6)


def test_arrays_on_the_device_are_checked() -> None:
    with checked():
        W = nova.tensor(X, name="W")
        program = nova.compile(nova.log(W).sum(), params=[W], updates={W: W * 2}, **SIM)
        state = nova.to_device(np.abs(X), "sim")
        assert float(np.asarray(program.run([], [state]))) == pytest.approx(
            np.log(np.abs(X)).sum(), rel=1e-4
        )
    np.testing.assert_array_equal(state.numpy(), np.abs(X) * 2)  # once
    with checked("nan"):
        program = nova.compile(nova.log(W).sum(), params=[W], updates={W: W * 2}, **SIM)
        before = nova.to_device(X, "sim")
        with pytest.raises(NonFiniteError, match="log"):
            program.run([], [before])
    np.testing.assert_array_equal(before.numpy(), X)  # a failed check changes nothing


def test_a_wrong_op_is_found_on_the_simulator(tmp_path: Path) -> None:
    with planted_bugs.column("tanh", numpy=lambda x: np.tanh(x) * np.float32(1.5)), checked():
        T = nova.tensor(X, name="T")
        program = nova.compile(nova.exp(nova.tanh(T) + 1), inputs=[T], **SIM)
        with pytest.raises(CheckError, match="tanh"):
            program(X)
        reduction = minimize(program, path=tmp_path / "small.py")
    assert [step.op for step in reduction.plan.steps] == ["tanh"]
    assert 'run_mode="sim"' in (tmp_path / "small.py").read_text()


def test_a_plan_is_checked_on_the_simulator() -> None:
    T = nova.tensor(X, name="T")
    plan = nova.compile(nova.exp(T), inputs=[T]).plan
    check_plan(plan, [X], gradients=True, **SIM)
    with checked():
        program = nova.compile(nova.exp(T), inputs=[T], **SIM)
        with pytest.raises(ArgumentShapeError):
            program(X[:2])


def test_a_loaded_file_is_checked_where_it_runs(tmp_path: Path) -> None:
    T = nova.tensor(X, name="T")
    nova.compile(nova.exp(T), inputs=[T], target="cuda:sm_80", run_mode="sim").save(
        tmp_path / "m.nova"
    )
    with checked():
        program = nova.load(tmp_path / "m.nova", device="sim")
        np.testing.assert_allclose(program(X), np.exp(X), rtol=1e-5)
        assert program._program._checker.device == "sim"
