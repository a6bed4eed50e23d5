"""Random functions: the same bits on the CPU, a device and in the interpreter, and fair draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import AttributeValueError, ShapeError
from nova.graph.interpret import evaluate
from nova.ops import functional
from nova.ops.functional import random
from nova.ops.functional.layers import stochastic

WEIGHTS = np.array([0.1, 0.6, 0.3], "f4")

DRAWS: dict[str, Callable[[Any], Any]] = {
    "rand": lambda seed: nova.rand(seed, (5, 7)),
    "randn": lambda seed: nova.randn(seed, (5, 7), dtype="f64"),
    "rand_like": lambda seed: nova.rand_like(np.zeros((3, 4), "f4"), seed),
    "randn_like": lambda seed: nova.randn_like(np.zeros((3, 4), "f4"), seed),
    "randint": lambda seed: nova.randint(seed, -3, 9, (50,)),
    "bernoulli": lambda seed: nova.bernoulli(np.full(50, 0.4, "f4"), seed),
    "categorical": lambda seed: nova.categorical(np.tile(np.log(WEIGHTS), (50, 1)), seed),
    "multinomial": lambda seed: nova.multinomial(WEIGHTS, seed, 2),
    "permutation": lambda seed: nova.permutation(seed, 20),
    "alpha_dropout": lambda seed: nova.alpha_dropout(np.ones(30, "f4"), seed),
    "feature_alpha_dropout": lambda seed: nova.feature_alpha_dropout(
        np.ones((4, 6, 2), "f4"), seed
    ),
    "feature_dropout": lambda seed: nova.feature_dropout(np.ones((4, 6, 2), "f4"), seed),
    "dropout1d": lambda seed: nova.dropout1d(np.ones((4, 6, 2), "f4"), seed),
    "dropout2d": lambda seed: nova.dropout2d(np.ones((5, 3, 2), "f4"), seed),
    "dropout3d": lambda seed: nova.dropout3d(np.ones((4, 6, 2, 1, 2), "f4"), seed),
    "rrelu": lambda seed: nova.rrelu(-np.ones((4, 6), "f4"), seed, training=True),
    "gumbel_softmax": lambda seed: nova.gumbel_softmax(np.ones((9, 4), "f4"), seed, hard=True),
}


def test_every_function_is_drawn() -> None:
    assert {random, stochastic} <= {*functional.FAMILIES}
    assert {row.name for row in (*random.ROWS, *stochastic.ROWS)} == DRAWS.keys()


def test_same_numbers_everywhere() -> None:
    seed = nova.tensor(np.int64(12345), name="seed")
    outputs = [draw(seed) for draw in DRAWS.values()]
    oracle = evaluate(outputs)
    for options in ({}, {"target": "cuda:sm_80", "run_mode": "sim"}):
        program = nova.compile(outputs, inputs=[seed], **options)
        first, other = program.run([np.int64(12345)]), program.run([np.int64(54321)])
        for name, value, want, changed in zip(DRAWS, first, oracle, other, strict=True):
            assert np.allclose(value, want, rtol=1e-5, atol=1e-6), name
            assert name == "multinomial" or not np.array_equal(value, changed), name


def test_distributions() -> None:
    drawn = nova.randint(1, 2, 6, (8000,)).numpy()
    counts = np.bincount(drawn, minlength=6)
    assert counts[:2].sum() == 0 and (np.abs(counts[2:] / 8000 - 0.25) < 0.03).all()
    assert abs(nova.bernoulli(np.full(8000, 0.3, "f4"), 2).numpy().mean() - 0.3) < 0.03
    classes = nova.categorical(np.tile(np.log(WEIGHTS), (8000, 1)), 3).numpy()
    assert np.allclose(np.bincount(classes, minlength=3) / 8000, WEIGHTS, atol=0.03)
    assert sorted(nova.permutation(4, 100).numpy()) == list(range(100))
    assert len(set(nova.multinomial(np.ones(9, "f4"), 5, 9).numpy().tolist())) == 9
    kept = nova.alpha_dropout(nova.randn(6, (8000,)), 7, p=0.2).numpy()
    assert abs(kept.mean()) < 0.05 and abs(kept.std() - 1) < 0.05
    drawn = nova.randn(6, (40, 50, 8))
    kept = nova.feature_alpha_dropout(drawn, 7, p=0.2).numpy()
    assert abs(kept.mean()) < 0.05 and abs(kept.std() - 1) < 0.05
    low = kept == kept.min(axis=(0, 1, 2), where=kept.std(axis=2, keepdims=True) == 0, initial=9)
    assert (low.all(axis=2) == low.any(axis=2)).all(), "whole channels"
    assert abs(low.all(axis=2).mean() - 0.2) < 0.03


def test_wrong_options() -> None:
    with pytest.raises(AttributeValueError, match=r"randint: 3..3 has not 1 to"):
        nova.randint(0, 3, 3, (2,))
    with pytest.raises(ShapeError, match="multinomial: 4 samples of"):
        nova.multinomial(WEIGHTS, 0, 4)
    with pytest.raises(AttributeValueError, match="alpha_dropout: p must be below 1"):
        nova.alpha_dropout(WEIGHTS, 0, p=1.0)
    with pytest.raises(ShapeError, match="feature_alpha_dropout: "):
        nova.feature_alpha_dropout(WEIGHTS, 0)
    with pytest.raises(ShapeError, match="feature_dropout"):
        nova.feature_dropout(WEIGHTS, 0)


def test_dropout_of_channels_and_slopes() -> None:
    x = np.random.default_rng(0).standard_normal((6, 50, 3, 2)).astype("f4")
    kept = nova.dropout2d(x, 3, p=0.25).numpy() / x
    assert np.allclose(kept, kept[:, :, :1, :1]) and 0.5 < np.mean(kept > 0) < 0.9
    assert np.allclose(kept[kept != 0], 4 / 3)
    assert np.array_equal(nova.dropout2d(x, 3, training=False).numpy(), x)
    slopes = nova.rrelu(-np.ones(4000, "f4"), 1, 0.2, 0.6, training=True).numpy()
    assert slopes.min() >= -0.6 and slopes.max() <= -0.2 and abs(slopes.mean() + 0.4) < 0.01
    assert np.allclose(nova.rrelu(np.array([-1.0, 2.0])).numpy(), [-11 / 48, 2.0])
    with pytest.raises(ShapeError, match="dropout3d"):
        nova.dropout3d(x[0], 1)
    with pytest.raises(AttributeValueError, match="without a seed"):
        nova.rrelu(x, training=True)


def test_gumbel_softmax_draws_by_weight_and_has_the_gradient_of_softmax() -> None:
    logits = np.tile(np.log(WEIGHTS), (8000, 1)).astype("f4")
    hard = nova.gumbel_softmax(logits, 5, tau=0.7, hard=True).numpy()
    assert np.allclose(hard.sum(1), 1) and np.allclose(hard.mean(0), WEIGHTS, atol=0.03)
    weights = np.arange(3, dtype="f4")

    def loss(x: Any, hard: bool) -> Any:
        return (nova.gumbel_softmax(x, 5, tau=0.7, hard=hard) * weights).sum()

    soft, straight = (nova.grad(lambda x, h=h: loss(x, h))(logits[:4]) for h in (False, True))
    assert np.allclose(soft.numpy(), straight.numpy()) and np.abs(soft.numpy()).max() > 0.01
    with pytest.raises(AttributeValueError, match="tau"):
        nova.gumbel_softmax(logits, 5, tau=0.0)
