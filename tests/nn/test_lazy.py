"""Lazy modules against torch's: what they become, and what they refuse before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import ModuleError, ShapeError, UnknownKeywordError

RNG = np.random.default_rng(8)
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("LazyLinear", (5,), {"bias": False}, (2, 3, 7)),
    ("LazyConv1d", (4, 3), {"padding": 1}, (2, 6, 9)),
    ("LazyConv2d", (4, 3), {"groups": 2}, (2, 6, 9, 8)),
    ("LazyConv3d", (4, 2), {}, (1, 2, 4, 5, 3)),
    ("LazyConvTranspose1d", (4, 3), {}, (2, 6, 5)),
    ("LazyConvTranspose2d", (4, 3), {"stride": 2}, (1, 6, 4, 3)),
    ("LazyConvTranspose3d", (3, 2), {}, (1, 2, 3, 2, 3)),
    ("LazyBatchNorm1d", (), {}, (6, 3)),
    ("LazyBatchNorm2d", (), {"momentum": 0.3}, (2, 3, 4, 5)),
    ("LazyBatchNorm3d", (), {}, (2, 3, 2, 2, 3)),
    ("LazyInstanceNorm1d", (), {"affine": True}, (2, 3, 8)),
    ("LazyInstanceNorm2d", (), {}, (2, 3, 4, 5)),
    ("LazyInstanceNorm3d", (), {}, (2, 3, 2, 4, 3)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_as_torch(case: tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]) -> None:
    name, args, kwargs, shape = case
    x = RNG.standard_normal(shape).astype("f4")
    if "Instance" in name:  # torch's lazy ones have other defaults than the ordinary ones
        theirs = getattr(torch.nn, name.removeprefix("Lazy"))(shape[1], *args, **kwargs)
    else:
        theirs = getattr(torch.nn, name)(*args, **kwargs)
    theirs(torch.tensor(x))
    ours = getattr(nova.nn, name)(*args, **kwargs)
    with pytest.raises(ModuleError, match="has no parameters yet"):
        ours.parameters()
    ours(x)
    assert type(ours).__name__ == name.removeprefix("Lazy") == type(theirs).__name__
    state = {k: v.numpy() for k, v in theirs.state_dict().items()}
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in state.items()
    }
    ours.load_state_dict(state)
    expected = theirs.eval()(torch.tensor(x)).detach()
    np.testing.assert_allclose(ours.eval()(x).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_in_a_model_that_trains() -> None:
    model = nova.nn.Sequential(nova.nn.LazyLinear(4), nova.nn.ReLU(), nova.nn.LazyLinear(1))
    x = RNG.standard_normal((3, 6)).astype("f4")
    with pytest.raises(ModuleError, match="has no parameters yet"):
        nova.jit(model)(x)
    with pytest.raises(ModuleError, match="call the model once"):
        nova.optim.SGD(model.parameters(), 0.1)
    model.eval()
    model(x)
    assert not model[0].training
    model.train()
    step = nova.train_step(
        model, lambda m, x: m(x).square().mean(), nova.optim.SGD(model.parameters(), 0.01)
    )
    first = float(step(x))
    assert float(step(x)) < first


def test_refusals() -> None:
    with pytest.raises(UnknownKeywordError, match="biass"):
        nova.nn.LazyLinear(3, biass=False)
    with pytest.raises(ShapeError, match="has no axis -3"):
        nova.nn.LazyConv2d(3, 2)(np.ones((4, 4), "f4"))
