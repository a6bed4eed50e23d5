"""Attention of packed sequences on CPUs, against torch with a block-diagonal mask."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from processors import runs_here
from segment_attention import check_segments, reference, sample_ids

import nova
from nova import nn
from nova.graph.autodiff import gradients
from nova.ops import F
from nova.ops.attention.segments import segment_ranges

_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("type_", "batch", "sizes", "order", "options"),
    [
        pytest.param("f32", (2, 3), (170, 170, 16, 8), "sorted", {}, marks=_SLOW),
        ("f32", (2, 2), (300, 300, 64, 64), "padded", {"causal": True}),
        pytest.param("f64", (2,), (17, 150, 8, 8), "any", {"mask": "bool"}, marks=_SLOW),
        pytest.param("f32", (3,), (33, 20, 5, 3), "sorted", {"mask": "float"}, marks=_SLOW),
        ("f32", (2, 4), (90, 90, 8, 8), "padded", {"shared": (2, 1), "dropout": 0.3}),
        pytest.param("bf16", (2,), (70, 133, 8, 8), "any", {"causal": True}, marks=_SLOW),
        pytest.param("f32", (1, 2), (700, 700, 64, 64), "sorted", {"causal": True}, marks=_SLOW),
        pytest.param("f32", (1,), (900, 300, 32, 64), "any", {"dropout": 0.2}, marks=_SLOW),
    ],
)
@pytest.mark.parametrize(
    "target", ["cpu", *(pytest.param(t, marks=_SLOW) for t in ("x86_64",) if runs_here(t))]
)
def test_against_torch(
    type_: str, batch: Any, sizes: Any, order: str, options: dict[str, Any], target: str
) -> None:
    rng = np.random.default_rng(0)
    masks = {"bool": rng.random(sizes[:2]) < 0.7, "float": rng.standard_normal(sizes[:2])}
    if "mask" in options:
        options = {**options, "mask": masks[options["mask"]]}
    ids = [sample_ids(order, batch[0], length) for length in sizes[:2]]
    check_segments(type_, batch, sizes, (ids[0], ids[1]), target=target, **options)


def test_ranges() -> None:
    ids = np.array([[1, 1, 2, 4, 4, 0], [-3, -3, 0, 0, 7, 9], [1, 2, 1, 3, 3, 3]], "i4")
    others = np.array([[1, 2, 2, 4, 5, -1, 0], [-3, 0, 0, 1, 2, 9, 9], [1, 2, 3, 4, 5, 6, 7]], "i4")
    begin, end = (x.numpy() for x in segment_ranges(F, nova.tensor(ids), nova.tensor(others)))
    for row in range(2):
        for id_, low, high in zip(ids[row], begin[row], end[row], strict=True):
            equal = np.flatnonzero(others[row] == id_)
            assert list(equal) == list(range(low, high))
    assert (begin[2] == -1).all() and (end[2] >= others.shape[1]).all()
    assert (np.diff(begin) >= 0).all() and (np.diff(end) >= 0).all()


def test_rows_without_keys_are_zeros() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (nova.tensor(rng.standard_normal((2, 40, 8)).astype("f4")) for _ in range(3))
    rows, keys = np.repeat([[1, 2]], 20, axis=1), np.repeat([[1, 3]], 20, axis=1)
    pair = tuple(nova.tensor(np.broadcast_to(x, (2, 40)).copy()) for x in (rows, keys))
    out = nova.attention(q, k, v, segment_ids=pair)
    slopes = gradients(nova.sum(out * out), [q, k, v])
    results = [x.numpy() for x in (out, *slopes)]
    for x in results[:2]:
        assert (x[:, 20:] == 0).all() and np.isfinite(x).all() and (x[:, :20] != 0).any()
    for x in results[2:]:
        assert (x[:, 20:] == 0).all() and np.isfinite(x).all() and (x[:, :20] != 0).any()


def test_finite_differences() -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal((2, 6, 4)) for _ in range(3)]
    mask = rng.standard_normal((6, 6))
    leaves = [nova.tensor(a) for a in (*arrays, mask)]
    ids = nova.tensor(np.array([1, 1, 1, 2, 2, 0]))
    out = nova.attention(*leaves, causal=True, segment_ids=ids)
    loss = nova.sum(nova.sin(out))
    program = nova.compile([loss, *gradients(loss, leaves)], inputs=leaves)
    points = [*arrays, mask]
    _, *slopes = program.run(points)
    for number, slope in enumerate(slopes):
        direction = rng.standard_normal(slope.shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = [a + step * direction if n == number else a for n, a in enumerate(points)]
            ends.append(float(program.run(moved)[0]))
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float((slope * direction).sum()), 1e-6)


def test_packed_sequences_equal_separate_ones() -> None:
    """Several sequences in one row, by cumulative lengths, give the results of each alone."""
    rng = np.random.default_rng(3)
    lengths = [5, 40, 1, 18]
    ends = np.cumsum([0, *lengths])
    q, k, v = (rng.standard_normal((2, 70, 16)).astype("f4") for _ in range(3))
    ids = nova.segment_ids(ends, 70)
    assert list(ids.numpy()) == [1] * 5 + [2] * 40 + [3] + [4] * 18 + [5] * 6
    packed = nova.attention(*map(nova.tensor, (q, k, v)), causal=True, segment_ids=ids).numpy()
    for low, high in pairwise(ends):
        parts = (nova.tensor(x[:, low:high].copy()) for x in (q, k, v))
        alone = nova.attention(*parts, causal=True).numpy()
        np.testing.assert_allclose(packed[:, low:high], alone, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda:sm_80", marks=_SLOW)])
def test_symbolic_length(target: str) -> None:
    """One program for every number of positions, with its gradients."""
    length = nova.dim("S", max=2048)
    q, k, v, g = leaves = [nova.input((2, 2, length, 16), "f32") for _ in range(4)]
    ids = nova.input((2, length), "i32")
    out = nova.attention(q, k, v, causal=True, segment_ids=ids)
    outputs = [out, *gradients(out, [q, k, v], g)]
    mode = "native" if target == "cpu" else "sim"
    program = nova.compile(outputs, inputs=[*leaves, ids], target=target, run_mode=mode)
    rng = np.random.default_rng(0)
    for size in (1, 17, 70, 300) if target == "cpu" else (40, 150):
        arrays = [rng.standard_normal((2, 2, size, 16)).astype("f4") for _ in range(4)]
        numbers = sample_ids("padded", 2, size)
        same = np.repeat((numbers[:, :, None] == numbers[:, None])[:, None], 2, axis=1)
        wanted = reference(arrays, same, True, None, 0.0)
        for a, b in zip(program.run([*arrays, numbers]), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a, np.float64), b, atol=2e-5, rtol=2e-5)


def test_layer() -> None:
    """A layer with ids computes for each sequence what it computes for it alone."""
    nn.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, causal=True)
    x = np.random.default_rng(4).standard_normal((2, 30, 16)).astype("f4")
    ids = nova.segment_ids(np.array([0, 12, 30]), 30)
    packed = layer(nova.tensor(x), segment_ids=ids).numpy()
    alone = layer(nova.tensor(x[:, 12:].copy())).numpy()
    np.testing.assert_allclose(packed[:, 12:], alone, rtol=2e-5, atol=2e-6)


def test_bad_ids() -> None:
    q = nova.ones((2, 3, 5, 4))
    for ids, error, text in (
        (np.zeros((2, 4), int), nova.errors.ShapeError, "segment ids .* of the queries"),
        (np.zeros((2, 3, 1, 5), int), nova.errors.ShapeError, "segment ids"),
        (np.zeros(5), nova.errors.DTypeError, "segment ids of f64"),
        (np.zeros((3, 5), int), nova.errors.ShapeError, "broadcast"),
    ):
        with pytest.raises(error, match=text):
            nova.attention(q, q, q, segment_ids=nova.tensor(ids))
    with pytest.raises(nova.errors.ShapeError, match="cu_seqlens"):
        nova.segment_ids(np.zeros((2, 2), int), 4)
