"""Loops over values without elements: their kernels write no byte, and their files load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.core.pytree import flatten

EMPTY = np.zeros(0, "f4")
MATRICES = np.zeros((0, 3, 3), "f4")
SIM = {"target": "cuda:sm_80", "run_mode": "sim"}
LAUNCHES = ("graph", "persistent")


def swapped(i: Any, v: Any) -> Any:
    return v[1], v[0]


def incremented(i: Any, v: Any) -> Any:
    return v[0] + 1, v[0]


@pytest.mark.parametrize("body", [swapped, incremented])
@pytest.mark.parametrize("options", [{}, SIM])
def test_empty_carries(body: Callable, options: dict[str, str]):
    program = nova.jit(lambda a, b: nova.fori_loop(0, 3, body, (a, b)), **options)
    first, second = program(EMPTY, EMPTY)
    assert np.shape(first) == np.shape(second) == (0,)


@pytest.mark.parametrize("options", [{}, *({**SIM, "launch": name} for name in LAUNCHES)])
def test_a_loop_that_reads_nothing(options: dict[str, str]):
    """Its carry is a constant, and it ignores its slices: the loop has results only."""

    def loop(x: Any) -> Any:
        return nova.scan(lambda c, _: (c, c * nova.ones((3,), dtype="f4")), 0.5, x, unroll=1)

    last, rows = nova.jit(loop, **options)(np.arange(4))
    assert last == 0.5
    np.testing.assert_array_equal(rows, np.full((4, 3), 0.5, np.float32))


def test_an_empty_carry_next_to_a_count():
    def last(a: Any, b: Any) -> Any:
        return nova.while_loop(
            lambda v: v[0] < 3, lambda v: (v[0] + 1, v[2], v[1] + 1), (np.int64(0), a, b)
        )

    count, first, second = nova.jit(last)(EMPTY, EMPTY)
    assert count == 3
    assert first.shape == second.shape == (0,)


def test_lstm_of_an_empty_batch():
    x = np.zeros((5, 0, 3), "f4")
    results, _ = flatten(nova.jit(nova.nn.LSTM(3, 4))(x))
    expected, state = torch.nn.LSTM(3, 4)(torch.from_numpy(x))
    assert [r.shape for r in results] == [tuple(t.shape) for t in (expected, *state)]


def test_vmap_over_no_examples():
    def loop(a: Any, b: Any) -> Any:
        return nova.fori_loop(0, 3, lambda i, v: (v[1] * 2, v[0]), (a, b))

    x = np.zeros((0, 3), "f4")
    assert [r.shape for r in nova.jit(nova.vmap(loop))(x, x)] == [(0, 3)] * 2


@pytest.mark.parametrize("name", ["det", "inv", "lu", "qr"])
def test_linear_algebra_of_no_matrices(name: str):
    results, _ = flatten(nova.jit(getattr(nova.linalg, name))(MATRICES))
    expected = getattr(torch.linalg, name)(torch.from_numpy(MATRICES))
    listed = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    assert [r.shape for r in results] == [tuple(t.shape) for t in listed]


def test_a_symbolic_program_with_code_for_size_0():
    size = nova.dim("B", min=0, max=50)
    x = nova.input((size,), name="x")
    results = nova.fori_loop(0, 3, lambda i, v: (v[1], v[0] + 1), (x, x * 2))
    program = nova.compile(list(results), inputs=[x], specialize=[0])
    assert [r.shape for r in program(EMPTY)] == [(0,)] * 2
    for result, expected in zip(program(np.ones(2, "f4")), ([3, 3], [3, 3]), strict=True):
        np.testing.assert_array_equal(result, expected)
