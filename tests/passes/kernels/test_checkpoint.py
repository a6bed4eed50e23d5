"""`checkpoint(f)`: less memory, the same gradients, and recomputation that stays in the IR."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import nova

N, LAYERS, DEPTH = 96, 3, 3


def _model(wrap: Callable[[Any], Any]) -> tuple[Any, list[Any], Any]:
    """Input, params and loss of a deep model whose blocks are `wrap`ped."""
    rng = np.random.default_rng(0)
    x = nova.tensor(rng.standard_normal((N, N)).astype(np.float32), name="x")
    params = [
        nova.tensor(
            (rng.standard_normal((N, N)) / np.sqrt(N)).astype(np.float32),
            name=f"w{i}",
            requires_grad=True,
        )
        for i in range(LAYERS)
    ]

    def block(h: Any, w: Any) -> Any:
        for _ in range(DEPTH):
            h = nova.tanh(h @ w)
        return h

    h = x
    for w in params:
        h = wrap(block)(h, w)
    return x, params, nova.mean(h * h)


@cache
def _compile(wrap: Callable[[Any], Any]) -> tuple[Any, tuple[np.ndarray, ...]]:
    x, params, loss = _model(wrap)
    program = nova.compile(loss, inputs=[x], params=params, include_backward=True)
    return program, program.run([x.data], [p.data for p in params])


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def test_less_workspace_same_gradients() -> None:
    plain, expected = _compile(_plain)
    checked, results = _compile(nova.checkpoint)
    assert checked.workspace_size <= 0.75 * plain.workspace_size
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-6, atol=1e-9)


def test_recomputation_is_in_the_ir_to_the_end() -> None:
    plain, _ = _compile(_plain)
    checked, _ = _compile(nova.checkpoint)
    forward = LAYERS * DEPTH
    assert plain.stages["nova"].count('"nova.tanh"') == forward
    assert "nova.barrier" not in plain.stages["nova"]
    assert checked.stages["nova"].count('"nova.tanh"') == 2 * forward
    assert checked.stages["linalg"].count("nova.barrier") >= LAYERS
    # After the barriers are gone, nothing has merged what they kept apart.
    assert checked.stages["linalg"].count("math.tanh") == 2 * forward
    assert _in_all_calls(checked.stages["kernels"], "math.tanh") == 2 * forward
    assert "nova.barrier" not in checked.stages["kernels"]


def _in_all_calls(stage: str, op: str) -> int:
    """How many of an op a run computes: kernels that are called twice count twice."""
    kernels, main = stage.split("func.func @main(")
    bodies = dict(body.split("(", 1) for body in kernels.split("func.func private @")[1:])
    return sum(bodies[name].count(op) for name in re.findall(r"call @(\w+)\(", main))


def test_recomputation_waits_for_the_gradient() -> None:
    """No kernel of the forward pass recomputes: it comes in a kernel of its own, later."""
    checked, _ = _compile(nova.checkpoint)
    first = checked.stages["kernels"].split("func.func private @kernel_")[1]
    assert first.count("math.tanh") <= LAYERS * DEPTH


def test_values_outside_of_the_region_are_kept() -> None:
    x = nova.tensor(np.linspace(-1, 1, 8, dtype=np.float32), name="x", requires_grad=True)
    outside = nova.exp(x)
    inside = nova.checkpoint(lambda v: nova.sin(v) * v)(outside)
    loss = nova.sum(inside * outside)
    gradient = _grad(loss, x)
    program = nova.compile([loss, gradient], inputs=[x])
    value, result = program.run([x.data])
    e = np.exp(x.data.astype(np.float64))
    np.testing.assert_allclose(value, (np.sin(e) * e * e).sum(), rtol=1e-5)
    np.testing.assert_allclose(result, (np.cos(e) * e * e + 2 * np.sin(e) * e) * e, rtol=1e-4)
    assert program.stages["nova"].count('"nova.exp"') == 1
    assert program.stages["nova"].count('"nova.sin"') >= 2


def _grad(loss: Any, leaf: Any) -> Any:
    nova.backward(loss)
    return leaf.grad


@pytest.mark.parametrize("nested", [1, 2], ids=["once", "twice"])
def test_nested_and_second_derivative(nested: int) -> None:
    f: Callable[[Any], Any] = lambda v: nova.sin(v) * v  # noqa: E731
    for _ in range(nested):
        f = nova.checkpoint(f)
    data = np.linspace(0.1, 2.0, 6, dtype=np.float64)
    first = nova.grad(lambda v: nova.sum(f(v)))
    second = nova.grad(lambda v: nova.sum(first(v)))
    x = nova.tensor(data)
    np.testing.assert_allclose(first(x).numpy(), np.cos(data) * data + np.sin(data), rtol=1e-12)
    np.testing.assert_allclose(
        second(x).numpy(), 2 * np.cos(data) - data * np.sin(data), rtol=1e-12
    )
