"""Static arguments of `nova.jit`: Python values that select a program."""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nova
from nova import nn
from nova.errors import ArgumentTypeError, AttributeValueError, AxisError

X = np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4)


def power(x: Any, n: int, mode: str = "plain", *, scale: float = 1.0) -> Any:
    for _ in range(n):
        x = x * x
    return (x if mode == "plain" else -x) * scale


def test_values_are_those_of_the_function():
    jitted = nova.jit(power, static_argnums=1, static_argnames=("mode", "scale"))
    for args, kwargs in [
        ((X, 2), {}),
        ((X, 3), {}),
        ((X, 3, "negative"), {}),
        ((X, 3), {"mode": "negative", "scale": 2.0}),
        ((X,), {"n": 1}),
        ((X[:2], 3), {}),
    ]:
        np.testing.assert_allclose(jitted(*args, **kwargs), power(*args, **kwargs), rtol=1e-6)


def test_each_value_has_its_programs():
    jitted = nova.jit(power, static_argnums=(1,))
    jitted(X, 2), jitted(X, 2), jitted(X, 3), jitted(X[:2], 3)
    info = jitted.cache_info()
    assert (info.misses, info.size) == (3, 3) and info.hits >= 1
    assert "static n" in repr(jitted)
    assert jitted.lower(X, 2).signature is not None
    assert np.allclose(jitted.submit(X, 2).result(), X**4)
    assert "first call" in jitted.explain()


def test_true_and_one_are_different_values():
    jitted = nova.jit(lambda x, flag: x + 1 if flag is True else x - 1, static_argnums=-1)
    assert np.allclose(jitted(X, True), X + 1) and np.allclose(jitted(X, 1), X - 1)
    nested = nova.jit(lambda x, m: x + 1 if m[0] is True else x - 1, static_argnums=1)
    assert np.allclose(nested(X, (1,)), X - 1) and np.allclose(nested(X, (True,)), X + 1)
    scaled = nova.jit(lambda x, m: nova.ones_like(x) * m, static_argnums=1)
    assert not np.signbit(scaled(X, 0.0)).any() and np.signbit(scaled(X, -0.0)).all()


def test_axes_are_marked_by_the_names_that_remain():
    jitted = nova.jit(power, static_argnames="n", dynamic={"x": {0: "B"}})
    for rows in (1, 2, 3):
        assert np.allclose(jitted(X[:rows], 1), X[:rows] ** 2)
    assert jitted.cache_info().misses == 1 and jitted.cache_info().symbolic == 1


def test_a_model_in_the_closure_is_read_at_each_call():
    layer = nn.Linear(4, 2)
    jitted = nova.jit(lambda x, factor: layer(x) * factor, static_argnums=1)
    before = jitted(X, 2)
    layer.weight.data[:] = 0.0
    after = jitted(X, 2)
    assert not np.allclose(before, after)
    assert np.allclose(after, np.broadcast_to(2 * layer.bias.numpy(), (3, 2)), atol=1e-6)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(np.ones(4, "f4"))

    @nova.jit(static_argnames=["power"])
    def run(self, x: Any, power: int) -> Any:
        return x**power * self.weight


def test_a_method():
    model = Model()
    assert np.allclose(model.run(X, 2), X**2) and np.allclose(model.run(X, power=3), X**3)
    other = copy.deepcopy(model)
    other.weight.data[:] = 2.0
    assert np.allclose(other.run(X, 2), 2 * X**2) and np.allclose(model.run(X, 2), X**2)
    assert Model.run is Model.__dict__["run"]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, rows: Any, power: int = 1) -> Any:
        return self.layer(rows) ** power


def test_a_model_has_the_parameters_of_its_forward():
    model = Scaled()
    expected = (X @ model.layer.weight.numpy().T + model.layer.bias.numpy()) ** 2
    jitted = nova.jit(model, static_argnames="power")
    assert repr(jitted) == "<jitted Scaled, static power>"
    for options in ({"static_argnames": "power"}, {"static_argnums": 1}):
        jitted = nova.jit(model, dynamic={"rows": {0: "n"}}, **options)
        for rows in (1, 3):
            np.testing.assert_allclose(jitted(X[:rows], 2), expected[:rows], rtol=1e-5)
            np.testing.assert_allclose(jitted(X[:rows], power=2), expected[:rows], rtol=1e-5)
        assert jitted.cache_info().symbolic == jitted.cache_info().size
    model.layer.weight.data[:] = 0.0
    np.testing.assert_allclose(jitted(X[:1], 1)[0], model.layer.bias.numpy(), rtol=1e-6)
    with pytest.raises(ArgumentTypeError, match="argument 'power' is a str") as raised:
        nova.jit(model)(X, "two")
    assert 'static_argnames=["power"]' in raised.value.hint
    with pytest.raises(AttributeValueError, match="dynamic marks 'x'") as raised:
        nova.jit(model, dynamic={"x": {0: "n"}})(X)
    assert "its arguments are rows" in raised.value.hint


def test_gradients_pass_through():
    jitted = nova.jit(power, static_argnums=1)
    actual = nova.grad(lambda x: jitted(x, 2).sum())(X)
    np.testing.assert_allclose(actual, jax.grad(lambda x: jnp.sum(power(x, 2)))(X), rtol=1e-5)


def test_vmap_leaves_static_arguments_alone():
    jitted = nova.jit(power, static_argnames=("n", "mode", "scale"))
    mapped = nova.vmap(jitted)
    expected = jax.vmap(lambda x: power(x, 2, "negative", scale=3.0))(X)
    for _ in range(2):
        actual = mapped(X, 2, "negative", scale=3.0)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert mapped.cache_info().misses == 1
    np.testing.assert_allclose(mapped(X, n=1), X * X, rtol=1e-6)
    np.testing.assert_allclose(nova.vmap(mapped)(X, 1, "plain"), X * X, rtol=1e-6)


def test_axes_of_vmap_have_an_item_for_each_static_argument():
    def scaled(x: Any, mode: str, factor: Any) -> Any:
        return (x if mode == "plain" else -x).sum() * factor

    jitted = nova.jit(scaled, static_argnums=1)
    actual = nova.vmap(jitted, in_axes=(1, None, None))(X, "negative", np.float32(2))
    expected = jax.vmap(lambda x, f: scaled(x, "negative", f), (1, None))(X, np.float32(2))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    with pytest.raises(AxisError, match="argument 1 is static and has no axis 0"):
        nova.vmap(jitted, in_axes=(1, 0, None))(X, "negative", np.float32(2))


@pytest.mark.parametrize(
    ("use", "error", "says"),
    [
        (lambda: nova.jit(power, static_argnums=7), AttributeValueError, "has 4 parameters"),
        (lambda: nova.jit(power, static_argnames="m"), AttributeValueError, "no such parameter"),
        (lambda: nova.jit(power, static_argnums="n"), AttributeValueError, "a str is not"),
        (
            lambda: nova.jit(power, static_argnums=1)(X, [2]),
            ArgumentTypeError,
            "the static argument 'n' is a list, which is not hashable",
        ),
    ],
)
def test_mistakes(use: Any, error: type[Exception], says: str):
    with pytest.raises(error, match=says) as caught:
        use()
    assert __file__ in caught.value.where  # type: ignore[attr-defined]
