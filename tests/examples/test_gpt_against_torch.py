"""The GPT example against the same model in torch, from the same weights, over 12 steps.

Two layers of width 256, sequences of 128, batches of 4: loss and all gradients agree within 1e-4
relative in f32 at every step, while both train on their own.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as tf

import nova
from nova import nn, optim

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from gpt import GPT, Config

STEPS, BATCH, TOLERANCE = 12, 4, 1e-4
CONFIG = Config(layers=2)


def torch_loss(p, tokens, following):
    width, heads = CONFIG.width, CONFIG.heads
    batch, length = tokens.shape
    x = p["tokens.weight"][tokens] + p["positions.weight"][:length]
    for i in range(CONFIG.layers):
        b = f"blocks.{i}."
        h = tf.layer_norm(x, (width,), p[b + "norm1.weight"], p[b + "norm1.bias"])
        qkv = tf.linear(h, p[b + "attention.in_proj_weight"], p[b + "attention.in_proj_bias"])
        q, k, v = (
            t.reshape(batch, length, heads, width // heads).transpose(1, 2)
            for t in qkv.split(width, dim=-1)
        )
        mixed = tf.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        out = (p[b + "attention.out_proj.weight"], p[b + "attention.out_proj.bias"])
        x = x + tf.linear(mixed, *out)
        h = tf.layer_norm(x, (width,), p[b + "norm2.weight"], p[b + "norm2.bias"])
        h = tf.gelu(tf.linear(h, p[b + "up.weight"], p[b + "up.bias"]), approximate="tanh")
        x = x + tf.linear(h, p[b + "down.weight"], p[b + "down.bias"])
    x = tf.layer_norm(x, (width,), p["norm.weight"], p["norm.bias"])
    scores = x @ p["tokens.weight"].T
    return tf.cross_entropy(scores.reshape(-1, CONFIG.vocabulary), following.reshape(-1))


def test_loss_and_gradients_agree_while_training():
    nn.manual_seed(0)
    model = GPT(CONFIG)
    names, params = zip(*model.named_parameters(), strict=True)
    twins = {
        n: torch.tensor(p.data.copy(), requires_grad=True) for n, p in model.named_parameters()
    }
    tokens = nova.tensor(np.zeros((BATCH, CONFIG.context), np.int64), name="tokens")
    following = nova.tensor(np.zeros((BATCH, CONFIG.context), np.int64), name="following")
    inspect = nova.compile(
        model.loss(tokens, following),
        inputs=[tokens, following],
        params=params,
        include_backward=True,
    )
    step = nova.train_step(
        model, lambda m, x, y: m.loss(x, y), optim.SGD(params, lr=0.1, momentum=0.9)
    )
    twin_optimizer = torch.optim.SGD(twins.values(), lr=0.1, momentum=0.9)
    rng = np.random.default_rng(0)
    shape = (2, 2, BATCH, CONFIG.context)
    batches = rng.integers(0, CONFIG.vocabulary, shape)  # two of them, so that it can learn
    losses = []
    for number in range(STEPS):
        x, y = batches[number % 2]
        loss, *grads = inspect.run([x, y], [p.data for p in params])
        twin_optimizer.zero_grad()
        twin = torch_loss(twins, torch.tensor(x), torch.tensor(y))
        twin.backward()
        assert abs(loss - twin.item()) <= TOLERANCE * twin.item()
        for name, grad in zip(names, grads, strict=True):
            want = twins[name].grad.numpy()
            error = np.abs(grad - want).max() / np.abs(want).max()
            assert error <= TOLERANCE, f"step {number}, {name}: {error:.1e}"
        assert step(x, y) == loss
        twin_optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.1
