"""Packed sequences against torch's: outputs, last states, gradients, and wrong lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn as torch_rnn

import nova
from nova import nn
from nova.errors import AttributeValueError, DTypeError, ShapeError, UnknownNameError
from nova.nn.utils import rnn

RNG = np.random.default_rng(5)
X = RNG.normal(size=(6, 3, 5)).astype(np.float32)


def pair(name: str, **options: Any) -> tuple[Any, Any]:
    """A layer of torch and one of Nova with its weights."""
    theirs = getattr(torch.nn, name)(5, 4, **options)
    mine = getattr(nn, name)(5, 4, **options)
    mine.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    return mine, theirs


def flat(values: Any) -> list[Any]:
    return [leaf for v in values for leaf in (v if isinstance(v, tuple) else (v,))]


def equal(mine: Any, theirs: Any) -> None:
    mine = mine if isinstance(mine, np.ndarray) else mine.numpy()
    np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("RNN", {}),
        ("LSTM", {"num_layers": 2, "bidirectional": True}),
        ("GRU", {"bidirectional": True, "batch_first": True}),
    ],
    ids=["plain", "deep", "batch-first"],
)
def test_layers_and_gradients_equal_those_of_torch(name: str, options: dict[str, Any]) -> None:
    mine, theirs = pair(name, **options)
    layout = {"batch_first": options.get("batch_first", False)}
    data, lengths = X.copy(), [3, 5, 1]
    for i, length in enumerate(lengths):
        data[length:, i] = np.nan  # reaches no result
    data = np.ascontiguousarray(data.swapaxes(0, 1)) if layout["batch_first"] else data
    x = torch.tensor(data, requires_grad=True)
    output, states = theirs(
        torch_rnn.pack_padded_sequence(x, lengths, enforce_sorted=False, **layout)
    )
    expected = [*torch_rnn.pad_packed_sequence(output, **layout), *flat([states])]
    loss = (expected[0] ** 2).sum() + sum((s**3).sum() for s in flat([states]))
    loss.backward()  # type: ignore[no-untyped-call]

    ours = nova.tensor(data, requires_grad=True)
    packed = rnn.pack_padded_sequence(ours, lengths, enforce_sorted=False, **layout)
    packed, last = mine(packed)
    assert isinstance(packed, rnn.PackedSequence)
    computed = [*rnn.pad_packed_sequence(packed, **layout), *flat([last])]
    for a, b in zip(computed, expected, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        equal(a, b)
    powers = [(state**3).sum() for state in flat([last])]
    nova.backward(sum(powers, (computed[0] ** 2).sum()))
    equal(ours.grad, x.grad)
    for key, parameter in theirs.named_parameters():
        equal(dict(mine.named_parameters())[key].grad, parameter.grad)


def test_lengths_of_run_time_and_an_initial_state() -> None:
    mine, theirs = pair("LSTM", bidirectional=True)
    state = tuple(RNG.normal(size=(2, 3, 4)).astype(np.float32) for _ in range(2))

    @nova.jit
    def run(x: Any, lengths: Any, h: Any, c: Any) -> Any:
        output, last = mine(rnn.pack_padded_sequence(x, lengths), (h, c))
        padded = rnn.pad_packed_sequence(output, padding_value=-1.0, total_length=8)
        return (*padded, *last)

    for lengths in ([6, 4, 2], [5, 5, 1]):
        output, last = theirs(
            torch_rnn.pack_padded_sequence(torch.tensor(X), lengths),
            tuple(map(torch.tensor, state)),
        )
        padded = torch_rnn.pad_packed_sequence(output, padding_value=-1.0, total_length=8)
        for a, b in zip(run(X, np.array(lengths), *state), (*padded, *last), strict=True):
            equal(a, b)


def test_sequences_of_the_whole_length_need_no_mask() -> None:
    mine, theirs = pair("GRU")
    packed = rnn.pack_padded_sequence(X, [6, 6, 6])
    assert packed.mask is None
    equal(mine(packed)[0].data, theirs(torch.tensor(X))[0])


def test_an_embedding_of_packed_words() -> None:
    words = np.array([[1, 2], [3, 9], [4, 9]])
    packed = rnn.pack_padded_sequence(words, np.array([3, 1]))
    embedding = nn.Embedding(5, 2)  # 9 is not a word: it is padding, and 0 here
    rows = packed.with_data(embedding(packed.data))
    expected = embedding.weight.data[[[1, 2], [3, 0], [4, 0]]]
    expected[1:, 1] = 0
    np.testing.assert_array_equal(rows.data.numpy(), expected)
    with pytest.raises(ShapeError, match=r"data \(2, 2\) replace data \(3, 2\)"):
        packed.with_data(packed.data[:2])


@pytest.mark.parametrize(
    ("lengths", "error", "text"),
    [
        ([3, 0, 1], AttributeValueError, "a length of 0"),
        ([7, 6, 1], AttributeValueError, "a length of 7(?s:.*)1 to 6 elements"),
        ([3, 2], ShapeError, "for a batch of 3"),
        ([3, 2, 4], AttributeValueError, r"\(3, 2, 4\) are not in descending order"),
        ([3.0, 2.0, 1.0], DTypeError, "not integers"),
    ],
)
def test_wrong_lengths(lengths: list[Any], error: type[Exception], text: str) -> None:
    for value in (lengths, nova.tensor(lengths)):
        with pytest.raises(error, match=f"pack_padded_sequence: (?s:.*){text}") as caught:
            rnn.pack_padded_sequence(X, value)
        assert __file__ in str(caught.value)


def test_wrong_data() -> None:
    packed = rnn.pack_padded_sequence(X, [6, 4, 2])
    with pytest.raises(AttributeValueError, match="total_length is 5, the data have 6 steps"):
        rnn.pad_packed_sequence(packed, total_length=5)
    with pytest.raises(DTypeError, match="Tensor is not a PackedSequence"):
        rnn.pad_packed_sequence(packed.data)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="LSTM: the input has shape"):
        nn.LSTM(4, 4)(packed)
    with pytest.raises(ShapeError, match="no axes of time and batch"):
        rnn.pack_padded_sequence(X[0, 0], [3])
    with pytest.raises(UnknownNameError, match="clip_norm"):
        nn.utils.clip_grad_norm_  # type: ignore[attr-defined]  # noqa: B018
