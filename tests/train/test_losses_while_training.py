"""Every loss, trained with for 50 steps against torch from the same state."""

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import nova
from nova import nn, optim

STEPS, ROWS, FEATURES, CLASSES = 50, 12, 5, 4
TOLERANCE = {"f4": 1e-5, "f8": 1e-10}


def numbers(rng, dtype):
    return rng.standard_normal((ROWS, CLASSES)).astype(dtype)


def shares(rng, dtype):
    return rng.dirichlet(np.ones(CLASSES), ROWS).astype(dtype)


def labels(rng, dtype):
    picked = rng.integers(0, CLASSES, ROWS)
    picked[0] = -100
    return picked


def signs(rng, dtype):
    return rng.choice([-1.0, 1.0], (ROWS, CLASSES)).astype(dtype)


# name: (loss in Nova, loss in torch, how targets are drawn)
LOSSES = {
    "mse": (nova.mse_loss, tf.mse_loss, numbers),
    "mse sum": (
        lambda y, t: nova.mse_loss(y, t, reduction="sum") / 100,
        lambda y, t: tf.mse_loss(y, t, reduction="sum") / 100,
        numbers,
    ),
    "mae": (nova.mae_loss, tf.l1_loss, numbers),
    "smooth l1": (
        lambda y, t: nova.smooth_l1_loss(y, t, beta=0.7),
        lambda y, t: tf.smooth_l1_loss(y, t, beta=0.7),
        numbers,
    ),
    "bce": (
        lambda y, t: nova.bce_loss(nova.sigmoid(y), t),
        lambda y, t: tf.binary_cross_entropy(torch.sigmoid(y), t),
        shares,
    ),
    "bce with logits": (
        nova.bce_with_logits_loss,
        tf.binary_cross_entropy_with_logits,
        shares,
    ),
    "cross entropy": (
        lambda y, t: nova.cross_entropy(y, t, label_smoothing=0.1),
        lambda y, t: tf.cross_entropy(y, t, label_smoothing=0.1),
        labels,
    ),
    "cross entropy, dense": (nova.cross_entropy, tf.cross_entropy, shares),
    "kl": (
        lambda y, t: nova.kl_div(nova.log_softmax(y), t, reduction="batchmean"),
        lambda y, t: tf.kl_div(tf.log_softmax(y, -1), t, reduction="batchmean"),
        shares,
    ),
    "hinge": (
        nova.hinge_loss,
        lambda y, t: torch.clamp(1 - y * t, min=0).mean(),
        signs,
    ),
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", LOSSES)
def test_fifty_steps_agree_with_torch(name, dtype):
    loss, torch_loss, draw = LOSSES[name]
    rng = np.random.default_rng(3)
    x = rng.standard_normal((ROWS, FEATURES)).astype(dtype)
    target = draw(rng, dtype)
    model = nn.Linear(FEATURES, CLASSES, dtype=np.dtype(dtype))
    twin = torch.nn.Linear(FEATURES, CLASSES, dtype=torch.tensor(x).dtype)
    model.load_state_dict({n: p.detach().numpy() for n, p in twin.named_parameters()})
    step = nova.train_step(
        model, lambda m, x, t: loss(m(x), t), optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    )
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.5)
    for _ in range(STEPS):
        actual = step(x, target)
        optimizer.zero_grad()
        want = torch_loss(twin(torch.tensor(x)), torch.tensor(target))
        want.backward()
        optimizer.step()
        np.testing.assert_allclose(actual, want.detach().numpy(), rtol=TOLERANCE[dtype], atol=0)
    for actual, want in zip(model.parameters(), twin.parameters(), strict=True):
        scale = np.abs(want.detach().numpy()).max()
        assert np.abs(actual.data - want.detach().numpy()).max() <= TOLERANCE[dtype] * scale
