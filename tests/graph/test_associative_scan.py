"""`nova.associative_scan` against jax.lax.associative_scan: values, gradients, errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nova
from nova.errors import ControlFlowError, ShapeError, SymbolicSizeError

RNG = np.random.default_rng(3)


def recurrence(first: Any, second: Any) -> Any:
    """h = a h + b as a combination of the pairs (a, b)."""
    (a, b), (c, d) = first, second
    return a * c, b * c + d


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_values_and_gradients_as_jax(n: int, reverse: bool) -> None:
    a, b = (RNG.standard_normal((2, n, 3)).astype("f4") for _ in range(2))

    def loss(scan: Any) -> Any:
        return lambda a, b: (scan(recurrence, (a, b), reverse=reverse, axis=1)[1] ** 2).sum()

    actual, grads = nova.jit(nova.value_and_grad(loss(nova.associative_scan), (0, 1)))(a, b)
    expected, wanted = jax.value_and_grad(loss(jax.lax.associative_scan), (0, 1))(a, b)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    for x, y in zip(grads, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


def test_a_running_maximum_and_products_of_matrices() -> None:
    x = RNG.standard_normal(9).astype("f4")
    running = nova.associative_scan(nova.maximum, x).numpy()
    np.testing.assert_array_equal(running, np.maximum.accumulate(x))
    m = RNG.standard_normal((6, 3, 3))
    products = nova.jit(lambda m: nova.associative_scan(nova.matmul, m))(m)
    expected = jax.lax.associative_scan(jnp.matmul, m)
    np.testing.assert_allclose(products, expected, rtol=1e-4, atol=1e-4)


def test_errors() -> None:
    x = np.ones((4, 2), "f4")
    with pytest.raises(ShapeError, match="associative_scan"):
        nova.associative_scan(recurrence, (x, x[:3]))
    with pytest.raises(ControlFlowError, match="what it takes"):
        nova.associative_scan(lambda a, b: (a + b).sum(), x)
    with pytest.raises(SymbolicSizeError, match="symbolic"):
        nova.associative_scan(nova.add, nova.input((nova.dim("N"), 2), "f32"))
