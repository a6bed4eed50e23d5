"""Loops over vectors: every length around a vector and a turn of the loop, on each x86 level.

Each case is one program with several kernels, compared with the numpy interpreter. Inputs and
results end at a page that nothing may touch: a vector too many is a crash.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from guard_pages import guarded
from nightly import all_pairs, each_value
from processors import runnable

import nova
from nova.graph.interpret import evaluate

LENGTHS = [1, 4, 5, 8, 9, 16, 17, 31, 63, 65, 129]


LEVELS = runnable("cpu", "x86_64-v3", "x86_64", "aarch64")


def check(level: str, build, *arrays: np.ndarray, rtol: float = 2e-6) -> list:
    """Compile what `build` returns, run it on guarded arrays, and compare with the interpreter."""
    tensors = [nova.tensor(a, name=f"x{i}") for i, a in enumerate(arrays)]
    outputs = build(*tensors)
    program = nova.compile(outputs, inputs=tensors, target=level)
    expected = evaluate(outputs, dict(zip(tensors, arrays, strict=True)))
    out = [guarded(np.zeros_like(e)) for e in expected]
    program.run([guarded(a) for a in arrays], out=out)
    for actual, want in zip(out, expected, strict=True):
        assert actual.dtype == want.dtype
        if want.dtype.kind in "bi":
            assert (actual == want).all()
        else:
            wide = np.float64
            scale = np.abs(want.astype(wide)).max(initial=1.0)
            np.testing.assert_allclose(
                actual.astype(wide), want.astype(wide), rtol=rtol, atol=rtol * scale
            )
    return out


def numbers(shape, dtype=np.float32, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("n", "level"), each_value(LENGTHS, LEVELS))
def test_lengths_around_a_vector(level, n):
    def build(a, b, m):
        return [
            a + b,
            nova.tanh(a) * b,
            m * a,  # a broadcast row
            m + nova.sum(m, axis=1, keepdims=True),  # a broadcast column
            nova.sum(m, axis=1),
            nova.sum(m, axis=0),
            nova.prod(m, axis=1),
            nova.max(m, axis=1),
            nova.min(m, axis=0),
            nova.sum(m),
            nova.where(a > b, a, b),
            a > b,
            nova.any(m > 1.0, axis=1),
            nova.all(m < 1.0, axis=0),
            nova.argmax(m, axis=1),
            nova.softmax(m, axis=1),
        ]

    check(level, build, numbers(n), numbers(n, seed=1), numbers((5, n), seed=2))


@pytest.mark.parametrize(
    ("level", "n", "dtype"),
    all_pairs(
        LEVELS, [5, 16, 77], [np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int64]
    ),
)
def test_element_types(level, n, dtype):
    def build(a, m):
        f32 = nova.cast(a, "f32")
        return [
            a + a,
            m * a,
            nova.sum(m, axis=1),
            nova.max(m, axis=0),
            nova.exp(f32 * 0.1),
            a > m,
            nova.cast(f32 * 3.0, str(a.dtype)),
            nova.cast(nova.cast(a, "i32"), "f16"),
        ]

    values = (numbers(n) * 3).astype(dtype)
    rtol = {2: 1e-2, 8: 1e-12}.get(np.dtype(dtype).itemsize, 1e-6)
    rtol = max(rtol, 2e-6) if np.dtype(dtype).kind != "i" else 2e-6
    check(level, build, values, (numbers((3, n), seed=1) * 3).astype(dtype), rtol=rtol)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinity_of_reductions(level, dtype):
    m = numbers((6, 37), dtype)
    m[0, 36] = m[1, 0] = m[2, 17] = np.nan
    m[3, 5] = np.inf
    m[4, 5], m[4, 36] = np.inf, -np.inf

    def build(x):
        return [f(x, axis=1) for f in (nova.sum, nova.max, nova.min, nova.prod)]

    tensor = nova.tensor(m, name="m")
    actual = nova.compile(build(tensor), inputs=[tensor], target=level).run([m])
    with np.errstate(invalid="ignore"):
        expected = [f(m, axis=1) for f in (np.sum, np.max, np.min, np.prod)]
    for a, b in zip(actual, expected, strict=True):
        assert (np.isnan(a) == np.isnan(b)).all()
        assert (np.isinf(a) == np.isinf(b)).all()
        assert (a[np.isinf(a)] == b[np.isinf(b)]).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", [(700, 130), (3, 40_001), (129, 1000)])
def test_results_do_not_depend_on_the_tiles(level, shape):
    x = numbers(shape)

    def build(t):
        return [nova.tanh(t) * t, nova.sum(t, axis=0), nova.sum(t, axis=1), nova.softmax(t, axis=1)]

    tensor = nova.tensor(x, name="x")
    results = []
    for work in (5_000, 65_536):
        with nova.knobs.override(tile_work=work):
            program = nova.compile(build(tensor), inputs=[tensor], target=level)
        results.append(program.run([x]))
    for a, b in zip(*results, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("m", "k", "n"), [(3, 5, 7), (2, 9, 17), (1, 33, 40), (4, 3, 65)])
def test_small_products(level, m, k, n):
    def build(a, b, c):
        return [a @ b, a @ nova.transpose(c)]

    check(level, build, numbers((m, k)), numbers((k, n), seed=1), numbers((n, k), seed=2))


@pytest.mark.parametrize("level", LEVELS)
def test_positions_along_the_lanes(level):
    def build(x):
        return [nova.tril(x), nova.arange(0, 37, 1) + nova.cast(x[0], "i64")]

    check(level, build, numbers((9, 37)))
