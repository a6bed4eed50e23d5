"""Threads with several points of the grid keep what goes from one op to the next for each point."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import nova

FUNCTIONS = {
    "tanh of softmax": lambda f, x: f.tanh(f.softmax(x, -1)),
    "scaled rows": lambda f, x: f.tanh(x * x.exp().sum(-1, True)),
}


def wanted(name: str, x: np.ndarray) -> np.ndarray:
    present = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    FUNCTIONS[name](torch, present).sum().backward()
    assert present.grad is not None
    return present.grad.numpy()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "shape, serial_work",
    [((1, 4, 2), 0), ((6, 5), 0), ((7, 3), 0), ((8192, 4), 20_000)],
    ids=lambda value: str(value),
)
def test_gradients_of_short_rows(
    name: str, dtype: str, shape: tuple[int, ...], serial_work: int
) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    X = nova.tensor(x, name="X", requires_grad=True)
    grads = nova.graph.gradients(FUNCTIONS[name](nova, X).sum(), [X])
    with nova.knobs.override(serial_work=serial_work):
        program = nova.compile(grads, inputs=[X], target="cuda:sm_80", run_mode="sim")
    tolerance = {"f4": 1e-5, "f8": 1e-12}[dtype]
    want = wanted(name, x)
    np.testing.assert_allclose(program.run([x]), want, tolerance, tolerance * abs(want).max())
