"""The models of the examples with symbolic batches and sequences, against static programs.

Both train from the same weights: loss and weights of every step agree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import nn, optim

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import attention_block
import digits
import gpt
import model_zoo

RNG = np.random.default_rng(3)
BATCHES = (1, 2, 7, 5)
"""Batches of consecutive steps, in which the weights change."""


def images(n: int) -> np.ndarray:
    return RNG.standard_normal((n, 3, 16, 16)).astype("f4")


def labels(n: int) -> np.ndarray:
    return RNG.integers(0, 10, n)


def tokens(n: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    rows = RNG.integers(0, 32, (n, length + 1))
    return rows[:, :-1], rows[:, 1:]


def cross_entropy(m: Any, x: Any, y: Any) -> Any:
    return nova.cross_entropy(m(x), y)


def train_both(
    make: Callable[[], nn.Module],
    loss: Callable[..., Any],
    dynamic: dict[str, Any],
    batches: list[tuple[np.ndarray, ...]],
    tolerance: float = 1e-4,
) -> None:
    """Train a model with symbolic and one with static sizes on the same batches."""
    steps, models = [], []
    for axes in (dynamic, False):
        nn.manual_seed(0)
        model = make()
        optimizer = optim.SGD(model.parameters(), 0.01)
        steps.append(nova.train_step(model, loss, optimizer, dynamic=axes))
        models.append(model)
    for number, arrays in enumerate(batches):
        symbolic, static = (step(*arrays) for step in steps)
        np.testing.assert_allclose(symbolic, static, rtol=tolerance, err_msg=f"step {number}")
    states = [model.state_dict() for model in models]
    for name, value in states[1].items():
        scale = max(1.0, np.abs(value).max())
        assert np.abs(states[0][name] - value).max() <= tolerance * scale, name
    assert [len(step.plan.dims) > 0 for step in steps] == [True, False]


def rows(least: int = 1) -> dict[str, Any]:
    batch = nova.dim("batch", min=least, max=64)
    return {"x": {0: batch}, "y": {0: batch}}


def test_digits() -> None:
    batches = [(RNG.random((n, 64), dtype="f4"), labels(n)) for n in (64, 64, 17)]

    def make() -> nn.Module:
        model = digits.make_model()
        model.eval()  # dropout draws other numbers for other sizes of a program
        return model

    train_both(make, cross_entropy, rows(), batches)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("Discriminator", "ResNet", "MobileNet", "ViT")
    ],
)
def test_classifiers(name: str) -> None:
    sizes = {"ResNet": ((1, 1), 8), "MobileNet": (8, 2), "ViT": (), "Discriminator": ()}[name]

    def loss(m: Any, x: Any, y: Any) -> Any:
        scores = m(x)
        return (
            (scores * scores).mean() if name == "Discriminator" else nova.cross_entropy(scores, y)
        )

    # Batch norms need two images or more.
    channels = 1 if name == "Discriminator" else 3
    batches = [(images(n)[:, :channels], labels(n)) for n in (2, 7, 5)]
    train_both(lambda: getattr(model_zoo, name)(*sizes), loss, rows(2), batches, 2e-3)


@pytest.mark.slow
def test_unet() -> None:
    batches = [(images(n), RNG.integers(0, 2, (n, 16, 16))) for n in (2, 5)]
    train_both(lambda: model_zoo.UNet(width=8), cross_entropy, rows(2), batches, 2e-3)


@pytest.mark.slow
def test_autoencoder() -> None:
    def loss(m: Any, x: Any, y: Any) -> Any:
        out = m(x, y)
        parts = out if isinstance(out, tuple) else (out,)
        return sum(((p * p).mean() for p in parts), start=nova.tensor(0.0))

    batches = [
        (RNG.random((n, 64), dtype="f4"), RNG.standard_normal((n, 4)).astype("f4")) for n in BATCHES
    ]
    train_both(model_zoo.VAE, loss, rows(), batches)


@pytest.mark.slow
def test_generator() -> None:
    batches = [(RNG.standard_normal((n, 8, 1, 1)).astype("f4"), labels(n)) for n in (2, 5)]

    def loss(m: Any, x: Any, y: Any) -> Any:
        made = m(x)
        return (made * made).mean() + 0.0 * y.sum()

    train_both(model_zoo.Generator, loss, rows(2), batches, 2e-3)


@pytest.mark.parametrize(
    "lengths", [(8, 8), pytest.param((1, 7, 16, 31, 32), marks=pytest.mark.slow)]
)
def test_gpt_of_any_batch_and_length(lengths: tuple[int, ...]) -> None:
    config = gpt.Config(vocabulary=32, context=256, width=32, layers=1, heads=2, dropout=0.0)
    batch, length = nova.dim("batch", min=1, max=64), nova.dim("length", min=1, max=256)
    axes = {0: batch, 1: length}
    batches = [tokens(n, t) for n, t in zip((1, 3, 2, 5, 4), lengths, strict=False)]
    train_both(
        lambda: gpt.GPT(config),
        lambda m, x, y: m.loss(x, y),
        {"x": axes, "y": axes},
        batches,
    )


@pytest.mark.parametrize(
    "sizes", [((2, 16), (3, 31)), pytest.param(((1, 1), (1, 65)), marks=pytest.mark.slow)]
)
def test_attention_block(sizes: tuple[tuple[int, int], ...]) -> None:
    params = attention_block.make_parameters(RNG)
    axes = {0: nova.dim("batch", min=1), 1: nova.dim("time", min=1)}
    function = nova.value_and_grad(attention_block.loss)
    symbolic = nova.jit(function, dynamic={"x": axes, "target": axes})
    for batch, time in sizes:
        x, target = (
            RNG.standard_normal((batch, time, attention_block.WIDTH)).astype("f4") for _ in range(2)
        )
        value, gradients = symbolic(params, x, target)
        expected, others = nova.jit(function)(params, x, target)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        for name, gradient in others.items():
            np.testing.assert_allclose(gradients[name], gradient, rtol=1e-3, atol=1e-5)
    assert symbolic.cache_info().misses == 1


def test_linear_regression() -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return nova.mse_loss(x @ w, y)

    samples = nova.dim("samples", min=1)
    step = nova.jit(nova.value_and_grad(loss), dynamic={"x": {0: samples}, "y": {0: samples}})
    static = nova.jit(nova.value_and_grad(loss))
    w = np.zeros(3, "f4")
    for n in (64, 1, 17, 129):
        x, y = RNG.standard_normal((n, 3)).astype("f4"), RNG.standard_normal(n).astype("f4")
        for actual, expected in zip(step(w, x, y), static(w, x, y), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
        w = w - np.float32(0.1) * np.asarray(step(w, x, y)[1])
