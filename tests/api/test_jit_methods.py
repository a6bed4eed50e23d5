"""`@nova.jit`: methods, where programs run, and Python numbers as indices."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import nova
from nova import nn
from nova.errors import DeviceError, GraphError, StateAssignedError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 8)).astype("f4")


# --- methods --------------------------------------------------------------------------------------


class Scorer(nn.Module):
    def __init__(self, scale: float = 1.0):
        self.inner = nn.Linear(8, 2)
        self.scale = scale

    def forward(self, x):
        return self.inner(x) * self.scale

    @nova.jit
    def score(self, x, bias):
        return self(x) + bias


class Louder(Scorer):
    @nova.jit
    def score(self, x, bias):
        return super().score(x, bias) * 10.0


class Plain:
    def __init__(self):
        self.weight = np.ones((8, 2), "f4")
        self.count = 0

    @nova.jit(target="cpu")
    def apply(self, x):
        return x @ self.weight

    @nova.jit
    def counted(self, x):
        self.count += 1
        return x


def test_methods() -> None:
    single, two = Scorer(), Scorer(3.0)
    for _ in range(2):
        for scorer in (single, two):
            expected = scorer(X).numpy() + 1
            np.testing.assert_allclose(scorer.score(X, 1.0), expected, rtol=1e-5, atol=1e-6)
        single.inner.weight.data *= 2
        two.scale = 5.0
    assert single.score is single.score and single.score is not two.score
    assert isinstance(Scorer.score, type(nova.jit(lambda x: x)))
    assert len(single.state_dict()) == 2
    grad = nova.grad(nova.jit(lambda x: single(x).sum()))(X)
    np.testing.assert_allclose(grad, np.tile(single.inner.weight.data.sum(0), (3, 1)), rtol=1e-5)


def test_methods_of_bases_copies_and_pickles() -> None:
    loud = Louder()
    for _ in range(2):
        np.testing.assert_allclose(loud.score(X, 0.0), loud(X).numpy() * 10, rtol=1e-5)
    for second in (copy.deepcopy(loud), pickle.loads(pickle.dumps(loud))):
        second.inner.weight.data *= 3
        np.testing.assert_allclose(second.score(X, 0.0), second(X).numpy() * 10, rtol=1e-5)
        np.testing.assert_allclose(loud.score(X, 0.0), loud(X).numpy() * 10, rtol=1e-5)


def test_methods_of_plain_objects() -> None:
    plain = Plain()
    np.testing.assert_allclose(plain.apply(X), X @ plain.weight, rtol=1e-5)
    plain.weight[0] = 5
    np.testing.assert_allclose(plain.apply(X), X @ plain.weight, rtol=1e-5)
    plain.weight = np.full((8, 2), 2.0, "f4")
    np.testing.assert_allclose(plain.apply(X), X @ plain.weight, rtol=1e-5)
    with pytest.raises(StateAssignedError, match=r"Plain\.count"):
        plain.counted(X)

    class Slots:
        __slots__ = ()

        @nova.jit
        def apply(self, x):
            return x

    with pytest.raises(GraphError, match="__slots__"):
        Slots().apply(X)


# --- places ---------------------------------------------------------------------------------------


def test_programs_run_where_the_arrays_are() -> None:
    f = nova.jit(lambda x, y: nova.tanh(x) + y * 2.0)
    device_array = nova.to_device(X, "sim")
    expected = np.tanh(X) + X * 2
    for _ in range(2):
        result = f(device_array, device_array)
        assert isinstance(result, nova.DeviceArray) and result.device == "sim"
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)
        result = f(X, X)
        assert type(result) is np.ndarray
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert f.lower(device_array, device_array).is_on_device and not f.lower(X, X).is_on_device
    with pytest.raises(DeviceError, match="'x' on sim, 'y' on the host") as caught:
        f(device_array, X)
    assert __file__ in caught.value.where
    with pytest.raises(DeviceError, match="different places"):
        f(device_array, nova.to_device(X, "sim:1"))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    predict = nova.jit(model)
    np.testing.assert_allclose(
        predict(device_array).numpy(), model(X).numpy(), rtol=1e-4, atol=1e-6
    )
    model[0].weight.data *= 2
    np.testing.assert_allclose(
        predict(device_array).numpy(), model(X).numpy(), rtol=1e-4, atol=1e-6
    )
    assert type(nova.jit(lambda x: x + 1, target="cpu")(X)) is np.ndarray
    with pytest.raises(DeviceError, match="is on sim, the program runs on the CPU"):
        nova.jit(lambda x: x + 1, target="cpu")(device_array)


# --- numbers --------------------------------------------------------------------------------------


def test_python_ints_index() -> None:
    x = np.arange(24, dtype="f4").reshape(2, 3, 4)
    cases = [
        (lambda x, i: x[i], (1,)),
        (lambda x, i: x[i], (-1,)),
        (lambda x, i: x[:, i], (-2,)),
        (lambda x, i, j: x[i, :, j], (1, -1)),
        (lambda x, i, j, k: x[i, j, k], (0, 2, 3)),
        (lambda x, i: x[i, 1:, None], (0,)),
        (lambda x, i: x[..., i], (2,)),
        (lambda x, i: x[i, [2, 0]], (1,)),
    ]
    for function, numbers in cases:
        f = nova.jit(function)
        np.testing.assert_array_equal(f(x, *numbers), function(x, *numbers))
        second = [0] * len(numbers)
        np.testing.assert_array_equal(f(x, *second), function(x, *second))
        assert f.cache_info().misses == 1, "the number is an argument of the program"
    select = nova.jit(lambda x, i: x[i])
    np.testing.assert_array_equal(select(x, 100), x[1])
    np.testing.assert_array_equal(select(x, -100), x[0])
    np.testing.assert_array_equal(nova.take(x, 1).numpy(), x[1])
    grad = nova.grad(nova.jit(lambda x, i: (x[i] * 3.0).sum()))(x, 1)
    np.testing.assert_array_equal(grad, np.stack([np.zeros((3, 4)), np.full((3, 4), 3.0)]))
    with pytest.raises(nova.errors.AttributeValueError, match="slice bounds"):
        nova.jit(lambda x, i: x[i:])(x, 1)


def test_none_is_equal_to_no_tensor() -> None:
    x = nova.tensor(X)
    nothing = None
    assert (x == nothing) is False and (x != nothing) is True
    assert (nothing == x) is False and (nothing != x) is True
    assert None not in [x] and x in [x]
