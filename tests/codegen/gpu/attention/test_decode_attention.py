"""Attention of a few rows to many keys, split over clusters, warps and lanes, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

RNG = np.random.default_rng(1)
BF16 = ml_dtypes.bfloat16


def attention(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> np.ndarray:
    q, k, v = (array.astype("f8") for array in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        rows, keys = (np.arange(n) for n in scores.shape[-2:])
        scores = np.where(keys[None] > rows[:, None], -np.inf, scores)
    most = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(most), most, 0))
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ v)


def run(arrays: list[np.ndarray], causal: bool, target: str) -> np.ndarray:
    inputs = [nova.tensor(array) for array in arrays]
    result = nova.scaled_dot_product_attention(*inputs, causal=causal)
    program = nova.compile(result, inputs=inputs, target=target, run_mode="sim")
    return np.asarray(program(*arrays)).astype("f8")


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize(
    "batch,rows,keys,features,dtype",
    [
        (4, 3, 1024, 64, BF16),
        (1, 1, 300, 64, BF16),
        pytest.param(40, 4, 333, 128, "f2", marks=pytest.mark.slow),
        (2, 8, 131, 32, "f4"),
        pytest.param(130, 2, 128, 16, BF16, marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_sizes_and_masks(
    batch: int, rows: int, keys: int, features: int, dtype: Any, mask: str | None, target: str
) -> None:
    shapes = [(batch, n, features) for n in (rows, keys, keys)]
    arrays = [RNG.standard_normal(shape).astype(dtype) for shape in shapes]
    if mask == "bool":
        arrays.append(RNG.random((rows, keys)) < 0.5)
    if mask == "float":
        arrays.append(RNG.standard_normal((rows, keys)).astype("f4"))
    expected = attention(*arrays[:3], arrays[3] if mask else None, False)
    bound = {"f4": 2e-6, "f2": 1e-3}.get(dtype, 8e-3) if isinstance(dtype, str) else 8e-3
    np.testing.assert_allclose(run(arrays, False, target), expected, atol=bound)


def test_causal_rows_do_not_read_values_of_later_keys() -> None:
    arrays = [RNG.standard_normal((2, n, 64)).astype("f4") for n in (5, 200, 200)]
    arrays[2][:, 100:] = np.nan
    expected = attention(*arrays[:2], np.nan_to_num(arrays[2]), None, True)
    np.testing.assert_allclose(run(arrays, True, "cuda:sm_90a"), expected, atol=2e-6)


def test_a_row_without_keys_is_zero_and_nan_spreads() -> None:
    arrays = [RNG.standard_normal((1, n, 64)).astype("f4") for n in (3, 256, 256)]
    mask = np.ones((3, 256), bool)
    mask[1] = False
    arrays[0][0, 2, 5] = np.nan
    result = run([*arrays, mask], False, "cuda:sm_90a")
    assert np.isfinite(result[0, 0]).all() and np.isnan(result[0, 2]).all()
    np.testing.assert_array_equal(result[0, 1], np.zeros(64))


def test_keys_are_prefetched_before_the_wait_and_read_after_it() -> None:
    inputs = [nova.tensor(np.zeros((4, n, 64), BF16)) for n in (3, 1024, 1024)]
    result = nova.scaled_dot_product_attention(*inputs)
    program = nova.compile(result, inputs=inputs, target="cuda:sm_90a", run_mode="sim")
    early, late = program.stages["ptx"].split("griddepcontrol.wait")
    assert early.count("prefetch.global.L2") == 8 and "ld.global" not in early
    # three queries, four keys and four values: a vector each
    assert late.count("ld.global.v4") + late.count("ld.global.nc.v4") == 11
