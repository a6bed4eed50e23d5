"""8-bit floats: casts of every value against ml_dtypes and torch, ops that compute in f32."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
import torch
from processors import runnable

import nova
from nova.core.dtypes import converted, dtype
from nova.errors import DTypeError

NAMES = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
TORCH = {"f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}
LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}
# Code by instructions (sm_90a), and by integer arithmetic on a device and on CPUs.
TARGETS = [
    *("cpu", "cuda:sm_80", "cuda:sm_90a"),
    *(pytest.param(level, marks=pytest.mark.slow) for level in runnable("x86_64", "x86_64-v3")),
]


def run(outputs, inputs, arrays, target="cpu", **options):
    if target.startswith("cuda"):
        options["run_mode"] = "sim"
    return np.asarray(nova.compile(outputs, inputs=inputs, target=target, **options).run(arrays))


def cast(values, to, target="cpu"):
    x = nova.tensor(values, name="x")
    return run(x.cast(to), [x], [values], target)


def codes(name):
    return np.arange(256, dtype=np.uint8).view(NAMES[name])


def short_floats():
    bits = np.arange(1 << 16, dtype=np.uint16)
    return bits.view(np.float16), bits.view(ml_dtypes.bfloat16)


def singles():
    random = np.random.default_rng(0)
    anything = random.integers(0, 1 << 32, 40_000, dtype=np.uint32).view(np.float32)
    ties = np.array([464, 61440, 2.0**-10, 3 * 2.0**-10, 2.0**-17, 3 * 2.0**-17], np.float32)
    near = np.concatenate([np.nextafter(ties, np.float32(to)) for to in (-np.inf, np.inf)])
    limits = np.array([0, -0.0, 448, 57344, np.inf, np.nan], np.float32)
    return np.concatenate([anything, ties, -ties, near, -near, limits])


def assert_same_bits(actual, expected):
    """Equal bits, but for those of NaN."""
    assert actual.dtype == expected.dtype
    bits = f"u{expected.itemsize}"
    is_nan = np.isnan(expected.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(actual.astype(np.float64)), is_nan)
    np.testing.assert_array_equal(actual.view(bits)[~is_nan], expected.view(bits)[~is_nan])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_casts_round_as_ml_dtypes(name, target):
    with np.errstate(all="ignore"):
        for values in (*short_floats(), singles()):
            assert_same_bits(cast(values, name, target), values.astype(NAMES[name]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_every_code_widens_exactly(name, target):
    for to in ("f32", "f16", "bf16"):
        expected = codes(name).astype(dtype(to).numpy)
        assert_same_bits(cast(codes(name), to, target), expected)


@pytest.mark.parametrize("name", NAMES)
def test_casts_from_doubles_and_integers_round_once(name):
    random = np.random.default_rng(1)
    ties = np.unique(codes(name).astype(np.float64)[np.isfinite(codes(name).astype(np.float32))])
    middle = (ties[1:] + ties[:-1]) / 2
    values = np.concatenate([middle, middle * (1 + 1e-12), middle * (1 - 1e-12)])
    below = np.searchsorted(ties, values) - 1
    nearest = np.where(
        values - ties[below] < ties[below + 1] - values, ties[below], ties[below + 1]
    )
    is_tie = values - ties[below] == ties[below + 1] - values
    actual = cast(values, name).astype(np.float64)
    np.testing.assert_array_equal(actual[~is_tie], nearest[~is_tie])
    assert (cast(values[is_tie], name).view(np.uint8) & 1 == 0).all()
    for kind in ("i1", "u1", "i4", "i8"):
        numbers = random.integers(-128 if kind[0] == "i" else 0, 127, 500).astype(kind)
        expected = numbers.astype(np.float32).astype(NAMES[name])
        np.testing.assert_array_equal(cast(numbers, name), expected)


@pytest.mark.parametrize("name", NAMES)
def test_casts_agree_with_torch_within_the_range(name):
    for values, kind in zip(short_floats(), (torch.float16, torch.bfloat16), strict=True):
        with np.errstate(all="ignore"):
            inside = np.abs(values.astype(np.float32)) <= LARGEST[name]
        values = values[inside]
        theirs = torch.from_numpy(values.view(np.int16)).view(kind).to(TORCH[name])
        actual = cast(values, name)
        np.testing.assert_array_equal(actual.view(np.uint8), theirs.view(torch.uint8).numpy())


def test_beyond_the_largest():
    values = np.array([464, 465, -465, np.inf], np.float32)
    np.testing.assert_array_equal(
        cast(values, "f8e4m3").astype(np.float32), [448, np.nan, np.nan, np.nan]
    )
    values = np.array([61439, 61440, -1e9, np.inf], np.float32)
    np.testing.assert_array_equal(
        cast(values, "f8e5m2").astype(np.float32), [57344, np.inf, -np.inf, np.inf]
    )


@pytest.mark.parametrize("name", NAMES)
def test_casts_between_the_two(name):
    other = next(n for n in NAMES if n != name)
    with np.errstate(all="ignore"):
        expected = codes(name).astype(np.float32).astype(NAMES[other])
    assert_same_bits(cast(codes(name), other), expected)


_OPS = {
    "add": (lambda x, y: x + x, lambda a, b: a + a),
    "exp": (lambda x, y: nova.exp(x), lambda a, b: np.exp(a)),
    "sum": (lambda x, y: x.sum(axis=1), lambda a, b: a.sum(1)),
    "max": (lambda x, y: x.max(axis=0), lambda a, b: a.max(0)),
    "transpose": (lambda x, y: x.T, lambda a, b: a.T),
    "where": (lambda x, y: nova.where(x > 0, x, 0.5), lambda a, b: np.where(a > 0, a, 0.5)),
    "matmul": (lambda x, y: x @ y, lambda a, b: a @ b),
    "column": (lambda x, y: x @ y[:, 0], lambda a, b: a @ b[:, 0]),
}


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
@pytest.mark.parametrize("op", _OPS)
@pytest.mark.parametrize("name", ["f8e4m3", pytest.param("f8e5m2", marks=pytest.mark.slow)])
def test_ops_compute_in_f32(name, op, target):
    random = np.random.default_rng(2)
    # Powers of two, so that sums in any order are exact.
    a, b = (
        (2.0 ** random.integers(-3, 2, shape) * random.choice([-1, 1], shape)).astype(NAMES[name])
        for shape in ((24, 32), (32, 40))
    )
    x, y = nova.tensor(a, name="x"), nova.tensor(b, name="y")
    ours, theirs = _OPS[op]
    actual = run(ours(x, y), [x, y], [a, b], target)
    wide = np.asarray(theirs(a.astype(np.float32), b.astype(np.float32)))
    assert_same_bits(actual, wide.astype(NAMES[name]))


def test_promotion():
    x = nova.tensor(np.ones(3, np.float32))
    small, range_ = x.cast("f8e4m3"), x.cast("f8e5m2")
    assert (small + x).dtype is nova.f32
    assert (small + x.cast("bf16")).dtype is nova.bf16
    assert (small + range_).dtype is nova.f32
    assert (small * 2.5).dtype is nova.f8e4m3
    assert (small + x.cast("i32")).dtype is nova.f8e4m3


def test_arrays_of_torch_and_numpy():
    theirs = torch.arange(-4, 4).to(torch.float8_e4m3fn)
    ours = nova.tensor(theirs)
    assert ours.dtype is nova.f8e4m3
    np.testing.assert_array_equal(ours.numpy().astype(np.float32), np.arange(-4, 4))
    assert nova.tensor(codes("f8e5m2")).dtype is nova.f8e5m2
    with pytest.raises(DTypeError, match="float8_e4m3fnuz"):
        dtype(ml_dtypes.float8_e4m3fnuz)


@pytest.mark.parametrize("name", NAMES)
def test_saved_files_and_texts(name, tmp_path):
    weights = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6).astype(NAMES[name])
    x = nova.input((3, 4), name, name="x")
    program = nova.compile(x @ nova.tensor(weights), inputs=[x])
    program.save(tmp_path / "f8.nova")
    values = np.eye(3, 4, dtype=np.float32).astype(NAMES[name])
    loaded = nova.load(tmp_path / "f8.nova")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(loaded.run([values]), weights[:3])
    assert f"{name}[3,4]" in str(program.plan)


def test_constants_are_rounded_once():
    values = np.array([448.0, 464.0, 0.001953125 * 1.5])
    for name, type_ in NAMES.items():
        np.testing.assert_array_equal(
            nova.tensor(values, dtype=name).numpy(), values.astype(np.float32).astype(type_)
        )
        np.testing.assert_array_equal(converted(values, dtype(name)), values.astype(type_))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_pass_through_casts(name):
    factors = np.array([1.0, 2.0, 4.0], np.float32)
    gradient = nova.grad(lambda x: (x.cast(name).cast("f32") * factors).sum())
    x = nova.tensor(np.array([0.3, -1.7, 5.0], np.float32))
    np.testing.assert_array_equal(gradient(x).numpy(), factors)


def test_instructions_of_the_device_convert_pairs():
    x = nova.input((64,), "f32", name="x")
    ptx = nova.compile(x.cast("f8e4m3"), inputs=[x], target="cuda:sm_90a").stages["ptx"]
    assert "cvt.rn.satfinite.e4m3x2.f32" in str(ptx)
    ptx = nova.compile(x.cast("f8e4m3"), inputs=[x], target="cuda:sm_80").stages["ptx"]
    assert "e4m3x2" not in str(ptx)
