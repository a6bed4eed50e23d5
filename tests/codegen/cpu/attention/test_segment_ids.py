"""What `segment_ids` may be: types, ranks, pairs and errors, against torch's attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    NovaError,
    ShapeError,
    UnknownKeywordError,
)
from nova.graph.autodiff import gradients

_SLOW = pytest.mark.slow
_WIDE = 2**32
_RNG = np.random.default_rng(0)
_Q, _K, _V = (_RNG.standard_normal((2, 6, 8)).astype("f4") for _ in range(3))


def _torch(arrays: Any, rows: Any, keys: Any = None) -> np.ndarray:
    """torch's attention with a block-diagonal mask; `rows` and `keys` have all batch axes."""
    rows, keys = np.asarray(rows), np.asarray(rows if keys is None else keys)
    mask = torch.from_numpy(rows[..., :, None] == keys[..., None, :])
    tensors = [torch.from_numpy(np.asarray(a)) for a in arrays]
    return torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=mask).numpy()


def _assert_close(actual: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


_WIDE_IDS = {
    "sorted": np.array([1, 1, 1, _WIDE + 1, _WIDE + 1, 2 * _WIDE + 1]),
    "any": np.array([5, _WIDE + 5, 5, -_WIDE + 5, _WIDE + 5, 7]),
    "limits": np.array([-(2**63), 0, 2**63 - 1, -1, -(2**63), _WIDE - 1]),
    "u64": np.array([1, 1, 2**31, 2**63, 2**63, 2**64 - 1], "u8"),
}


@pytest.mark.parametrize("name", _WIDE_IDS)
def test_wide_ids(name: str) -> None:
    """Ids whose low words are equal are not: as an input, a tensor, an array and a list."""
    ids = _WIDE_IDS[name]
    expected = _torch((_Q, _K, _V), ids)
    leaves = [nova.tensor(a) for a in (_Q, _K, _V, ids)]
    out = nova.attention(*leaves[:3], segment_ids=leaves[3])
    _assert_close(nova.compile(out, inputs=leaves)(_Q, _K, _V, ids), expected)
    for each in (ids, [*ids]):
        _assert_close(nova.attention(_Q, _K, _V, segment_ids=each).numpy(), expected)


@pytest.mark.parametrize(
    ("target", "is_symbolic"),
    [
        ("cpu", False),
        ("cpu", True),
        *(
            pytest.param(target, is_symbolic, marks=_SLOW)
            for target in ("cuda:sm_80", "cuda:sm_90a")
            for is_symbolic in (False, True)
        ),
    ],
)
def test_wide_ids_and_gradients(target: str, is_symbolic: bool) -> None:
    """A pair of different lengths, with ids of rows that no key has, and the gradients."""
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((2, n, 8)).astype("f4") for n in (40, 70, 70, 40)]
    rows, keys = (rng.integers(0, 5, (2, n)) * _WIDE + n % 3 for n in (40, 70))
    keys[keys == keys.max()] = 3
    sizes = [nova.dim(n, max=128) for n in "SJ"] if is_symbolic else [40, 70]
    q, k, v, g = (nova.input((2, sizes[n], 8)) for n in (0, 1, 1, 0))
    ids = tuple(nova.input((2, n), "i64") for n in sizes)
    out = nova.attention(q, k, v, segment_ids=ids)
    mode = "native" if target == "cpu" else "sim"
    outputs = [out, *gradients(out, [q, k, v], g)]
    program = nova.compile(outputs, inputs=[q, k, v, g, *ids], target=target, run_mode=mode)
    actual = program.run([*arrays, rows, keys])
    tensors = [torch.from_numpy(a).requires_grad_() for a in arrays]
    mask = torch.from_numpy(rows[:, :, None] == keys[:, None])
    assert not mask.any(-1).all()
    result = torch.nn.functional.scaled_dot_product_attention(*tensors[:3], attn_mask=mask)
    slopes = torch.autograd.grad(result, tensors[:3], tensors[3])
    for a, b in zip(actual, (result, *slopes), strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=2e-4, atol=2e-5)


def test_ids_of_two_types() -> None:
    """-1 as i32 and 2**32 - 1 as u32 have the same bits."""
    rows = np.array([-1, -1, 3, 3, 4, 4], "i4")
    keys = np.array([_WIDE - 1, 3, 3, 4, 4, 4], "u4")
    out = nova.attention(_Q, _K, _V, segment_ids=(nova.tensor(rows), nova.tensor(keys)))
    _assert_close(out.numpy(), _torch((_Q, _K, _V), rows.astype("i8"), keys.astype("i8")))
    wide = tuple(nova.tensor(np.zeros(6, type_)) for type_ in ("i8", "u8"))
    with pytest.raises(DTypeError, match="i64 and u64"):
        nova.attention(_Q, _K, _V, segment_ids=wide)


def test_only_a_tuple_is_a_pair() -> None:
    rows = [[1, 1, 1, 2, 2, 2], [1, 2, 2, 2, 2, 2]]
    as_list = nova.attention(_Q, _K, _V, segment_ids=rows).numpy()
    _assert_close(as_list, _torch((_Q, _K, _V), rows))
    as_pair = nova.attention(_Q, _K, _V, segment_ids=(rows[0], rows[1])).numpy()
    _assert_close(as_pair, _torch((_Q, _K, _V), rows[0], rows[1]))


