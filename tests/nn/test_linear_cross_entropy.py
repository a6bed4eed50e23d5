"""`nova.linear_cross_entropy`: values, gradients and memory, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import AttributeValueError

torch = pytest.importorskip("torch")
ROWS, FEATURES, CLASSES = (6, 50), 24, 70


def _arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((*ROWS, FEATURES)).astype(np.float32)
    weight = rng.standard_normal((CLASSES, FEATURES)).astype(np.float32)
    target = rng.integers(0, CLASSES, ROWS)
    target[0, :5] = -100
    return x, weight, target


@pytest.mark.parametrize(
    ("target", "chunk_rows", "reduction", "smoothing"),
    [
        ("cpu", 1000, "mean", 0.0),
        ("cpu", 128, "sum", 0.1),
        ("cpu", 77, "mean", 0.0),
        ("cuda:sm_90a", 128, "mean", 0.0),
    ],
)
def test_value_and_gradients(
    target: str, chunk_rows: int, reduction: str, smoothing: float
) -> None:
    x, weight, index = _arrays()
    options = {"reduction": reduction, "label_smoothing": smoothing}
    X, W = nova.tensor(x, requires_grad=True), nova.tensor(weight, requires_grad=True)
    T = nova.tensor(index)
    chunk_bytes = chunk_rows * CLASSES * 4
    loss = nova.linear_cross_entropy(X, W, T, chunk_bytes=chunk_bytes, **options)
    nova.backward(loss)
    run_mode = "native" if target == "cpu" else "sim"
    program = nova.compile(
        [loss, X.grad, W.grad], inputs=[X, W, T], target=target, run_mode=run_mode
    )
    results = program(x, weight, index)
    tx, tw = (torch.from_numpy(a).requires_grad_() for a in (x, weight))
    scores = torch.nn.functional.linear(tx, tw).reshape(-1, CLASSES)
    expected = torch.nn.functional.cross_entropy(
        scores, torch.from_numpy(index.reshape(-1)), **options
    )
    expected.backward()
    for result, wanted in zip(results, (expected, tx.grad, tw.grad), strict=True):
        np.testing.assert_allclose(
            np.asarray(result), wanted.detach().numpy(), rtol=2e-5, atol=2e-5
        )


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_only_a_chunk_of_the_scores_is_stored(target: str) -> None:
    rows, features, classes = 16_384, 16, 8192
    X = nova.tensor(np.zeros((rows, features), np.float32), requires_grad=True)
    W = nova.tensor(np.zeros((classes, features), np.float32), requires_grad=True)
    T = nova.tensor(np.zeros(rows, np.int64))
    loss = nova.linear_cross_entropy(X, W, T, chunk_bytes=128 << 20)
    nova.backward(loss)
    program = nova.compile(
        [loss, X.grad, W.grad],
        inputs=[X, W, T],
        target=target,
        run_mode="native" if target == "cpu" else "sim",
    )
    assert program.workspace_size < 2.2 * (128 << 20) < rows * classes * 4


def test_other_reductions_are_refused() -> None:
    X, W = nova.tensor(np.zeros((4, 2), np.float32)), nova.tensor(np.zeros((3, 2), np.float32))
    with pytest.raises(AttributeValueError, match="'none' of linear_cross_entropy"):
        nova.linear_cross_entropy(X, W, nova.tensor(np.zeros(4, np.int64)), reduction="none")


@pytest.mark.parametrize("convert", [list, np.asarray], ids=["lists", "arrays"])
def test_operands_that_are_not_tensors(convert: Callable[[Any], Any]) -> None:
    x, weight, target = [[1.0, 2.0], [0.5, -1.0]], [[1.0, 2.0], [3.0, 4.0]], [0, 1]
    loss = nova.linear_cross_entropy(convert(x), convert(weight), convert(target))
    scores = torch.tensor(x) @ torch.tensor(weight).T
    expected = torch.nn.functional.cross_entropy(scores, torch.tensor(target))
    np.testing.assert_allclose(loss.numpy(), expected.numpy(), rtol=1e-6)
