"""Warpgroup GEMMs of 8-bit floats, simulated and on a Hopper GPU, against numpy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova.core.dtypes import dtype
from nova.errors import LoweringError

pytestmark = pytest.mark.graph_launch  # persistent kernels do not use warpgroups

E4M3, E5M2 = "f8e4m3", "f8e5m2"


def _draw(seed: int, shape: tuple[int, ...], type_: str) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype(type_).numpy)


def _program(where: dict[str, Any], arrays: list[np.ndarray], result: str, choice: str) -> Any:
    a, b, scale_a, scale_b = leaves = [nova.tensor(array) for array in arrays]
    product = nova.scaled_matmul(a, b.T, scale_a, scale_b, out_dtype=result)
    with nova.knobs.override(gpu_gemm=choice):
        return nova.compile(product, inputs=leaves, **where)


@pytest.mark.parametrize(
    ("choice", "types", "shape", "scales", "result"),
    [
        ("wgmma-128x64x1x1", (E4M3, E4M3), (136, 72, 656), "rows", "f32"),
        ("wgmma-128x256x1x1", (E4M3, E5M2), (100, 264, 144), "rows", "bf16"),
        ("wgmma-128x256x2", (E5M2, E4M3), (256, 256, 128), "tensor", "bf16"),
        ("wgmma-128x64x1x2", (E5M2, E5M2), (128, 64, 512), "tensor", "f32"),
        ("wgmma-256x128", (E4M3, E4M3), (200, 128, 128), "rows", E4M3),
    ],
)
def test_scaled_products(
    on_hopper: dict[str, Any],
    choice: str,
    types: tuple[str, str],
    shape: tuple[int, int, int],
    scales: str,
    result: str,
) -> None:
    m, n, k = shape
    a, b = _draw(1, (m, k), types[0]), _draw(2, (n, k), types[1])
    random = np.random.default_rng(3)
    sizes: tuple[tuple[int, ...], ...] = ((m, 1), (n,)) if scales == "rows" else ((), ())
    factors = [(random.random(size) * 0.1 + 0.01).astype(np.float32) for size in sizes]
    arrays = [a, b, *map(np.asarray, factors)]
    program = _program(on_hopper, arrays, result, choice)
    names = ".".join({"f8e4m3": "e4m3", "f8e5m2": "e5m2"}[type_] for type_ in types)
    assert f"k32.f32.{names}" in program.stages["ptx"]
    actual = np.asarray(program(*arrays)).astype(np.float64)
    expected = (a.astype(np.float64) @ b.astype(np.float64).T) * factors[0] * factors[1]
    # The tensor cores of a Hopper GPU sum products of 8-bit floats with about 14 bits.
    allowed = {"f32": 1e-3, "bf16": 5e-3, E4M3: 0.07}[result]
    assert np.abs(actual - expected).max() <= allowed * np.abs(expected).max()


@pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
def test_operands_that_do_not_run_along_k_are_copied(
    on_hopper: dict[str, Any], layout: str
) -> None:
    a, b = _draw(1, (160, 144), E4M3), _draw(2, (144, 128), E5M2)
    stored = [x if side == "n" else x.T.copy() for x, side in zip((a, b), layout, strict=True)]
    leaves = [nova.tensor(array) for array in stored]
    x, y = (v if side == "n" else v.T for v, side in zip(leaves, layout, strict=True))
    with nova.knobs.override(gpu_gemm="wgmma"):
        program = nova.compile(nova.wide_matmul(x, y), inputs=leaves, **on_hopper)
    assert "k32.f32.e4m3.e5m2" in program.stages["ptx"]
    expected = a.astype(np.float64) @ b.astype(np.float64)
    actual = np.asarray(program(*stored)).astype(np.float64)
    assert np.abs(actual - expected).max() <= 2e-3 * np.abs(expected).max()


def test_small_operands_that_do_not_run_along_k_use_other_tensor_cores() -> None:
    a, b = nova.tensor(_draw(1, (64, 64), E4M3)), nova.tensor(_draw(2, (64, 64), E4M3))
    where = {"target": "cuda:sm_90a", "run_mode": "sim"}
    program = nova.compile(nova.wide_matmul(a, b), inputs=[a, b], **where)
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in program.stages["ptx"]
    with (
        nova.knobs.override(gpu_gemm="wgmma"),
        pytest.raises(LoweringError, match="with 8 bits, do not run along k"),
    ):
        nova.compile(nova.wide_matmul(a, b), inputs=[a, b], **where)
