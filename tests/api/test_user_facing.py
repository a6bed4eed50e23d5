"""Public functions and classes: a wrong call is an error of Nova that names the user's line."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import nova
from nova import data, debug, nn, optim
from nova.core.user_facing import user_facing
from nova.errors import ArgumentCountError, NovaError, UnknownKeywordError
from nova.nn import init

# Types that tell about results, or that only Nova makes.
MADE_BY_NOVA = {"Compiled", "DType", "TensorType", "Tensor", "DeviceArray", "LoadReport"}
MADE_BY_NOVA |= {"ArgumentReport", "CheckedProgram", "Finding", "GradcheckReport", "Reduction"}
# Their keywords are those of the function that they are given.
MADE_BY_NOVA |= {"from_jax", "from_onnx", "from_torch"}
MADE_BY_NOVA |= {"Optimizer", "Schedule", "NovaError", "check_plan"}

# What a call needs before its keywords are looked at.
ARGUMENTS = {
    f"nova.optim.{name}": ([nn.Parameter([[1.0]])],)
    for name in (
        *("AdamW", "Adadelta", "Adafactor", "Adagrad", "Adamax", "Lion", "Muon", "NAdam"),
        *("RAdam", "RMSprop", "ASGD", "Rprop"),
    )
}


def public() -> list[tuple[str, object]]:
    result = []
    for module in (nova, nn, optim, debug, init):
        names = getattr(module, "__all__", None) or ["uniform", "normal", "kaiming_uniform", "fans"]
        for name in names:
            value = getattr(module, name)
            if callable(value) and name not in MADE_BY_NOVA:
                result.append((f"{module.__name__}.{name}", value))
    result.append(("nova.data.Batches", data.Batches))
    return result


@pytest.mark.parametrize("name, function", public(), ids=lambda v: v if type(v) is str else "")
def test_an_unknown_keyword_is_an_error_of_nova(name: str, function) -> None:
    with pytest.raises(UnknownKeywordError, match="no_such_keyword") as caught:
        function(*ARGUMENTS.get(name, ()), no_such_keyword=1)
    assert __file__ in caught.value.where
    assert isinstance(caught.value, TypeError)


# Called by Nova only; and the keywords of `workspace_for` are names of dims.
INTERNAL = {("Compiled", "with_values"), ("Compiled", "simulated"), ("NovaStream", "note")}
INTERNAL |= {("Compiled", "workspace_for"), ("Tensor", "note_reader")}


def methods() -> list[tuple[str, object, str]]:
    model = nn.Linear(2, 2)
    step = nova.train_step(model, lambda m, x: m(x).sum(), optim.SGD(model.parameters(), lr=0.1))
    batches = data.Batches(np.zeros((4, 2), "f4"), batch_size=2)
    x = nova.tensor(np.ones(3, "f4"))
    program = nova.compile(x + 1, inputs=[x])
    objects = (model, step, batches, nova.NovaStream(), program, x)
    return [
        (f"{type(value).__name__}.{name}", value, name)
        for value in objects
        for name, part in inspect.getmembers(type(value), inspect.isfunction)
        if not name.startswith("_") and (type(value).__name__, name) not in INTERNAL
    ]


@pytest.mark.parametrize("title, value, name", methods(), ids=lambda v: v if type(v) is str else "")
def test_methods_as_well(title: str, value: object, name: str) -> None:
    with pytest.raises(UnknownKeywordError, match="no_such_keyword") as caught:
        getattr(value, name)(no_such_keyword=1)
    assert __file__ in caught.value.where


def test_did_you_mean() -> None:
    with pytest.raises(UnknownKeywordError, match="did you mean 'requires_grad'"):
        nova.tensor([1.0], require_grad=True)
    with pytest.raises(UnknownKeywordError, match="did you mean 'bias'"):
        nn.Linear(2, 3, biass=False)
    with pytest.raises(UnknownKeywordError, match="Tanh"):
        nn.Tanh(inplace=True)
    with pytest.raises(UnknownKeywordError, match="did you mean 'target'"):
        nova.jit(lambda x: x, targt="cpu")
    with pytest.raises(ArgumentCountError, match="missing a required argument"):
        nova.train_step()
    model = nn.Linear(2, 2)
    step = nova.train_step(model, lambda m, x: m(x).sum(), optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(UnknownKeywordError, match="no keyword 'x'"):
        step(x=np.zeros((1, 2), "f4"))


def test_errors_of_the_function_itself_stay() -> None:
    @user_facing
    def add(x, y=1):
        return x + y

    assert add(1) == 2 and add.__name__ == "add"
    with pytest.raises(TypeError, match="can only concatenate") as caught:
        add("a")
    assert not isinstance(caught.value, NovaError)


def test_an_error_keeps_what_it_carries() -> None:
    @user_facing
    def fail():
        error = nova.errors.TrainingError("the loss is NaN")
        error.history = [1, 2]
        raise error from ZeroDivisionError("1 / 0")

    with pytest.raises(nova.errors.TrainingError) as caught:
        fail()
    assert caught.value.history == [1, 2] and __file__ in caught.value.where
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("value", [3, None.__class__, "f", np.zeros(2)], ids=repr)
def test_jit_takes_functions(value: object) -> None:
    if callable(value):
        nova.jit(value)
        return
    for make in (nova.jit, nova.jit(target="cpu")):
        with pytest.raises(nova.errors.ArgumentTypeError, match="not a function") as caught:
            make(value)
        assert __file__ in caught.value.where
