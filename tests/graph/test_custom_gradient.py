"""`nova.custom_vjp` against jax.custom_vjp."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nova
from nova.errors import GradientError

X = np.random.default_rng(2).standard_normal((3, 4)).astype("f4")
Y = np.random.default_rng(3).standard_normal((3, 4)).astype("f4")


def make(lib: Any, np_: Any) -> Any:
    """A product with a gradient that is not its own: clipped, and scaled."""

    @lib.custom_vjp
    def f(x, p):
        return np_.sin(x) * p["w"], x + p["b"]

    def forward(x, p):
        return f(x, p), (np_.cos(x), p["w"])

    def backward(residuals, g):
        cosine, w = residuals
        first, second = g
        return np_.clip(first * cosine * w, -0.5, 0.5) + 3.0 * second, {"w": first, "b": second}

    f.defvjp(forward, backward)
    return f


def loss(f: Any) -> Any:
    def run(x, w, b):
        a, c = f(x * 2.0, {"w": w, "b": b})
        return (a * a).sum() + c.sum() + (a * c).sum()

    return run


@pytest.mark.parametrize("jitted", [False, True])
def test_gradients_as_jax(jitted: bool) -> None:
    ours = loss(make(nova, nova))
    theirs = jax.grad(loss(make(jax, jnp)), (0, 1, 2))(X, Y, Y + 1)
    transform = nova.value_and_grad(ours, (0, 1, 2))
    value, grads = (nova.jit(transform) if jitted else transform)(X, Y, Y + 1)
    expected = loss(make(jax, jnp))(X, Y, Y + 1)
    np.testing.assert_allclose(value if jitted else value.numpy(), expected, rtol=1e-5)
    for actual, want in zip(grads, theirs, strict=True):
        np.testing.assert_allclose(actual if jitted else actual.numpy(), want, rtol=1e-4, atol=1e-5)


def test_straight_through_in_a_training_step() -> None:
    """Rounding with the gradient of the identity; and a constant argument."""

    def quantized(x: Any, levels: int) -> Any:
        return nova.round(x * float(levels)) / float(levels)

    straight = nova.custom_vjp(quantized, nondiff_argnums=(1,))
    straight.defvjp(lambda x, levels: (quantized(x, levels), None), lambda levels, _, g: (g,))
    model = nova.nn.Linear(4, 2)
    weight = model.weight.data.copy()
    step = nova.train_step(
        model,
        lambda m, x: straight(m(x), 4).sum(),
        nova.optim.SGD(model.parameters(), 0.1),
    )
    step(X)
    np.testing.assert_allclose(model.weight.data, weight - 0.1 * X.sum(0), rtol=1e-5)
    plan = str(step.plan)
    assert "custom_gradient(" not in plan and "round(" in plan


def test_gradients_of_gradients_and_missing_ones() -> None:
    @nova.custom_vjp
    def cube(x, y):
        return x * x * x + y

    cube.defvjp(lambda x, y: (cube(x, y), x), lambda x, g: (6.0 * x * x * g, None))
    second = nova.grad(lambda x: nova.grad(lambda z: cube(z, X).sum())(x).sum())
    np.testing.assert_allclose(second(X).numpy(), 12 * X, rtol=1e-6)
    np.testing.assert_array_equal(nova.grad(lambda y: cube(X, y).sum())(X).numpy(), 0 * X)


def test_gradients_of_batches() -> None:
    """vmap keeps the rule, for arguments of examples and for shared ones."""

    @nova.custom_vjp
    def twice(x, w):
        return x * w

    twice.defvjp(lambda x, w: (twice(x, w), (x, w)), lambda r, g: (3.0 * g * r[1], 5.0 * g * r[0]))
    mapped = nova.vmap(twice, (0, None))
    np.testing.assert_allclose(mapped(X, Y[0]).numpy(), X * Y[0], rtol=1e-6)
    both = nova.grad(lambda x, w: mapped(x, w).sum(), (0, 1))
    dx, dw = both(X, Y[0])
    np.testing.assert_allclose(dx.numpy(), np.broadcast_to(3 * Y[0], X.shape), rtol=1e-5)
    np.testing.assert_allclose(dw.numpy(), 5 * X.sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("forward", "backward", "message"),
    [
        (lambda x: x, lambda r, g: (g,), "returns a pair"),
        (lambda x: (x, None), lambda r, g: (g, g), "2 gradients for 1"),
        (lambda x: (x, None), lambda r, g: (g.sum(),), "has shape"),
        (lambda x: (x, None), lambda r, g: ({"a": g},), "is nested as"),
    ],
)
def test_mistakes(forward: Any, backward: Any, message: str) -> None:
    f = nova.custom_vjp(lambda x: x * 2.0)
    with pytest.raises(GradientError, match="has no gradient yet"):
        f(X)
    f.defvjp(forward, backward)
    with pytest.raises(GradientError, match=message):
        nova.grad(lambda x: f(x).sum())(X)


LOOPS: dict[str, Any] = {
    "scan": lambda lib, f, x: lib.scan(lambda c, _: (f(c), None), x, None, length=3)[0],
    "fori": lambda lib, f, x: lib.fori_loop(0, 3, lambda i, c: f(c), x),
    "cond": lambda lib, f, x: lib.cond(x.sum() > -1e9, lambda: f(f(x)), lambda: x),
    "nested": lambda lib, f, x: lib.scan(
        lambda c, _: (lib.cond(c.sum() > -1e9, lambda: f(c), lambda: c), None), x, None, length=2
    )[0],
}


@pytest.mark.parametrize("place", ["residuals", "backward", "forward"])
@pytest.mark.parametrize("loop", LOOPS)
def test_inside_of_loops_with_tensors_from_outside(loop: str, place: str):
    """The functions of the gradient use an argument of the jitted function around the loop."""

    def loss(lib: Any, control: Any, np_: Any, a: Any, x: Any) -> Any:
        b = a * 2

        @lib.custom_vjp
        def f(c):
            return np_.sin(c) * b

        if place == "residuals":
            f.defvjp(lambda c: (f(c), (c, b)), lambda r, g: (g * np_.cos(r[0]) * r[1] / 2,))
        elif place == "backward":
            f.defvjp(lambda c: (f(c), c), lambda c, g: (g * np_.cos(c) * b / 2,))
        else:
            f.defvjp(lambda c: (f(c), np_.cos(c) * b), lambda r, g: (g * r / 2,))
        return LOOPS[loop](control, f, x).sum()

    def right(a: Any, x: Any) -> Any:
        return loss(jax, jax.lax, jnp, a, x)

    args = np.float32(0.7), X
    expected = jax.grad(right, argnums=1)(*args)
    actual = nova.jit(nova.grad(lambda a, x: loss(nova, nova, nova, a, x), argnums=1))(*args)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_a_rule_that_fails_in_a_loop_fails_when_it_is_used():
    @nova.custom_vjp
    def f(c):
        return c * 2

    def refuse(residuals: Any, g: Any) -> Any:
        raise GradientError("not differentiable here")

    f.defvjp(lambda c: (f(c), ()), refuse)

    def run(x: Any) -> Any:
        return nova.scan(lambda c, _: (f(c), None), x, length=2)[0]

    np.testing.assert_array_equal(nova.jit(run)(X), X * 4)
    with pytest.raises(GradientError, match="not differentiable here"):
        nova.jit(nova.grad(lambda x: run(x).sum()))(X)


# --- custom_jvp -----------------------------------------------------------------------------------


def make_tangent(lib: Any, np_: Any) -> Any:
    """A product with a derivative that is not its own: that of x is three times as large."""

    @lib.custom_jvp
    def f(x, p):
        return np_.sin(x) * p["w"], x + p["b"]

    @f.defjvp
    def rule(primals, tangents):
        (x, p), (dx, dp) = primals, tangents
        first = 3.0 * np_.cos(x) * p["w"] * dx + np_.sin(x) * dp["w"]
        return f(x, p), (first, dx + 2.0 * dp["b"])

    return f


@pytest.mark.parametrize("jitted", [False, True])
def test_gradients_of_a_tangent_rule_as_jax(jitted: bool) -> None:
    actual_loss, expected_loss = loss(make_tangent(nova, nova)), loss(make_tangent(jax, jnp))
    expected = jax.grad(expected_loss, (0, 1, 2))(X, Y, Y + 1)
    transform = nova.grad(actual_loss, (0, 1, 2))
    grads = (nova.jit(transform) if jitted else transform)(X, Y, Y + 1)
    for actual, want in zip(grads, expected, strict=True):
        np.testing.assert_allclose(actual if jitted else actual.numpy(), want, rtol=1e-4, atol=1e-5)


def make_scaled(lib: Any, np_: Any) -> Any:
    @lib.custom_jvp
    def f(x):
        return np_.exp(x)

    f.defjvps(lambda dx, result, x: 2.0 * result * dx)
    return f


def test_a_tangent_rule_in_other_transforms_as_jax() -> None:
    """jvp, vmap, derivatives of second order, a scan, and a branch."""
    f, g = make_scaled(nova, nova), make_scaled(jax, jnp)
    actual = nova.jvp(f, (X,), (Y,))[1].numpy()
    np.testing.assert_allclose(actual, jax.jvp(g, (X,), (Y,))[1], rtol=1e-5)
    actual = nova.vmap(nova.grad(lambda x: f(x).sum()))(X).numpy()
    np.testing.assert_allclose(actual, jax.vmap(jax.grad(lambda x: g(x).sum()))(X), rtol=1e-5)
    second = nova.grad(lambda x: nova.grad(lambda y: f(y).sum())(x).sum())
    expected = jax.grad(lambda x: jax.grad(lambda y: g(y).sum())(x).sum())(X)
    np.testing.assert_allclose(nova.jit(second)(X), expected, rtol=1e-5)

    def total(function: Any, scan: Any) -> Any:
        return lambda x: scan(lambda c, row: (function(c * 0.1) + row, None), x[0], x)[0].sum()

    actual = nova.jit(nova.grad(total(f, nova.scan)))(X)
    np.testing.assert_allclose(actual, jax.grad(total(g, jax.lax.scan))(X), rtol=1e-4, atol=1e-6)
    branch = nova.grad(lambda x: nova.cond(x.sum() > -1e9, f, lambda x: x, x).sum())
    np.testing.assert_allclose(nova.jit(branch)(X), 2.0 * np.exp(X), rtol=1e-5)


def test_constants_and_errors_of_a_tangent_rule() -> None:
    @lambda f: nova.custom_jvp(f, nondiff_argnums=(1,))
    def scaled(x, n):
        return x * float(n)

    with pytest.raises(GradientError, match="no derivative yet"):
        scaled(X, 2)
    with pytest.raises(GradientError, match="nondiff_argnums"):
        scaled.defjvps(None)
    scaled.defjvp(lambda n, primals, tangents: (primals[0] * n, tangents[0] * (n + 1.0)))
    np.testing.assert_allclose(nova.grad(lambda x: scaled(x, 2).sum())(X).numpy(), 3.0)
    wrong = {
        "not linear": lambda p, t: (p[0], t[0] * t[0]),
        "returned a": lambda p, t: t[0],
        "has shape": lambda p, t: (p[0], t[0][0]),
        "is nested": lambda p, t: (p[0], (t[0], t[0])),
    }
    for message, rule in wrong.items():
        f = nova.custom_jvp(lambda x: x * 1.0)
        f.defjvp(rule)
        with pytest.raises(GradientError, match=message):
            nova.grad(lambda x, f=f: f(x).sum())(X)
