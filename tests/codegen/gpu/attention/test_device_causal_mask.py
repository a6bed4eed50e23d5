"""A value that `causal` hides from a row does not reach it on a device, whatever it is."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

TYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
WORST = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


def _arrays(type_: str, sizes: tuple[int, int, int, int]) -> list[np.ndarray]:
    i, j, e, f = sizes
    rng = np.random.default_rng(5)
    shapes = ((1, i, e), (1, j, e), (1, j, f))
    return [rng.standard_normal(shape).astype(TYPES[type_]) for shape in shapes]


def _program(arrays: list[np.ndarray], target: str) -> Any:
    tensors = [nova.tensor(a, name=n) for a, n in zip(arrays, "qkv", strict=True)]
    out = nova.scaled_dot_product_attention(*tensors, causal=True)
    program = nova.compile(out, inputs=tensors, target=target, run_mode="sim")
    assert "nova.attend_point" in program.stages["buffers"]
    return program


def _check(type_: str, sizes: tuple[int, int, int, int], target: str, keys: dict) -> None:
    """One program for all: the same bits above a spoiled value; below, the value is seen."""
    arrays = _arrays(type_, sizes)
    program = _program(arrays, target)
    clean = np.asarray(program.run(arrays), np.float64)
    assert np.isfinite(clean).all()
    for key, worst in keys.items():
        q, k, v = (a.copy() for a in arrays)
        v[:, key, ::3] = WORST[worst]
        actual = np.asarray(program.run([q, k, v]), np.float64)
        np.testing.assert_array_equal(actual[:, :key], clean[:, :key])
        others = np.arange(sizes[3]) % 3 != 0
        np.testing.assert_array_equal(actual[..., others], clean[..., others])
        np.testing.assert_array_equal(
            actual[:, key:, ::3], np.full_like(actual[:, key:, ::3], WORST[worst])
        )


@pytest.mark.parametrize(
    ("type_", "sizes", "target"),
    [
        ("f32", (40, 40, 16, 20), "sm_90a"),
        ("bf16", (70, 70, 16, 24), "sm_90a"),
        ("f16", (40, 40, 16, 64), "sm_80"),
        pytest.param("f64", (40, 40, 16, 16), "sm_90a", marks=pytest.mark.slow),
        pytest.param("f32", (140, 140, 64, 64), "sm_80", marks=pytest.mark.slow),
        pytest.param("f32", (70, 70, 128, 128), "sm_90a", marks=pytest.mark.slow),
        pytest.param("bf16", (140, 140, 64, 64), "sm_90a", marks=pytest.mark.slow),
        pytest.param("bf16", (70, 70, 128, 128), "sm_80", marks=pytest.mark.slow),
        pytest.param("f16", (70, 100, 256, 256), "sm_90a", marks=pytest.mark.slow),
    ],
)
def test_hidden_values(type_: str, sizes: tuple[int, int, int, int], target: str) -> None:
    rows = sizes[0]
    keys = {rows - 1: "nan", rows // 2: "inf", 1: "-inf"}
    _check(type_, sizes, f"cuda:{target}", keys)


def _gradients(arrays: list[np.ndarray], target: str) -> Any:
    """A program of the gradients by q, k and v, given that of the results."""
    tensors = [nova.tensor(a, name=n) for a, n in zip(arrays, "qkvg", strict=True)]
    out = nova.scaled_dot_product_attention(*tensors[:3], causal=True)
    outputs = nova.graph.gradients(nova.sum(out * tensors[3]), tensors[:3])
    program = nova.compile(outputs, inputs=tensors, target=target, run_mode="sim")
    assert "nova.attend_point" in program.stages["buffers"]
    return program


@pytest.mark.parametrize(
    ("type_", "sizes", "target"),
    [
        ("f32", (24, 40, 8, 8), "sm_80"),
        ("bf16", (40, 70, 16, 16), "sm_90a"),
        pytest.param("f64", (24, 40, 16, 16), "sm_90a", marks=pytest.mark.slow),
        pytest.param("f16", (70, 140, 64, 128), "sm_80", marks=pytest.mark.slow),
        pytest.param("f32", (70, 140, 64, 64), "sm_90a", marks=pytest.mark.slow),
    ],
)
def test_gradients(type_: str, sizes: tuple[int, int, int, int], target: str) -> None:
    """Hidden from all rows, it is in no gradient; else in that of k, and of q where it is seen."""
    rows, keys, _, f = sizes
    rng = np.random.default_rng(6)
    arrays = _arrays(type_, sizes)
    arrays.append(rng.standard_normal((1, rows, f)).astype(TYPES[type_]))
    middle = rows // 2
    arrays[3][:, middle:] = 0
    program = _gradients(arrays, f"cuda:{target}")
    clean = [np.asarray(a, np.float64) for a in program.run(arrays)]
    assert all(np.isfinite(a).all() and a.any() for a in clean)
    for key in (middle, rows, keys - 1):
        q, k, v, g = (a.copy() for a in arrays)
        v[:, key] = np.nan
        actual = [np.asarray(a, np.float64) for a in program.run([q, k, v, g])]
        hidden = min(key, rows)
        np.testing.assert_array_equal(actual[0][:, :hidden], clean[0][:, :hidden])
        np.testing.assert_array_equal(actual[2], clean[2])
        if key >= rows:
            np.testing.assert_array_equal(actual[1], clean[1])
        else:
            assert np.isnan(actual[1][:, :rows]).all() and not actual[1][:, rows:].any()
