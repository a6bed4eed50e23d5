"""Large sums are as exact as docs/math-accuracy.md says, on every level and for all threads.

Terms of one sign: there, one accumulator drifts away with every term.
"""

from __future__ import annotations

import numpy as np
import pytest
import sums
from processors import runnable

import nova

LEVELS = runnable("cpu", "x86_64-v3", "x86_64")
MANY = 2_000_000


def check(name: str, terms: int, **options) -> None:
    case = sums.CASES[name]
    error = case.error(case.run(terms, **options), terms)
    assert error <= min(case.most, sums.most_roundings(terms)), f"{name} of {terms}: {error}"


@pytest.mark.parametrize("name", sums.CASES)
def test_many_terms(name):
    check(name, MANY)


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("name", ["sum of equals", "columns", "few columns", "inner axes", "var"])
def test_many_terms_on_every_level(level, name):
    check(name, MANY // 3 + 1, target=level)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", sums.CASES)
@pytest.mark.parametrize("terms", [1_000_003, 10_000_000])
def test_more_terms(name, level, terms):
    check(name, terms, target=level)


@pytest.mark.slow
@pytest.mark.parametrize("name", sums.CASES)
def test_most_terms(name):
    check(name, 100_000_000)


def test_ten_million_equal_numbers():
    x = np.full(10_000_000, 0.1, np.float32)
    tensor = nova.tensor(x, name="x")
    actual = nova.compile(tensor.mean(), inputs=[tensor]).run([x])
    np.testing.assert_allclose(actual, 0.1, rtol=3e-6)


@pytest.mark.parametrize("offset", [1e6, 3.3e6, 1e7])
def test_variance_far_from_zero(offset):
    """The mean of such numbers, as f32, is off by more than the square root of the variance has."""
    x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32) + np.float32(offset)
    tensor = nova.tensor(x, name="x")
    program = nova.compile([tensor.var(), tensor.std(correction=0)], inputs=[tensor])
    wide = x.astype(np.float64)
    np.testing.assert_allclose(program.run([x]), [wide.var(ddof=1), wide.std()], rtol=2e-6)


@pytest.mark.parametrize("dtype", [nova.f16, nova.bf16])
def test_narrow_terms_are_summed_in_f32(dtype):
    x = np.full((3, 100_000), 0.1, np.float32).astype(dtype.numpy)
    tensor = nova.tensor(x, name="x")
    actual = nova.compile([tensor.mean(), tensor.mean(axis=1)], inputs=[tensor]).run([x])
    for value in actual:
        np.testing.assert_array_equal(value, np.full(value.shape, x[0, 0]))


@pytest.mark.parametrize(
    "name", ["sum", "fused sum", "var", "columns", "inner axes", "mse", "few rows", "product"]
)
def test_bits_do_not_depend_on_threads(name):
    case, terms = sums.CASES[name], 300_001
    arrays = case.arrays(terms)
    tensors = [nova.tensor(a, name=f"x{i}") for i, a in enumerate(arrays)]
    with nova.knobs.override(serial_work=0, tile_work=5_000, task_ns=500):
        program = nova.compile(case.build(*tensors), inputs=tensors)
    results = set()
    for threads in (1, 2, 8):
        with nova.knobs.override(threads=threads):
            results.add(np.asarray(program.run(arrays)).tobytes())
    assert len(results) == 1


@pytest.mark.parametrize(
    "shape, axis", [((200_003,), None), ((70_001, 3), 0), ((5, 40_009), 1), ((9_973, 40), 0)]
)
def test_sums_on_a_device(shape, axis):
    """Lengths that are primes: nothing divides them into even parts."""
    x = np.full(shape, 0.1, np.float32)
    tensor = nova.tensor(x, name="x")
    actual = nova.compile(
        tensor.mean(axis=axis), inputs=[tensor], target="cuda:sm_80", run_mode="sim"
    )
    np.testing.assert_allclose(actual.run([x]), np.float32(0.1), rtol=3e-6)


@pytest.mark.parametrize("rows, columns", [(4, 8), (1, 5)])
def test_a_long_product_on_a_device(rows, columns):
    a, b = sums.uniform(rows, 65_536), sums.uniform(65_536, columns)
    tensors = [nova.tensor(a, name="a"), nova.tensor(b, name="b")]
    program = nova.compile(
        tensors[0] @ tensors[1], inputs=tensors, target="cuda:sm_80", run_mode="sim"
    )
    np.testing.assert_allclose(program.run([a, b]), a.astype("f8") @ b.astype("f8"), rtol=1e-6)


STABLEHLO = """
func.func @main(%x: tensor<1000x1001xf32>) -> (tensor<f32>, tensor<1001xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %all = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<1000x1001xf32>, tensor<f32>) -> tensor<f32>
  %columns = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<1000x1001xf32>, tensor<f32>) -> tensor<1001xf32>
  return %all, %columns : tensor<f32>, tensor<1001xf32>
}
"""


def test_imported_sums():
    x = np.full((1000, 1001), 0.1, np.float32)
    complete, columns = nova.translate(STABLEHLO).load()(x)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(complete, exact.sum(), rtol=3e-6)
    np.testing.assert_allclose(columns, exact.sum(axis=0), rtol=3e-6)


@pytest.mark.parametrize("dtype", [nova.f16, nova.bf16])
def test_imported_sums_of_narrow_terms(dtype):
    text = STABLEHLO.replace("f32", dtype.name).replace("1001", "20").replace("1000", "5000")
    x = np.full((5000, 20), 2.0**-6, np.float32).astype(dtype.numpy)
    complete, columns = nova.translate(text).load()(x)
    np.testing.assert_array_equal(
        complete.astype("f4"), np.float32(100_000 / 64).astype(dtype.numpy)
    )
    want = np.float32([78.125] * 20).astype(dtype.numpy)
    np.testing.assert_array_equal(columns, want)
