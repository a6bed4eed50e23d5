"""Loops over a few numbers on a simulated device: one kernel, with the results of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova

SIM: dict[str, Any] = {"target": "cuda:sm_80", "run_mode": "sim"}
MATRIX = np.array([[0.5, 0.25], [-0.25, 0.5]])


def counters(n: Any) -> Any:
    return nova.while_loop(lambda c: c[0] < n, lambda c: c + 1, np.zeros(2, np.int64))


def mixed(n: Any) -> Any:
    """Numbers of four dtypes: a ring, a sum, a maximum and flags."""

    def body(state: Any) -> Any:
        count, ring, most, flags = state
        ring = nova.concat([ring[1:], ring[:1] * 0.5 + ring.sum()])
        return count + 1, ring, most + ring.max(), ~flags

    start = (0, np.arange(3, dtype="f4"), np.float32(0), np.array([True, False]))
    return nova.while_loop(lambda state: state[0] < n, body, start)


def products(n: Any) -> Any:
    start = nova.cast(n, dtype=nova.f64) * np.ones(2)
    return nova.fori_loop(0, 7, lambda i, v: nova.tanh(v @ MATRIX) + i, start)


def positions(n: Any) -> Any:
    """An element at a position that the loop computes."""

    def body(i: Any, v: Any) -> Any:
        element = nova.dynamic_slice(v, (i % 4,), (1,))
        return nova.where(nova.arange(4) == i, v * 2, v[::-1]) + element

    return nova.fori_loop(0, 7, body, nova.arange(4) * n)


def newton(n: Any) -> Any:
    """The square root of two numbers, until both are close."""
    target = nova.stack([nova.cast(n, dtype=nova.f32), nova.cast(n + 1, dtype=nova.f32)])

    def body(x: Any) -> Any:
        return (x + target / x) * 0.5

    return nova.while_loop(lambda x: (abs(x * x - target) > 1e-3).any(), body, target)


def collatz(n: Any) -> Any:
    """The steps to 1, and the largest number on the way."""

    def body(state: Any) -> Any:
        value, steps, most = state
        value = nova.where(value % 2 == 0, value // 2, 3 * value + 1)
        return value, steps + 1, nova.maximum(most, value)

    return nova.while_loop(lambda state: state[0] != 1, body, (n, 0, n))


@pytest.mark.parametrize("function", [counters, mixed, products, positions, newton, collatz])
def test_one_kernel_computes_the_results_of_the_cpu(function: Callable[[Any], Any]) -> None:
    expected, compiled = nova.jit(function), nova.jit(function, **SIM)
    for n in (1, 6, 27):
        results, references = (
            r if isinstance(r, tuple) else (r,) for r in (compiled(n), expected(n))
        )
        for result, reference in zip(results, references, strict=True):
            assert result.dtype == reference.dtype
            np.testing.assert_allclose(result, reference, rtol=1e-6)
    count = nova.input((), nova.i64, name="n")
    outputs = function(count)
    outputs = list(outputs) if isinstance(outputs, tuple) else outputs
    program = nova.compile(outputs, inputs=[count], **SIM)
    assert "nova.control" not in program.stages["buffers"]


def test_larger_states_are_loops_of_kernels() -> None:
    count = nova.input((), nova.i64, name="n")
    state = nova.while_loop(lambda c: c[0] < count, lambda c: c + 1, np.zeros(64, np.int64))
    program = nova.compile(state, inputs=[count], **SIM)
    assert "nova.control" in program.stages["buffers"]
    np.testing.assert_array_equal(program.forward(np.int64(5)), np.full(64, 5))
