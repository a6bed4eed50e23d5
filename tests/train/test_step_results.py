"""Auxiliary results, gradient norms, several optimizers and evaluation of a training step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.errors import GradientError, GraphError

RNG = np.random.default_rng(6)
X = RNG.standard_normal((5, 6)).astype("f4")
Y = RNG.standard_normal((5, 3)).astype("f4")
SIM = {"target": "cuda:sm_80", "run_mode": "sim"}


def make_model() -> nn.Module:
    nn.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def with_metrics(model: Any, x: Any, y: Any) -> Any:
    out = model(x)
    return nova.mse_loss(out, y), {"out": out, "stats": (out.mean(), nova.argmax(out, axis=1))}


def plain_loss(model: Any, x: Any, y: Any) -> Any:
    return nova.mse_loss(model(x), y)


def as_torch(model: nn.Module) -> torch.nn.Module:
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    theirs.load_state_dict({n: torch.tensor(a) for n, a in model.state_dict().items()})
    return theirs


@pytest.mark.parametrize("options", [{}, SIM], ids=["cpu", "sim"])
def test_auxiliary_results_and_norms(options: dict[str, Any]) -> None:
    model = make_model()
    theirs = as_torch(model)
    step = nova.train_step(
        model,
        with_metrics,
        optim.SGD(model.parameters(), 0.1, clip_norm=0.01),
        has_aux=True,
        grad_norm=True,
        **options,
    )
    for _ in range(2):
        out = theirs(torch.tensor(X))
        theirs.zero_grad()
        loss = torch.nn.functional.mse_loss(out, torch.tensor(Y))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.01)
        with torch.no_grad():
            for p in theirs.parameters():
                p -= 0.1 * p.grad
        value, aux = step(X, Y)
        np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
        np.testing.assert_allclose(aux["out"], out.detach().numpy(), rtol=1e-4, atol=1e-6)
        mean, best = aux["stats"]
        np.testing.assert_allclose(mean, out.mean().item(), rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(best, out.argmax(1).numpy())
        np.testing.assert_allclose(step.state["grad_norm"], norm.item(), rtol=1e-4)


def test_two_optimizers_as_torch() -> None:
    model = make_model()
    theirs = as_torch(model)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim == 1]
    step = nova.train_step(
        model, plain_loss, [optim.AdamW(matrices, 0.02), optim.SGD(others, 0.1, momentum=0.9)]
    )
    both = [
        torch.optim.AdamW([p for p in theirs.parameters() if p.ndim == 2], 0.02),
        torch.optim.SGD([p for p in theirs.parameters() if p.ndim == 1], 0.1, momentum=0.9),
    ]
    for _ in range(10):
        loss = torch.nn.functional.mse_loss(theirs(torch.tensor(X)), torch.tensor(Y))
        theirs.zero_grad()
        loss.backward()
        for optimizer in both:
            optimizer.step()
        np.testing.assert_allclose(step(X, Y), loss.item(), rtol=1e-4)
    assert int(step.state["optimizer.0.step"]) == int(step.state["optimizer.1.step"]) == 10
    assert "optimizer.1.momentum_buffer.0" in step.state
    saved = {n: a.copy() for n, a in step.state_dict().items()}
    other = make_model()
    again = nova.train_step(
        other,
        plain_loss,
        [
            optim.AdamW([p for p in other.parameters() if p.ndim == 2], 0.02),
            optim.SGD([p for p in other.parameters() if p.ndim == 1], 0.1, momentum=0.9),
        ],
    )
    again.load_state_dict(saved)
    np.testing.assert_array_equal(again(X, Y), step(X, Y))


def test_two_models_trained_against_each_other() -> None:
    """A GAN: two steps, each of which reads the other model's parameters at every call."""
    nn.manual_seed(3)
    maker, judge = nn.Linear(2, 6), nn.Linear(6, 1)
    noise = RNG.standard_normal((5, 2)).astype("f4")
    judge_step = nova.train_step(
        judge,
        lambda m, z, x: nova.softplus(m(maker(z).detach())).mean() + nova.softplus(-m(x)).mean(),
        optim.SGD(judge.parameters(), 0.1),
    )
    maker_step = nova.train_step(
        maker, lambda m, z: nova.softplus(-judge(m(z))).mean(), optim.SGD(maker.parameters(), 0.1)
    )
    ours = []
    theirs = [torch.nn.Linear(2, 6), torch.nn.Linear(6, 1)]
    for a, b in zip(theirs, (maker, judge), strict=True):
        a.load_state_dict({n: torch.tensor(v) for n, v in b.state_dict().items()})
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in theirs]
    z, x, plus = torch.tensor(noise), torch.tensor(X), torch.nn.functional.softplus
    for _ in range(5):
        ours += [float(judge_step(noise, X)), float(maker_step(noise))]
        expected = []
        for i in (1, 0):
            for optimizer in optimizers:
                optimizer.zero_grad()
            if i:
                loss = plus(theirs[1](theirs[0](z).detach())).mean() + plus(-theirs[1](x)).mean()
            else:
                loss = plus(-theirs[1](theirs[0](z))).mean()
            loss.backward()
            optimizers[i].step()
            expected.append(loss.item())
        np.testing.assert_allclose(ours[-2:], expected, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, SIM], ids=["cpu", "sim"])
def test_evaluation_changes_nothing(options: dict[str, Any]) -> None:
    nn.manual_seed(4)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    step = nova.train_step(model, plain_loss, optim.SGD(model.parameters(), 0.1), **options)
    step(X, Y)
    before = {n: np.array(a) for n, a in step.state_dict().items()}
    first, second = step.evaluate(X, Y), step.evaluate(X, Y)
    assert model.training
    np.testing.assert_array_equal(first, second)
    expected = np.mean((model.eval()(X).numpy() - Y) ** 2)
    np.testing.assert_allclose(first, expected, rtol=1e-4)
    assert all(np.array_equal(before[n], a) for n, a in step.state_dict().items())


def test_mistakes() -> None:
    model = make_model()
    step = nova.train_step(model, plain_loss, optim.SGD(model.parameters()), has_aux=True)
    with pytest.raises(GradientError, match="return a pair"):
        step(X, Y)
    with pytest.raises(GraphError, match="two optimizers have the parameter '0'"):
        nova.train_step(
            model, plain_loss, [optim.SGD(model.parameters()), optim.Adam(model.parameters())]
        )
    with pytest.raises(GraphError, match="are not optimizers"):
        nova.train_step(model, plain_loss, [optim.SGD(model.parameters()), 3])  # type: ignore[list-item]
