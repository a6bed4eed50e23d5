"""docs/from-torch.md: what differs without an error does differ as it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import nn
from nova.errors import AttributeValueError, IndexRangeError

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


def test_names_of_torch() -> None:
    for name in ("`dim`", "`nova.cat`", "`nova.chunk`", "`x.masked_fill`", "`x.item()`"):
        assert name in PAGE
    x, t = nova.tensor(X), torch.tensor(X)
    same(x.sum(dim=0, keepdim=True), t.sum(dim=0, keepdim=True))
    same(nova.cat([x, x], dim=1), torch.cat([t, t], dim=1))
    same(x.masked_fill(x > 4, -1.0), t.masked_fill(t > 4, -1.0))
    assert x.to(nova.f16).dtype == x.to("f16").dtype == nova.f16 and x.float().dtype == nova.f32
    assert x.sum().item() == t.sum().item()
    for actual, reference in zip(nova.chunk(x, 4, dim=1), torch.chunk(t, 4, dim=1), strict=True):
        same(actual, reference)


def test_arguments_of_norms_and_embeddings() -> None:
    assert "`nova.layer_norm(x, weight, bias, ndim=1)`" in PAGE
    assert "`nova.embedding(weight, index)`" in PAGE
    functional, w, b = torch.nn.functional, X[0] + 1, X[1]
    reference = functional.layer_norm(torch.tensor(X), (6,), torch.tensor(w), torch.tensor(b))
    np.testing.assert_allclose(nova.layer_norm(X, w, b, ndim=1).numpy(), reference, rtol=1e-5)
    reference = functional.rms_norm(torch.tensor(X), (6,), torch.tensor(w))
    np.testing.assert_allclose(nova.rms_norm(X, w, ndim=1).numpy(), reference, rtol=1e-5)
    index = np.array([1, 0, 1])
    same(nova.embedding(X, index), functional.embedding(torch.tensor(index), torch.tensor(X)))


def test_weights_of_losses() -> None:
    assert "`nn.CrossEntropyLoss(weight=w)`" in PAGE
    w, y = np.linspace(1, 2, 6, dtype="f4"), np.array([5, 0])
    reference = torch.nn.CrossEntropyLoss(torch.tensor(w))(torch.tensor(X), torch.tensor(y))
    np.testing.assert_allclose(nn.CrossEntropyLoss(weight=w)(X, y).numpy(), reference, rtol=1e-5)
    same_again = nova.cross_entropy(X, y, w).numpy()
    np.testing.assert_allclose(same_again, reference, rtol=1e-5)
    p = X / 12
    terms = torch.nn.functional.binary_cross_entropy(*map(torch.tensor, (p, p, X)))
    actual = nova.binary_cross_entropy(p, p, weight=X).numpy()
    np.testing.assert_allclose(actual, terms, rtol=1e-5)
    for call in (lambda: nn.CrossEntropyLoss(w), lambda: nova.binary_cross_entropy(p, p, X)):
        with pytest.raises(AttributeValueError, match="write weight="):
            call()


@pytest.mark.parametrize("loss", [nova.cross_entropy, nova.nll_loss])
@pytest.mark.parametrize(("label", "clamped"), [(9, 5), (-1, 5), (-9, 0)])
def test_labels_out_of_range(loss: Any, label: int, clamped: int) -> None:
    assert "the label is clamped, as an index is" in PAGE
    f = nova.jit(lambda x, y: loss(x, y))
    same(f(X, np.array([label, 1])), f(X, np.array([clamped, 1])))
    with nova.knobs.override(check="1"), pytest.raises(IndexRangeError, match=f"is {label} at"):
        nova.jit(lambda x, y: loss(x, y))(X, np.array([label, 1]))
