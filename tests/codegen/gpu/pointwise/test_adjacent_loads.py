"""Elementwise kernels whose bodies load at computed positions, such as those of concat."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

_RANDOM = np.random.default_rng(3)


def _run(function: Any, arrays: list[np.ndarray], arch: str) -> tuple[np.ndarray, str]:
    leaves = [nova.tensor(array) for array in arrays]
    target = f"cuda:{arch}"
    program = nova.compile(function(*leaves), inputs=leaves, target=target, run_mode="sim")
    return np.asarray(program(*arrays)), program.stages["ptx"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "?", ml_dtypes.bfloat16])
@pytest.mark.parametrize("counts", [(100, 24, 7), (40, 40)])
def test_rows_that_are_joined_are_vectors(arch: str, dtype: Any, counts: tuple[int, ...]) -> None:
    arrays = [np.maximum(4 * _RANDOM.standard_normal((n, 64)), 0).astype(dtype) for n in counts]
    actual, text = _run(lambda *leaves: nova.concat(leaves, axis=0), arrays, arch)
    np.testing.assert_array_equal(actual, np.concatenate(arrays))
    if dtype != "?":  # a bool is a byte in memory
        assert re.search(r"ld\.global\S*\.(v\d|b128)", text)


@pytest.mark.parametrize(
    ("name", "function", "reference"),
    [
        ("columns", lambda a, b: nova.concat([a, b], axis=1), lambda a, b: np.hstack([a, b])),
        ("odd rows", lambda a, b: nova.concat([a[:, :63], b[:, 1:]]), None),
        ("flipped", lambda a, b: nova.concat([nova.flip(a, axes=(-1,)), b]), None),
        ("shifted", lambda a, b: nova.concat([nova.roll(a, 3, axis=1), b]), None),
        ("transposed", lambda a, b: nova.concat([nova.swapaxes(a[:64], 0, 1), b]), None),
    ],
)
def test_positions_that_are_not_adjacent(name: str, function: Any, reference: Any) -> None:
    a, b = (_RANDOM.standard_normal((n, 64)).astype(np.float32) for n in (72, 72))
    expected = {
        "odd rows": lambda: np.concatenate([a[:, :63], b[:, 1:]]),
        "flipped": lambda: np.concatenate([a[:, ::-1], b]),
        "shifted": lambda: np.concatenate([np.roll(a, 3, 1), b]),
        "transposed": lambda: np.concatenate([a[:64].T, b]),
    }
    want = reference(a, b) if reference is not None else expected[name]()
    np.testing.assert_array_equal(_run(function, [a, b], "sm_90a")[0], want)
