"""Random numbers of models: initial values against torch's, dropout, and where seeds come from."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch

import nova
from nova import nn
from nova.api.compile import cache_statistics
from nova.errors import DTypeError, ShapeError
from nova.graph.autodiff import gradients

QUANTILES = np.linspace(0, 1, 21)


def spread(values: np.ndarray) -> np.ndarray:
    return np.quantile(np.asarray(values, "f8"), QUANTILES)


INITIAL = [
    (lambda **o: nn.Linear(400, 300, **o), lambda: torch.nn.Linear(400, 300), sqrt(1 / 400)),
    (lambda **o: nn.Linear(3, 40_000, **o), lambda: torch.nn.Linear(3, 40_000), sqrt(1 / 3)),
    (
        lambda **o: nn.MultiheadAttention(200, 4, **o),
        lambda: torch.nn.MultiheadAttention(200, 4),
        sqrt(6 / 800),
    ),
]


@pytest.mark.parametrize(("computed", "reference", "bound"), INITIAL)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_initial_values_are_torchs(computed, reference, bound, dtype):
    nn.manual_seed(1)
    torch.manual_seed(1)
    module, expected = computed(dtype=dtype), reference()
    first = True
    for (name, parameter), (second, value) in zip(
        module.named_parameters(), expected.named_parameters(), strict=True
    ):
        assert name == second and parameter.shape == tuple(value.shape)
        assert parameter.dtype is nova.core.dtypes.dtype(dtype)
        actual, theirs_values = spread(parameter.data), spread(value.detach().numpy())
        size = np.abs(theirs_values).max()
        # A few hundred biases are spread less evenly than thousands of weights.
        np.testing.assert_allclose(
            actual, theirs_values, atol=size * max(0.02, 6 / sqrt(value.numel()))
        )
        if first:
            assert np.abs(actual).max() <= bound * 1.001 and np.abs(actual).max() > 0.99 * bound
            np.testing.assert_allclose(
                np.std(parameter.data, dtype="f8"), bound / sqrt(3), rtol=0.02
            )
        first = False


def test_initial_values_of_embedding_and_norms():
    weight = nn.Embedding(1000, 200).weight.data
    assert abs(weight.mean()) < 0.01 and abs(weight.std() - 1) < 0.01
    np.testing.assert_allclose(
        spread(weight)[1:-1], spread(torch.nn.Embedding(1000, 200).weight.detach())[1:-1], atol=0.03
    )
    norm = nn.LayerNorm(5, dtype="bf16")
    assert (norm.weight.data == 1).all() and (norm.bias.data == 0).all()
    assert norm.bias.dtype is nova.bf16 and (nn.RMSNorm(5).weight.data == 1).all()


def test_initializers():
    rng = np.random.default_rng(0)
    values = nn.init.normal((200, 500), mean=2, std=0.5, generator=rng)
    assert abs(values.mean() - 2) < 0.01 and abs(values.std() - 0.5) < 0.01
    values = nn.init.uniform((200, 500), -1, 3, dtype="bf16", generator=rng).astype("f4")
    assert values.min() >= -1 and values.max() <= 3 and abs(values.mean() - 1) < 0.02
    values = nn.init.kaiming_uniform((64, 3, 5, 5), a=0, generator=rng)
    assert 0.99 * sqrt(6 / 75) < np.abs(values).max() <= sqrt(6 / 75)
    values = nn.init.xavier_uniform((300, 200), gain=2, generator=rng)
    assert 0.99 * 2 * sqrt(6 / 500) < np.abs(values).max() <= 2 * sqrt(6 / 500)
    assert nn.init.xavier_uniform((0, 0)).shape == nn.Linear(0, 0).weight.shape == (0, 0)
    with pytest.raises(ShapeError, match="no fan"):
        nn.init.kaiming_uniform((3,))
    with pytest.raises(DTypeError, match="i32"):
        nn.init.uniform((3,), 0, 1, dtype="i32")


def test_seeds_give_the_same_weights_again():
    def weights(generator=None):
        layer = nn.MultiheadAttention(8, 2, generator=generator)
        return np.concatenate([p.data.reshape(-1) for p in layer.parameters()])

    nn.manual_seed(3)
    first, second = weights(), weights()
    nn.manual_seed(3)
    np.testing.assert_array_equal(weights(), first)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(weights(np.random.default_rng(3)), first)
    assert np.array_equal(weights(), second), "a generator leaves the default one alone"


# --- dropout --------------------------------------------------------------------------------------


def test_dropout():
    x = np.random.default_rng(0).standard_normal((300, 400)).astype("f4") + 5
    layer = nn.Dropout(0.3)
    leaf = nova.tensor(x, requires_grad=True)
    nn.manual_seed(0)
    out = layer(leaf)
    (grad,) = gradients(out.sum(), [leaf])
    value, slope = nova.compile([out, grad], inputs=[leaf]).run([x])
    dropped = value == 0
    assert abs(dropped.mean() - 0.3) < 5 * sqrt(0.21 / x.size)
    assert abs(dropped.mean(axis=0) - 0.3).max() < 6 * sqrt(0.21 / 300)
    np.testing.assert_allclose(value[~dropped], x[~dropped] / 0.7, rtol=1e-6)
    np.testing.assert_allclose(slope, np.where(dropped, 0, 1 / 0.7), rtol=1e-6)
    again = layer(leaf).numpy()
    assert 0.3 < ((again == 0) != dropped).mean() < 0.55, "independent of the first"
    nn.manual_seed(0)
    np.testing.assert_array_equal(layer(x).numpy(), value)
    layer.eval()
    assert layer(leaf) is leaf and nn.Dropout(0)(leaf) is leaf
    assert not nn.Dropout(1)(x).numpy().any()


def test_eager_dropout_compiles_once():
    layer, x = nn.Dropout(0.5), np.ones((3, 50), "f4")
    first = layer(x).numpy()
    compiled = cache_statistics()["compiled"]
    assert not np.array_equal(layer(x).numpy(), first)
    assert cache_statistics()["compiled"] == compiled


@pytest.mark.parametrize("causal", [False, True])
def test_attention_drops_weights(causal):
    """Values that are the identity show the weights; zero queries make them even."""
    n, p = 16, 0.25
    layer = nn.MultiheadAttention(n, 1, causal=causal, dropout=p)
    layer.in_proj_weight.data[...] = 0
    layer.in_proj_weight.data[2 * n :] = np.eye(n)
    layer.out_proj.weight.data[...] = np.eye(n)
    x = np.broadcast_to(np.eye(n, dtype="f4"), (256, n, n))
    observed = np.broadcast_to(np.tril(np.ones((n, n))) if causal else np.ones((n, n)), x.shape)
    even = observed / observed.sum(axis=-1, keepdims=True)
    nn.manual_seed(0)
    weights = layer(x).numpy()
    retained = weights != 0
    np.testing.assert_allclose(weights, np.where(retained, even / (1 - p), 0), rtol=1e-5)
    count = observed.sum()
    assert abs(retained.sum() / count - (1 - p)) < 5 * sqrt(p * (1 - p) / count)
    assert not np.array_equal(retained[0], retained[1])
    nn.manual_seed(0)
    np.testing.assert_array_equal(layer(x).numpy(), weights)


def test_dropped_attention_with_masks():
    """Without anything dropped out it is the op, also for rows that see nothing."""
    layer = nn.MultiheadAttention(8, 2, dropout=1e-9)
    x = np.random.default_rng(0).standard_normal((2, 4, 8)).astype("f4")
    mask = np.random.default_rng(1).random((4, 4)) > 0.5
    mask[1] = False
    masks = [None, mask, np.where(mask, 0.5, -np.inf).astype("f4")]
    dropping = [layer(x, mask=m) for m in masks]
    layer.eval()
    plain = [layer(x, mask=m) for m in masks]
    results = nova.compile([*dropping, *plain]).run()
    for actual, expected in zip(results[:3], results[3:], strict=True):
        assert np.isfinite(actual).all()
        np.testing.assert_allclose(actual, expected, atol=1e-6)


# --- seeds ----------------------------------------------------------------------------------------


def test_seeds_count_from_a_base():
    base = nova.tensor(np.int64(7))
    with nn.seeded(base):
        chosen = [nn.next_seed() for _ in range(3)]
        with nn.seeded(5):
            inner = nn.next_seed()
        chosen.append(nn.next_seed())
    assert [t.item() for t in chosen] == [7 + k * 1_000_003 for k in range(4)]
    assert inner.item() == 5
    assert all(t.dtype is nova.i64 and t.shape == () for t in [*chosen, inner])
    nn.manual_seed(0)
    outside = nn.next_seed()
    assert outside.dtype is nova.i64 and outside.shape == () and outside.item() >= 0
    assert nn.next_seed().item() != outside.item()


def test_a_compiled_seed_draws_anew_each_run():
    x, seed = nova.tensor(np.ones((20, 20), "f4")), nova.tensor(np.int64(0))
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    with nn.seeded(seed):
        program = nova.compile(model(x), inputs=[x, seed])
    first, second, again = (program(x.data, np.int64(s)) for s in (1, 2, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
    assert abs((first != 0).mean() - 0.25) < 0.12, "the two layers drop apart from each other"
