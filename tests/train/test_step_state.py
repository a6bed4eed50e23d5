"""`nova.train_step` and state: what it reads at each call, what it refuses, what it casts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.errors import (
    GraphError,
    PrecisionWarning,
    SealedAttributeError,
    StateAssignedError,
    StateDictError,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 6)).astype("f4")
Y = RNG.standard_normal((5, 3)).astype("f4")
SIM = {"target": "cuda:sm_80", "run_mode": "sim"}


def loss_of(model, x, y):
    return nova.mse_loss(model(x), y)


def make_model() -> nn.Module:
    nn.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def make_step(model: nn.Module, **options):
    return nova.train_step(model, loss_of, optim.SGD(model.parameters(), lr=0.1), **options)


# --- assigned state -------------------------------------------------------------------------------


class Running(nn.Module):
    def __init__(self) -> None:
        self.inner = nn.Linear(6, 3)
        self.running = nova.tensor(np.zeros(3, "f4"))
        self.count = 0


class Averaging(Running):
    def forward(self, x):
        y = self.inner(x)
        self.running = self.running * 0.9 + y.mean(0) * 0.1
        return y


class Counting(Running):
    def forward(self, x):
        self.count += 1
        return self.inner(x)


@pytest.mark.parametrize(
    "model, name", [(Averaging(), "Averaging.running"), (Counting(), "Counting.count")]
)
@pytest.mark.parametrize("precision", [None, "bf16"])
def test_state_assigned_in_forward_is_an_error(model, name: str, precision) -> None:
    step = make_step(model, precision=precision)
    before = dict(vars(model))
    with pytest.raises(StateAssignedError, match=name.replace(".", r"\.")) as caught:
        step(X, Y)
    assert __file__ in caught.value.where and "outside" in caught.value.hint
    assert vars(model) == before
    assert [p.dtype for p in model.parameters()] == [nova.f32, nova.f32]


def test_attributes_that_nothing_reads_are_errors() -> None:
    model = make_model()
    step = make_step(model)
    step(X, Y)
    for value, name, hint in (
        (step, "lr", "schedule"),
        (step, "learning_rate", "schedule"),
        (step, "accumulate", "make a new one"),
        (step, "model", "make a new one"),
        (step.optimizer, "lr", "schedule"),
        (step.optimizer, "weight_decay", "schedule"),
        (step.compiled, "threads", "make a new one"),
        (nova.jit(loss_of), "target", "make a new one"),
    ):
        with pytest.raises(SealedAttributeError, match=f"{name} cannot be assigned") as caught:
            setattr(value, name, 0.5)
        assert __file__ in caught.value.where and hint in caught.value.hint
        assert isinstance(caught.value, AttributeError)
    assert step.optimizer.options.lr == 0.1


# --- what is read at each call --------------------------------------------------------------------


@pytest.mark.parametrize("device", [{}, SIM], ids=["cpu", "sim"])
def test_tensors_and_numbers_that_the_loss_closes_over(device) -> None:
    teacher, student = nn.Linear(6, 3), nn.Linear(6, 3)
    scale, weights = 1.0, np.ones(3, "f4")

    def distill(model, x):
        return nova.mean(nova.square(model(x) - teacher(x)) * weights) * scale

    step = nova.train_step(student, distill, optim.SGD(student.parameters(), lr=0.0), **device)

    def expected() -> float:
        difference = student(X).numpy() - teacher(X).numpy()
        return float(np.mean(difference**2 * weights) * scale)

    for _ in range(2):
        assert float(step(X)) == pytest.approx(expected(), rel=1e-4)
    teacher.weight.data *= 2
    assert float(step(X)) == pytest.approx(expected(), rel=1e-4)
    weights[0] = 5
    assert float(step(X)) == pytest.approx(expected(), rel=1e-4)
    scale = 3.0
    assert float(step(X)) == pytest.approx(expected(), rel=1e-4)
    teacher = nn.Linear(6, 3)
    assert float(step(X)) == pytest.approx(expected(), rel=1e-4)


def test_names_that_the_loss_fills_are_no_state() -> None:
    model, observed, traces = make_model(), [], 0

    def noted(model, x, y):
        nonlocal traces
        traces += 1
        observed.append(x)
        return loss_of(model, x, y)

    step = nova.train_step(model, noted, optim.SGD(model.parameters(), lr=0.1))
    for rows in (5, 5, 2, 5, 2):
        step(X[:rows], Y[:rows])
    assert traces == len(observed) == len(step._entries) == 2


def test_replaced_data_is_trained() -> None:
    model, second = make_model(), make_model()
    step, fresh = make_step(model), make_step(second)
    step(X, Y)
    for single, two in zip(model.parameters(), second.parameters(), strict=True):
        single.data = two.data.copy()
    for _ in range(2):
        assert float(step(X, Y)) == float(fresh(X, Y))
    np.testing.assert_array_equal(model[0].weight.data, second[0].weight.data)


def test_a_parameter_that_the_step_does_not_know_is_an_error() -> None:
    model = make_model()
    step = make_step(model)
    step(X, Y)
    model[2] = nn.Linear(4, 3)
    with pytest.raises(GraphError, match=r"parameter '2\.weight' after the step was created"):
        step(X, Y)


def test_frozen_layers_and_clipping_are_those_of_now() -> None:
    model = make_model()
    step = make_step(model)
    step(X, Y)
    model[0].freeze()
    before = model[0].weight.data.copy()
    step(X, Y)
    np.testing.assert_array_equal(model[0].weight.data, before)
    model[0].weight.requires_grad = True
    step(X, Y)
    assert not np.array_equal(model[0].weight.data, before)
    step.optimizer.clip_value = 1e-9
    before = model[0].weight.data.copy()
    step(X, Y)
    np.testing.assert_allclose(model[0].weight.data, before, atol=1e-7)


# --- devices --------------------------------------------------------------------------------------


def test_a_step_on_a_device_is_translated_with_its_values_of_now(tmp_path) -> None:
    model, second = make_model(), make_model()
    step, host = make_step(model, **SIM), make_step(second)
    step(X, Y)
    host(X, Y)
    program = step.compiled
    step(X, Y)
    host(X, Y)
    for number, source in enumerate((program, step)):
        path = tmp_path / f"{number}.nova"
        nova.translate(source, targets=("cpu", "cuda:sm_80")).save(path, weights="embed")
        loaded = nova.load(path)
        for name, array in second.state_dict().items():
            np.testing.assert_allclose(loaded.params[f"model.{name}"], array, rtol=1e-5, atol=1e-6)
    assert program.params["optimizer.step"] == 2
    np.testing.assert_allclose(program.params["model.0.weight"], second[0].weight.data, rtol=1e-5)


def test_data_is_not_replaced_while_a_device_trains_it() -> None:
    model = make_model()
    step = make_step(model, **SIM)
    step(X, Y)
    with pytest.raises(StateDictError, match="on a device"):
        model[0].weight.data = np.zeros((4, 6), "f4")


# --- precision ------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [None, "bf16"])
def test_f64_data_of_an_f32_model_is_cast_with_one_warning(precision) -> None:
    wide = X.astype("f8"), Y.astype("f8")
    model, second = make_model(), make_model()
    step, narrow = make_step(model, precision=precision), make_step(second, precision=precision)
    with pytest.warns(PrecisionWarning, match="cast to f32") as caught:
        assert float(step(*wide)) == float(narrow(X, Y))
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(step(*wide)) == float(narrow(X, Y))
        assert float(step(torch.from_numpy(wide[0]), wide[1])) == float(narrow(X, Y))
        assert float(step(X, Y)) == float(narrow(X, Y))
    assert [a.type.dtype for a in step.plan.signature.inputs] == [nova.f32, nova.f32]
    assert len(step._entries) == 1


def test_f64_models_and_integers_stay_as_they_are() -> None:
    model = nn.Linear(6, 3, dtype="f64")
    step = make_step(model)
    step(X.astype("f8"), Y.astype("f8"))
    assert step.plan.signature.inputs[0].type.dtype is nova.f64
    table = nn.Embedding(4, 3)
    lookup = make_step(table)
    lookup(np.array([0, 1, 2, 3, 1]), Y)
    assert lookup.plan.signature.inputs[0].type.dtype is nova.i64


def test_a_loss_module_created_in_the_loss_function() -> None:
    """It is no state of the step; creating it used to reject the program of the first call."""
    model = nn.Linear(3, 1)
    step = nova.train_step(
        model,
        lambda m, x, y: nn.HuberLoss(delta=0.5)(m(x), y),
        optim.SGD(model.parameters(), 0.1),
    )
    x, y = np.ones((2, 3), "f4"), np.zeros((2, 1), "f4")
    first, second = float(step(x, y)), float(step(x, y))
    assert second < first
