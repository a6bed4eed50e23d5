"""Symbolic sizes at their lower bounds on a device: nothing is read out of bounds.

The simulator checks every access; numpy has the results.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

TYPES: dict[str, Any] = {"f16": "f2", "bf16": ml_dtypes.bfloat16, "f32": "f4"}
B = nova.dim("B", min=0, max=100)
C = nova.dim("C", min=1, max=100)


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")


@pytest.mark.parametrize("dtype", TYPES)
def test_matmul_without_steps(dtype: str, on_device: dict[str, Any]) -> None:
    x, w = nova.input((B, 5), dtype, name="x"), nova.input((B, 24), dtype, name="w")
    program = nova.compile(nova.swapaxes(x, 0, 1) @ w, inputs=[x, w], **on_device)
    for size in (0, 1, 9):
        a, b = (_random(size, n).astype(TYPES[dtype]) for n in (5, 24))
        expected = a.astype("f4").T @ b.astype("f4")
        np.testing.assert_allclose(program(a, b).astype("f4"), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("columns", [64, 96])
def test_matmul_with_one_stage(columns: int, on_device: dict[str, Any]) -> None:
    """All tiles along k are full, and there is only one where several are copied ahead."""
    x, w = nova.input((16, C, 64), name="x"), nova.input((C, 64, columns), name="w")
    product = nova.reshape(x, (16, C * 64)) @ nova.reshape(w, (C * 64, columns))
    program = nova.compile(product, inputs=[x, w], **on_device)
    for size in (1, 2, 3):
        a, b = _random(16, size, 64), _random(size, 64, columns)
        expected = a.reshape(16, -1) @ b.reshape(-1, columns)
        np.testing.assert_allclose(program(a, b), expected, rtol=1e-4, atol=1e-4)


def test_matmul_with_fewer_rows_than_a_tile(on_device: dict[str, Any]) -> None:
    x, w = nova.input((C, 72, 32), name="x"), _random(32, 40)
    program = nova.compile(nova.reshape(x, (C * 72, 32)) @ w, inputs=[x], **on_device)
    for size in (1, 2):
        a = _random(size, 72, 32)
        np.testing.assert_allclose(program(a), a.reshape(-1, 32) @ w, rtol=1e-4, atol=1e-4)


def test_softmax_of_short_rows(on_device: dict[str, Any]) -> None:
    x = nova.input((3, C, 72), name="x")
    program = nova.compile(
        nova.softmax(nova.reshape(x, (3, C * 72)), axis=-1), inputs=[x], **on_device
    )
    for size in (1, 2):
        a = _random(3, size, 72)
        powers = np.exp(a.reshape(3, -1))
        expected = powers / powers.sum(-1, keepdims=True)
        np.testing.assert_allclose(program(a), expected, rtol=1e-4, atol=1e-6)


PADDED: dict[str, tuple[tuple[Any, ...], Any, Any]] = {
    "pad": ((B, 4), lambda x: nova.pad(x, ((1, 0), (0, 2))), lambda x: np.pad(x, ((1, 0), (0, 2)))),
    "pad 1-D": ((B,), lambda x: nova.pad(x, ((3, 1),)), lambda x: np.pad(x, (3, 1))),
    "pad columns": ((5, B), lambda x: nova.pad(x, 1), lambda x: np.pad(x, 1)),
    "concat": (
        (B, 4),
        lambda x: nova.exp(nova.concat([x, np.ones((2, 4), "f4"), x * 2], axis=0)),
        lambda x: np.exp(np.concatenate([x, np.ones((2, 4), "f4"), x * 2])),
    ),
    "intermediate": (
        (B, 4),
        lambda x: nova.sum(nova.pad(nova.flip(x, 0), ((2, 1), (0, 0))), axis=0),
        lambda x: x.sum(0),
    ),
}


@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_empty_operand(name: str, dtype: str, on_device: dict[str, Any]) -> None:
    shape, function, reference = PADDED[name]
    x = nova.input(shape, "f16" if dtype == "f2" else "f32", name="x")
    for options in (on_device, {}):
        program = nova.compile(function(x), inputs=[x], **options)
        for size in (0, 1, 7):
            a = _random(*(n if isinstance(n, int) else size for n in shape)).astype(dtype)
            np.testing.assert_allclose(program(a), reference(a), rtol=5e-3, atol=5e-3)


def test_only_loads_of_empty_buffers_are_guarded() -> None:
    for dim, guards in ((B, 1), (C, 0)):
        x = nova.input((dim, 4), name="x")
        program = nova.compile(nova.pad(x, ((1, 0), (0, 0))), inputs=[x])
        assert program.stages["loops"].count("scf.if") == guards
