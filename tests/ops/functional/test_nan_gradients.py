"""Gradients at NaN and at infinities, against torch's: some propagate a NaN, others are 0 there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import nova

NAN, INF = np.nan, np.inf
X = np.array(
    [[NAN, 1, -2, 0], [3, NAN, NAN, -1], [0.5, 2, -INF, INF], [1, 1, 0.5, 1], [-INF, INF, INF, 7]],
    np.float32,
)
Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]
FUNCTIONS: dict[str, Pair] = {
    "abs": (nova.abs, torch.abs),
    "amax": (lambda x: nova.amax(x, axis=1), lambda x: torch.amax(x, 1)),
    "amin of all": (nova.amin, torch.amin),
    "celu": (lambda x: nova.celu(x, 2.0), lambda x: torch.celu(x, 2.0)),
    "clamp": (lambda x: nova.clamp(x, -1.0, 1.0), lambda x: torch.clamp(x, -1.0, 1.0)),
    "clamp below": (lambda x: nova.clamp(x, min=-1.0), lambda x: torch.clamp(x, min=-1.0)),
    "elu": (nova.elu, functional.elu),
    "hardsigmoid": (nova.hardsigmoid, functional.hardsigmoid),
    "hardtanh": (nova.hardtanh, functional.hardtanh),
    "leaky_relu": (nova.leaky_relu, functional.leaky_relu),
    "logsumexp": (lambda x: nova.logsumexp(x, axis=1), lambda x: torch.logsumexp(x, 1)),
    "maximum": (lambda x: nova.maximum(x, 0.5), lambda x: torch.maximum(x, torch.tensor(0.5))),
    "relu": (nova.relu, torch.relu),
    "relu6": (nova.relu6, functional.relu6),
    "selu": (nova.selu, torch.selu),
    "softplus": (nova.softplus, functional.softplus),
    "softshrink": (nova.softshrink, functional.softshrink),
    "threshold": (
        lambda x: nova.threshold(x, 0.1, 20.0),
        lambda x: functional.threshold(x, 0.1, 20.0),
    ),
}


@pytest.mark.parametrize("where", ["cpu", "sim"])
def test_gradients_are_those_of_torch(where: str) -> None:
    """One program of all functions; the sum of each is weighted."""
    device: dict[str, Any] = {"target": "cuda:sm_80", "run_mode": "sim"}
    leaves, values, total = [], [], 0.0
    for function, _ in FUNCTIONS.values():
        leaves.append(nova.tensor(X, requires_grad=True))
        values.append(function(leaves[-1]))
        total = total + (values[-1] * nova.tensor(_weights(values[-1].shape))).sum()
    nova.backward(total)
    results = [*values, *(leaf.grad for leaf in leaves)]
    program = nova.compile(results, params=leaves, **({} if where == "cpu" else device))
    outputs = [np.asarray(array) for array in program.run([], [X] * len(leaves))]
    for number, (name, (_, reference)) in enumerate(FUNCTIONS.items()):
        expected = torch.tensor(X, requires_grad=True)
        value = reference(expected)
        (value * torch.tensor(_weights(tuple(value.shape)))).sum().backward()
        assert expected.grad is not None
        compare = {"rtol": 1e-5, "atol": 1e-6, "err_msg": name}
        np.testing.assert_allclose(outputs[number], value.detach().numpy(), **compare)
        gradient = outputs[number + len(leaves)]
        np.testing.assert_allclose(gradient, expected.grad.numpy(), **compare)


def _weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
