"""Casts to f16 and bf16 round once, from every type, on every target that runs here."""

from __future__ import annotations

import random
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from processors import runnable
from roundings import SHORT, boundaries

import nova

LEVELS = runnable("x86_64", "x86_64-v2", "x86_64-v3", "x86_64-v4", "aarch64")
_STABLEHLO = """
func.func @main(%x: tensor<{n}x{source}>) -> tensor<{n}x{target}> {{
  %0 = stablehlo.convert %x : (tensor<{n}x{source}>) -> tensor<{n}x{target}>
  return %0 : tensor<{n}x{target}>
}}
"""


def cast(values, to, target="cpu"):
    x = nova.tensor(values, name="x")
    return nova.compile(x.cast(to), inputs=[x], target=target).run([values])


@pytest.mark.parametrize("target", ["cpu", *LEVELS])
@pytest.mark.parametrize("short", SHORT)
def test_every_boundary_of_doubles(short, target):
    values, expected = boundaries(short, np.float64)
    actual = cast(values, short, target).view(np.uint16)
    wrong = actual != expected
    assert not wrong.any(), (values[wrong][:5], actual[wrong][:5])


@pytest.mark.parametrize("short", SHORT)
def test_what_numpy_side_code_gives(short):
    values, expected = boundaries(short, np.float64)
    with np.errstate(over="ignore"):
        created = nova.tensor(values, dtype=short).numpy()
        eager = nova.tensor(values).cast(short).numpy()
    for inputs in (created, eager):
        np.testing.assert_array_equal(inputs.view(np.uint16), expected)


def nearest_bf16(number: int) -> float:
    """The bf16 nearest to an integer, ties to even, by exact arithmetic."""
    if number == 0:
        return 0.0
    size = abs(number)
    unit = Fraction(2) ** (size.bit_length() - 8)
    return float(round(Fraction(size) / unit) * unit) * (1 if number > 0 else -1)


def whole_numbers(kind: str) -> np.ndarray:
    limits = np.iinfo(kind)
    chosen = random.Random(1)
    result = {limits.min, limits.max, 0, 1}
    for bits in range(8, limits.bits):
        for top in (0x101, 0x103, 0x180, 0x1FF, 0x1FE):
            middle = top << (bits - 9) if bits >= 9 else top >> (9 - bits)
            spread = chosen.getrandbits(max(1, bits - 9))
            result |= {s * (middle + d) for d in (-1, 0, 1, spread) for s in (-1, 1)}
    result |= {chosen.randint(int(limits.min), int(limits.max)) for _ in range(500)}
    return np.array(sorted(n for n in result if limits.min <= n <= limits.max), kind)


@pytest.mark.parametrize("target", ["cpu", *LEVELS])
@pytest.mark.parametrize("mode", ["i8", "i4", "i1", "u1"])
def test_integers_to_bf16(mode, target):
    values = whole_numbers(mode)
    expected = np.array([nearest_bf16(int(n)) for n in values], np.float64)
    for actual in (cast(values, "bf16", target), nova.tensor(values).cast("bf16").numpy()):
        actual = actual.astype(np.float64)
        wrong = actual != expected
        assert not wrong.any(), (values[wrong][:5], actual[wrong][:5], expected[wrong][:5])


def test_scalars_and_odd_sizes():
    for shape in ((), (1,), (3,), (17,)):
        values = np.full(shape, 1 + 2.0**-8 + 2.0**-40)
        assert (cast(values, "bf16") == ml_dtypes.bfloat16(1.0078125)).all()
        complete = np.full(shape, 2**24 + 2**16 + 1, np.int64)
        assert (cast(complete, "bf16").astype(np.float64) == 2.0**24 + 2**17).all()


@pytest.mark.parametrize("short", SHORT)
def test_imported_conversions(short):
    """f64 to and from 16-bit floats in StableHLO, which LLVM has no code for."""
    values, expected = boundaries(short, np.float64)
    narrow = _STABLEHLO.format(n=len(values), source="f64", target=short)
    program = nova.translate(narrow).load()
    np.testing.assert_array_equal(np.asarray(program.run([values])).view(np.uint16), expected)
    shorts = expected.view(SHORT[short])
    wide = _STABLEHLO.format(n=len(shorts), source=short, target="f64")
    actual = np.asarray(nova.translate(wide).load().run([shorts]))
    np.testing.assert_array_equal(actual, shorts.astype(np.float64))


def test_imported_integers():
    values = whole_numbers("i8")
    text = _STABLEHLO.format(n=len(values), source="i64", target="bf16")
    actual = np.asarray(nova.translate(text).load().run([values])).astype(np.float64)
    np.testing.assert_array_equal(actual, [nearest_bf16(int(n)) for n in values])


def test_silu_where_exp_overflows():
    """Tiny negative numbers, not -0, down to where the result is none."""
    for dtype, low in ((np.float32, -110.0), (np.float64, -760.0)):
        x = np.linspace(low, 20, 4001).astype(dtype)
        X = nova.tensor(x, name="X")
        actual = nova.compile(nova.silu(X), inputs=[X]).run([x])
        with np.errstate(over="ignore", under="ignore"):
            exact = np.longdouble(x) / (1 + np.exp(-np.longdouble(x)))
        for value in (actual, nova.silu(X).numpy()):
            error = np.abs(value - exact) / np.spacing(np.abs(exact).astype(dtype))
            assert error.max() < 5, (x[error.argmax()], error.max())
            assert (value[(x < 0) & (np.abs(exact) > np.finfo(dtype).smallest_subnormal)] < 0).all()
    assert nova.silu(nova.tensor([-90.0])).numpy()[0] < 0
