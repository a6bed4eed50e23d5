"""Quotients and remainders of symbolic sizes, as shapes, slices, gradients of slices and values.

Each program runs for many sizes, and equals the same code over numpy or jax arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova.core.sizes import evaluate

jax = pytest.importorskip("jax")

N, M = nova.dim("n", min=0), nova.dim("m", min=1)
SIZES = ((0, 1), (1, 1), (2, 5), (5, 2), (64, 65), (129, 7))
RNG = np.random.default_rng(5)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [RNG.standard_normal(shape).astype("f4") for shape in shapes]


def rows(x: Any, y: Any) -> Any:
    """As many whole rows of the length of y as x has, times y."""
    count = x.shape[0] // y.shape[0]
    return x[: count * y.shape[0]].reshape(count, y.shape[0]) * y


def compiled(run: Callable[..., Any], **options: Any) -> nova.Compiled:
    x, y = nova.input((N,), name="x"), nova.input((M,), name="y")
    return nova.compile(run(x, y), inputs=[x, y], **options)


def test_quotients_of_two_sizes(tmp_path: Path) -> None:
    program = compiled(rows)
    assert "f32[n // m,m]" in str(program.signature)
    program.save(tmp_path / "rows.nova")
    loaded = nova.load(tmp_path / "rows.nova")
    for n, m in SIZES:
        x, y = arrays((n,), (m,))
        np.testing.assert_allclose(program(x, y), rows(x, y), rtol=1e-6)
        assert np.array_equal(loaded(x, y), program(x, y))


def test_quotients_of_two_sizes_on_a_device() -> None:
    program = compiled(rows, target="cuda:sm_90a", run_mode="sim")
    for n, m in ((0, 1), (5, 2), (129, 7)):
        x, y = arrays((n,), (m,))
        np.testing.assert_allclose(program(x, y), rows(x, y), rtol=1e-6)


def halves(x: Any, y: Any) -> Any:
    n = x.shape[0]
    return (x[: n // 2] ** 2).sum() + (x[n // 2 :] * 3).sum() + y.sum()


def groups(x: Any, y: Any) -> Any:
    n = x.shape[0]
    return (x[: (n // 4) * 4].reshape(n // 4, 4).sum(1) ** 2).sum() + y.sum()


@pytest.mark.parametrize("run", [halves, groups, lambda x, y: (rows(x, y) ** 2).sum()])
def test_gradients_of_slices_to_a_quotient(run: Callable[..., Any]) -> None:
    """The gradient is 0 in the remainder, for which no number of the IR stands."""
    dynamic = {"x": {0: N}, "y": {0: M}}
    program = nova.jit(nova.grad(lambda x, y: run(x, y), argnums=(0, 1)), dynamic=dynamic)
    for n, m in SIZES:
        x, y = arrays((n,), (m,))
        expected = jax.grad(run, argnums=(0, 1))(*map(jax.numpy.asarray, (x, y)))
        for actual, gradient in zip(program(x, y), expected, strict=True):
            np.testing.assert_allclose(actual, gradient, rtol=1e-3, atol=1e-4)
    assert program.cache_info().misses == 1


@pytest.mark.parametrize(
    "text", ["n % 3", "n - m", "2 - n", "-n - 1", "n % m", "(n*m + 3*n - m) % 5", "m // 4 * 4 - m"]
)
def test_values_of_sizes_that_do_not_grow(text: str) -> None:
    size = eval(text, {"n": N, "m": M})
    program = compiled(lambda x, y: 0 * x.sum() + 0 * y.sum() + size)
    for n, m in SIZES:
        assert program(*arrays((n,), (m,))) == eval(text, {"n": n, "m": m})
        assert evaluate(size, {"n": n, "m": m}) == eval(text, {"n": n, "m": m})
