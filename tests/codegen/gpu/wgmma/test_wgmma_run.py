"""Warpgroup GEMMs on the simulated device, against numpy in f64; races are errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

pytestmark = pytest.mark.graph_launch  # persistent kernels do not use warpgroups

_RANDOM = np.random.default_rng(7)


def _draw(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(dtype)


Where = dict[str, Any]
"""The device to compile for and run on: keyword arguments of `nova.compile`."""


def _run(where: Where, function: Any, arrays: list[np.ndarray], choice: str) -> np.ndarray:
    leaves = [nova.tensor(array) for array in arrays]
    with nova.knobs.override(gpu_gemm=choice):
        program = nova.compile(function(*leaves), inputs=leaves, **where)
    assert "wgmma.mma_async" in program.stages["ptx"]
    return np.asarray(program(*arrays)).astype(np.float64)


def _close(result: np.ndarray, expected: np.ndarray, error: float = 6e-3) -> None:
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() <= error * np.abs(expected).max()


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_layouts(on_hopper: Where, layout: str) -> None:
    """Rows of both operands along k, and along C; more stages than the ring has."""
    m, n, k = 136, 72, 648
    a = _draw(m, k) if layout[0] == "n" else _draw(k, m)
    b = _draw(k, n) if layout[1] == "n" else _draw(n, k)

    def function(x: Any, y: Any) -> Any:
        return (x if layout[0] == "n" else x.T) @ (y if layout[1] == "n" else y.T)

    _close(_run(on_hopper, function, [a, b], "wgmma-128x64x1x1"), function(_wide(a), _wide(b)))


@pytest.mark.parametrize(
    ("choice", "m", "n", "k"),
    [
        ("wgmma-128x256x1x1", 100, 264, 72),
        ("wgmma-128x256x2", 256, 256, 64),
        ("wgmma-256x128", 200, 128, 64),
        ("wgmma-128x144", 128, 288, 64),
        ("wgmma-128x128x1x2", 128, 128, 320),
        ("wgmma-128x64x1x4", 128, 64, 640),
        ("wgmma-64x64x1x1", 136, 200, 648),
        ("wgmma-64x64x1x2", 72, 136, 1032),
        ("wgmma-64x64x1x4", 128, 128, 3 * 512),
    ],
)
def test_tiles(on_hopper: Where, choice: str, m: int, n: int, k: int) -> None:
    a, b = _draw(m, k), _draw(k, n)
    _close(_run(on_hopper, lambda x, y: x @ y, [a, b], choice), _wide(a) @ _wide(b))


def test_a_block_computes_several_tiles(on_hopper: Where) -> None:
    """More tiles than blocks: the ring goes on from tile to tile, and buffers of C are reused."""
    a, b = _draw(128 * 12, 32), _draw(32, 64 * 12)
    _close(_run(on_hopper, lambda x, y: x @ y, [a, b], "wgmma-128x64x1x1"), _wide(a) @ _wide(b))


def test_an_epilogue_with_bias_activation_and_residual(on_hopper: Where) -> None:
    a, b, bias, residual = _draw(136, 64), _draw(64, 72), _draw(72), _draw(136, 72)

    def function(x: Any, y: Any, c: Any, r: Any) -> Any:
        return (nova.relu(x @ y + c) + r).astype("f32")

    expected = np.maximum(_wide(a) @ _wide(b) + _wide(bias), 0) + _wide(residual)
    _close(_run(on_hopper, function, [a, b, bias, residual], "wgmma-128x64x1x1"), expected, 2e-2)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_rows_that_no_tensor_map_describes(on_hopper: Where, dtype: str) -> None:
    a, b, bias = _draw(130, 72), _draw(71, 72), _draw(71)

    def function(x: Any, y: Any, c: Any) -> Any:
        return (x @ y.T + c).astype(dtype)

    expected = _wide(a) @ _wide(b).T + _wide(bias)
    _close(_run(on_hopper, function, [a, b, bias], "wgmma-128x64x1x1"), expected, 1e-2)


def test_batches_and_f16(on_hopper: Where) -> None:
    a, b = _draw(3, 128, 40, dtype=np.float16), _draw(3, 40, 64, dtype=np.float16)
    _close(
        _run(on_hopper, lambda x, y: x @ y, [a, b], "wgmma-128x64x1x1"), _wide(a) @ _wide(b), 2e-3
    )


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize(("m", "n"), [(128, 128), (72, 90)])
def test_blocks_that_divide_k_add_a_bias_and_a_residual(
    on_hopper: Where, m: int, n: int, dtype: str
) -> None:
    """Each stores 16 columns, as pairs of elements; also where C ends inside a tile."""
    a, b, bias, residual = _draw(m, 648), _draw(n, 648), _draw(n), _draw(m, n)

    def function(x: Any, y: Any, c: Any, r: Any) -> Any:
        return ((x @ y.T).astype("f32") + c + r).astype(dtype)

    expected = _wide(a) @ _wide(b).T + _wide(bias) + _wide(residual)
    _close(_run(on_hopper, function, [a, b, bias, residual], "wgmma-64x64x1x4"), expected, 1e-2)


def test_weights_of_small_tiles_are_copied_before_the_wait(on_hopper: Where) -> None:
    """Two launches: the second one's weights are early, with more stages than its ring has."""
    arrays = [_draw(128, 64), _draw(64, 768), _draw(768, 128)]
    arrays[1:] = [(array * 0.1).astype(array.dtype) for array in arrays[1:]]
    result = _run(on_hopper, lambda x, y, z: (x @ y) @ z, arrays, "wgmma-64x64x1x1")
    _close(result, _wide(arrays[0]) @ _wide(arrays[1]) @ _wide(arrays[2]), 2e-2)


def test_results_do_not_depend_on_the_run(
    on_hopper,
) -> None:
    a, b = _draw(128, 1024), _draw(1024, 64)
    first, second = (
        _run(on_hopper, lambda x, y: (x @ y).astype("f32"), [a, b], "wgmma-128x64x1x4")
        for _ in range(2)
    )
    assert np.array_equal(first, second)
