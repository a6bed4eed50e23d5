"""Recurrent layers and cells against torch: outputs, states and gradients with torch's weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn
from nova.errors import ShapeError

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 3, 5)).astype(np.float32)


def pair(name: str, **options: Any) -> tuple[Any, Any]:
    """A layer of torch and one of Nova with its weights."""
    theirs = getattr(torch.nn, name)(5, 4, **options)
    mine = getattr(nn, name)(5, 4, **options)
    mine.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    return mine, theirs


def flat(values: Any) -> list[Any]:
    return [leaf for v in values for leaf in (v if isinstance(v, tuple) else (v,))]


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}],
    ids=["plain", "deep", "unbiased"],
)
def test_layers_equal_those_of_torch(name: str, options: dict[str, Any]) -> None:
    mine, theirs = pair(name, **options)
    computed = flat(nova.jit(mine)(X))
    for a, b in zip(computed, flat(theirs(torch.tensor(X))), strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_gradients_equal_those_of_torch(name: str) -> None:
    mine, theirs = pair(name)
    loss = (theirs(torch.tensor(X))[0] ** 2).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    (mine(nova.tensor(X))[0] ** 2).sum().backward()
    for key, parameter in theirs.named_parameters():
        grad = dict(mine.named_parameters())[key].grad
        np.testing.assert_allclose(grad.numpy(), parameter.grad.numpy(), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_the_gradient_of_a_recurrent_weight_is_one_matmul(name: str) -> None:
    """Not a sum of small matmuls over the steps, which would read and write it in each."""
    mine, _ = pair(name)
    (mine(nova.tensor(X))[0] ** 2).sum().backward()
    grad = mine.weight_hh_l0.grad
    while grad.op.name in ("permute", "reshape", "add"):
        grad = grad.inputs[0]
    assert grad.op.name == "matmul"


def test_an_initial_state_and_a_single_sequence() -> None:
    mine, theirs = pair("LSTM")
    state = [RNG.normal(size=(1, 3, 4)).astype(np.float32) for _ in range(2)]
    computed = flat(nova.jit(mine)(X, (state[0], state[1])))
    expected = flat(theirs(torch.tensor(X), tuple(map(torch.tensor, state))))
    for a, b in zip(computed, expected, strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-4, atol=1e-5)
    computed, expected = flat(mine(nova.tensor(X[:, 0]))), flat(theirs(torch.tensor(X[:, 0])))
    for a, b in zip(computed, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells_equal_those_of_torch(name: str) -> None:
    mine, theirs = pair(name)
    computed, expected = mine(nova.tensor(X[0])), theirs(torch.tensor(X[0]))
    if not isinstance(computed, tuple):
        computed, expected = (computed,), (expected,)
    for a, b in zip(computed, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_wrong_shapes_name_the_layer() -> None:
    with pytest.raises(ShapeError, match=r"LSTM: the input .* must be \(time, batch, 5\)"):
        nn.LSTM(5, 4)(nova.tensor(X[:, :, :3]))
    with pytest.raises(ShapeError, match="GRU: the state has shape"):
        nn.GRU(5, 4)(nova.tensor(X), nova.tensor(X[:1]))
