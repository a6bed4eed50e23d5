"""Attention by its schedules: right at every size around a block or panel, on every target.

The reference is torch in f64, written out; a program that is compiled says whether it kept the
attention whole, and how much memory it needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from nightly import each_value
from processors import runs_here

import nova
from nova import knobs
from nova.graph.autodiff import gradients

TOLERANCE = {np.float32: 4e-5, np.float64: 1e-12}


def reference(arrays: list[np.ndarray], g: np.ndarray, mask: Any, causal: bool) -> list[np.ndarray]:
    """The result and the gradients of q, k and v, in f64."""
    q, k, v = (torch.from_numpy(a.astype(np.float64)).requires_grad_() for a in arrays)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        tensor = torch.from_numpy(mask)
        is_bool = mask.dtype == bool
        scores = scores.masked_fill(~tensor, -torch.inf) if is_bool else scores + tensor
    if causal:
        past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~past, -torch.inf)
    observed = (scores > -torch.inf).any(-1, keepdim=True)
    weights = torch.where(observed, torch.where(observed, scores, 0.0).softmax(-1), 0.0)
    out = weights @ v
    result = torch.autograd.grad(out, (q, k, v), torch.from_numpy(g.astype(np.float64)))
    return [t.detach().numpy() for t in (out, *result)]


def build(
    arrays: list[np.ndarray], g: np.ndarray, mask: Any, causal: bool, target: str
) -> tuple[Any, list[np.ndarray]]:
    """The program of the result and the gradients, and its inputs."""
    q, k, v = (nova.tensor(a, requires_grad=True) for a in arrays)
    inputs, arguments = [q, k, v, nova.tensor(g)], [*arrays, g]
    if mask is not None:
        inputs.append(nova.tensor(mask))
        arguments.append(mask)
    out = nova.scaled_dot_product_attention(q, k, v, *inputs[4:], causal=causal)
    outputs = [out, *gradients(out, [q, k, v], inputs[3])]
    return nova.compile(outputs, inputs=inputs, target=target), arguments


def check(
    batch: tuple[int, ...],
    rows: int,
    keys: int,
    features: tuple[int, int] = (8, 8),
    mask: str = "",
    causal: bool = False,
    target: str = "cpu",
    dtype: Any = np.float32,
) -> Any:
    rng = np.random.default_rng(rows * 1000 + keys)
    shapes = ((rows, features[0]), (keys, features[0]), (keys, features[1]), (rows, features[1]))
    *arrays, g = (rng.standard_normal((*batch, *s)).astype(dtype) for s in shapes)
    hidden: Any = None
    if mask == "bool":
        hidden = rng.random((*batch[:1], *(1,) * len(batch[1:]), rows, keys)) > 0.4
        hidden[..., 0, :] = False  # a row with nothing to see
    elif mask == "float":
        hidden = rng.standard_normal((rows, keys)).astype(dtype)
    program, inputs = build(arrays, g, hidden, causal, target)
    text = program.stages["linalg"]
    assert "nova.attend_point" in text and "nova.attend_gradient_point" in text
    for actual, want in zip(program.run(inputs), reference(arrays, g, hidden, causal), strict=True):
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(actual, want, rtol=0, atol=TOLERANCE[dtype] * scale)
    return program


@pytest.mark.parametrize(
    ("variant", "sizes"),
    each_value(
        [
            (target, causal)
            for target, causal in (
                *(("cpu", False), ("cpu", True), ("x86_64-v3", True), ("x86_64", False)),
            )
            if runs_here(target)
        ],
        [(1, 1), (5, 5), (16, 16), (63, 65), (64, 64), (65, 63), (128, 129), (1, 130), (130, 7)],
    ),
    ids=str,
)
def test_sizes(variant, sizes):
    target, causal = variant
    check((2, 3), *sizes, causal=causal, target=target)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("features", [(5, 3), (16, 33), (64, 64), (128, 128), (256, 1)])
def test_features(features, causal):
    check((3,), 33, 70, features, causal=causal)


@pytest.mark.parametrize(
    ("target", "causal"),
    [
        (target, causal)
        for target, causal in (("cpu", False), ("x86_64-v3", True), ("x86_64", False))
        if runs_here(target)
    ],
)
@pytest.mark.parametrize("mask", ["bool", "float"])
def test_masks(mask, causal, target):
    check((2, 3), 65, 130, (16, 16), mask, causal, target)


@pytest.mark.parametrize("causal", [False, True])
def test_many_blocks(causal):
    """One batch of many rows: the gradient of q is cut along its rows, the others along theirs."""
    program = check((1, 1), 257, 300, (64, 64), causal=causal)
    # Two results a row, of a matrix that nobody stores: not even for one head.
    assert program.workspace_size < 257 * 300 * 4 // 4


@pytest.mark.parametrize("causal", [False, True])
def test_double_precision(causal):
    check((1, 3), 65, 70, (24, 40), causal=causal, dtype=np.float64)


def test_heads_are_read_where_they_lie():
    """No copy of a head before, none of the result behind: the workspace is the logsumexp."""
    batch, rows, heads, features = 2, 17, 3, 8
    x = np.random.default_rng(0).standard_normal((batch, rows, 3 * heads * features), np.float32)
    qkv = nova.tensor(x)
    q, k, v = (
        nova.swapaxes(nova.reshape(t, (batch, rows, heads, features)), 1, 2)
        for t in nova.split(qkv, 3, axis=-1)
    )
    out = nova.scaled_dot_product_attention(q, k, v)
    program = nova.compile(nova.flatten(nova.swapaxes(out, 1, 2), -2, -1), inputs=[qkv])
    assert len(program.kernels) == 1
    assert program.workspace_size == 0
    parts = [np.moveaxis(p.reshape(batch, rows, heads, features), 2, 1) for p in np.split(x, 3, -1)]
    want = reference(parts, np.zeros((batch, heads, rows, features)), None, False)[0]
    want = np.moveaxis(want, 1, 2).reshape(batch, rows, heads * features)
    np.testing.assert_allclose(program.run([x]), want, rtol=0, atol=4e-5)


@pytest.mark.parametrize(
    ("shapes", "whole"),
    [
        (((2, 5, 256), (2, 7, 256), (2, 7, 4)), True),
        (((2, 5, 257), (2, 7, 257), (2, 7, 4)), False),
        (((2, 5, 4), (2, 0, 4), (2, 0, 4)), False),
        (((2, 3, 5, 4), (2, 1, 7, 4), (7, 4)), True),
    ],
)
def test_what_is_kept_whole(shapes, whole):
    tensors = [nova.tensor(np.ones(s, np.float32)) for s in shapes]
    program = nova.compile(nova.scaled_dot_product_attention(*tensors), inputs=tensors)
    assert ("nova.attend_point" in program.stages["linalg"]) == whole


def test_gradients_of_shared_keys_are_summed():
    """The gradients of each head are one op; those of keys that heads share are added."""
    rng = np.random.default_rng(4)
    arrays = [
        rng.standard_normal(s, np.float32) for s in ((2, 3, 5, 4), (2, 1, 7, 4), (2, 1, 7, 4))
    ]
    weight = rng.standard_normal((2, 3, 5, 4), np.float32)

    def run(operands):
        tensors = [nova.tensor(a, requires_grad=True) for a in operands]
        out = nova.scaled_dot_product_attention(*tensors, causal=True)
        outputs = gradients(nova.sum(out * weight), tensors)
        program = nova.compile(outputs, inputs=tensors)
        assert "nova.attend_gradient_point" in program.stages["linalg"]
        return program.run(operands)

    shared = run(arrays)
    q, k, v = run([np.broadcast_to(a, (2, 3, *a.shape[2:])).copy() for a in arrays])
    np.testing.assert_allclose(shared[0], q, atol=1e-6)
    for actual, each in zip(shared[1:], (k, v), strict=True):
        np.testing.assert_allclose(actual, each.sum(1, keepdims=True), atol=2e-6)


@pytest.mark.parametrize("rows", [65, 300])
def test_threads_give_the_same_bits(rows):
    rng = np.random.default_rng(0)
    *arrays, g = (rng.standard_normal((1, 3, rows, 16), np.float32) for _ in range(4))
    with knobs.override(task_ns=1000):
        program, inputs = build(arrays, g, None, True, "cpu")
    with knobs.override(threads=1):
        alone = program.run(inputs)
    for threads in (2, 5):
        with knobs.override(threads=threads):
            for actual, want in zip(program.run(inputs), alone, strict=True):
                np.testing.assert_array_equal(actual, want)
