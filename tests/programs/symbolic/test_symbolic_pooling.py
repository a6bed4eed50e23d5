"""Poolings of images of symbolic height, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import SymbolicSizeError

torch = pytest.importorskip("torch")

POOLS: list[tuple[str, dict[str, Any]]] = [
    ("max_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("max_pool2d", {"kernel_size": 3, "dilation": 2}),
    ("avg_pool2d", {"kernel_size": 2}),
    ("avg_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("avg_pool2d", {"kernel_size": 2, "padding": 1, "count_include_pad": False}),
]
# The last window may end outside of the image; one of a kernel below its stride may start there.
CEIL: list[tuple[str, dict[str, Any]]] = [
    ("max_pool2d", {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    ("max_pool2d", {"kernel_size": 1, "stride": 3, "ceil_mode": True}),
    ("max_pool2d", {"kernel_size": 1, "stride": 3}),
    ("avg_pool2d", {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True}),
    (
        "avg_pool2d",
        {"kernel_size": 3, "padding": 1, "ceil_mode": True, "count_include_pad": False},
    ),
    ("lp_pool2d", {"norm_type": 2.0, "kernel_size": 3, "stride": 2, "ceil_mode": True}),
]


@pytest.mark.parametrize(("name", "options"), POOLS)
def test_pools_of_any_height(name: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    pool = nova.jit(
        lambda x: getattr(nova, name)(x, **options), dynamic={"x": {2: nova.dim("H", min=8)}}
    )
    for height in (8, 9, 17, 34):
        x = rng.standard_normal((2, 3, height, 12)).astype(np.float32)
        expected = getattr(torch.nn.functional, name)(torch.from_numpy(x), **options).numpy()
        result = np.asarray(pool(x))
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), CEIL)
def test_windows_that_end_outside_of_any_height(name: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    pool = nova.jit(
        lambda x: getattr(nova, name)(x, **options), dynamic={"x": {2: nova.dim("H", min=2)}}
    )
    for height in (2, 3, 4, 5, 6, 7, 16):
        x = rng.uniform(0.1, 1, (1, 2, height, 7)).astype(np.float32)
        expected = getattr(torch.nn.functional, name)(torch.from_numpy(x), **options).numpy()
        result = np.asarray(pool(x))
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_positions_that_depend_on_the_height_are_refused() -> None:
    x = np.zeros((1, 1, 9, 9), np.float32)
    pool = nova.jit(
        lambda x: nova.max_pool2d(x, 2, return_indices=True),
        dynamic={"x": {2: nova.dim("H", min=8)}},
    )
    with pytest.raises(SymbolicSizeError, match="H"):
        pool(x)
