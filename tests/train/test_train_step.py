"""The training step: one program, in place, torch's numbers."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.errors import (
    AttributeValueError,
    GradientError,
    GraphError,
    OptionTypeError,
    StateDictError,
    TargetError,
)

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((8, 6)), RNG.standard_normal((8, 4))


def model_of(kind: str = "f32", hidden: int = 5) -> nn.Sequential:
    nn.manual_seed(3)
    return nn.Sequential(
        nn.Linear(6, hidden, dtype=kind), nn.Tanh(), nn.Linear(hidden, 4, dtype=kind)
    )


def loss_of(model: Any, x: Any, y: Any) -> Any:
    return nova.mse_loss(model(x), y)


def torch_copy(model: nn.Module) -> list[torch.Tensor]:
    return [torch.tensor(p.data.copy(), requires_grad=True) for p in model.parameters()]


def torch_loss(params: list[torch.Tensor], x: Any, y: Any) -> torch.Tensor:
    hidden = torch.tanh(x @ params[0].T + params[1])
    return torch.nn.functional.mse_loss(hidden @ params[2].T + params[3], y)


def assert_params(model: nn.Module, params: list[torch.Tensor], tolerance: float) -> None:
    for p, q in zip(model.parameters(), params, strict=True):
        expected = q.detach().numpy()
        assert np.abs(p.data - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize(("mode", "tolerance"), [("f32", 1e-5), ("f64", 1e-10)])
def test_fifty_steps_as_torch(mode: str, tolerance: float) -> None:
    """With a schedule, clipping and decay, everything inside of the program."""
    model = model_of(mode)
    params = torch_copy(model)
    schedule = optim.LinearWarmup(optim.CosineAnnealing(0.02, 60), 5, 0.2)
    step = nova.train_step(model, loss_of, optim.AdamW(model.parameters(), schedule, clip_norm=0.3))
    reference = torch.optim.AdamW(params, 0.02)
    warm = torch.optim.lr_scheduler.LinearLR(reference, 0.2, 1.0, 5)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(reference, 60)
    scheduler = torch.optim.lr_scheduler.SequentialLR(reference, [warm, cosine], [5])
    x, y = X.astype(model.parameters()[0].data.dtype), Y.astype(model.parameters()[0].data.dtype)
    for _ in range(50):
        reference.zero_grad()
        expected = torch_loss(params, torch.tensor(x), torch.tensor(y))
        expected.backward()
        torch.nn.utils.clip_grad_norm_(params, 0.3)
        reference.step()
        scheduler.step()
        np.testing.assert_allclose(step(x, y), expected.item(), rtol=tolerance)
        assert_params(model, params, tolerance)


# --- one program, in place ------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_one_program_updates_in_place(optimizer: str) -> None:
    """Nothing is copied, every array keeps its address, and a run allocates only the loss."""
    width = 160
    nn.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    make: Any = {
        "sgd": lambda p: optim.SGD(p, optim.StepLR(0.1, 3), momentum=0.9, nesterov=True),
        "adamw": lambda p: optim.AdamW(p, optim.CosineAnnealing(1e-3, 9), amsgrad=True),
    }[optimizer]
    step = nova.train_step(model, loss_of, make(model.parameters()))
    x, y = (RNG.standard_normal((32, width)).astype("f4") for _ in range(2))
    before = {name: a.copy() for name, a in step.state_dict().items()}
    address = {name: a.ctypes.data for name, a in step.state_dict().items()}
    loss = step(x, y)
    assert loss.shape == () and loss.dtype == np.float32
    after = step.state_dict()
    assert {name: a.ctypes.data for name, a in after.items()} == address
    assert all((after[name] != before[name]).any() for name in before)

    program = step.compiled
    assert not [k.name for k in program.kernels if k.name.startswith("copy")]
    assert len(step.plan.results) == 1 and len(step.plan.updates) == len(before)
    assert step.plan is program.plan and "update" in str(step.plan)

    tracemalloc.start()
    for _ in range(3):
        step(x, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4096 < model.parameters()[0].data.nbytes
    assert len(step._entries) == 1


def test_signatures_and_modes_have_programs_of_their_own() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 4))
    step = nova.train_step(model, loss_of, optim.SGD(model.parameters(), 0.0))
    x, y = X.astype("f4"), Y.astype("f4")
    with pytest.raises(GraphError, match="no program yet"):
        _ = step.plan
    drawn = {float(step(x, y)) for _ in range(3)}
    assert len(drawn) == 3
    model.eval()
    assert step(x, y) == step(x, y)
    model.train()
    assert float(step(x, y)) not in drawn
    assert np.isfinite(step(x[:3], y[:3]))
    assert len(step._entries) == 3
    with pytest.raises(TypeError):
        step(x)
    assert step.state["optimizer.step"] == 7
    assert step.lower(x, y) is not step.lower(x[:3], y[:3])


# --- parameters that do not change ----------------------------------------------------------------


def test_frozen_parameters_are_left_alone() -> None:
    model = model_of()
    step = nova.train_step(model, loss_of, optim.AdamW(model.parameters(), 0.1))
    x, y = X.astype("f4"), Y.astype("f4")
    step(x, y)
    steps = len(step.plan.steps)
    first = model.parameters()[0].data.copy()
    moments = step.state["optimizer.exp_avg.0"].copy()
    next(model.children()).freeze()
    step(x, y)
    # No gradient of the first layer: not its products, not tanh's derivative, not its update.
    assert len(step.plan.steps) < steps - 20
    assert len(step.plan.updates) == 2 + 2 * 3
    np.testing.assert_array_equal(model.parameters()[0].data, first)
    np.testing.assert_array_equal(step.state["optimizer.exp_avg.0"], moments)
    model.unfreeze()
    step(x, y)
    assert (model.parameters()[0].data != first).all()
    model.freeze()
    with pytest.raises(GradientError, match="frozen"):
        step(x, y)


def test_unused_parameters_are_left_alone() -> None:
    """As in torch, where they have no gradient: not even weight decay changes them."""
    used, unused = nn.Linear(6, 4), nn.Linear(6, 4)
    model = nn.ModuleList([used, unused])
    before = [p.data.copy() for p in unused.parameters()]

    def loss(model: Any, x: Any, y: Any) -> Any:
        return nova.mse_loss(model[0](x), y)

    step = nova.train_step(model, loss, optim.SGD(model.parameters(), 0.1, weight_decay=0.5))
    step(X.astype("f4"), Y.astype("f4"))
    for parameter, old in zip(unused.parameters(), before, strict=True):
        np.testing.assert_array_equal(parameter.data, old)


class Tied(nn.Module):
    """Embeds tokens and predicts with the same weight."""

    def __init__(self, table: np.ndarray):
        self.embedding = nn.Embedding(*table.shape)
        self.embedding.weight.data[...] = table
        self.head = nn.Linear(table.shape[1], table.shape[0], bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        return self.head(nova.tanh(self.embedding(tokens)))


def test_tied_weights_get_both_gradients() -> None:
    table = RNG.standard_normal((7, 4)).astype("f4")
    model = Tied(table)
    tokens, targets = RNG.integers(0, 7, (2, 12))
    step = nova.train_step(
        model,
        lambda model, t, y: nova.cross_entropy(model(t), y),
        optim.SGD(model.parameters(), 0.5, momentum=0.9),
    )
    weight = torch.tensor(table, requires_grad=True)
    reference = torch.optim.SGD([weight], 0.5, momentum=0.9)
    for _ in range(10):
        reference.zero_grad()
        hidden = torch.tanh(torch.nn.functional.embedding(torch.tensor(tokens), weight))
        loss = torch.nn.functional.cross_entropy(hidden @ weight.T, torch.tensor(targets))
        loss.backward()
        reference.step()
        np.testing.assert_allclose(step(tokens, targets), loss.item(), rtol=1e-5)
    assert_params(model, [weight], 1e-5)
    assert set(model.state_dict()) == {"embedding.weight", "head.weight"}
    assert len(step.optimizer.params) == 1


# --- accumulation ---------------------------------------------------------------------------------


def test_accumulation_averages_gradients() -> None:
    model = model_of()
    params = torch_copy(model)
    make = {"lr": 0.3, "momentum": 0.9}
    step = nova.train_step(model, loss_of, optim.SGD(model.parameters(), **make), accumulate=3)
    reference = torch.optim.SGD(params, **make)
    batches = RNG.standard_normal((9, 8, 10)).astype("f4")
    for i, batch in enumerate(batches):
        x, y = batch[:, :6].copy(), batch[:, 6:].copy()
        before = [p.data.copy() for p in model.parameters()]
        loss = torch_loss(params, torch.tensor(x), torch.tensor(y))
        (loss / 3).backward()
        np.testing.assert_allclose(step(x, y), loss.item(), rtol=1e-5)
        assert step.state["accumulated"] == (i + 1) % 3
        if i % 3 == 2:
            reference.step()
            reference.zero_grad()
            assert_params(model, params, 1e-5)
            assert not step.state["gradient.0"].any()
        else:
            for p, old in zip(model.parameters(), before, strict=True):
                np.testing.assert_array_equal(p.data, old)
    assert step.state["optimizer.step"] == 3


# --- random ops and state -------------------------------------------------------------------------


def test_dropout_draws_anew_and_repeats_from_the_same_state() -> None:
    model = nn.Sequential(nn.Linear(6, 20), nn.Dropout(0.5), nn.Dropout(0.2), nn.Linear(20, 4))
    x, y = X.astype("f4"), Y.astype("f4")
    still = nova.train_step(model, loss_of, optim.SGD(model.parameters(), 0.0), seed=1)
    losses = [float(still(x, y)) for _ in range(20)]
    assert len(set(losses)) == 20
    second = nova.train_step(model, loss_of, optim.SGD(model.parameters(), 0.0), seed=2)
    assert second.lower(x, y).origin == "memory"  # the seed is no part of the program
    assert not {float(second(x, y)) for _ in range(20)} & set(losses)
    again = nova.train_step(model, loss_of, optim.SGD(model.parameters(), 0.0), seed=1)
    assert [float(again(x, y)) for _ in range(20)] == losses


def test_state_continues_exactly() -> None:
    """Training from a loaded state gives the same bits as going on."""
    x, y = X.astype("f4"), Y.astype("f4")

    def make() -> Any:
        model = nn.Sequential(nn.Linear(6, 20), nn.Dropout(0.5), nn.Linear(20, 4))
        optimizer = optim.Adam(model.named_parameters(), 0.05)
        return nova.train_step(model, loss_of, optimizer, accumulate=2)

    step = make()
    for _ in range(5):
        step(x, y)
    saved = {name: a.copy() for name, a in step.state_dict().items()}
    assert "model.0.weight" in saved and "optimizer.exp_avg.0.weight" in saved
    going_on = [step(x, y).tobytes() for _ in range(5)]
    second = make()
    address = [a.ctypes.data for a in second.state_dict().values()]
    second.load_state_dict(saved)
    assert [second(x, y).tobytes() for _ in range(5)] == going_on
    assert [a.ctypes.data for a in second.state_dict().values()] == address
    for name, array in step.state_dict().items():
        assert array.tobytes() == second.state_dict()[name].tobytes(), name


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    model = model_of()
    step = nova.train_step(model, loss_of, optim.Adam(model.parameters(), 0.05))
    good = {name: a + 1 for name, a in step.state_dict().items()}
    before = {name: a.copy() for name, a in step.state_dict().items()}
    for change, message in (
        ({"optimizer.exp_avg.0": np.zeros(3, "f4")}, "optimizer.exp_avg.0"),
        ({"scaler.scale": np.zeros((), "f4")}, "unexpected: scaler.scale"),
    ):
        with pytest.raises(StateDictError, match=message) as caught:
            step.load_state_dict(good | change)
        assert __file__ in caught.value.where
    del good["optimizer.step"]
    with pytest.raises(StateDictError, match=r"missing: optimizer\.step"):
        step.load_state_dict(good)
    for name, array in step.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


# --- mistakes -------------------------------------------------------------------------------------


def test_mistakes() -> None:
    model = model_of()
    sgd = optim.SGD(model.parameters(), 0.1)
    x, y = X.astype("f4"), Y.astype("f4")
    for options, error in (
        ({"precision": "f8"}, AttributeValueError),
        ({"accumulate": 0}, AttributeValueError),
        ({"target": "z80"}, TargetError),
    ):
        with pytest.raises(error) as caught:
            nova.train_step(model, loss_of, sgd, **options)
        assert __file__ in caught.value.where
    for loss, message in (
        (lambda model, x, y: model(x) - y, r"f32\[8,4\], not one"),
        (lambda model, x, y: 1.0, "float, not one"),
        (lambda model, x, y: nova.mse_loss(x, x), "depends on no parameter"),
    ):
        with pytest.raises(GradientError, match=message) as caught:
            nova.train_step(model, loss, sgd)(x, y)
        assert __file__ in caught.value.where
    second = nova.train_step(model, loss_of, optim.SGD(model_of().parameters(), 0.1))
    with pytest.raises(GradientError, match="depends on no parameter"):
        second(x, y)


@pytest.mark.parametrize("wrong", [None, "sgd", []])
def test_something_else_than_an_optimizer(wrong: Any) -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(OptionTypeError, match="the optimizer is"):
        nova.train_step(model, lambda m, x: m(x).sum(), wrong)


def test_lbfgs_has_its_own_step() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(OptionTypeError, match="step\\(loss"):
        nova.train_step(model, lambda m, x: m(x).sum(), optim.LBFGS(model.parameters()))
