"""Gradients of warpgroup attention on the simulated device, against formulas in f64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

pytestmark = pytest.mark.graph_launch  # persistent kernels do not use warpgroups

_RANDOM = np.random.default_rng(13)
Where = dict[str, Any]
"""The device to compile for and run on: keyword arguments of `nova.compile`."""
SIM: Where = {"target": "cuda:sm_90a", "run_mode": "sim"}


def _draw(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(dtype)


def _gradients(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, causal: bool, mask: Any
) -> list[np.ndarray]:
    """Of q, k and v, in f64."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    scale = 1 / np.sqrt(q.shape[-1])
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        rows, keys = scores.shape[-2:]
        scores = np.where(np.arange(keys) > np.arange(rows)[:, None], -np.inf, scores)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    delta = (g * (weights @ v)).sum(-1, keepdims=True)
    changes = weights * (g @ np.swapaxes(v, -1, -2) - delta) * scale
    transposed = np.swapaxes(changes, -1, -2)
    return [changes @ k, transposed @ q, np.swapaxes(weights, -1, -2) @ g]


def _run(where: Where, arrays: list[np.ndarray], **more: Any) -> list[np.ndarray]:
    """The gradients of q, k and v; the arrays are those, g, and possibly a mask."""
    leaves = [nova.tensor(array) for array in arrays]
    options = {**more, **({"mask": leaves[4]} if len(leaves) > 4 else {})}
    out = nova.scaled_dot_product_attention(*leaves[:3], **options)
    outputs = nova.graph.gradients(nova.sum(out * leaves[3]), leaves[:3])
    with nova.knobs.override(gpu_attention="wgmma"):
        program = nova.compile(outputs, inputs=leaves, **where)
    ptx = program.stages["ptx"]
    assert "wgmma.mma_async" in ptx and "mma.sync." not in ptx
    return [np.asarray(result).astype(np.float64) for result in program(*arrays)]


def _check(where: Where, arrays: list[np.ndarray], *, causal: bool = False) -> None:
    actual = _run(where, arrays, causal=causal)
    expected = _gradients(*arrays[:4], causal, arrays[4] if len(arrays) > 4 else None)
    for name, a, b in zip("qkv", actual, expected, strict=True):
        assert np.abs(a - b).max() <= 1.2e-2 * np.abs(b).max(), name


def _arrays(batch: int, rows: int, keys: int, features: int, values: int) -> list[np.ndarray]:
    shapes = (rows, features), (keys, features), (keys, values), (rows, values)
    return [_draw(batch, *shape) for shape in shapes]


@pytest.mark.parametrize(
    ("rows", "keys", "features", "values", "causal"),
    [
        (200, 300, 64, 64, False),
        (300, 300, 128, 128, True),
        pytest.param(130, 200, 256, 256, True, marks=pytest.mark.slow),
        pytest.param(300, 170, 96, 40, True, marks=pytest.mark.slow),
        pytest.param(170, 330, 64, 64, True, marks=pytest.mark.slow),
        pytest.param(65, 300, 192, 192, False, marks=pytest.mark.slow),
        pytest.param(400, 140, 40, 128, False, marks=pytest.mark.slow),
    ],
)
def test_sizes(
    on_hopper: Where, rows: int, keys: int, features: int, values: int, causal: bool
) -> None:
    """Rows, keys and features that tiles do not divide; keys that no row sees."""
    _check(on_hopper, _arrays(2, rows, keys, features, values), causal=causal)


def test_a_block_computes_several_tiles(on_hopper: Where) -> None:
    """More tiles than blocks, in all parts of the launch."""
    _check(on_hopper, _arrays(70, 140, 140, 16, 16), causal=True)


@pytest.mark.parametrize("mode", ["bool", pytest.param("float", marks=pytest.mark.slow)])
def test_masks(on_hopper: Where, mode: str) -> None:
    mask: Any = _RANDOM.random((140, 150)) < 0.5 if mode == "bool" else _draw(140, 150)
    if mode == "bool":
        mask[4] = False  # a row that sees nothing
    _check(on_hopper, [*_arrays(2, 140, 150, 32, 32), mask])


@pytest.mark.parametrize(
    ("rows", "keys", "features"),
    [(128, 192, 64), pytest.param(130, 130, 128, marks=pytest.mark.slow)],
)
def test_masks_of_causal_attention(on_hopper: Where, rows: int, keys: int, features: int) -> None:
    """Sizes that tiles divide, and sizes that they do not."""
    arrays = _arrays(1, rows, keys, features, features)
    _check(on_hopper, [*arrays, _draw(rows, keys)], causal=True)


@pytest.mark.parametrize("of", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_single_results(of: int) -> None:
    """A part of the launch for a result without a use is left out."""
    arrays = _arrays(1, 140, 140, 32, 32)
    leaves = [nova.tensor(array) for array in arrays]
    out = nova.scaled_dot_product_attention(*leaves[:3], causal=True)
    outputs = nova.graph.gradients(nova.sum(out * leaves[3]), [leaves[of]])
    with nova.knobs.override(gpu_attention="wgmma"):
        program = nova.compile(outputs, inputs=leaves, **SIM)
    (actual,) = program(*arrays)
    expected = _gradients(*arrays, True, None)[of]
    assert (
        np.abs(np.asarray(actual, np.float64) - expected).max() <= 1.2e-2 * np.abs(expected).max()
    )


def test_results_do_not_depend_on_timing(tmp_path: Path) -> None:
    """Asynchronous copies and matmuls happen as late as allowed, as early, and at random."""
    arrays = _arrays(1, 300, 300, 64, 64)
    leaves = [nova.tensor(array) for array in arrays]
    out = nova.scaled_dot_product_attention(*leaves[:3], causal=True)
    outputs = nova.graph.gradients(nova.sum(out * leaves[3]), leaves[:3])
    path = tmp_path / "gradients.nova"
    nova.compile(outputs, inputs=leaves, **SIM).save(path)
    first = None
    for schedule in ("late", "early", "random"):
        with nova.knobs.override(sim_schedule=schedule):
            model = nova.load(path, device="sim")
        results = [np.asarray(result).astype(np.float64) for result in model(*arrays)]
        first = first or results
        for actual, expected in zip(results, first, strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_hidden_values(on_hopper: Where) -> None:
    """A value that `causal` hides from a row is not in the row's gradient, whatever it is."""
    arrays = _arrays(1, 200, 200, 64, 64)
    clean = _run(on_hopper, arrays, causal=True)
    key = 150
    arrays[2][:, key] = np.nan
    actual = _run(on_hopper, arrays, causal=True)
    np.testing.assert_array_equal(actual[0][:, :key], clean[0][:, :key])
    assert np.isnan(actual[0][:, key:]).all()


def test_grouped_heads(on_hopper: Where) -> None:
    """Gradients of keys and values that heads share are the sums of those of the heads."""
    shapes = ((2, 3, 140, 32), (2, 1, 150, 32), (2, 1, 150, 32), (2, 3, 140, 32))
    arrays = [_draw(*shape) for shape in shapes]
    actual = _run(on_hopper, arrays, causal=True)
    each = _gradients(*(np.broadcast_to(a, (2, 3, *a.shape[2:])) for a in arrays), True, None)
    expected = [each[0], *(gradient.sum(1, keepdims=True) for gradient in each[1:])]
    for name, a, b in zip("qkv", actual, expected, strict=True):
        assert np.abs(a - b).max() <= 1.2e-2 * np.abs(b).max(), name
