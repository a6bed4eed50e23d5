"""`nova.ctc_loss` against torch: values and gradients of logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import AttributeValueError, DTypeError, ShapeError

RNG = np.random.default_rng(4)
LOGITS = RNG.standard_normal((9, 4, 6))
LABELS = RNG.integers(1, 6, (4, 3))
LABELS[1] = [2, 2, 2]  # equal labels need blanks between them
FRAMES = [9, 7, 5, 2]
COUNTS = [3, 3, 0, 3]  # the last does not fit


def compare(blank: int = 0, flat: bool = False) -> None:
    """All reductions, with and without infinities, and the gradient of their sum."""
    labels = (LABELS + blank) % 6 if blank else LABELS
    targets = np.concatenate([r[:n] for r, n in zip(labels, COUNTS, strict=True)])
    targets = targets if flat else labels

    def losses(lib: Any, scores: Any, labels: Any, **options: Any) -> list[Any]:
        loss = nova.ctc_loss if lib is nova else torch.nn.functional.ctc_loss
        reductions = ("mean", "sum", "none")
        return [loss(scores, labels, FRAMES, COUNTS, blank, r, **options) for r in reductions]

    def total(logits: Any) -> Any:
        scores = nova.log_softmax(logits, axis=2)
        finite = losses(nova, scores, targets, zero_infinity=True)
        weighted = sum((loss.sum() * (k + 1.0) for k, loss in enumerate(finite)), nova.zeros(()))
        return weighted, [*finite, *losses(nova, scores, targets)]

    x = torch.tensor(LOGITS, requires_grad=True)
    scores = torch.log_softmax(x, 2)
    finite = losses(torch, scores, torch.tensor(targets), zero_infinity=True)
    sum(loss.sum() * (k + 1.0) for k, loss in enumerate(finite)).backward()
    right = [*finite, *losses(torch, scores, torch.tensor(targets))]
    (_, values), slope = nova.jit(nova.value_and_grad(total, has_aux=True))(LOGITS)
    for actual, expected in zip(values, right, strict=True):
        np.testing.assert_allclose(actual, expected.detach(), rtol=1e-9)
    np.testing.assert_allclose(slope, x.grad, rtol=1e-8, atol=1e-10)


def test_losses_and_gradients_as_torch() -> None:
    compare()


@pytest.mark.slow
def test_blank_and_concatenated_targets() -> None:
    compare(blank=5)
    compare(flat=True)


def test_one_example_and_the_module() -> None:
    scores = torch.log_softmax(torch.tensor(LOGITS[:, 0]), 1)
    expected = torch.nn.functional.ctc_loss(scores, torch.tensor(LABELS[0]), (9,), (3,))
    actual = nova.nn.CTCLoss()(scores.numpy(), LABELS[0], 9, 3)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9)
    half = nova.ctc_loss(nova.tensor(scores.numpy().astype("f2")), LABELS[0], [9], [3])
    assert half.dtype is nova.f16
    np.testing.assert_allclose(half.numpy(), expected, rtol=1e-2)


def test_refusals() -> None:
    scores = np.zeros((5, 2, 4), "f4")
    labels = np.ones((2, 2), "i8")
    with pytest.raises(AttributeValueError, match="blank 7 is not one of 4 classes"):
        nova.ctc_loss(scores, labels, [5, 5], [2, 2], blank=7)
    with pytest.raises(ShapeError, match=r"input_lengths \(1,\) for a batch of 2"):
        nova.ctc_loss(scores, labels, [5], [2, 2])
    with pytest.raises(ShapeError, match="3 targets for lengths that sum to 4"):
        nova.ctc_loss(scores, np.ones(3, "i8"), [5, 5], [2, 2])
    with pytest.raises(DTypeError, match="targets are f32"):
        nova.ctc_loss(scores, labels.astype("f4"), [5, 5], [2, 2])
    with pytest.raises(ShapeError, match="is not"):
        nova.ctc_loss(np.zeros(5, "f4"), labels, [5, 5], [2, 2])
