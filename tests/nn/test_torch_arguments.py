"""Arguments of torch's layers: the same names, and the same results."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn
from nova.errors import AttributeValueError

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 8)).astype("f4")

SAME: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (), {"inplace": True}) for name in ("ReLU", "SiLU", "ReLU6", "SELU", "Mish")),
    *((name, (True,), {}) for name in ("Hardsigmoid", "Hardswish")),
    ("LeakyReLU", (0.2, True), {}),
    ("ELU", (1.5,), {"inplace": True}),
    ("CELU", (1.5,), {"inplace": True}),
    ("Hardtanh", (-0.5, 0.5), {"inplace": True}),
    ("Threshold", (0.1, 0.2), {"inplace": True}),
    ("Softplus", (2.0,), {"threshold": 1.0}),
    ("LayerNorm", (), {"normalized_shape": (3, 8)}),
    ("RMSNorm", (), {"normalized_shape": 8}),
    ("AvgPool1d", (2, 2, 0, True, False), {}),
]


@pytest.mark.parametrize(("name", "args", "options"), SAME)
def test_layers(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    theirs = getattr(torch.nn, name)(*args, **options)(torch.tensor(X.copy()))
    ours = getattr(nn, name)(*args, **options)(X)
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["Dropout", "Dropout1d", "AlphaDropout", "RReLU"])
def test_inplace_of_random_layers(name: str) -> None:
    layer = getattr(nn, name)(inplace=True)
    nova.nn.manual_seed(3)
    first = layer(X).numpy()
    nova.nn.manual_seed(3)
    np.testing.assert_array_equal(first, getattr(nn, name)()(X).numpy())


def test_indices_of_adaptive_pools() -> None:
    ours = nn.AdaptiveMaxPool1d(3, return_indices=True)(X)
    theirs = torch.nn.AdaptiveMaxPool1d(3, return_indices=True)(torch.tensor(X))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention(batch_first: bool) -> None:
    theirs = torch.nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=batch_first)
    ours = nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=batch_first)
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    key = RNG.standard_normal((2, 5, 8) if batch_first else (5, 3, 8)).astype("f4")
    mask = RNG.standard_normal((3, 5) if batch_first else (2, 5)).astype("f4")
    x = torch.tensor(X)
    for options in ({}, {"attn_mask": mask}):
        given = {name: torch.tensor(value) for name, value in options.items()}
        expected, _ = theirs(x, torch.tensor(key), torch.tensor(key), **given)
        actual = ours(X, key, key, **options)
        np.testing.assert_allclose(actual.numpy(), expected.detach().numpy(), atol=2e-6)
    with pytest.raises(AttributeValueError, match=r"causal is 0.1[^$]*write dropout=0.1"):
        nn.MultiheadAttention(8, 2, 0.1)


@pytest.mark.parametrize("kind", ["numpy", "torch", "nova", "list"])
def test_attn_mask_has_the_meaning_of_torch(kind: str) -> None:
    """True hides a key; in Nova's `mask` it lets a key take part."""
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    ours = nn.MultiheadAttention(8, 2)
    ours.load_state_dict(theirs.state_dict())
    later = np.triu(np.ones((3, 3), bool), 1)
    x = torch.tensor(X)
    expected = theirs(x, x, x, attn_mask=torch.tensor(later))[0].detach().numpy()
    mask: Any = {
        "numpy": later,
        "torch": torch.tensor(later),
        "nova": nova.tensor(later),
        "list": later.tolist(),
    }[kind]
    np.testing.assert_allclose(ours(X, attn_mask=mask).numpy(), expected, atol=2e-6)
    np.testing.assert_allclose(ours(X, mask=~later).numpy(), expected, atol=2e-6)
    with pytest.raises(AttributeValueError, match="mask and attn_mask are both"):
        ours(X, mask=~later, attn_mask=mask)


def test_attention_to_a_list_without_batch_first() -> None:
    theirs = torch.nn.MultiheadAttention(8, 2)
    ours = nn.MultiheadAttention(8, 2, batch_first=False)
    ours.load_state_dict(theirs.state_dict())
    x = torch.tensor(X)
    expected = theirs(x, x, x)[0].detach().numpy()
    np.testing.assert_allclose(ours(X.tolist()).numpy(), expected, atol=2e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(2, 2, dtype=None),
        lambda: nn.Conv1d(2, 2, 3, dtype=None),
        lambda: nn.LSTM(2, 2, dtype=None),
        lambda: nn.BatchNorm1d(2, dtype=None),
        lambda: nn.MultiheadAttention(2, 1, dtype=None),
    ],
)
def test_layers_without_a_dtype(make: Any) -> None:
    assert {p.dtype for p in make().parameters()} == {nova.f32}


def test_buffers_are_shown_as_such() -> None:
    text = str(nn.BatchNorm1d(3))
    assert "(weight): <Parameter f32[3]>" in text
    assert "(running_mean): <Buffer f32[3]>" in text


