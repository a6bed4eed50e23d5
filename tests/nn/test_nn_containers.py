"""Named containers, registration of parts by name, `apply` and hooks, as torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.errors import AxisError, ModuleError

X = np.arange(6, dtype="f4").reshape(2, 3)


class Routed(nn.Module):
    def __init__(self) -> None:
        self.routes = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(3, 4, bias=False)})
        self.scales = nn.ParameterList([np.ones(4, "f4"), nn.Parameter(np.full(4, 2.0, "f4"))])
        self.shifts = nn.ParameterDict({"up": np.full(4, 0.5, "f4")})

    def forward(self, x):
        total = self.routes["a"](x) * self.scales[0] + self.routes["b"](x) * self.scales[-1]
        return total + self.shifts["up"]


class TorchRouted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.routes = torch.nn.ModuleDict(
            {"a": torch.nn.Linear(3, 4), "b": torch.nn.Linear(3, 4, bias=False)}
        )
        self.scales = torch.nn.ParameterList([torch.ones(4), torch.full((4,), 2.0)])
        self.shifts = torch.nn.ParameterDict({"up": torch.full((4,), 0.5)})

    def forward(self, x):
        total = self.routes["a"](x) * self.scales[0] + self.routes["b"](x) * self.scales[-1]
        return total + self.shifts["up"]


def test_state_and_results_as_torch():
    theirs, ours = TorchRouted(), Routed()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({n: t.detach().numpy() for n, t in theirs.state_dict().items()})
    reference = theirs(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(ours(X).numpy(), reference, rtol=1e-5, atol=1e-6)
    step = nova.train_step(ours, lambda m, x: m(x).square().mean(), optim.SGD(ours.parameters()))
    before = {n: a.copy() for n, a in ours.state_dict().items()}
    step(X)
    assert all((before[n] != a).any() for n, a in ours.state_dict().items()), "all are trained"


def test_containers_as_mappings_and_lists():
    routes = nn.ModuleDict([("a", nn.ReLU())])
    routes["b"] = nn.Tanh()
    assert list(routes) == ["a", "b"] and len(routes) == 2 and "b" in routes
    assert [type(m).__name__ for m in routes.values()] == ["ReLU", "Tanh"]
    assert routes.pop("a") is not None and routes.keys() == ["b"]
    del routes["b"]
    assert not len(routes) and routes.items() == []
    values = nn.ParameterList([np.zeros(2, "f4")]).append(np.ones(2, "f4"))
    values[0] = np.full(2, 3.0, "f4")
    assert [p.data[0] for p in values] == [3.0, 1.0] and values[-1] is values[1]


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: nn.ModuleDict({"a": len}), ModuleError, "is not a module"),
        (lambda: nn.ModuleDict({"a.b": nn.ReLU()}), ModuleError, "'a.b' cannot be a name"),
        (lambda: nn.ModuleDict({"keys": nn.ReLU()}), ModuleError, "not methods"),
        (lambda: nn.ModuleDict({1: nn.ReLU()}), ModuleError, "1 cannot be a name"),
        (lambda: nn.ModuleDict({"a": nn.ReLU()})["b"], ModuleError, "its parts: a"),
        (lambda: nn.ParameterList([np.ones(1)])[1], AxisError, "parameter 1 of 1"),
        (lambda: nn.ReLU().register_parameter("w", np.ones(1)), ModuleError, "not a Parameter"),
        (lambda: nn.ReLU().register_buffer("forward", np.ones(1)), ModuleError, "cannot be the"),
        (lambda: nn.ReLU().register_module("a", len), ModuleError, "is not a Module"),
        (lambda: nn.ReLU().register_forward_hook(3), ModuleError, "3 is not a function"),
        (lambda: Routed().get_submodule("routes.c"), ModuleError, "routes.a, routes.b"),
        (lambda: Routed().get_parameter("shifts"), ModuleError, "no parameter 'shifts'"),
    ],
)
def test_mistakes(use: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message) as caught:
        use()
    assert __file__ in caught.value.where  # type: ignore[attr-defined]


def test_registered_parts():
    module = nn.Module()
    module.register_parameter("w", nn.Parameter(np.ones(2, "f4")))
    module.register_buffer("count", np.zeros((), "i8"))
    module.add_module("inner", nn.Linear(2, 2))
    module.register_parameter("absent", None)
    assert list(module.state_dict()) == ["w", "count", "inner.weight", "inner.bias"]
    assert [n for n, _ in module.named_buffers()] == ["count"]
    assert module.get_parameter("inner.weight") is module.get_submodule("inner").weight
    assert module.get_submodule("") is module


def test_apply_visits_children_first():
    visited: list[str] = []
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    assert model.apply(lambda m: visited.append(type(m).__name__)) is model
    reference: list[str] = []
    torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU())).apply(
        lambda m: reference.append(type(m).__name__)
    )
    assert visited == reference


def test_hooks_are_part_of_the_program():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    program = nova.jit(model)
    plain = program(X)
    before = model[0].register_forward_pre_hook(lambda module, args: args[0] * 2.0)
    after = model[1].register_forward_hook(lambda module, args, result: result + 1.0)
    observed: list[Any] = []
    quiet = model.register_forward_hook(lambda module, args, result: observed.append(result.shape))
    weight, bias = (p.data for p in model.parameters())
    expected = np.maximum(2 * X @ weight.T + bias, 0) + 1
    np.testing.assert_allclose(program(X), expected, rtol=1e-5)
    assert observed == [(2, 4)]
    for handle in (before, after, quiet):
        handle.remove()
    np.testing.assert_array_equal(program(X), plain)
    with model[1].register_forward_hook(lambda module, args, result: result * 0.0):
        assert not np.any(program(X))
    np.testing.assert_array_equal(program(X), plain)
