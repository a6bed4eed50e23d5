"""Products with work behind them, a strip of rows at a time: numbers around the strips, and bits.

Sizes are just below, at and above what the strips, register tiles and blocks of k cut; the operands
are transposed or not. What is behind the product must not change its sums, and neither may the
number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nightly import all_pairs
from processors import needs, runnable

import nova
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.cpu.gemm.packed_gemm import row_panels_of
from nova.core.targets import parse_target

TARGETS = runnable("cpu", "x86_64-v3", "x86_64")
SIZES = [
    (191, 512, 128),  # too few rows for strips, and just enough
    (192, 512, 128),
    (385, 512, 127),  # not deep enough
    (251, 255, 257),
    (259, 256, 385),  # two blocks of k
    (400, 80, 1100),  # three of them
    (1030, 17, 200),
]


def _array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _strips(program: Any) -> bool:
    """Whether relu is in the loop that multiplies."""
    lines = str(program.stages["loops"]).splitlines()
    product = max(i for i, line in enumerate(lines) if "call @nova_multiply" in line)
    relu = next(i for i in range(product, len(lines)) if "arith.maximumf" in lines[i])
    depth = [len(line) - len(line.lstrip()) for line in lines[product:relu]]
    return min(depth) == depth[0]


@pytest.mark.parametrize(
    ("size", "transposed", "target"),
    all_pairs(SIZES, [(False, False), (True, False), (False, True), (True, True)], TARGETS),
    ids=str,
)
def test_results(size: tuple[int, int, int], transposed: tuple[bool, bool], target: str) -> None:
    """Two results, one of which the other is made of, are those of the product alone."""
    m, n, k = size
    x, w = _array(m, k, seed=1), _array(k, n, seed=2)
    bias = _array(n, seed=3)
    arguments = [x.T.copy() if transposed[0] else x, w.T.copy() if transposed[1] else w]
    X, W, B = (nova.tensor(a, name=s) for a, s in zip((*arguments, bias), "XWB", strict=True))
    product = (X.transpose() if transposed[0] else X) @ (W.transpose() if transposed[1] else W)
    alone = nova.compile(product, inputs=[X, W], target=target)
    h = product + B
    both = nova.compile([h, nova.relu(h) * 2.0], inputs=[X, W, B], target=target)
    sums = alone.run(arguments)
    np.testing.assert_allclose(sums, x.astype(np.float64) @ w, rtol=1e-4, atol=1e-3)
    first, second = both.run([*arguments, bias])
    assert np.array_equal(first, sums + bias)
    assert np.array_equal(second, np.maximum(first, 0) * np.float32(2.0))


@pytest.mark.parametrize("shape", [(300, 130), (256, 512), (130, 1030)], ids=str)
def test_update_of_a_weight(shape: tuple[int, int]) -> None:
    """The gradient is kept for a strip only; where it is the transpose, strips are of columns."""
    m, n = shape
    x, g = _array(400, m, seed=1), _array(400, n, seed=2)
    w, v = _array(m, n, seed=3), _array(m, n, seed=4)
    X, G, W, V = (nova.tensor(a, name=s) for a, s in zip((x, g, w, v), "XGWV", strict=True))
    for grad in (X.transpose() @ G, (G.transpose() @ X).transpose()):
        new = V * np.float32(0.9) + grad
        step = nova.compile(
            [], inputs=[X, G], params=[W, V], updates={W: W - new * np.float32(0.1), V: new}
        )
        assert step.workspace_size == 0
        results = []
        for threads in (1, 2):
            a, b = w.copy(), v.copy()
            with nova.knobs.override(threads=threads):
                step.run([x, g], [a, b])
            results.append((a, b))
        moved = v * 0.9 + x.T.astype(np.float64) @ g
        np.testing.assert_allclose(results[0][1], moved, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(results[0][0], w - moved * 0.1, rtol=1e-4, atol=1e-4)
        assert all(np.array_equal(p, q) for p, q in zip(*results, strict=True))


@pytest.mark.parametrize("target", runnable("cpu", "x86_64-v3"))
@pytest.mark.parametrize("rows", [512, 500])
def test_a_tile_stays_within_its_rows(target: str, rows: int) -> None:
    """Tiles that end inside of a strip: in whatever order they run, none touches another's rows."""
    x, a, b = _array(rows, 512, seed=1), _array(512, 512, seed=2), _array(512, 512, seed=3)
    X, A, B = (nova.tensor(v, name=n) for v, n in zip((x, a, b), "XAB", strict=True))
    h = nova.relu(X @ A) * 2.0
    assert _strips(nova.compile(h, inputs=[X, A], target=target))
    y = nova.softmax(h @ B)
    results = [
        nova.compile(
            y, inputs=[X, A, B], target=target, run_mode="sim", sim_cores=8, sim_seed=seed
        ).run([x, a, b])
        for seed in range(8)
    ]
    assert all(np.array_equal(result, results[0]) for result in results)


@needs("x86_64-v3")
def test_constant_weights_are_read_where_they_are_packed() -> None:
    x, w = _array(300, 512, seed=1), _array(512, 600, seed=2)
    X = nova.tensor(x, name="X")
    program = nova.compile(nova.relu(X @ nova.tensor(w)), inputs=[X], target="x86_64-v3")
    assert _strips(program)
    text = str(program.stages["loops"])
    assert "nova.packed" in text and "nova_pack_lanes" not in text
    np.testing.assert_allclose(program.run([x]), np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)


@needs("x86_64-v3")
def test_what_has_strips() -> None:
    """A product of few rows has none, nor one whose columns are too many to keep packed."""
    target = parse_target("x86_64-v3")

    def rows(m: int, n: int, k: int, columns: int, packed: bool = False) -> int | None:
        strides = (k, 1), (n, 1), (n, 1)
        spec = Contraction(m, n, k, *strides, "f32", "f32", "f32", False, packed=packed)
        return row_panels_of(target, spec, m, columns)

    assert rows(512, 1024, 256, 512) == 60
    assert rows(512, 256, 512, 256) == 108
    assert rows(191, 256, 512, 256) is rows(512, 256, 127, 256) is None
    assert rows(512, 1024, 1024, 512) is None  # two MiB of packed columns
    assert rows(512, 1024, 1024, 512, packed=True) == 60
    assert rows(512, 16, 4096, 16) is None  # a dozen blocks of k
    for sizes, expected in (((300, 512, 600), True), ((96, 512, 600), False)):
        m, k, n = sizes
        x, w = _array(m, k), _array(k, n)
        X, W = nova.tensor(x, name="X"), nova.tensor(w, name="W")
        program = nova.compile(nova.relu(X @ W), inputs=[X, W], target="x86_64-v3")
        assert _strips(program) is expected
