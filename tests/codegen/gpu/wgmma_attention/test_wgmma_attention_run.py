"""Warpgroup attention on the simulated device, against numpy in f64; races are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

pytestmark = pytest.mark.graph_launch  # persistent kernels do not use warpgroups

_RANDOM = np.random.default_rng(11)
Where = dict[str, Any]
"""The device to compile for and run on: keyword arguments of `nova.compile`."""
BF16: Any = ml_dtypes.bfloat16


def _draw(*shape: int, dtype: Any = BF16) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(dtype)


def _attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, *, causal: bool = False, mask: Any = None
) -> np.ndarray:
    """Attention in f64; zeros for a row that sees nothing."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        rows, keys = scores.shape[-2:]
        scores = np.where(np.arange(keys) > np.arange(rows)[:, None], -np.inf, scores)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300) @ v


def _run(where: Where, arrays: list[np.ndarray], choice: str = "wgmma", **more: Any) -> np.ndarray:
    leaves = [nova.tensor(array) for array in arrays]
    options = {**more, **({"mask": leaves[3]} if len(leaves) > 3 else {})}
    out = nova.scaled_dot_product_attention(*leaves[:3], **options)
    with nova.knobs.override(gpu_attention=choice):
        program = nova.compile(out, inputs=leaves, **where)
    assert "wgmma.mma_async" in program.stages["ptx"]
    return np.asarray(program(*arrays)).astype(np.float64)


def _check(where: Where, arrays: list[np.ndarray], choice: str = "wgmma", **more: Any) -> None:
    actual = _run(where, arrays, choice, **more)
    mask = arrays[3] if len(arrays) > 3 else None
    expected = _attention(*arrays[:3], mask=mask, **more)
    assert np.abs(actual - expected).max() <= 8e-3 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("rows", "keys", "features", "values", "causal"),
    [
        (200, 300, 64, 64, False),
        (300, 300, 128, 128, True),
        (300, 170, 96, 40, True),
        (1, 129, 16, 8, False),
        pytest.param(130, 300, 256, 256, True, marks=pytest.mark.slow),
        pytest.param(65, 400, 192, 192, False, marks=pytest.mark.slow),
        pytest.param(400, 400, 40, 128, False, marks=pytest.mark.slow),
    ],
)
def test_sizes(
    on_hopper: Where, rows: int, keys: int, features: int, values: int, causal: bool
) -> None:
    """Rows, keys and features that tiles do not divide; more blocks of keys than stages."""
    arrays = [_draw(2, rows, features), _draw(2, keys, features), _draw(2, keys, values)]
    _check(on_hopper, arrays, causal=causal)


@pytest.mark.parametrize(
    "choice",
    [
        "wgmma-192x128",
        pytest.param("wgmma-128x96", marks=pytest.mark.slow),
        pytest.param("wgmma-192x64", marks=pytest.mark.slow),
    ],
)
def test_tiles(on_hopper: Where, choice: str) -> None:
    """Several blocks of keys have hidden scores where a tile has more rows than they have keys."""
    _check(on_hopper, [_draw(1, 450, 64) for _ in range(3)], choice, causal=True)


def test_f16(on_hopper: Where) -> None:
    _check(on_hopper, [_draw(2, 200, 64, dtype=np.float16) for _ in range(3)], causal=True)


def test_a_block_computes_several_tiles(on_hopper: Where) -> None:
    """More tiles than blocks, of different sizes: rings go on from tile to tile."""
    _check(on_hopper, [_draw(70, 160, 16) for _ in range(3)], "wgmma-128x64", causal=True)


@pytest.mark.parametrize("choice", ["wgmma-64x128x2", "wgmma-64x64x3"])
@pytest.mark.parametrize(
    ("batch", "rows", "keys", "causal"),
    [(1, 450, 450, True), (70, 160, 160, True), (2, 130, 300, False), (2, 200, 100, True)],
)
def test_consumers_divide_the_keys(
    on_hopper: Where, choice: str, batch: int, rows: int, keys: int, causal: bool
) -> None:
    """Also with fewer blocks of keys than consumers, and several tiles of a block."""
    arrays = [_draw(batch, rows, 64), _draw(batch, keys, 64), _draw(batch, keys, 40)]
    _check(on_hopper, arrays, choice, causal=causal)


def test_logsumexp_of_divided_keys(on_hopper: Where) -> None:
    """Gradients read the logsumexp of the forward pass: compared with those of torch."""
    torch = pytest.importorskip("torch")
    arrays = [_draw(2, 300, 64) for _ in range(3)]
    leaves = [nova.tensor(array, requires_grad=True) for array in arrays]
    out = nova.scaled_dot_product_attention(*leaves, causal=True)
    nova.backward(nova.sum(nova.square(nova.cast(out, "f32"))))
    with nova.knobs.override(gpu_attention="wgmma"):
        program = nova.compile([leaf.grad for leaf in leaves], inputs=leaves, **on_hopper)
    assert "bar.arrive" in program.stages["ptx"]
    wide = [torch.from_numpy(array.astype(np.float64)).requires_grad_() for array in arrays]
    attend = torch.nn.functional.scaled_dot_product_attention
    attend(*wide, is_causal=True).square().sum().backward()
    for actual, leaf in zip(program(*arrays), wide, strict=True):
        expected = leaf.grad.numpy()
        error = np.asarray(actual).astype(np.float64) - expected
        assert np.linalg.norm(error) < 0.02 * np.linalg.norm(expected)


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_idle_consumers(on_hopper: Where, causal: bool) -> None:
    """Tiles in which one of three consumers has rows, before and after tiles of all three."""
    _check(on_hopper, [_draw(70, 240, 16) for _ in range(3)], "wgmma-192x128", causal=causal)