@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("shared", ["keys", "queries"])
def test_operands_with_fewer_batch_axes(heads: int, shared: str) -> None:
    """Ids (B, S) belong to the first batch axis of the result, also if one operand lacks it."""
    rng = np.random.default_rng(heads)
    many = rng.standard_normal((2, heads, 6, 8)).astype("f4")
    few = rng.standard_normal((heads, 6, 8)).astype("f4")
    operands = (many, few, few) if shared == "keys" else (few, many, many)
    ids = np.array([[1, 1, 1, 2, 2, 2], [1, 2, 2, 2, 2, 2]])
    expanded = [np.broadcast_to(a, many.shape).copy() for a in operands]
    expected = _torch(expanded, ids[:, None])
    for segment_ids in (ids, nova.tensor(ids), (ids, ids)):
        _assert_close(nova.attention(*operands, segment_ids=segment_ids).numpy(), expected)


def test_grouped_queries_of_a_batch() -> None:
    """4 query heads over 2 key heads; the ids of each row come from its cumulative lengths."""
    rng = np.random.default_rng(5)
    q = rng.standard_normal((2, 4, 6, 8)).astype("f4")
    k, v = (rng.standard_normal((2, 2, 6, 8)).astype("f4") for _ in range(2))
    ids = nova.stack([nova.segment_ids(cu, 6) for cu in ([0, 2, 6], [0, 3, 5])])
    grouped = (q.reshape(2, 2, 2, 6, 8), k[:, :, None], v[:, :, None])
    out = nova.attention(*grouped, segment_ids=ids).numpy().reshape(q.shape)
    numbers = np.array([[1, 1, 2, 2, 2, 2], [1, 1, 1, 2, 2, 3]])[:, None]
    _assert_close(out, _torch((q, *(np.repeat(x, 2, axis=1) for x in (k, v))), numbers))


def test_torch_tensors() -> None:
    ids = torch.tensor([1, 1, 2, 2, 2, 3])
    operands = [torch.from_numpy(a) for a in (_Q, _K, _V)]
    out = nova.attention(*operands, segment_ids=ids).numpy()
    _assert_close(out, _torch((_Q, _K, _V), ids.numpy()))
    cu = torch.tensor([0, 2, 5], dtype=torch.int32)
    assert list(nova.segment_ids(cu, 6).numpy()) == list(ids)


@pytest.mark.parametrize(
    ("segment_ids", "error", "text"),
    [
        ((None, np.zeros(6, int)), ArgumentTypeError, "segment_ids of the queries, .* NoneType"),
        ((np.zeros(6, int), None), ArgumentTypeError, "segment_ids of the keys, .* NoneType"),
        ("ab", ArgumentTypeError, "attention: segment_ids .* str"),
        (object(), ArgumentTypeError, "attention: segment_ids .* object"),
        ([[1, 2], [1]], ArgumentTypeError, "attention: segment_ids .* list"),
        (3, ShapeError, r"attention: segment ids \(\) of the queries"),
    ],
)
def test_bad_ids(segment_ids: Any, error: type[NovaError], text: str) -> None:
    with pytest.raises(error, match=f"{text}(.|\n)*test_segment_ids.py(.|\n)*hint: .*tuple"):
        nova.attention(_Q, _K, _V, segment_ids=segment_ids)


@pytest.mark.parametrize("shape", [(), (8,)])
def test_operands_without_rows(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, "f4")
    for options in ({}, {"segment_ids": np.zeros(6, int)}):
        with pytest.raises(ShapeError, match=r"attention: q .*(.|\n)*q is \(..., L, E\)"):
            nova.attention(x, x, x, **options)


@pytest.mark.parametrize(
    ("cu", "length", "text"),
    [
        ([3, 4, 2], 9, "starts with 3, not 0(.|\n)*cumsum"),
        ([0, 4, 2], 9, "decreases from 4 to 2 at index 2"),
        ([0, 4, 10], 9, "ends at 10, after the 9 positions"),
        (np.array([0, 2**40]), 9, "ends at 1099511627776"),
        (np.array([], int), 9, "is empty"),
        (torch.tensor([2, 4]), 9, "starts with 2"),
        ([0, 4], -1, "length is -1"),
        ([0, 4], 4.0, "length must be an int, not 4.0"),
        ([0, 4], None, "length must be an int, not None"),
    ],
)
def test_bad_lengths(cu: Any, length: Any, text: str) -> None:
    with pytest.raises(AttributeValueError, match=f"segment_ids: .*{text}"):
        nova.segment_ids(cu, length)


def test_bad_cumulative_lengths() -> None:
    for value in ("ab", None, object()):
        with pytest.raises(ArgumentTypeError, match=r"cu_seqlens, .*\n.*\n.*cumulative"):
            nova.segment_ids(value, 4)
    # Sequences may be empty, and padding may follow the last one.
    assert list(nova.segment_ids([0, 2, 2, 3], 5).numpy()) == [1, 1, 3, 4, 4]


def test_hint_names_the_function() -> None:
    with pytest.raises(UnknownKeywordError, match=r"mask, causal, scale; nova\.attention takes"):
        nova.scaled_dot_product_attention(_Q, _K, _V, segment_ids=np.zeros(6, int))
