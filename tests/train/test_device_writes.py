"""Writes to the array of a parameter that a step trains on a device."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import LostWriteError

X = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")


def trained(**options: Any) -> tuple[Any, list[float]]:
    """Two steps, a write to the weight, a partial write, and a step after each."""
    model = nova.nn.Linear(4, 2, generator=np.random.default_rng(7))
    step = nova.train_step(
        model, lambda m, x: m(x).square().mean(), nova.optim.SGD(model.parameters(), 0.1), **options
    )
    losses = [float(step(X)), float(step(X))]
    model.weight.data[...] = 0.5
    losses.append(float(step(X)))
    model.bias.data[0] += 1.0
    losses.append(float(step(X)))
    model.weight.data.sum()  # a read alone changes nothing
    losses.append(float(step(X)))
    return model, losses


@pytest.mark.parametrize("launch", [None, "graph"])
def test_writes_are_seen(launch: str | None) -> None:
    right, losses = trained()
    model, actual = trained(target="cuda:sm_90", run_mode="sim", launch=launch)
    np.testing.assert_allclose(actual, losses, rtol=1e-5)
    np.testing.assert_allclose(model.weight.data, right.weight.data, rtol=1e-5)
    np.testing.assert_allclose(model.bias.data, right.bias.data, rtol=1e-5, atol=1e-6)


def test_an_array_from_before_a_step_is_read_only() -> None:
    model = nova.nn.Linear(4, 2)
    optimizer = nova.optim.SGD(model.parameters(), 0.1)
    step = nova.train_step(
        model, lambda m, x: m(x).square().mean(), optimizer, target="cuda:sm_90", run_mode="sim"
    )
    early, before = model.weight.numpy(), model.weight.numpy().copy()
    for _ in range(2):
        step(X)
        with pytest.raises(ValueError, match="read-only"):
            early[...] = before
        step.sync()
        with pytest.raises(ValueError, match="read-only"):
            early[0] = 1.0
    assert not np.array_equal(model.weight.data, before)
    early[...] = before  # it was read after the step: the array of the parameter, as ever
    assert early is model.weight.data
    step(X)
    right = nova.nn.Linear(4, 2)
    right.load_state_dict({"weight": before, "bias": model.bias.data})
    step.load_state_dict(step.state_dict())
    with pytest.raises(ValueError, match="read-only"):
        early[0] = 1.0
    model.load_state_dict(right.state_dict())
    np.testing.assert_array_equal(model.weight.data, before)
    loss = float(step(X))
    np.testing.assert_allclose(
        loss, float(right(nova.tensor(X)).square().mean().numpy()), rtol=1e-5
    )


@pytest.mark.parametrize("read", [lambda m, s: m.weight.data, lambda m, s: s.sync()])
def test_a_write_to_a_view_from_before_a_step_is_an_error(read: Any) -> None:
    model = nova.nn.Linear(4, 2)
    optimizer = nova.optim.SGD(model.parameters(), 0.1)
    step = nova.train_step(
        model, lambda m, x: m(x).square().mean(), optimizer, target="cuda:sm_90", run_mode="sim"
    )
    step(X)
    view = model.weight.data[0]
    step(X)
    unused = model.weight.data.T  # one that nobody writes to is not an error
    step(X)
    after = model.weight.numpy().copy()
    step(X)
    view[...] = 7.0
    with pytest.raises(LostWriteError, match=r"a view of \S*weight was written") as caught:
        read(model, step)
    assert "test_device_writes.py" in str(caught.value)
    # The values are those of the device, and the next write is not lost.
    assert not np.any(model.weight.data == 7.0) and not np.array_equal(model.weight.data, after)
    np.testing.assert_array_equal(unused, model.weight.data.T)
    model.weight.data[0] = 3.0
    step.sync()
    np.testing.assert_array_equal(model.weight.data[0], np.full(4, 3, "f4"))


CPU: dict[str, Any] = {}
DEVICE: dict[str, Any] = {"target": "cuda:sm_90", "run_mode": "sim"}


@pytest.mark.parametrize(
    "options", [(CPU, CPU), (CPU, DEVICE), (DEVICE, CPU), (DEVICE, DEVICE)], ids=str
)
def test_two_steps_train_the_same_parameters(options: tuple[dict[str, Any], ...]) -> None:
    model = nova.nn.Linear(4, 2, generator=np.random.default_rng(7))
    steps = [
        nova.train_step(
            model, lambda m, x: m(x).square().mean(), nova.optim.SGD(model.parameters(), 0.1), **o
        )
        for o in options
    ]
    weight, bias = model.weight.numpy().astype("f8"), model.bias.numpy().astype("f8")
    x = X.astype("f8")
    for number in (0, 1, 0, 0, 1, 1, 0):
        result = x @ weight.T + bias
        np.testing.assert_allclose(steps[number](X), np.square(result).mean(), rtol=1e-5)
        slope = 2 * result / result.size
        weight, bias = weight - 0.1 * slope.T @ x, bias - 0.1 * slope.sum(0)
    np.testing.assert_allclose(model.weight.data, weight, rtol=1e-4)
    zeros = {"model.weight": np.zeros((2, 4), "f4"), "model.bias": np.zeros(2, "f4")}
    steps[1].load_state_dict(zeros, strict=False)
    assert float(steps[0](X)) == 0
    model.bias.data += 1.0
    assert float(steps[1](X)) == 1
    assert float(steps[0](X)) < 1


@pytest.mark.parametrize("copied", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_have_the_values_of_the_device(copied: Any) -> None:
    model = nova.nn.BatchNorm1d(4)
    optimizer = nova.optim.SGD(model.parameters(), 0.1)
    step = nova.train_step(model, lambda m, x: m(x).square().mean(), optimizer, **DEVICE)
    step(X)
    copy = copied(model)
    values = {name: array.copy() for name, array in model.state_dict().items()}
    step(X)
    for name, array in copy.state_dict().items():
        np.testing.assert_array_equal(array, values[name])
        array[...] = 1  # its arrays are its own
    assert not np.array_equal(model.weight.data, copy.weight.data)


@pytest.mark.parametrize("options", [CPU, DEVICE], ids=str)
def test_state_of_the_optimizer_is_set_by_load_state_dict(options: dict[str, Any]) -> None:
    model = nova.nn.Linear(4, 2, generator=np.random.default_rng(7))
    optimizer = nova.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step = nova.train_step(model, lambda m, x: m(x).square().mean(), optimizer, **options)
    step(X)
    before = model.weight.data.copy()
    state = step.state_dict()
    names = [name for name in step.state if state[name].shape == before.shape]
    assert names and np.abs(step.state[names[0]]).max() > 0
    if options:
        with pytest.raises(ValueError, match="read-only"):
            step.state[names[0]][...] = 0
    for name in names:
        state[name][...] = 0
    step.load_state_dict(state)
    slope = 2 * (X @ before.T + model.bias.data) / 6
    step(X)
    np.testing.assert_allclose(model.weight.data, before - 0.1 * slope.T @ X, rtol=1e-4, atol=1e-6)