@pytest.mark.parametrize(
    ("rows", "keys", "choice"),
    [(320, 300, "wgmma-192x128"), (240, 512, "wgmma-192x128"), (130, 100, "wgmma-64x128x2")],
)
def test_warps_of_idle_consumers_stay_together(
    on_hopper: Where, rows: int, keys: int, choice: str
) -> None:
    """A slot is not filled again before all warps of a consumer have waited for it.

    The simulator lets the first warp of a consumer run ahead, and completes copies at once.
    """
    arrays = [_draw(70, rows, 16), _draw(70, keys, 16), _draw(70, keys, 16)]
    with nova.knobs.override(sim_schedule="early"):
        _check(on_hopper, arrays, choice)


def test_grouped_heads(on_hopper: Where) -> None:
    """Heads of q share keys and values: their maps have no dimension for the group."""
    _check(on_hopper, [_draw(2, 2, 3, 130, 32), _draw(2, 2, 1, 140, 32), _draw(2, 2, 1, 140, 32)])


@pytest.mark.parametrize(
    ("mode", "causal"),
    [
        ("bool", True),
        ("float", False),
        pytest.param("bool", False, marks=pytest.mark.slow),
        pytest.param("float", True, marks=pytest.mark.slow),
    ],
)
def test_masks(on_hopper: Where, mode: str, causal: bool) -> None:
    arrays = [_draw(2, 140, 32), _draw(2, 150, 32), _draw(2, 150, 32)]
    if mode == "bool":
        mask: Any = _RANDOM.random((140, 150)) < 0.5
        mask[4] = False  # a row that sees nothing: zeros, not NaN
    else:
        mask = _draw(140, 150)
    _check(on_hopper, [*arrays, mask], causal=causal)


def test_heads_in_one_matmul(on_hopper: Where) -> None:
    """Heads are read where a matmul wrote them, and results written in that order."""
    x = _draw(2, 140, 3 * 2 * 32)
    leaf = nova.tensor(x)
    parts = nova.permute(nova.reshape(leaf, (2, 140, 3, 2, 32)), (2, 0, 3, 1, 4))
    out = nova.scaled_dot_product_attention(parts[0], parts[1], parts[2], causal=True)
    flat = nova.reshape(nova.permute(out, (0, 2, 1, 3)), (2, 140, 64))
    with nova.knobs.override(gpu_attention="wgmma"):
        program = nova.compile(flat, inputs=[leaf], **on_hopper)
    q, k, v = x.reshape(2, 140, 3, 2, 32).transpose(2, 0, 3, 1, 4)
    expected = _attention(q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(2, 140, 64)
    actual = np.asarray(program(x)).astype(np.float64)
    assert np.abs(actual - expected).max() <= 8e-3 * np.abs(expected).max()


@pytest.mark.parametrize("choice", ["wgmma-128x128", "wgmma-64x128x3"])
def test_results_do_not_depend_on_timing(tmp_path: Path, choice: str) -> None:
    """Asynchronous copies and matmuls happen as late as allowed, as early, and at random."""
    arrays = [_draw(1, 300, 64) for _ in range(3)]
    leaves = [nova.tensor(array) for array in arrays]
    out = nova.scaled_dot_product_attention(*leaves, causal=True)
    path = tmp_path / "attention.nova"
    with nova.knobs.override(gpu_attention=choice):
        nova.compile(out, inputs=leaves, target="cuda:sm_90a", run_mode="sim").save(path)
    results = []
    for schedule in ("late", "early", "random"):
        with nova.knobs.override(sim_schedule=schedule):
            model = nova.load(path, device="sim")
        results.append(np.asarray(model(*arrays)).astype(np.float64))
        np.testing.assert_array_equal(results[-1], results[0])
    expected = _attention(*arrays, causal=True)
    assert np.abs(results[0] - expected).max() <= 8e-3 * np.abs(expected).max()


@pytest.mark.parametrize(("worst", "choice"), [("nan", "wgmma-128x128"), ("inf", "wgmma-64x128x2")])
def test_hidden_values(on_hopper: Where, worst: str, choice: str) -> None:
    """A value that `causal` hides from a row does not reach it, whatever it is."""
    arrays = [_draw(1, 200, 64) for _ in range(3)]
    clean = _run(on_hopper, arrays, choice, causal=True)
    key = 150
    arrays[2][:, key, ::3] = float(worst)
    actual = _run(on_hopper, arrays, choice, causal=True)
    np.testing.assert_array_equal(actual[:, :key], clean[:, :key])
    others = np.arange(64) % 3 != 0
    np.testing.assert_array_equal(actual[..., others], clean[..., others])
    np.testing.assert_array_equal(actual[:, key:, ::3], np.full((1, 50, 22), float(worst)))
