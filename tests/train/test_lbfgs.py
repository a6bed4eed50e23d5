"""`nova.optim.LBFGS` against torch.optim.LBFGS in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import AttributeValueError, OptionTypeError

RNG = np.random.default_rng(3)
X = RNG.standard_normal((20, 4))
Y = np.sin(X @ RNG.standard_normal((4, 2)))


def rosenbrock(x: Any) -> Any:
    return (1.0 - x[0]) ** 2 + 100.0 * (x[1] - x[0] ** 2) ** 2


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("history", [3, 100])
def test_model_as_torch(search: str | None, history: int) -> None:
    options: dict[str, Any] = {"lr": 0.5, "history_size": history, "line_search_fn": search}
    ours = nova.nn.Sequential(
        nova.nn.Linear(4, 5, dtype="f64"), nova.nn.Tanh(), nova.nn.Linear(5, 2, dtype="f64")
    )
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    theirs = theirs.double()
    theirs.load_state_dict({k: torch.tensor(v.copy()) for k, v in ours.state_dict().items()})
    optimizer = torch.optim.LBFGS(theirs.parameters(), max_iter=6, **options)
    solver = nova.optim.LBFGS(ours.parameters(), max_iter=6, **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(theirs(torch.tensor(X)), torch.tensor(Y))
        loss.backward()
        return loss

    def loss(x: Any, y: Any) -> Any:
        return nova.mse_loss(ours(x), y)

    for _ in range(6):
        np.testing.assert_allclose(
            solver.step(loss, X, Y), optimizer.step(closure).item(), rtol=1e-6
        )
    expected = theirs.state_dict()
    for name, value in ours.state_dict().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6)


def test_rosenbrock_as_torch() -> None:
    start = np.array([-1.2, 1.0])
    ours = nova.nn.Parameter(start)
    theirs = torch.tensor(start, requires_grad=True)
    options: dict[str, Any] = {"max_iter": 50, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS([theirs], **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = rosenbrock(theirs)
        loss.backward()
        return loss

    solver = nova.optim.LBFGS([ours], **options)
    for _ in range(2):
        optimizer.step(closure)
        solver.step(lambda: rosenbrock(ours))
    np.testing.assert_allclose(ours.data, theirs.detach(), rtol=1e-6)
    np.testing.assert_allclose(ours.data, [1, 1], rtol=1e-3)


def test_refusals() -> None:
    parameter = nova.nn.Parameter(np.zeros(2))
    with pytest.raises(AttributeValueError, match="line_search_fn 'armijo'"):
        nova.optim.LBFGS([parameter], line_search_fn="armijo")
    with pytest.raises(AttributeValueError, match="max_iter 0"):
        nova.optim.LBFGS([parameter], max_iter=0)
    with pytest.raises(OptionTypeError, match="params are parameters"):
        nova.optim.LBFGS([])
    with pytest.raises(OptionTypeError, match="one dtype"):
        nova.optim.LBFGS([parameter, nova.nn.Parameter(np.zeros(2, "f4"))])


@pytest.mark.parametrize("limits", [{"max_iter": 1}, {"max_iter": 5, "max_eval": 6}])
def test_a_search_has_the_evaluations_that_are_left(limits: dict[str, int]) -> None:
    options: dict[str, Any] = {"lr": 1e-3, "line_search_fn": "strong_wolfe", **limits}
    point = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    ours = nova.nn.Parameter(np.array([-1.2, 1.0]))
    optimizer, solver = torch.optim.LBFGS([point], **options), nova.optim.LBFGS([ours], **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = rosenbrock(point)
        loss.backward()
        return loss

    for _ in range(4):
        np.testing.assert_allclose(
            solver.step(lambda: rosenbrock(ours)), optimizer.step(closure).item(), rtol=1e-7
        )
    np.testing.assert_allclose(ours.data, point.detach().numpy(), rtol=1e-7)
