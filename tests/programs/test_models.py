"""Whole models, forward and backward in one compiled program, against torch from the same weights.

A two-layer MLP and a one-layer causal attention block: within 1e-5 relative in f32, 1e-12 in f64.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import nova

TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}


def weights(shapes, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(dtype)
        for name, shape in shapes.items()
    }


def compare(nova_loss, torch_loss, inputs, params, dtype, **knobs):
    """Loss and every gradient of `params`, relative to the largest element of each."""
    leaves = {n: nova.tensor(a, name=n) for n, a in inputs.items()}
    variables = {n: nova.tensor(a, name=n, requires_grad=True) for n, a in params.items()}
    with nova.knobs.override(**knobs):
        program = nova.compile(
            nova_loss(**leaves, **variables),
            inputs=list(leaves.values()),
            params=list(variables.values()),
            include_backward=True,
        )
    results = program.run(list(inputs.values()), list(params.values()))
    variables = {n: torch.tensor(a, requires_grad=True) for n, a in params.items()}
    loss = torch_loss(**{n: torch.tensor(a) for n, a in inputs.items()}, **variables)
    loss.backward()
    expected = [loss.detach(), *(v.grad for v in variables.values())]
    for name, actual, want in zip(["loss", *params], results, expected, strict=True):
        scale = np.abs(want.numpy()).max()
        error = np.abs(actual - want.numpy()).max() / scale
        assert error <= TOLERANCE[dtype], f"{name}: {error:.2e}"


# --- a two-layer MLP ------------------------------------------------------------------------------


def mlp_nova(x, labels, w1, b1, w2, b2):
    hidden = nova.gelu(x @ w1 + b1)
    return nova.cross_entropy(hidden @ w2 + b2, labels)


def mlp_torch(x, labels, w1, b1, w2, b2):
    hidden = tf.gelu(x @ w1 + b1)
    return tf.cross_entropy(hidden @ w2 + b2, labels)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("sizes", [(8, 16, 12, 10), (33, 70, 129, 10), (64, 200, 96, 17)])
def test_mlp_agrees_with_torch(dtype, sizes):
    batch, n_in, n_hidden, n_out = sizes
    rng = np.random.default_rng(1)
    inputs = {
        "x": rng.standard_normal((batch, n_in)).astype(dtype),
        "labels": rng.integers(0, n_out, batch),
    }
    shapes = {"w1": (n_in, n_hidden), "b1": (n_hidden,), "w2": (n_hidden, n_out), "b2": (n_out,)}
    compare(mlp_nova, mlp_torch, inputs, weights(shapes, dtype), dtype)


# --- a causal attention block ---------------------------------------------------------------------


def block_nova(x, wq, wk, wv, wo, g1, c1, w1, w2, heads=4):
    batch, length, width = x.shape

    def split(t):
        return t.reshape((batch, length, heads, width // heads)).permute((0, 2, 1, 3))

    h = nova.layer_norm(x, g1, c1)
    mixed = nova.scaled_dot_product_attention(
        split(h @ wq), split(h @ wk), split(h @ wv), causal=True
    )
    x = x + mixed.permute((0, 2, 1, 3)).reshape((batch, length, width)) @ wo
    x = x + nova.gelu(nova.rms_norm(x, eps=1e-5) @ w1, approximate="tanh") @ w2
    return (x * x).mean()


def block_torch(x, wq, wk, wv, wo, g1, c1, w1, w2, heads=4):
    batch, length, width = x.shape

    def split(t):
        return t.reshape(batch, length, heads, width // heads).permute(0, 2, 1, 3)

    h = tf.layer_norm(x, (width,), g1, c1)
    mixed = tf.scaled_dot_product_attention(
        split(h @ wq), split(h @ wk), split(h @ wv), is_causal=True
    )
    x = x + mixed.permute(0, 2, 1, 3).reshape(batch, length, width) @ wo
    x = x + tf.gelu(tf.rms_norm(x, (width,), eps=1e-5) @ w1, approximate="tanh") @ w2
    return (x * x).mean()


BLOCK_KNOBS = {"default": {}, "small tiles": {"serial_work": 0, "tile_work": 500}}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("knobs", BLOCK_KNOBS.values(), ids=BLOCK_KNOBS)
def test_attention_block_agrees_with_torch(dtype, knobs):
    width = 64
    rng = np.random.default_rng(2)
    inputs = {"x": rng.standard_normal((2, 24, width)).astype(dtype)}
    shapes = dict.fromkeys(("wq", "wk", "wv", "wo"), (width, width))
    shapes |= {"g1": (width,), "c1": (width,), "w1": (width, 4 * width), "w2": (4 * width, width)}
    compare(block_nova, block_torch, inputs, weights(shapes, dtype), dtype, **knobs)
