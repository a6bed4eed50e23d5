"""`vjp`, `jvp`, `linearize`, `jacrev`, `jacfwd` and `hessian` against jax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nightly import all_pairs, each_value

import nova
from nova.errors import ArgumentCountError, GradientError, ShapeError

RNG = np.random.default_rng(1)
X, V = RNG.standard_normal((2, 3)), RNG.standard_normal((2, 3))
W, U = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
G = RNG.standard_normal((2, 4))


@pytest.fixture(autouse=True)
def in_f64() -> Any:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def layer(np_: Any) -> Any:
    return lambda x, w: np_.tanh(x @ w) * np_.exp(x.sum())


def scalar(np_: Any) -> Any:
    return lambda x: (np_.sin(x) * x[::-1]).sum() ** 2 + (x**3).sum()


OURS, THEIRS = layer(nova), layer(jnp)


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(
        actual.numpy() if hasattr(actual, "numpy") else actual, expected, rtol=1e-10, atol=1e-12
    )


def test_products_as_jax() -> None:
    value, push = nova.linearize(OURS, X, W)
    reference, tangent = jax.jvp(THEIRS, (X, W), (V, U))
    close(value, reference)
    close(push(V, U), tangent)
    close(nova.jvp(OURS, (X, W), (V, U))[1], tangent)
    value, pull = nova.vjp(OURS, X, W)
    for actual, expected in zip(pull(G), jax.vjp(THEIRS, X, W)[1](G), strict=True):
        close(actual, expected)


def test_products_of_one_tensor_given_twice() -> None:
    x = nova.tensor(X)
    _, pull = nova.vjp(lambda a, b: a * b * b, x, x)
    first, second = pull(X)
    close(first, X**3)
    close(second, 2 * X**3)


@pytest.mark.parametrize(
    ("name", "argnums", "jitted"),
    all_pairs(["jacrev", "jacfwd"], [0, 1, (0, 1)], [False, True]),
)
def test_jacobians_as_jax(name: str, argnums: Any, jitted: bool) -> None:
    function = nova.jit(OURS) if jitted else OURS
    actual = getattr(nova, name)(function, argnums)(X, W)
    expected = getattr(jax, name)(THEIRS, argnums)(X, W)
    if not isinstance(argnums, tuple):
        actual, expected = (actual,), (expected,)
    for ours, theirs in zip(actual, expected, strict=True):
        close(ours, theirs)


def test_hessians_as_jax() -> None:
    close(nova.hessian(scalar(nova))(X[0]), jax.hessian(scalar(jnp))(X[0]))
    jitted = nova.jit(nova.hessian(scalar(nova)))
    close(jitted(X[0]), jax.hessian(scalar(jnp))(X[0]))
    batched = nova.vmap(nova.hessian(scalar(nova)))
    close(batched(X), jax.vmap(jax.hessian(scalar(jnp)))(X))


def test_nested_results_and_arguments() -> None:
    def function(np_: Any) -> Any:
        return lambda p: {"a": np_.sin(p["x"]), "b": (p["y"] * p["x"][0]).sum()}

    args = {"x": X[0], "y": W[0]}
    actual, expected = nova.jacrev(function(nova))(args), jax.jacrev(function(jnp))(args)
    for result in ("a", "b"):
        for name in ("x", "y"):
            close(actual[result][name], expected[result][name])


def test_auxiliary_results() -> None:
    def function(x: Any) -> Any:
        return (x**2).sum(), {"mean": x.mean()}

    (value, aux), grads = nova.jit(nova.value_and_grad(function, has_aux=True))(X)
    close(value, (X**2).sum())
    close(aux["mean"], X.mean())
    close(grads, 2 * X)
    grads, aux = nova.grad(function, has_aux=True)(X)
    close(grads, 2 * X)
    close(aux["mean"], X.mean())


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: nova.jvp(OURS, (X, W), (V,)), ArgumentCountError, "1 tangents for 2"),
        (lambda: nova.jvp(OURS, (X, W), (V, V)), ShapeError, "a tangent of shape"),
        (lambda: nova.vjp(OURS, X, W)[1](X), ShapeError, "a cotangent of shape"),
        (lambda: nova.vjp(OURS, X, W)[1]((G, G)), ShapeError, "nested"),
        (lambda: nova.jacrev(OURS, 2)(X, W), ArgumentCountError, "argnums 2"),
        (lambda: nova.jacfwd(lambda i: i * 2)(np.arange(3)), GradientError, "only float tensors"),
        (lambda: nova.grad(lambda x: x.sum(), has_aux=True)(X), GradientError, "a pair"),
    ],
)
def test_mistakes(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        use()
    assert __file__ in caught.value.where  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "argnums"),
    each_value(
        [
            lambda x, y: x[:0] * 2,
            lambda x, y: y * 2,
            lambda x, y: (x * 3, x[:0], y),
            lambda x, y: (x.sum() + y.sum()) * x,
        ],
        [0, 1, (0, 1)],
    ),
)
def test_results_and_arguments_without_elements(function: Any, argnums: Any):
    args = X, np.zeros((0, 2))
    for name in ("jacrev", "jacfwd"):
        expected = jax.tree.leaves(getattr(jax, name)(function, argnums)(*args))
        actual = jax.tree.leaves(
            nova.jit(getattr(nova, name)(function, argnums))(*args), is_leaf=lambda v: v is None
        )
        for a, b in zip(actual, expected, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-6)
