"""Functions at infinities, NaN, poles, the ends of small types and for ids outside, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import nova

INF, NAN = np.inf, np.nan


def assert_equal(got: Any, want: Any, rtol: float = 1e-6) -> None:
    got, want = np.asarray(got.numpy()), np.asarray(want)
    assert got.shape == want.shape
    assert np.allclose(got.astype("f8"), want.astype("f8"), rtol=rtol, atol=0, equal_nan=True), (
        f"{got} is not {want}"
    )


@pytest.mark.parametrize("function", ["lgamma", "digamma"])
def test_gamma_functions_near_poles(function: str) -> None:
    x = np.array([-1e-20, -1e-12, 1e-300, -1 - 1e-12, -3 - 1e-10, -5.5, -INF])
    assert_equal(getattr(nova, function)(x), getattr(torch, function)(torch.tensor(x)), 1e-12)


@pytest.mark.parametrize("row", [[1.0, 2.0, INF, INF], [-INF, 1.0, 3.0], [-INF, -INF, 0.0, INF]])
@pytest.mark.parametrize("interpolation", ["lower", "higher", "nearest"])
def test_quantile_next_to_infinities(row: list[float], interpolation: str) -> None:
    for q in (0.0, 0.25, 0.4, 0.5, 0.9, 1.0):
        want = torch.quantile(torch.tensor(row), q, interpolation=interpolation)
        got = nova.quantile(np.array(row, "f4"), q, interpolation=interpolation)
        assert_equal(got, want)


def test_linear_quantile_next_to_infinities() -> None:
    assert_equal(nova.quantile(np.array([-INF, 1.0, 3.0], "f4"), 0.25), -INF)
    assert_equal(nova.quantile(np.array([1.0, INF, INF], "f4"), [0.25, 0.5, 0.75]), [INF] * 3)
    assert_equal(nova.quantile(np.array([-INF, INF], "f4"), 0.5), NAN)


def test_median_of_nan() -> None:
    x = np.array([[1, NAN, 2], [5, 0.5, NAN], [3, 1, 2], [NAN, NAN, 1]], "f4")
    assert_equal(nova.median(x), torch.median(torch.tensor(x)))
    for got, want in zip(nova.median(x, 1), torch.median(torch.tensor(x), 1), strict=True):
        assert_equal(got, want)


def test_integers_that_differ_are_not_close() -> None:
    x, y = np.array([2**24 + 1, 2**53 + 1, 7]), np.array([2**24, 2**53, 7])
    assert_equal(nova.isclose(x, y, rtol=0.0, atol=0.0), [False, False, True])
    ends = np.array([127, -128], "i1")
    assert_equal(nova.isclose(ends, ends[::-1].copy(), rtol=0.0, atol=1.0), [False, False])


def test_hypot_of_large_and_small_numbers() -> None:
    x = np.array([1e30, 3e-30, INF, NAN, 0, NAN], "f4")
    y = np.array([1e30, 4e-30, NAN, -INF, 0, 1], "f4")
    assert_equal(nova.hypot(x, y), torch.hypot(torch.tensor(x), torch.tensor(y)))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (nova.norm, torch.norm),
        (lambda x: nova.norm(x, 3.0), lambda x: torch.linalg.vector_norm(x, 3.0)),
        (nova.normalize, tf.normalize),
        (lambda x: nova.hypot(x, x), lambda x: torch.hypot(x, x)),
        (lambda x: nova.cosine_similarity(x, x), lambda x: tf.cosine_similarity(x, x)),
    ],
    ids=["norm", "norm 3", "normalize", "hypot", "cosine_similarity"],
)
def test_squares_beyond_f16(ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    x = np.array([[300, -400, 500, 20]], "f2")
    assert_equal(ours(x), theirs(torch.tensor(x)), 2e-3)


def test_ids_outside_the_segments_are_not_counted() -> None:
    x = np.array([[1, 2], [NAN, 4], [5, 6], [7, 8]], "f4")
    ids = np.array([0, 9, -1, 0])
    assert_equal(nova.segment_sum(x, ids, 3), [[8, 10], [0, 0], [0, 0]])
    assert_equal(nova.segment_mean(x, ids, 3), [[4, 5], [0, 0], [0, 0]])


@pytest.mark.parametrize("dtype", ["u1", "i1", "i8"])
def test_small_integers_with_large_sizes(dtype: str) -> None:
    x = np.array([1, 100, 100], dtype)
    assert_equal(nova.bincount(x, 300), np.bincount(x, minlength=300))
    for got, want in zip(
        nova.unravel_index(x, (2, 300)), np.unravel_index(x, (2, 300)), strict=True
    ):
        assert_equal(got, want)


@pytest.mark.parametrize("size", [(2, 49), (6, 47), (12, 47)])
def test_nearest_exact_between_two_elements(size: tuple[int, int]) -> None:
    n, count = size
    x = np.arange(n, dtype="f4").reshape(1, 1, n)
    want = tf.interpolate(torch.tensor(x), size=count, mode="nearest-exact")
    assert_equal(nova.interpolate(x, size=count, mode="nearest-exact"), want)


def test_a_margin_label_out_of_range_is_clamped() -> None:
    """The score of the class that is named and the term that is left out are of one class."""
    x = np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4) ** 2

    def loss(label: int) -> float:
        return float(nova.multi_margin_loss(x, np.array([0, 1, label])).item())

    assert loss(9) == loss(3) == loss(-1)
    assert loss(-9) == loss(0) != loss(3)
