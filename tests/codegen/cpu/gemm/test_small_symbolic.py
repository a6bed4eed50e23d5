"""Small matmuls of symbolic sizes, computed in place: around vectors, tiles and their limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova

M, N, K = (nova.dim(name, min=0, max=1 << 12) for name in "MNK")
SIZES = (0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 97, 128, 129)


def compiled(function: Any, *shapes: tuple[Any, ...], dtype: str, target: str) -> Any:
    inputs = [nova.input(shape, dtype, name=f"x{i}") for i, shape in enumerate(shapes)]
    return nova.compile(function(*inputs), inputs=inputs, target=target)


@pytest.mark.parametrize("target", ["cpu", "x86_64-v3"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 1e-4), ("f8", 1e-12)])
def test_all_sizes_agree_with_numpy(target: str, dtype: str, tolerance: float) -> None:
    plain = compiled(lambda x, y: nova.relu(x @ y + 1), (M, K), (K, N), dtype=dtype, target=target)
    assert "nova_small_" in plain.stages["loops"]
    columns = compiled(
        lambda x, y: nova.swapaxes(x, 0, 1) @ y, (K, M), (K, N), dtype=dtype, target=target
    )
    rng = np.random.default_rng(0)
    for i, n in enumerate(SIZES):
        for m, k in ((SIZES[i - 1], SIZES[i - 2]), (SIZES[i - 4], n), (5, SIZES[-1 - i])):
            x, y = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
            exact = x @ y
            results = (plain(x, y), columns(np.ascontiguousarray(x.T), y))
            for result, expected in zip(results, (np.maximum(exact + 1, 0), exact), strict=True):
                np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def test_nothing_is_written_beside_the_result() -> None:
    """The last vector of a row may repeat columns, but does not reach after the row."""
    program = compiled(lambda x, y: x @ y, (M, K), (K, N), dtype="f4", target="x86_64-v3")
    for m, n in ((3, 9), (7, 23), (6, 8), (5, 3), (9, 1)):
        x, y = np.ones((m, 4), "f4"), np.ones((4, n), "f4")
        room = np.full(m * n + 64, np.nan, "f4")
        out = room[32 : 32 + m * n].reshape(m, n)
        program(x, y, out=out)
        assert (out == 4).all()
        assert np.isnan(room[:32]).all() and np.isnan(room[32 + m * n :]).all()


def test_bits_are_those_of_packed_panels() -> None:
    """A task may have any of the rows, depending on the number of threads."""
    program = compiled(lambda x, y: x @ y, (M, K), (K, N), dtype="f4", target="cpu")
    rng = np.random.default_rng(1)
    for k, n in ((3, 70), (100, 33), (128, 128), (40, 5)):
        x, y = (rng.standard_normal(s).astype("f4") for s in ((300, k), (k, n)))
        packed = program(x, y)
        for rows in (1, 7, 128):
            assert program(x[:rows], y).tobytes() == packed[:rows].tobytes()
