"""Warpgroup GEMMs on the simulator: whole programs, with asynchronous operations late and early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

BF16 = ml_dtypes.bfloat16


def operands(layout: str, m: int, n: int, k: int) -> list[np.ndarray[Any, Any]]:
    numbers = np.random.default_rng(0)
    shapes = [(m, k) if layout[0] == "n" else (k, m), (k, n) if layout[1] == "n" else (n, k)]
    return [numbers.standard_normal(shape).astype(BF16) for shape in shapes]


def compile_gemm(layout: str, arrays: list[np.ndarray[Any, Any]], choice: str) -> nova.Compiled:
    a, b = leaves = [nova.tensor(np.zeros_like(array)) for array in arrays]
    product = (a if layout[0] == "n" else a.T) @ (b if layout[1] == "n" else b.T)
    with nova.knobs.override(gpu_gemm=choice):
        program = nova.compile(product, inputs=leaves, target="cuda:sm_90a", run_mode="sim")
    assert "wgmma.mma_async" in program.stages["ptx"]
    return program


def expected(layout: str, arrays: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    a, b = (array.astype(np.float64) for array in arrays)
    return (a if layout[0] == "n" else a.T) @ (b if layout[1] == "n" else b.T)


@pytest.mark.parametrize(
    ("layout", "choice"),
    [
        ("nt", "wgmma-128x64"),
        ("nn", "wgmma-128x256x1"),
        ("tn", "wgmma-128x192"),
        ("tt", "wgmma-128x144"),
    ],
)
def test_gemm_in_every_schedule(layout: str, choice: str, tmp_path: Path) -> None:
    arrays = operands(layout, 256, 320, 192)
    path = tmp_path / "gemm.nova"
    compile_gemm(layout, arrays, choice).save(path)
    results = []
    for schedule in ("late", "early", "random"):
        with nova.knobs.override(sim_schedule=schedule):
            model = nova.load(path, device="sim")
        results.append(np.asarray(model(*arrays)).astype(np.float64))
        np.testing.assert_array_equal(results[-1], results[0])
    np.testing.assert_allclose(results[0], expected(layout, arrays), rtol=1e-2, atol=1e-1)
