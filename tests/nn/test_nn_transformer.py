"""Transformer layers, embedding bags and channel dropout against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.errors import AttributeValueError, ShapeError

RNG = np.random.default_rng(11)
SRC = RNG.standard_normal((5, 3, 8)).astype("f4")
TGT = RNG.standard_normal((4, 3, 8)).astype("f4")
PADDING = np.array([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
CAUSAL = np.triu(np.ones((4, 4), bool), 1)
BIAS = RNG.standard_normal((6, 5, 5)).astype("f4")


def loaded(ours: Any, theirs: Any) -> Any:
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({n: t.numpy() for n, t in theirs.state_dict().items()})
    return ours


def transformers(**options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    theirs = torch.nn.Transformer(8, 2, 2, 2, 12, 0.0, **options)
    return loaded(nn.Transformer(8, 2, 2, 2, 12, 0.0, **options), theirs), theirs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("norm_first", [False, True])
def test_masks_as_torch(norm_first: bool) -> None:
    ours, theirs = transformers(norm_first=norm_first)
    masks = {
        "src_mask": BIAS,
        "tgt_mask": CAUSAL,
        "src_key_padding_mask": PADDING,
        "memory_key_padding_mask": PADDING,
    }
    want = theirs(
        torch.tensor(SRC), torch.tensor(TGT), **{n: torch.tensor(m) for n, m in masks.items()}
    )
    got = ours(SRC, TGT, **masks).numpy()
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-4, atol=1e-5)
    square = nn.Transformer.generate_square_subsequent_mask(4).numpy()
    np.testing.assert_array_equal(square, torch.nn.Transformer.generate_square_subsequent_mask(4))


def test_training_an_encoder_as_torch() -> None:
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, 0.0, bias=False, batch_first=True)
    norm = torch.nn.LayerNorm(8)
    theirs = torch.nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    own = nn.TransformerEncoderLayer(8, 2, 12, 0.0, bias=False, batch_first=True)
    ours = loaded(nn.TransformerEncoder(own, 2, nn.LayerNorm(8)), theirs)
    step = nova.train_step(
        ours, lambda m, x: m(x).square().mean(), optim.SGD(ours.parameters(), 0.1)
    )
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = theirs(torch.tensor(SRC)).square().mean()
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(step(SRC), loss.item(), rtol=1e-4)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_embedding_bags_as_torch(mode: str, padding: int | None) -> None:
    theirs = torch.nn.EmbeddingBag(6, 3, mode=mode, padding_idx=padding)
    ours = loaded(nn.EmbeddingBag(6, 3, mode, padding), theirs)
    index = np.array([[0, 2, 5], [2, 2, 2], [5, 5, 5], [1, 3, 4]])
    want = theirs(torch.tensor(index)).detach().numpy()
    np.testing.assert_allclose(ours(index).numpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_dropout_of_whole_channels(rank: int) -> None:
    nn.manual_seed(3)
    layer = getattr(nn, f"Dropout{rank}d")(0.4)
    x = np.ones((20, 30, *(2,) * rank), "f4")
    kept = layer(x).numpy().reshape(20, 30, -1)
    assert set(np.unique(kept).tolist()) == {0.0, np.float32(1 / 0.6)}
    assert (kept == kept[..., :1]).all(), "a channel is dropped as a whole"
    assert 0.3 < (kept == 0).mean() < 0.5
    assert layer(x[0]).numpy().shape == x[0].shape
    np.testing.assert_array_equal(layer.eval()(x).numpy(), x)


def test_slopes_of_rrelu() -> None:
    nn.manual_seed(4)
    layer = nn.RReLU(0.1, 0.3)
    x = np.concatenate([np.full(500, -1.0), np.full(10, 2.0)]).astype("f4")
    y = layer(x).numpy()
    assert (y[500:] == 2).all() and (y[:500] >= -0.3).all() and (y[:500] <= -0.1).all()
    assert 0.18 < -y[:500].mean() < 0.22 and y[:500].std() > 0.04


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: nn.TransformerEncoderLayer(8, 3), AttributeValueError, "8 features for 3"),
        (lambda: nn.TransformerEncoderLayer(8, 2, activation="x"), AttributeValueError, "'x'"),
        (
            lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 0),
            AttributeValueError,
            "0 layers",
        ),
        (lambda: nn.EmbeddingBag(3, 3, "median"), AttributeValueError, "median"),
        (lambda: nn.EmbeddingBag(3, 3)(np.zeros(3, "i8")), ShapeError, r"\(bags, size\)"),
        (lambda: nn.Dropout2d()(np.zeros((2, 3), "f4")), ShapeError, "Dropout2d"),
        (lambda: nn.ZeroPad2d((1, 2, 3)), AttributeValueError, "one width, or 4"),
        (lambda: nn.RReLU(0.5, 0.1), AttributeValueError, "slopes"),
        (
            lambda: nova.multi_margin_loss(nova.ones((2, 3)), nova.ones((2,)), p=3),
            AttributeValueError,
            "p must be 1 or 2",
        ),
    ],
)
def test_mistakes(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        use()
    assert __file__ in caught.value.where  # type: ignore[attr-defined]
