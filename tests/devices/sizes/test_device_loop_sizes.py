"""Loops and branches with symbolic sizes on a simulated device, against the CPU and torch.

The device decides by conditional nodes, by unrolled graphs of a size, or the host does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from taggers import taggers

import nova
from nova import knobs, optim
from nova.errors import LoweringError

RNG = np.random.default_rng(3)
SIM: dict[str, Any] = {"target": "cuda:sm_80", "run_mode": "sim"}
DYNAMIC = {"xs": {0: "T", 1: "B"}, "h": {0: "B"}}
SIZES = [(1, 1), (2, 3), (9, 17)]
"""Steps and rows of the calls."""


def rows(h: Any, xs: Any, w: Any) -> Any:
    """A symbolic number of slices, symbolic carries and results."""

    def body(carry: Any, x: Any) -> Any:
        new = nova.tanh(carry @ w + x)
        return new, new * x

    last, ys = nova.scan(body, h, xs)
    return (last * last).sum() + (ys * ys * ys).mean()


def backwards(h: Any, xs: Any, w: Any) -> Any:
    """From the last slice to the first, with a counter and two results."""

    def body(carry: Any, x: Any) -> Any:
        new = nova.tanh(carry["h"] * x)
        return {"h": new, "n": carry["n"] + 1}, {"y": new @ w, "z": x.sum(axis=0)}

    last, ys = nova.scan(body, {"h": h, "n": 0}, xs, reverse=True)
    return (last["h"] * last["h"]).sum() + (ys["y"].sum(axis=1) * ys["z"]).sum() * 0.1


def branches(h: Any, xs: Any, w: Any) -> Any:
    """Both branches of a condition, and one of three in each iteration."""

    def body(carry: Any, x: Any) -> Any:
        cases = [lambda v: v, lambda v: nova.tanh(v @ w), lambda v: v * x]
        return nova.switch((abs(x[0, 0]) * 4).astype("int32"), cases, carry), None

    last, _ = nova.scan(body, h, xs)
    return nova.cond(
        last.sum() > 0, lambda v: nova.sin(v) + xs[0], lambda v: v * xs[-1], last
    ).sum()


def nested(h: Any, xs: Any, w: Any) -> Any:
    """A loop over rows, whose number is symbolic, inside of a loop over slices."""

    def outer(carry: Any, x: Any) -> Any:
        def inner(total: Any, row: Any) -> Any:
            return nova.tanh(total + row @ w), total * row

        last, products = nova.scan(inner, carry.sum(axis=0), x)
        return carry * 0.5 + products + last * 0.1, last

    last, ys = nova.scan(outer, h, xs)
    return (last * last).sum() + ys.sum()


def arrays_of(steps: int, batch: int) -> list[np.ndarray]:
    shapes = ((batch, 8), (steps, batch, 8), (8, 8))
    return [RNG.normal(size=shape).astype("f4") / 2 for shape in shapes]


@pytest.mark.parametrize("loops", knobs.DEVICE_LOOPS)
@pytest.mark.parametrize(
    "program", [rows, branches, nested, pytest.param(backwards, marks=pytest.mark.slow)]
)
def test_values_and_gradients_equal_those_of_the_cpu(
    program: Callable[..., Any], loops: str
) -> None:
    def both(h: Any, xs: Any, w: Any) -> Any:
        return nova.value_and_grad(program, argnums=(0, 1, 2))(h, xs, w)

    expected = nova.jit(both, dynamic=DYNAMIC)
    with knobs.override(device_loops=loops):
        compiled = nova.jit(both, dynamic=DYNAMIC, **SIM)
        for sizes in SIZES:
            arrays = arrays_of(*sizes)
            value, gradients = compiled(*arrays)
            cpu_value, cpu_gradients = expected(*arrays)
            np.testing.assert_allclose(value, cpu_value, rtol=1e-4, atol=1e-5)
            for gradient, cpu_gradient in zip(gradients, cpu_gradients, strict=True):
                np.testing.assert_allclose(gradient, cpu_gradient, rtol=2e-3, atol=2e-5)
    assert compiled.cache_info().misses == compiled.cache_info().symbolic == 1


@pytest.mark.parametrize("loops", knobs.DEVICE_LOOPS)
def test_a_loop_of_no_iterations_returns_its_carries(loops: str) -> None:
    steps = nova.dim("T", min=0)
    xs, h = nova.input((steps, 4), name="xs"), nova.input((4,), name="h")
    last, ys = nova.scan(lambda c, x: (c + x, c * x), h, xs)
    h_value = np.arange(4, dtype="f4")
    with knobs.override(device_loops=loops):
        program = nova.compile([last, ys, ys.sum()], inputs=[xs, h], **SIM)
        for count in (0, 1, 3, 0):
            slices = RNG.normal(size=(count, 4)).astype("f4")
            carried, stacked, total = program(slices, h_value)
            np.testing.assert_allclose(carried, h_value + slices.sum(axis=0), rtol=1e-5)
            assert stacked.shape == (count, 4)
            np.testing.assert_allclose(total, np.asarray(stacked).sum(), rtol=1e-5, atol=1e-6)


def test_the_number_of_iterations_of_a_while_loop_depends_on_a_size() -> None:
    @nova.jit(dynamic={"x": {0: "N"}}, **SIM)
    def halve(x: Any) -> Any:
        return nova.while_loop(
            lambda s: s[0] < s[1].shape[0], lambda s: (s[0] + 1, s[1] * 0.5 + s[0]), (0, x)
        )

    for size in (1, 2, 5, 40):
        x = RNG.normal(size=size).astype("f4")
        count, values = halve(x)
        expected = x
        for i in range(size):
            expected = expected * np.float32(0.5) + i
        assert count == size
        np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_a_loop_over_numbers_of_one_kernel_has_a_symbolic_length() -> None:
    @nova.jit(dynamic={"x": {0: "N"}}, **SIM)
    def polynomial(x: Any, start: Any) -> Any:
        value = nova.fori_loop(0, x.shape[0], lambda i, v: v * 2 + i, start)
        return value, x * 2

    for size in (1, 4, 7):
        value, doubled = polynomial(np.ones(size, "f4"), 1)
        expected = 1
        for i in range(size):
            expected = expected * 2 + i
        assert value == expected and doubled.shape == (size,)


def test_a_file_runs_its_loops_at_any_size(tmp_path: Path) -> None:
    h, xs = nova.input((nova.dim("B"), 8), name="h"), nova.input((nova.dim("T"), 8), name="xs")
    w = nova.input((8, 8), name="w")
    last, ys = nova.scan(lambda c, x: (nova.tanh(c @ w + x), c.sum(axis=0)), h, xs)
    nova.compile([last, ys], inputs=[h, xs, w], **SIM).save(tmp_path / "loop.nova")
    loaded = nova.load(tmp_path / "loop.nova", device="sim")
    for batch, steps in [(1, 1), (3, 5), (65, 2)]:
        arrays = [RNG.normal(size=s).astype("f4") / 3 for s in ((batch, 8), (steps, 8), (8, 8))]
        carry, slices, weight = arrays
        sums = []
        for row in slices:
            sums.append(carry.sum(axis=0))
            carry = np.tanh(carry @ weight + row)
        found, found_sums = loaded.forward(*arrays)
        np.testing.assert_allclose(found, carry, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found_sums, sums, rtol=1e-4, atol=1e-4)
    assert loaded.cache_info().entries == 3


@pytest.mark.slow
def test_an_lstm_trains_on_ragged_batches_and_lengths() -> None:
    model, reference = taggers()
    step = nova.train_step(
        model,
        lambda model, x, y: nova.cross_entropy(model(x).reshape(-1, 3), y.reshape(-1)),
        optim.SGD(model.parameters(), lr=0.2),
        dynamic={"x": {0: "B", 1: "T"}, "y": {0: "B", 1: "T"}},
        **SIM,
    )
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.2)
    for batch, length in [(4, 5), (3, 7), (1, 1)]:
        x = RNG.normal(size=(batch, length, 6)).astype("f4")
        y = RNG.integers(0, 3, (batch, length))
        loss = step(x, y)
        optimizer.zero_grad()
        logits = reference(torch.from_numpy(x)).reshape(-1, 3)
        expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y).reshape(-1))
        expected.backward()
        optimizer.step()
        np.testing.assert_allclose(float(loss), expected.item(), rtol=1e-5)
    for name, parameter in reference.state_dict().items():
        array = np.asarray(model.state_dict()[name])
        np.testing.assert_allclose(array, parameter.numpy(), rtol=1e-4, atol=1e-5)


def test_a_loop_with_ops_on_the_host_has_static_sizes() -> None:
    def body(carry: Any, x: Any) -> Any:
        with nova.device("cpu"):
            return nova.tanh(carry * x), None

    x = nova.input((nova.dim("T"), 4), name="x")
    last, _ = nova.scan(body, nova.zeros((4,)), x)
    with pytest.raises(LoweringError, match="runs on the host, in a program for a device"):
        nova.compile(last, inputs=[x], **SIM)
