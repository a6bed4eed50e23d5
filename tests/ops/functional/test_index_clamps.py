"""Indices out of range: clamped once, along their own axis, by every op that stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova.graph.interpret import evaluate

X = np.arange(15, dtype="f4").reshape(3, 5)
ROWS = np.array([0, 2, -1, 7, -9])
COLUMNS = np.array([4, -5, 9, 1, -20])


def clamped(index: np.ndarray, size: int) -> np.ndarray:
    return np.clip(np.where(index < 0, index + size, index), 0, size - 1)


def put(x: np.ndarray, at: tuple[np.ndarray, ...], values: Any, accumulate: bool) -> np.ndarray:
    result = x.copy()
    if accumulate:
        np.add.at(result, at, values)
    else:
        result[at] = values
    return result


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("axes", [1, 2])
def test_index_put(axes: int, accumulate: bool) -> None:
    indices = (ROWS, COLUMNS)[:axes]
    # Distinct positions: the order of stores to one position is not specified.
    chosen = [0, 1, 3] if axes == 2 else [0, 3]
    indices = tuple(i[chosen] for i in indices)
    values = np.ones((len(chosen), *X.shape[axes:]), "f4") * 100
    at = tuple(clamped(i, n) for i, n in zip(indices, X.shape, strict=False))
    expected = put(X, at, values, accumulate)
    result = nova.index_put(
        nova.tensor(X), tuple(map(nova.tensor, indices)), nova.tensor(values), accumulate=accumulate
    )
    np.testing.assert_array_equal(result.numpy(), expected)
    np.testing.assert_array_equal(evaluate([result], {})[0], expected)


@pytest.mark.parametrize("index", [-9, -4, -3, 2, 3, 1 << 40])
def test_ops_with_one_axis_agree(index: int) -> None:
    row = int(clamped(np.array(index), 3))
    x, i, values = nova.tensor(X), nova.tensor(np.array([index])), np.full((1, 5), 7, "f4")
    expected = put(X, (np.array([row]),), values, False)
    across = nova.tensor(np.full((1, 5), index))
    for result in (
        nova.index_put(x, (i,), values),
        nova.index_copy(x, 0, i, values),
        nova.index_fill(x, 0, i, 7.0),
        nova.scatter(x, across, values, axis=0),
        nova.index_add(x, i, values - X[row], axis=0),
    ):
        np.testing.assert_array_equal(result.numpy(), expected)


def test_max_unpool() -> None:
    x, at = np.array([[[10, 20, 30]]], "f4"), np.array([[[0, 99, 3]]])
    result = nova.max_unpool1d(nova.tensor(x), nova.tensor(at), kernel_size=2)
    np.testing.assert_array_equal(result.numpy(), [[[10, 0, 0, 30, 0, 20]]])
