"""`vmap` of branches and loops against jax, with gradients, nested, and over shared operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nova

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 3)).astype("f4")
Y = RNG.standard_normal((4, 5, 3)).astype("f4")
ROWS = RNG.standard_normal((5, 3)).astype("f4")
W = RNG.standard_normal((3, 3)).astype("f4")
FLAGS = RNG.standard_normal(4).astype("f4")
INDEX = np.array([0, 2, 1, 7])
START = np.zeros(3, "f4")
# The same programs for both libraries: (a namespace of math, a namespace of control flow).
LIBRARIES = ((nova, nova), (jnp, lax))


def recurrent(m: Any, c: Any) -> Callable[..., Any]:
    return lambda x, y: c.scan(lambda h, row: (m.tanh(h @ W + row), h * 2), x, y)


def shared_rows(m: Any, c: Any) -> Callable[..., Any]:
    return lambda x: c.scan(lambda h, row: (m.tanh(h + row), row * 2), x, ROWS)


def shared_start(m: Any, c: Any) -> Callable[..., Any]:
    """The counter stays shared; the other carry gets a batch axis from the rows."""

    def function(y: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            return (h[0] + 1, m.tanh(h[1] + row)), h[0]

        (count, last), counts = c.scan(step, (0, START), y)
        return count, last, counts

    return function


def chosen(m: Any, c: Any) -> Callable[..., Any]:
    return lambda flag, x: c.cond(flag > 0, lambda v: v * 2, lambda v: m.sin(v), x)


def one_branch(m: Any, c: Any) -> Callable[..., Any]:
    return lambda x, y: c.cond(ROWS.sum() + 0 * x.sum() > 9, lambda v: v, lambda v: v @ W, y)


def switched(m: Any, c: Any) -> Callable[..., Any]:
    branches = [lambda v: v, lambda v: v * 2, lambda v: v @ W]
    return lambda i, x: c.switch(i, branches, x)


def until(m: Any, c: Any) -> Callable[..., Any]:
    """Examples end after different numbers of iterations."""

    def function(x: Any) -> Any:
        return c.while_loop(
            lambda s: (s[1] * s[1]).sum() < 100.0, lambda s: (s[0] + 1, s[1] * 1.5), (0, x)
        )

    return function


def counted(m: Any, c: Any) -> Callable[..., Any]:
    """The condition is the same for all examples."""

    def function(x: Any) -> Any:
        return c.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] * 1.5), (0, x))

    return function


def nested(m: Any, c: Any) -> Callable[..., Any]:
    def step(h: Any, row: Any) -> Any:
        inner = c.fori_loop(0, 3, lambda i, v: v * 0.5 + row * i, h)
        return inner, c.cond(h.sum() > 0, lambda: h, lambda: -h)

    return lambda x, y: c.scan(step, x, y)


CASES = [
    (recurrent, (X, Y)),
    (shared_rows, (X,)),
    (shared_start, (Y,)),
    (chosen, (FLAGS, X)),
    (one_branch, (X, Y)),
    (switched, (INDEX, X)),
    (until, (X,)),
    (counted, (X,)),
    (nested, (X, Y)),
]


def check(actual: Any, expected: Any) -> None:
    ours, theirs = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(("make", "args"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_values(make: Any, args: tuple[Any, ...]) -> None:
    ours, theirs = (make(*library) for library in LIBRARIES)
    check(nova.jit(nova.vmap(ours))(*args), jax.vmap(theirs)(*args))


@pytest.mark.parametrize("make", [recurrent, nested])
def test_gradients_of_each_example_and_of_the_batch(make: Any) -> None:
    def total(function: Any) -> Any:
        return lambda x, y: function(x, y)[0].sum()

    ours, theirs = (total(make(*library)) for library in LIBRARIES)
    check(nova.jit(nova.vmap(nova.grad(ours)))(X, Y), jax.vmap(jax.grad(theirs))(X, Y))
    batch = nova.jit(nova.grad(lambda x: nova.vmap(ours)(x, Y).sum()))(X)
    check(batch, jax.grad(lambda x: jax.vmap(theirs)(x, Y).sum())(X))


def test_axes_and_a_hessian() -> None:
    ours, theirs = (recurrent(*library) for library in LIBRARIES)
    moved = np.moveaxis(Y, 0, 2)
    axes = {"in_axes": (0, 2), "out_axes": 1}
    check(nova.jit(nova.vmap(ours, **axes))(X, moved), jax.vmap(theirs, **axes)(X, moved))

    def power(m: Any, c: Any) -> Any:
        return lambda x: c.fori_loop(0, 4, lambda i, v: m.sin(v) * x, x).sum()

    ours, theirs = (power(*library) for library in LIBRARIES)
    check(nova.jit(nova.hessian(ours))(X[0]), jax.hessian(theirs)(X[0]))
