"""Intermediate values of a kernel that live in one tile: numbers, sizes, and what is not kept so.

Products with work behind them and row-wise chains, on sizes around the tiles, for every target that
this machine runs; in tiles of the default size and in tiny ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nightly import all_pairs
from processors import runnable

import nova
from nova.graph.interpret import evaluate

TARGETS = runnable("cpu", "x86_64-v3", "x86_64")
SIZES = [(1, 1, 1), (5, 7, 3), (64, 64, 64), (65, 513, 33), (130, 784, 64), (300, 1030, 16)]
TILES: dict[str, dict[str, Any]] = {"default": {}, "small": {"serial_work": 0, "tile_work": 300}}


def _array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _scratch(program: Any) -> int:
    return int(program.stages["buffers"].count("nova.tile_local"))


@pytest.mark.parametrize(("size", "target", "tiles"), all_pairs(SIZES, TARGETS, list(TILES)))
def test_update_behind_the_gradient(size: tuple[int, int, int], target: str, tiles: str) -> None:
    """w and its momentum are updated in place by a gradient that is stored nowhere."""
    m, n, k = size
    x, g = _array(k, m, seed=1), _array(k, n, seed=2)
    w, v = _array(m, n, seed=3), _array(m, n, seed=4)
    X, G = nova.tensor(x, name="X"), nova.tensor(g, name="G")
    W, V = nova.tensor(w, name="W"), nova.tensor(v, name="V")
    grad = X.transpose() @ G
    new = V * np.float32(0.9) + grad
    with nova.knobs.override(**TILES[tiles]):
        step = nova.compile(
            [],
            inputs=[X, G],
            params=[W, V],
            updates={W: W - new * np.float32(0.1) - grad * np.float32(0.5), V: new},
            target=target,
        )
    created = x.T @ g
    moved = v * np.float32(0.9) + created
    a, b = w.copy(), v.copy()
    step.run([x, g], [a, b])
    np.testing.assert_allclose(b, moved, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(a, w - moved * 0.1 - created * 0.5, rtol=1e-4, atol=1e-4)
    if m * n * k > 100_000:
        assert step.workspace_size == 0


@pytest.mark.parametrize(
    ("shape", "target", "tiles"),
    all_pairs([(1, 1), (3, 1), (67, 129), (256, 768)], TARGETS, list(TILES)),
)
def test_rows(shape: tuple[int, int], target: str, tiles: str) -> None:
    """Row statistics and normalized rows, of f32 and of bools."""
    data = _array(*shape)
    X = nova.tensor(data, name="X")
    rows = nova.softmax(nova.layer_norm(X) * np.float32(3.0))
    large = rows > nova.mean(rows, axis=1, keepdims=True)
    y = nova.where(large, rows, -rows) + nova.sum(nova.where(large, X, rows), axis=1, keepdims=True)
    with nova.knobs.override(**TILES[tiles]):
        program = nova.compile(y, inputs=[X], target=target)
    np.testing.assert_allclose(program.run([data]), evaluate([y])[0], rtol=1e-4, atol=1e-5)


def test_positions_are_those_of_the_whole() -> None:
    """A mask by row and column numbers, in a kernel whose tiles keep values for themselves."""
    data = _array(8, 96, 96)
    X = nova.tensor(data, name="X")
    y = nova.softmax(nova.tril(nova.softmax(X) * np.float32(9.0)))
    program = nova.compile(y, inputs=[X])
    np.testing.assert_allclose(program.run([data]), evaluate([y])[0], rtol=1e-4, atol=1e-5)


def test_chain_of_products_over_rows() -> None:
    """Right operands that are small: the rows between two products stay in the tile."""
    q, k, v = (_array(6, 50, 40, seed=i) for i in range(3))
    Q, K, V = (nova.tensor(a, name=n) for a, n in ((q, "Q"), (k, "K"), (v, "V")))
    y = nova.softmax(Q @ nova.swapaxes(K, 1, 2)) @ V
    program = nova.compile(y, inputs=[Q, K, V])
    assert len(program.kernels) == 1
    assert _scratch(program) > 0
    assert program.workspace_size == 0
    np.testing.assert_allclose(program.run([q, k, v]), evaluate([y])[0], rtol=1e-4, atol=1e-5)


def test_long_rows_are_in_the_workspace() -> None:
    """A row of twenty thousand numbers would take a lot of the stack."""
    data = _array(70, 20_000)
    X = nova.tensor(data, name="X")
    rows = nova.softmax(X)
    y = nova.softmax(rows * np.float32(2.0)) + rows
    program = nova.compile(y, inputs=[X])
    assert len(program.kernels) == 1
    assert program.workspace_size >= data.nbytes
    np.testing.assert_allclose(program.run([data]), evaluate([y])[0], rtol=1e-4, atol=1e-7)
