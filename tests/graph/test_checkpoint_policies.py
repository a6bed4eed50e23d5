"""Policies of `nova.checkpoint`: same gradients as jax's, and the recomputation they leave."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import nova
from nova.errors import OptionTypeError

RNG = np.random.default_rng(1)
X, W, V = (RNG.standard_normal(s).astype("f4") for s in ((5, 4), (4, 6), (6, 3)))
policies = nova.checkpoint_policies


def block(lib: Any, name: Any) -> Any:
    def run(x: Any, w: Any, v: Any) -> Any:
        hidden = name(lib.tanh(x @ w), "hidden")
        return lib.sin(hidden @ v) * 2.0

    return run


def expected() -> Any:
    named = block(jnp, checkpoint_name)
    return jax.grad(lambda *a: named(*a).sum(), (0, 1, 2))(X, W, V)


# Policy -> matmuls and tanhs of the program of loss and gradients: 2 matmuls of the forward pass,
# 4 of the gradients, and those that are computed again.
COUNTS = {
    None: (8, 2),
    policies.nothing_saveable: (8, 2),
    policies.dots_saveable: (6, 2),
    policies.dots_with_no_batch_dims_saveable: (6, 2),
    policies.everything_saveable: (6, 1),
    policies.save_only_these_names("hidden"): (7, 1),
    policies.save_only_these_names("other"): (8, 2),
    policies.save_any_names_but_these("hidden"): (8, 2),
}


@pytest.mark.parametrize("position", range(len(COUNTS)))
def test_gradients_and_recomputation(position: int) -> None:
    policy, (matmuls, tanhs) = list(COUNTS.items())[position]
    run = nova.checkpoint(block(nova, nova.checkpoint_name), policy=policy)
    tensors = [
        nova.tensor(a, requires_grad=True, name=n) for a, n in zip((X, W, V), "xwv", strict=True)
    ]
    loss = run(*tensors).sum()
    nova.backward(loss)
    program = nova.compile([loss, *(t.grad for t in tensors)], inputs=tensors)
    for actual, right in zip(program.run([X, W, V])[1:], expected(), strict=True):
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-5)
    text = str(program.plan)
    assert (text.count("matmul("), text.count("tanh(")) == (matmuls, tanhs)
    # Nothing merges the copies with the originals.
    assert program.stages["linalg"].count("math.tanh") == tanhs


def test_as_a_decorator_in_a_training_step() -> None:
    model = nova.nn.Linear(4, 4)

    @nova.checkpoint(policy=policies.dots_saveable)
    def forward(x: Any) -> Any:
        return nova.tanh(model(x))

    step = nova.train_step(
        model,
        lambda m, x: forward(forward(x)).square().mean(),
        nova.optim.SGD(model.parameters(), 0.1),
    )
    first = float(step(X))
    assert float(step(X)) < first


def test_refusals() -> None:
    with pytest.raises(OptionTypeError, match="policy is a str"):
        nova.checkpoint(lambda x: x, policy="dots")
    with pytest.raises(OptionTypeError, match="checkpoint_name of a ndarray"):
        nova.checkpoint_name(X, "x")
