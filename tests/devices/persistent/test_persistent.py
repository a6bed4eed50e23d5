"""Programs as tasks of one resident kernel, on the simulator: results, order, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import nn, optim
from nova.errors import GraphError, KnobError, PersistentLaunchError, TargetError
from nova.knobs import SIM_SCHEDULES

DEVICE = {"target": "cuda:sm_90a", "run_mode": "sim"}


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _branches(x: Any) -> Any:
    """Two branches that meet, and a buffer that is reused after both."""
    a, b = nova.tanh(x @ x.T), nova.softmax(x, -1)
    return (a @ b).sum(0), nova.cumsum(b, 0) * a.max()


def _gather(x: Any) -> Any:
    order = nova.argsort(x.sum(-1))
    return nova.take(x, order, 0), x.reshape(-1)[::3]


def _attention(x: Any) -> Any:
    q = x.reshape(1, 2, 24, 20)
    return nova.scaled_dot_product_attention(q, q, q), nova.layer_norm(
        x, np.ones(20, "f4"), np.zeros(20, "f4")
    )


PROGRAMS = {"branches": _branches, "gather": _gather, "attention": _attention}


def compiled(name: str, launch: str) -> Any:
    x = nova.input((48, 20))
    return nova.compile(PROGRAMS[name](x), inputs=[x], launch=launch, **DEVICE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_cpu(name: str) -> None:
    x = nova.input((48, 20))
    expected = nova.compile(PROGRAMS[name](x), inputs=[x])(array(48, 20))
    program = compiled(name, "persistent")
    for _ in range(3):  # counters are 0 again after each launch
        for result, other in zip(program(array(48, 20)), expected, strict=True):
            np.testing.assert_allclose(result, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_every_order_of_blocks_gives_the_same_bits(tmp_path: Path, schedule: str) -> None:
    path = tmp_path / "program.nova"
    program = compiled("branches", "persistent")
    expected = program(array(48, 20))
    program.save(path)
    with nova.knobs.override(sim_schedule=schedule):
        loaded = nova.load(path, device="sim")
    for result, other in zip(loaded(array(48, 20)), expected, strict=True):
        np.testing.assert_array_equal(result, other)


def test_a_run_is_one_launch() -> None:
    program = compiled("branches", "persistent")
    before = program._program.counts()
    program(array(48, 20))
    after = program._program.counts()
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)


def test_symbolic_sizes() -> None:
    rows = nova.dim("rows", min=1, max=300)
    x = nova.input((rows, 12))
    program = nova.compile(
        (nova.softmax(x, -1) @ x.T).sum(-1), inputs=[x], launch="persistent", **DEVICE
    )
    for size in (1, 7, 64, 131):
        value = array(size, 12, seed=size)
        weights = np.exp(value - value.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(
            program(value), (weights @ value.T).sum(-1), rtol=2e-4, atol=1e-5
        )


# --- many steps in one launch ---------------------------------------------------------------------


def make_step(launch: str, **options: Any) -> Any:
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
    for i, param in enumerate(model.parameters()):
        param.data[...] = 0.3 * array(*param.shape, seed=i)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    return nova.train_step(
        model, lambda m, x, y: nova.cross_entropy(m(x), y), optimizer, launch=launch, **options
    )


def batches(count: int, rows: int = 8) -> tuple[Any, Any]:
    labels = np.random.default_rng(1).integers(0, 4, (count, rows))
    return array(count, rows, 12, seed=5), labels


@pytest.mark.parametrize("launch", ["graph", "persistent"])
def test_run_many_is_a_step_for_each_part(launch: str) -> None:
    xs, ys = batches(4)
    one, many = make_step(launch, **DEVICE), make_step(launch, **DEVICE)
    expected = [float(one(x, y)) for x, y in zip(xs, ys, strict=True)]
    losses = many.run_many(xs, ys)
    assert losses.shape == (4,) and losses.tolist() == expected
    assert many.run_many(xs, ys)[0] == float(one(xs[0], ys[0]))
    for name, value in one.state_dict().items():
        if name.startswith("model."):
            assert value.shape == many.state_dict()[name].shape


def test_run_many_on_the_cpu_and_with_parts_that_are_not_aligned() -> None:
    xs, ys = batches(3, rows=5)  # labels of 40 bytes: a launch of all steps cannot use them
    on_cpu, on_device = make_step("graph"), make_step("persistent", **DEVICE)
    np.testing.assert_allclose(on_device.run_many(xs, ys), on_cpu.run_many(xs, ys), rtol=1e-5)


@pytest.mark.parametrize(
    "arrays",
    [(np.float32(1), np.zeros(2, "f4")), (np.zeros((2, 8, 12), "f4"), np.zeros((3, 8), "f4"))],
)
def test_run_many_needs_parts(arrays: tuple[Any, ...]) -> None:
    with pytest.raises(GraphError, match="one part for each step"):
        make_step("graph").run_many(*arrays)


def test_a_failed_run_many_leaves_the_step_as_it_was() -> None:
    xs, ys = batches(3)
    step = make_step("persistent", **DEVICE)
    first = step(xs[0], ys[0])
    with pytest.raises(nova.NovaError):
        step.run_many(nova.to_device(xs, "sim:1"), ys)
    assert step(xs[0], ys[0]).shape == first.shape == ()


def test_device_arrays_are_not_cut_into_parts() -> None:
    xs, ys = batches(1)
    step = make_step("persistent", **DEVICE)
    with pytest.raises(GraphError, match="cannot be cut into parts"):
        step.run_many(nova.to_device(xs, "sim"), nova.to_device(ys, "sim"))


# --- refusals -------------------------------------------------------------------------------------


def test_kernels_of_the_host_are_refused() -> None:
    x = nova.input((8,))
    with nova.device("cpu"):
        y = nova.sin(x)
    with pytest.raises(PersistentLaunchError, match="on the host cannot run"):
        nova.compile(y * 2, inputs=[x], launch="persistent", **DEVICE)


def test_other_values_of_launch() -> None:
    x = nova.input((8,))
    with pytest.raises(KnobError, match="launch"):
        nova.compile(x + 1, inputs=[x], launch="resident", **DEVICE)
    with pytest.raises(TargetError, match="launch"):
        nova.compile(x + 1, inputs=[x], launch="persistent")


def test_reductions_of_long_rows_have_the_threads_of_a_task() -> None:
    x = nova.input((2, 40_000))
    program = nova.compile(nova.logsumexp(x, -1), inputs=[x], launch="persistent", **DEVICE)
    value = array(2, 40_000)
    expected = np.log(np.exp(value.astype(np.float64)).sum(-1))
    np.testing.assert_allclose(program(value), expected, rtol=1e-5)