@pytest.mark.parametrize(
    "name",
    ["BCELoss", "BCEWithLogitsLoss", "MultiMarginLoss", "NLLLoss", "CrossEntropyLoss"],
)
@pytest.mark.parametrize("weight", [torch.ones(3), np.ones(3), [1.0, 2.0]])
def test_weights_have_a_keyword(name: str, weight: Any) -> None:
    with pytest.raises(AttributeValueError, match=rf"{name}: [^$]*write weight=") as caught:
        getattr(nn, name)(weight)
    assert "test_torch_arguments.py" in str(caught.value)


def test_weights_of_functions_have_a_keyword() -> None:
    p = np.full(3, 0.5, "f4")
    for function in (nova.binary_cross_entropy, nova.multilabel_soft_margin_loss):
        with pytest.raises(AttributeValueError, match="write weight="):
            function(p, p, reduction=torch.ones(3))


def test_embedding_with_a_padding_row() -> None:
    theirs = torch.nn.Embedding(num_embeddings=5, embedding_dim=4, padding_idx=-2)
    ours = nn.Embedding(num_embeddings=5, embedding_dim=4, padding_idx=-2)
    np.testing.assert_array_equal(ours.weight.data[3], np.zeros(4))
    ours.load_state_dict({"weight": theirs.weight.detach().numpy()})
    index = np.array([[0, 3, 3], [1, 4, 3]])
    expected = theirs(torch.tensor(index))
    expected.square().sum().backward()
    rows = ours(index)
    nova.backward((rows * rows).sum())
    np.testing.assert_array_equal(rows.numpy(), expected.detach().numpy())
    assert theirs.weight.grad is not None
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-6)
    with pytest.raises(AttributeValueError, match="padding_idx 5 of 5 rows"):
        nn.Embedding(5, 4, padding_idx=5)


LOSSES = ["CrossEntropyLoss", "NLLLoss", "MultiMarginLoss", "MultiLabelSoftMarginLoss"]


@pytest.mark.parametrize("name", LOSSES)
def test_weights_of_classes(name: str) -> None:
    weight = RNG.uniform(0.5, 2, 3).astype("f4")
    x = RNG.standard_normal((4, 3)).astype("f4")
    target = np.array([0, 2, 1, 1])
    if name.startswith("MultiLabel"):
        target = RNG.integers(0, 2, (4, 3))
    theirs = getattr(torch.nn, name)(weight=torch.tensor(weight))
    expected = theirs(torch.tensor(x), torch.tensor(target))
    loss = getattr(nn, name)(weight=weight)
    np.testing.assert_allclose(loss(x, target).numpy(), expected.numpy(), rtol=1e-5)
    assert set(loss.state_dict()) == set(theirs.state_dict())


@pytest.mark.parametrize(
    ("name", "args"), [("RNN", (8, 4, 2, "relu")), ("RNNCell", (8, 4, True, "relu"))]
)
def test_nonlinearity_of_recurrent_layers(name: str, args: tuple[Any, ...]) -> None:
    theirs, ours = getattr(torch.nn, name)(*args), getattr(nn, name)(*args)
    ours.load_state_dict(theirs.state_dict())
    x = X if name == "RNN" else X[0]
    expected, actual = theirs(torch.tensor(x)), ours(x)
    if name == "RNN":
        expected, actual = expected[0], actual[0]
    np.testing.assert_allclose(actual.numpy(), expected.detach().numpy(), rtol=2e-5, atol=2e-6)
    again = pickle.loads(pickle.dumps(ours))(x)
    again = again[0] if name == "RNN" else again
    np.testing.assert_array_equal(again.numpy(), actual.numpy())
    with pytest.raises(AttributeValueError, match="nonlinearity is 'gelu'"):
        getattr(nn, name)(8, 4, nonlinearity="gelu")


@pytest.mark.parametrize("momentum", [0.3, None])
def test_running_statistics_of_instance_norm(momentum: float | None) -> None:
    theirs = torch.nn.InstanceNorm1d(3, 1e-4, momentum, True, True)
    ours = nn.InstanceNorm1d(3, 1e-4, momentum, True, True)
    ours.load_state_dict(theirs.state_dict())
    for factor in (1.0, 3.0):
        expected, actual = theirs(torch.tensor(factor * X)), ours(nova.tensor(factor * X))
        np.testing.assert_allclose(actual.numpy(), expected.detach(), rtol=2e-5, atol=2e-6)
    for name in ("running_mean", "running_var"):  # torch does not count batches here
        expected = theirs.state_dict()[name]
        np.testing.assert_allclose(ours.state_dict()[name], expected, rtol=2e-5, atol=2e-6)
    expected, actual = theirs.eval()(torch.tensor(X)), ours.eval()(X)
    np.testing.assert_allclose(actual.numpy(), expected.detach(), rtol=2e-5, atol=2e-6)


MISPLACED = {
    "RNN": ((3, 4, 1, True), "nonlinearity is True"),
    "LSTM": ((3, 4, 1, "yes"), "bias is 'yes'"),
    "GRUCell": ((3, 4, 0.5), r"bias is 0\.5"),
    "BatchNorm2d": ((3, 1e-5, 0.1, 1), "affine is 1"),
    "KLDivLoss": (("batchmean",), "log_target is 'batchmean'"),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_options_are_bools(name: str) -> None:
    args, message = MISPLACED[name]
    with pytest.raises(AttributeValueError, match=message):
        getattr(nn, name)(*args)
