"""docs/from-torch.md: what differs without an error does differ as it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nova

torch = pytest.importorskip("torch")
PAGE = (Path(__file__).parents[2] / "docs" / "from-torch.md").read_text()
X = np.arange(12, dtype="f4").reshape(2, 6)


def same(actual: object, reference: object) -> None:
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(reference))


def test_split() -> None:
    assert "`nova.split(x, 3)`: 3 equal pieces" in PAGE
    x, t = nova.tensor(X[0]), torch.tensor(X[0])
    assert [len(piece) for piece in torch.split(t, 3)] == [3, 3]
    assert [piece.shape for piece in nova.split(x, 3)] == [(2,)] * 3
    for actual, reference in zip(nova.split(x, 3), torch.chunk(t, 3), strict=True):
        same(actual, reference)
    for actual, reference in zip(nova.split(x, [3, 2, 1]), torch.split(t, [3, 2, 1]), strict=True):
        same(actual, reference)
    for actual, reference in zip(nova.split(x, 3), np.split(X[0], 3), strict=True):
        same(actual, reference)


def test_pad() -> None:
    assert "`nova.pad(x, (1, 2))` pads every axis" in PAGE
    x, pad = nova.tensor(X), torch.nn.functional.pad
    same(nova.pad(x, (1, 2)), np.pad(X, (1, 2)))
    assert nova.pad(x, (1, 2)).shape != tuple(pad(torch.tensor(X), (1, 2)).shape)
    same(nova.pad(x, ((0, 0), (1, 2))), pad(torch.tensor(X), (1, 2)))
    same(nova.pad(x, ((3, 4), (1, 2))), pad(torch.tensor(X), (1, 2, 3, 4)))
