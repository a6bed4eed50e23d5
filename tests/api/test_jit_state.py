"""`@nova.jit` and state: parameters, modes, seeds, closures and devices are those of each call."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.errors import ConcreteValueError, ShapeError, StateAssignedError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 8)).astype("f4")
Y = RNG.standard_normal((3, 2)).astype("f4")
SCALE = 2.0
TABLE = np.arange(8, dtype="f4")


def make_model(p: float = 0.0) -> nn.Sequential:
    nn.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 2))


def loss_of(model, x, y):
    return nova.mse_loss(model(x), y)


def check(jitted, model, *args) -> None:
    np.testing.assert_allclose(jitted(*args), model(*args).numpy(), rtol=1e-5, atol=1e-6)


# --- parameters -----------------------------------------------------------------------------------


def test_predictions_after_training_are_those_of_the_trained_model() -> None:
    model = make_model()
    predict = nova.jit(model)
    closure = nova.jit(lambda x: model(x) * 2.0)
    before = predict(X)
    step = nova.train_step(model, loss_of, optim.SGD(model.parameters(), lr=0.5))
    for _ in range(3):
        step(X, Y)
        check(predict, model, X)
        np.testing.assert_allclose(closure(X), model(X).numpy() * 2, rtol=1e-5)
    assert not np.allclose(before, predict(X))
    assert predict.cache_info().misses == closure.cache_info().misses == 1
    # The same numbers as torch's, from the same weights.
    weights = [torch.from_numpy(p.data) for p in model.parameters()]
    hidden = torch.relu(torch.from_numpy(X) @ weights[0].T + weights[1])
    expected = hidden @ weights[2].T + weights[3]
    np.testing.assert_allclose(predict(X), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_replaced_arrays_parameters_and_layers_are_seen() -> None:
    model = make_model()
    predict = nova.jit(model)
    check(predict, model, X)
    model[0].weight.data = np.ones((16, 8), "f4")
    check(predict, model, X)
    model[0].weight.data = np.asfortranarray(RNG.standard_normal((16, 8)).astype("f4"))
    check(predict, model, X)
    model[3].bias = nn.Parameter(np.full(2, 7.0, "f4"))
    check(predict, model, X)
    model[3] = nn.Linear(16, 5)
    assert predict(X).shape == (3, 5)
    check(predict, model, X)
    model[3].bias = None
    check(predict, model, X)
    with pytest.raises(ShapeError, match="shape"):
        model[0].weight.data = np.ones((4, 8), "f4")
    check(predict, model, X)


def test_tied_and_shared_parameters() -> None:
    first = nn.Linear(8, 8)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(8, 8))
    model[2].weight = first.weight
    predict, second = nova.jit(model), nova.jit(first)
    check(predict, model, X)
    first.weight.data *= 0.5
    check(predict, model, X)
    check(second, first, X)
    assert len(predict.lower(X).params) == 3


def test_programs_of_several_shapes_share_the_weights() -> None:
    model = nn.Linear(512, 512)
    predict = nova.jit(model)
    for batch in (1, 2, 3):
        program = predict.lower(np.ones((batch, 512), "f4"))
        assert len(program.artifact.data) < 400_000, "the weights are not in the program"
        assert program.params["weight"] is model.weight.data
        check(predict, model, np.ones((batch, 512), "f4"))


def test_gradients_follow_the_parameters() -> None:
    model = make_model()
    jitted = nova.value_and_grad(nova.jit(lambda x, y: loss_of(model, x, y)))
    plain = nova.value_and_grad(lambda x, y: loss_of(model, x, y))
    for _ in range(2):
        value, grad = jitted(X, Y)
        expected, slope = plain(nova.tensor(X), nova.tensor(Y))
        np.testing.assert_allclose(value, expected.numpy(), rtol=1e-5)
        np.testing.assert_allclose(grad, slope.numpy(), rtol=1e-4, atol=1e-6)
        model[0].weight.data *= 0.5
        model[3] = nn.Linear(16, 2)


def test_a_model_on_a_device_is_fetched() -> None:
    model = make_model()
    predict = nova.jit(model)
    step = nova.train_step(
        model,
        loss_of,
        optim.SGD(model.parameters(), lr=0.5),
        target="cuda:sm_80",
        run_mode="sim",
    )
    before = predict(X)
    for _ in range(2):
        step(X, Y)
        after = predict(X)
        assert not np.allclose(before, after)
        check(predict, model, X)
        before = after


# --- modes and seeds ------------------------------------------------------------------------------


def test_dropout_draws_as_it_does_without_jit() -> None:
    model = make_model(0.5)
    predict = nova.jit(model)
    nn.manual_seed(5)
    result = [predict(X) for _ in range(4)]
    nn.manual_seed(5)
    expected = [model(X).numpy() for _ in range(4)]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert len({a.tobytes() for a in result}) == 4
    assert predict.cache_info().misses == 1
    with nn.seeded(11):
        result = [predict(X), predict(X)]
    with nn.seeded(11):
        expected = [model(X).numpy(), model(X).numpy()]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_seeds_that_the_function_sets_itself() -> None:
    model = make_model(0.5)

    def seeded(x, seed):
        with nn.seeded(seed):
            return model(x)

    f = nova.jit(seeded)
    for seed in (np.int64(1), np.int64(2), np.int64(1)):
        expected = seeded(X, int(seed)).numpy()
        np.testing.assert_allclose(f(X, seed), expected, rtol=1e-5, atol=1e-6)
    assert f.cache_info().misses == 1


def test_state_as_a_result_and_seeds_that_nothing_needs() -> None:
    model = make_model(0.5)

    @nova.jit
    def f(x):
        model(x)
        return x + 1.0, model[0].weight, model[0].bias * 2.0

    nn.manual_seed(4)
    for _ in range(2):
        total, weight, bias = f(X)
        np.testing.assert_array_equal(total, X + 1)
        np.testing.assert_array_equal(weight, model[0].weight.data)
        np.testing.assert_array_equal(bias, model[0].bias.data * 2)
        model[0].weight.data += 1
    drawn = nn.default_generator().integers(1000)
    nn.manual_seed(4)
    model(X), model(X)
    assert drawn == nn.default_generator().integers(1000)


def test_lazy_tensors_and_checkpoints() -> None:
    weight = nova.tensor(np.ones((8, 2), "f4"))
    doubled = weight * 2.0
    layer = nn.Linear(8, 8)
    block = nova.checkpoint(lambda x: nova.tanh(layer(x)))
    f = nova.jit(lambda x: block(x) @ doubled)
    g = nova.grad(nova.jit(lambda x: block(x).sum()))
    for _ in range(2):
        expected = np.tanh(layer(X).numpy()) @ (weight.data * 2)
        np.testing.assert_allclose(f(X), expected, rtol=1e-5, atol=1e-5)
        slope = nova.grad(lambda x: block(x).sum())(nova.tensor(X)).numpy()
        np.testing.assert_allclose(g(X), slope, rtol=1e-4, atol=1e-6)
        weight.data[...] = 5
        layer.weight.data *= 0.5


def test_checked_runs_of_a_model() -> None:
    model = make_model(0.5)
    with nova.knobs.override(check="1"):
        predict = nova.jit(model)
        for _ in range(2):
            assert predict(X).shape == (3, 2)
        model.eval()
        check(predict, model, X)


def test_train_and_eval_select_programs() -> None:
    model = make_model(0.5)
    predict = nova.jit(model)
    model.eval()
    np.testing.assert_array_equal(predict(X), predict(X))
    model.train()
    assert not np.array_equal(predict(X), predict(X))
    model.eval()
    check(predict, model, X)
    model[2].train()
    assert not np.array_equal(predict(X), predict(X))
    model[2].p = 0.0
    check(predict, model, X)
    model.train()
    assert predict.cache_info().misses == 4
    assert "state" in predict.explain()


def test_assigned_attributes_of_modules_are_errors() -> None:
    class Counting(nn.Module):
        def __init__(self):
            self.inner = nn.Linear(8, 2)
            self.count = 0
            self.seen = []

        def forward(self, x):
            self.count = self.count + 1
            return self.inner(x)

    class Appending(Counting):
        def forward(self, x):
            self.seen.append(x)
            return self.inner(x)

    class Switching(Counting):
        def forward(self, x):
            self.inner.eval()
            return self.inner(x)

    model = Counting()
    model(X)
    model(X)
    assert model.count == 2, "without a trace it is plain Python"
    for function in (nova.jit(model), nova.jit(lambda x: model(x))):
        with pytest.raises(StateAssignedError, match=r"Counting\.count") as caught:
            function(X)
        assert __file__ in caught.value.where
    assert model.count == 2
    with pytest.raises(StateAssignedError, match=r"Appending\.seen"):
        nova.jit(Appending())(X)
    with pytest.raises(StateAssignedError, match=r"Linear\.training"):
        nova.jit(Switching())(X)
    # To the value that it has, and modules that are made inside.
    switched = Switching().eval()
    check(nova.jit(switched), switched, X)
    fresh = nova.jit(lambda x: nn.Sequential(nn.ReLU(), nn.Tanh())(x))
    np.testing.assert_allclose(fresh(X), np.tanh(np.maximum(X, 0)), rtol=1e-5)


# --- what a function closes over ------------------------------------------------------------------


def test_closed_over_tensors_and_arrays_are_read_at_each_call() -> None:
    weight = RNG.standard_normal((8, 2)).astype("f4")
    offset = nova.tensor(np.zeros(2, "f4"))
    f = nova.jit(lambda x: x @ weight + offset)
    for _ in range(2):
        np.testing.assert_allclose(f(X), X @ weight + offset.data, rtol=1e-5, atol=1e-6)
        weight[0] += 1.0
        offset.data[...] = 3.0
    offset.data = np.full(2, 9.0, "f4")
    np.testing.assert_allclose(f(X), X @ weight + 9, rtol=1e-5)
    assert f.cache_info().misses == 1
    weight = weight.copy() * 2
    np.testing.assert_allclose(f(X), X @ weight + 9, rtol=1e-5)
    offset = nova.tensor(np.ones(2, "f4"))
    np.testing.assert_allclose(f(X), X @ weight + 1, rtol=1e-5)
    weight = RNG.standard_normal((8, 5)).astype("f4")
    offset = nova.tensor(np.ones(5, "f4"))
    np.testing.assert_allclose(f(X), X @ weight + 1, rtol=1e-5)


def test_old_arrays_are_let_go() -> None:
    from weakref import ref

    weight = np.ones((8, 2), "f4")
    f = nova.jit(lambda x: x @ weight)
    f(X)
    old = ref(weight)
    weight = np.full((8, 2), 2.0, "f4")
    f(X)
    gc.collect()
    assert old() is None


def test_numbers_containers_and_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Config:
        power: int = 1

    config, params, mode = Config(), {"w": np.ones(8, "f4")}, "add"

    def helper(x):
        return x * SCALE + TABLE

    def f(x):
        y = helper(x) ** config.power
        return y + params["w"] if mode == "add" else y * params["w"]

    jitted = nova.jit(f)

    def check_all() -> None:
        y = (X * SCALE + TABLE) ** config.power
        expected = y + params["w"] if mode == "add" else y * params["w"]
        for _ in range(2):
            np.testing.assert_allclose(jitted(X), expected, rtol=1e-5)

    check_all()
    config.power = 2
    check_all()
    params["w"][0] = 7
    check_all()
    params["w"] = np.full(8, 3.0, "f4")
    check_all()
    mode = "mul"
    check_all()
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    check_all()
    monkeypatch.setitem(globals(), "TABLE", TABLE * 2)
    check_all()
    jitted(X)
    assert jitted.cache_info().size <= 6


@pytest.mark.parametrize(
    "state", [[2.0], {"a": 2.0}, ([2.0],), SimpleNamespace(a=2.0)], ids=lambda s: type(s).__name__
)
def test_each_container_is_watched(state) -> None:
    def get():
        if isinstance(state, SimpleNamespace):
            return state.a
        return state["a"] if isinstance(state, dict) else np.ravel(state).tolist()[0]

    f = nova.jit(lambda x: x * get())
    np.testing.assert_allclose(f(X), X * 2, rtol=1e-6)
    if isinstance(state, SimpleNamespace):
        state.a = 3.0
    elif isinstance(state, dict):
        state["a"] = 3.0
    else:
        (state[0] if isinstance(state, tuple) else state)[0] = 3.0
    np.testing.assert_allclose(f(X), X * 3, rtol=1e-6)


def test_values_that_python_code_reads_select_programs() -> None:
    sign = nova.tensor(np.array([1.0], "f4"))
    large = nova.tensor(np.ones(100_000, "f4"))
    f = nova.jit(lambda x: x * 2 if sign.item() > 0 else x * 3)
    np.testing.assert_allclose(f(X), X * 2, rtol=1e-6)
    sign.data[...] = -1
    np.testing.assert_allclose(f(X), X * 3, rtol=1e-6)
    sign.data[...] = 1
    np.testing.assert_allclose(f(X), X * 2, rtol=1e-6)
    with pytest.raises(ConcreteValueError, match="read while a function is traced"):
        nova.jit(lambda x: x * float(large.sum()))(X)


def test_a_branch_on_an_argument_says_so() -> None:
    large = np.ones((8, 2000), "f4")
    with pytest.raises(ConcreteValueError, match=r"nova\.cond\("):
        nova.jit(lambda x: x if (x @ large).sum() > 0 else -x)(X)


def test_large_containers_are_compared_by_length() -> None:
    steps = [1.0] * 100_000
    f = nova.jit(lambda x: x * len(steps))
    f(X)
    steps.append(1.0)
    np.testing.assert_allclose(f(X), X * 100_001, rtol=1e-6)


def test_a_mixin_keeps_its_constructor() -> None:
    class Named:
        def __init__(self, title="none"):
            self.title = title

    class Layer(nn.Module, Named):
        def forward(self, x):
            return x

    assert Layer("mine").title == "mine" and Layer(title="own").title == "own"


def test_names_that_a_trace_assigns_are_no_state() -> None:
    traces = 0
    observed: list[object] = []

    @nova.jit
    def f(x):
        nonlocal traces
        traces += 1
        observed.append(x)
        return x + 1

    for x in (X, X, X[:2], X, X[:2]):
        np.testing.assert_allclose(f(x), x + 1, rtol=1e-6)
    assert traces == 2 and f.cache_info().misses == 2


def test_pure_functions_call_the_native_program() -> None:
    f = nova.jit(lambda x: nova.sin(x) * 2.0)
    f(X)
    assert type(f._last_program).__name__ == "Program"


def test_threads_change_modes_and_weights() -> None:
    model = make_model(0.5).eval()
    predict = nova.jit(model)
    expected = predict(X)
    failures = []

    def work() -> None:
        for _ in range(30):
            if not np.array_equal(predict(X), expected):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        nn.Linear(2, 2)  # any module counts the generation up
    for thread in threads:
        thread.join()
    assert not failures
