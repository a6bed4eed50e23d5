"""Top-k: the order of ties as in jax, values as in torch; small counts are selected, not sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova


def ties(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers of which many are equal, with NaN, infinities and both zeros."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_normal(shape) * 3).astype(np.float32)
    x[rng.random(shape) < 0.01] = np.inf
    x[rng.random(shape) < 0.02] *= -1
    return x


@pytest.mark.parametrize("count", [1, 2, 31, 32, 64, 65, 256])
def test_ties_keep_their_order(count: int) -> None:
    x = ties((2, 256), count)
    for largest in (True, False):
        values, at = nova.jit(lambda x, largest=largest: nova.topk(x, count, largest=largest))(x)
        order = np.argsort(-x if largest else x, -1, kind="stable")[:, :count]
        np.testing.assert_array_equal(at, order)
        expected = torch.topk(torch.from_numpy(x), count, largest=largest).values
        np.testing.assert_array_equal(values, expected)


def test_rows_in_order_and_against_it() -> None:
    """Every element of an ascending row is chosen for a while."""
    rows = np.stack([np.arange(500), np.arange(500)[::-1], np.zeros(500)]).astype(np.int32)
    values, at = nova.jit(lambda x: nova.topk(x, 20))(rows)
    assert np.asarray(at)[0].tolist() == list(range(499, 479, -1))
    assert np.asarray(at)[1].tolist() == np.asarray(at)[2].tolist() == list(range(20))
    np.testing.assert_array_equal(values, np.take_along_axis(rows, np.asarray(at), 1))


def test_nan_is_the_largest() -> None:
    x = ties((300,))
    x[[7, 100, 299]] = np.nan
    at = nova.jit(lambda x: nova.topk(x, 5)[1])(x)
    assert np.asarray(at)[:3].tolist() == [7, 100, 299]
    theirs = torch.topk(torch.from_numpy(x), 5).values.numpy()
    np.testing.assert_array_equal(x[np.asarray(at)], theirs)


@pytest.mark.parametrize(("size", "count"), [(200, 10), (200, 150)])
def test_imported_top_k(size: int, count: int) -> None:
    jax = pytest.importorskip("jax")
    x = ties((3, size))

    def function(x: Any) -> Any:
        return jax.lax.top_k(x, count)

    values, at = nova.from_jax(function, x)(x)
    expected = function(x)
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(at, expected[1])


def test_the_gradient_goes_to_the_chosen_elements() -> None:
    x = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)

    def loss(x: Any) -> Any:
        values, _ = nova.topk(x, 3)
        return (values * values).sum()

    other = torch.from_numpy(x).requires_grad_()
    torch.topk(other, 3).values.square().sum().backward()
    np.testing.assert_allclose(nova.jit(nova.grad(loss))(x), other.grad, rtol=1e-6)
