"""Buffers that a traced function assigns: every run of the compiled program sets them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.core.dtypes import TensorType
from nova.errors import ControlFlowError, GraphError, ShapeError
from nova.graph.tensor import Tensor

BATCHES = np.random.default_rng(4).standard_normal((5, 6, 3)).astype("f4")
SIM = {"target": "cuda:sm_80", "run_mode": "sim"}


def statistics(module: Any) -> dict[str, np.ndarray]:
    return {n: np.array(a) for n, a in module.state_dict().items() if "num" in n or "run" in n}


def torch_statistics(module: torch.nn.Module) -> dict[str, np.ndarray]:
    for batch in BATCHES:
        module(torch.tensor(batch))
    return {n: t.numpy() for n, t in module.state_dict().items() if "num" in n or "run" in n}


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("momentum", [0.1, None], ids=["momentum", "cumulative"])
@pytest.mark.parametrize("how", ["eager", "jit", "jit on sim", "step", "step on sim"])
def test_batch_norm_tracks_as_torch(how: str, momentum: float | None) -> None:
    norm = nn.BatchNorm1d(3, momentum=momentum)
    options = SIM if how.endswith("sim") else {}
    if how.startswith("step"):
        run: Any = nova.train_step(
            norm,
            lambda m, x: (m(x) * 0.0).sum() + m.weight.sum(),
            optim.SGD(norm.parameters(), 0.0),
            **options,
        )
    else:
        run = norm if how == "eager" else nova.jit(norm, **options)
    for batch in BATCHES:
        run(batch)
    assert_same(statistics(norm), torch_statistics(torch.nn.BatchNorm1d(3, momentum=momentum)))
    assert how == "eager" or how.startswith("step") or run.cache_info().misses == 1


class Shared(nn.Module):
    """One batch norm, applied twice: both calls count."""

    def __init__(self) -> None:
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Any) -> Any:
        return self.norm(self.norm(x) * 2.0 + 1.0)


class TorchShared(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: Any) -> Any:
        return self.norm(self.norm(x) * 2.0 + 1.0)


def test_a_shared_layer_tracks_both_calls() -> None:
    model = Shared()
    program = nova.jit(model)
    for batch in BATCHES:
        program(batch)
    assert_same(statistics(model), torch_statistics(TorchShared()))


def test_half_precision_tracks_in_f32() -> None:
    norm = nn.BatchNorm1d(3)
    step = nova.train_step(
        norm, lambda m, x: m(x).square().mean(), optim.SGD(norm.parameters()), precision="bf16"
    )
    for batch in BATCHES:
        step(batch)
    assert norm.running_mean.data.dtype == np.float32
    reference = torch_statistics(torch.nn.BatchNorm1d(3))
    np.testing.assert_allclose(norm.running_mean.data, reference["running_mean"], atol=4e-3)
    np.testing.assert_allclose(norm.running_var.data, reference["running_var"], rtol=2e-2)


class Counter(nn.Module):
    def __init__(self) -> None:
        self.weight = nn.Parameter(np.ones(3, "f4"))
        self.calls = nn.Buffer(np.zeros((), "i8"))
        self.average = nn.Buffer(np.zeros(3, "f4"))

    def forward(self, x: Any) -> Any:
        self.calls.assign(self.calls + 1)
        self.average.assign(self.average * 0.5 + x.mean(axis=0) * 0.5)
        return (x * self.weight + self.average.latest).sum()


@pytest.mark.parametrize("options", [{}, SIM], ids=["cpu", "sim"])
def test_own_buffers_of_a_step(options: dict[str, Any], tmp_path: Any) -> None:
    model = Counter()
    step = nova.train_step(
        model, lambda m, x: m(x), optim.SGD(model.parameters(), 0.0), accumulate=2, **options
    )
    average = np.zeros(3, "f4")
    for i, batch in enumerate(BATCHES):
        average = average * np.float32(0.5) + batch.mean(axis=0) * np.float32(0.5)
        np.testing.assert_allclose(step(batch), batch.sum() + 6 * average.sum(), rtol=1e-4)
        assert int(model.calls.data) == i + 1
    np.testing.assert_allclose(model.average.data, average, rtol=1e-5)
    state = step.state_dict()
    assert int(state["model.calls"]) == 5
    again = Counter()
    other = nova.train_step(
        again, lambda m, x: m(x), optim.SGD(again.parameters(), 0.0), accumulate=2, **options
    )
    other.load_state_dict(state)
    other(BATCHES[0])
    assert int(again.calls.data) == 6


def test_mistakes() -> None:
    model = Counter()
    with pytest.raises(ShapeError, match="shape of a buffer does not change"):
        model.average.assign(np.zeros(4, "f4"))
    with pytest.raises(GraphError, match="only known when a program runs"):
        model.average.assign(Tensor(TensorType((3,), nova.f32), name="x"))
    foreign = nn.Buffer(np.zeros((), "f4"))

    def loss(m: Any, x: Any) -> Any:
        foreign.assign(x.sum())
        return m(x)

    step = nova.train_step(model, loss, optim.SGD(model.parameters()))
    with pytest.raises(GraphError, match="not a buffer of the model"):
        step(BATCHES[0])


@pytest.mark.parametrize(
    "run",
    [
        lambda m, x: nova.cond(x.sum() > 100, lambda: m(x), lambda: x.sum()),
        lambda m, x: nova.fori_loop(0, 5, lambda i, v: v + m(x), x.sum()),
        lambda m, x: nova.scan(lambda c, row: (c + m(x), row), x.sum(), x),
    ],
    ids=["cond", "fori_loop", "scan"],
)
def test_an_assignment_in_a_region_is_an_error(run: Any) -> None:
    model = Counter()
    with pytest.raises(ControlFlowError, match=r"inside a (branch|loop)"):
        nova.jit(lambda x: run(model, x))(BATCHES[0])
    assert int(model.calls.data) == 0


def test_a_random_layer_in_a_loop_is_an_error() -> None:
    drop = nn.Dropout(0.5)
    with pytest.raises(ControlFlowError, match="same numbers in every iteration"):
        nova.jit(lambda x: nova.fori_loop(0, 4, lambda i, v: drop(v), x))(BATCHES[0])
    chosen = nova.jit(lambda x: nova.cond(x.sum() > 1e9, lambda: x, lambda: drop(x)))(BATCHES[0])
    assert (chosen == 0).any()


def test_an_empty_batch_leaves_the_statistics() -> None:
    norm = nn.BatchNorm1d(3)
    norm(np.zeros((0, 3), "f4"))
    assert not norm.running_mean.data.any() and int(norm.num_batches_tracked.data) == 0


def test_tensors_keep_the_value_that_a_buffer_had():
    """Graphs are computed late; `assign` does not change what was computed from the old value."""
    buffer = nn.Buffer(np.zeros(3, "f4"))
    w = nova.tensor(np.full(3, 2, "f4"), requires_grad=True)
    first = (buffer + 1) * w
    later = first * 10
    buffer.assign(buffer + 5)
    second = buffer * w
    buffer.assign(np.full(3, 7))
    np.testing.assert_array_equal(first.numpy(), [2, 2, 2])
    np.testing.assert_array_equal(later.numpy(), [20, 20, 20])
    np.testing.assert_array_equal(second.numpy(), [10, 10, 10])
    np.testing.assert_array_equal((buffer * w).numpy(), [14, 14, 14])
    nova.backward((first + second).sum())
    np.testing.assert_array_equal(w.grad.numpy(), [6, 6, 6])
    looped = nova.scan(lambda c, _: (c + buffer, None), buffer, length=2)[0]
    buffer.assign(np.zeros(3))
    np.testing.assert_array_equal(looped.numpy(), [21, 21, 21])


def test_buffers_stay_arguments_of_programs():
    """A program of a graph with inputs reads the buffer, also one that was assigned since."""
    buffer, x = nn.Buffer(np.ones(2, "f4")), nova.input((2,), name="x")
    y = x * buffer
    buffer.assign(np.full(2, 3))
    program = nova.compile(y, inputs=[x], params=[buffer])
    np.testing.assert_array_equal(program(np.ones(2, "f4")), [3, 3])


def test_copies_of_buffers_that_were_read():
    buffer = nn.Buffer(np.ones(2, "f4"))
    read = buffer + 1
    for copied in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        twice = copied * 2
        copied.assign(np.full(2, 5))
        np.testing.assert_array_equal(twice.numpy(), [2, 2])
        np.testing.assert_array_equal(copied.numpy(), [5, 5])
    np.testing.assert_array_equal(read.numpy(), [2, 2])
