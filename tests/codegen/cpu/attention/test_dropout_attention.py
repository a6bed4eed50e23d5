"""Dropout of attention weights on CPUs: the bits of `kept_weights`, drawn by the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dropped_attention import SEED, check_dropout
from op_philox import weight_factors
from processors import runs_here

import nova
from nova import nn, optim
from nova.graph.autodiff import gradients


@pytest.mark.parametrize(
    ("type_", "batch", "sizes", "options"),
    [
        ("f32", (2, 3), (40, 70, 16, 8), {}),
        ("f32", (2,), (70, 70, 8, 8), {"causal": True}),
        ("f64", (2,), (17, 150, 8, 8), {"mask": "bool"}),
        ("f32", (), (33, 20, 5, 3), {"mask": "float"}),
        ("f32", (2, 4), (20, 33, 8, 8), {"shared": (2, 1)}),
        ("bf16", (2,), (20, 33, 8, 8), {"causal": True}),
    ],
)
@pytest.mark.parametrize("target", [t for t in ("cpu", "x86_64") if runs_here(t)])
def test_against_torch(
    type_: str, batch: Any, sizes: Any, options: dict[str, Any], target: str
) -> None:
    rng = np.random.default_rng(0)
    kinds = {"bool": rng.random(sizes[:2]) < 0.7, "float": rng.standard_normal(sizes[:2])}
    if "mask" in options:
        options = {
            **options,
            "mask": kinds[options["mask"]].astype("bool" if options["mask"] == "bool" else "f4"),
        }
    check_dropout(type_, batch, sizes, 0.3, target=target, **options)


def _values(dropout: float, seed: int, shape: tuple[int, ...] = (3, 64, 64)) -> np.ndarray:
    """Dropped weights: equal scores, and values that are an identity matrix."""
    q = nova.tensor(np.zeros(shape, "f4"))
    v = nova.tensor(np.broadcast_to(np.eye(shape[-2], dtype="f4"), (*shape[:-1], shape[-2])).copy())
    return nova.attention(q, q, v, dropout=dropout, seed=seed).numpy() * shape[-2]


def test_statistics() -> None:
    weights = _values(0.25, 11)
    dropped = weights == 0
    np.testing.assert_allclose(weights[~dropped], 1 / 0.75, rtol=1e-5)
    # Of 12288 weights: within five standard deviations of a quarter.
    assert abs(dropped.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / dropped.size)
    assert (dropped.mean(axis=(0, 2)) < 0.6).all() and (dropped.mean(axis=(0, 1)) < 0.6).all()
    assert (_values(0.25, 11) == weights).all()
    other = _values(0.25, 12) == 0
    assert abs((other & dropped).mean() - 0.0625) < 0.01


@pytest.mark.parametrize("dropout", [0.0, 1e-5, 0.3, 1 - 1e-5, 1.0])
def test_same_bits_as_the_definition(dropout: float) -> None:
    """The probability is a multiple of 2**-15: 1e-5 is 0."""
    weights = weight_factors(5, (3, 64, 64), dropout)
    np.testing.assert_allclose(_values(dropout, 5), weights, rtol=1e-5, atol=1e-6)
    assert np.array_equal(
        nova.kept_weights(5, shape=(3, 64, 64), dropout=dropout).numpy(), weights != 0
    )


def test_finite_differences() -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal((2, 6, 4)) for _ in range(3)]
    leaves = [nova.tensor(a) for a in arrays]
    out = nova.attention(*leaves, causal=True, dropout=0.4, seed=SEED)
    loss = nova.sum(nova.sin(out))
    program = nova.compile([loss, *gradients(loss, leaves)], inputs=leaves)
    _, *slopes = program.run(arrays)
    for number, slope in enumerate(slopes):
        direction = rng.standard_normal(slope.shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = [a + step * direction if n == number else a for n, a in enumerate(arrays)]
            ends.append(float(program.run(moved)[0]))
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float((slope * direction).sum()), 1e-6)


def test_two_seeds_are_two_ops() -> None:
    """Results of the same scores with other seeds, or other values, are not merged."""
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal((2, 20, 8)).astype("f4") for _ in range(4)]
    q, k, v, w = leaves = [nova.tensor(a) for a in arrays]
    outputs = [
        nova.attention(q, k, v, dropout=0.5, seed=1),
        nova.attention(q, k, v, dropout=0.5, seed=2),
        nova.attention(q, k, v),
        nova.attention(q, k, w),
    ]
    together = nova.compile(outputs, inputs=leaves).run(arrays)
    for out, actual in zip(outputs, together, strict=True):
        alone = nova.compile(out, inputs=leaves).run(arrays)
        np.testing.assert_allclose(actual, alone, rtol=1e-5, atol=1e-6)
    assert len({a.tobytes() for a in together}) == 4


def test_every_step_of_training_draws_new_bits() -> None:
    nn.manual_seed(3)
    model = nn.MultiheadAttention(16, 2, causal=True, dropout=0.5)
    optimizer = optim.SGD(model.parameters(), lr=0.0)
    step = nova.train_step(model, lambda m, x: nova.sum(m(x) ** 2), optimizer)
    x = np.random.default_rng(0).standard_normal((2, 12, 16)).astype("f4")
    assert "nova.attend_dropout_point" in step.lower(x).stages["linalg"]
    losses = [float(step(x)) for _ in range(4)]
    assert len(set(losses)) == 4
    model.eval()
    assert float(nova.sum(model(nova.tensor(x)) ** 2).numpy()) not in losses


def test_dropout_needs_a_seed() -> None:
    q = nova.ones((2, 3, 4))
    with pytest.raises(nova.errors.AttributeValueError, match="needs a seed"):
        nova.attention(q, q, q, dropout=0.1)
    with pytest.raises(nova.errors.AttributeValueError, match="dropout must be in"):
        nova.attention(q, q, q, dropout=2, seed=1)
