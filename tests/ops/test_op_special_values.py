"""Elementwise rows at NaN, infinities, signed zeros, subnormals and the ends of the range.

Compiled code agrees with numpy's ufuncs (the interpreter), signs of zeros included, and with torch;
integers wrap around and never trap. Where torch loses a result, mpmath is the judge.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
import torch
from op_cases import Built, build, case
from op_programs import interpret, run_all
from op_reference import TOLERANCE, reference
from op_samples import SAMPLES

import nova
from nova.core.dtypes import ALL, FLOATS, INTEGERS, DType, bool_, dtype, f32, i8
from nova.ops import OPS

# Attributes for the rows that need some.
ATTRS = {"clamp": {"min": -1, "max": 1}, "barrier": {"region": 1}}
ELEMENTWISE = [n for n, r in OPS.items() if "elementwise" in r.tags and n not in ("where", "cast")]
# torch's answers that are not numpy's; these rows are compared with numpy only.
NOT_LIKE_TORCH = {
    "sign": "torch gives 0 of NaN, numpy and Nova NaN",
    "mod": "torch gives NaN for a subnormal divisor, the exact remainder is 0",
}

# torch loses results that f64 has: of -710 it gives -0.0, as exp(710) overflows, and the exact
# result is -3.2e-306. These rows are compared with many digits instead.
EXACT = {"silu": lambda x: x / (1 + mpmath.exp(-x))}


def specials(type_: DType) -> np.ndarray:
    """The values at which float functions go wrong, in one type."""
    info = ml_dtypes.finfo(type_.numpy)
    big, tiny, small = float(info.max), float(info.smallest_subnormal), float(info.tiny)
    positive = [0.0, tiny, small, 1e-3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 20.5, 88.0, 104.0, 710.0, big]
    values = [np.nan, np.inf, *positive]
    return np.array([*values, *(-v for v in values[1:])]).astype(type_.numpy)


def elementwise(name: str, values: np.ndarray, type_: DType) -> Built:
    """The row over all values, or all pairs of them."""
    count = len(OPS[name].operands)
    pairs = list(product(values, repeat=count))
    arrays = [np.array([p[i] for p in pairs], type_.numpy) for i in range(count)]
    shapes = [a.shape for a in arrays]
    return build(name, case(*shapes, **ATTRS.get(name, {})), type_, arrays)


def same(actual: np.ndarray, want: np.ndarray, steps: float, strict: bool = True) -> np.ndarray:
    """Equal within `steps` tolerances of the type, NaN with NaN.

    If `strict`, subnormal numbers are compared like others, and zeros have the same sign.
    """
    if actual.dtype.kind in "iub":
        return actual == want
    info = ml_dtypes.finfo(actual.dtype)
    relative = steps * TOLERANCE[dtype(actual.dtype)][0]
    edge = float(info.max) * (1 - relative)
    floor = steps * float(info.smallest_subnormal if strict else info.tiny)
    a, b = actual.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(a - b) <= relative * np.abs(b) + floor
    # The last numbers before infinity may round either way in the last place.
    near |= (np.abs(a) >= edge) & (np.abs(b) >= edge) & (np.sign(a) == np.sign(b))
    near = np.where(np.isnan(b), np.isnan(a), near | (a == b))
    both_zero = (a == 0) & (b == 0)
    return near & (~both_zero | (np.signbit(a) == np.signbit(b)) | (not strict))


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if f32 in SAMPLES[n].dtypes])
def test_float_special_values(name: str) -> None:
    built = [elementwise(name, specials(d), d) for d in FLOATS]
    for b, results in zip(built, run_all(built), strict=True):
        actual, oracle = results[0], interpret(b)[0]
        # numpy's choice between two zeros depends on the order of its operands.
        good = same(actual, oracle, 2, strict=name not in ("minimum", "maximum"))
        _report(b, actual, oracle, good, "numpy")
        if name in NOT_LIKE_TORCH:
            continue
        with np.errstate(all="ignore"):
            if name in EXACT:
                peer, want = "mpmath", exact(name, b).astype(actual.dtype)
            else:
                peer, want = "torch", reference(SAMPLES[name], b)[0].astype(actual.dtype)
        _report(b, actual, want, same(actual, want, 2, strict=False), peer)


def exact(name: str, b: Built) -> np.ndarray:
    """The results of a row with one operand, computed with 40 digits."""
    with mpmath.workdps(40):
        results = [EXACT[name](mpmath.mpf(float(value))) for value in b.arrays[0]]
        return np.array([float(value) for value in results])


def _report(b: Built, actual: np.ndarray, want: np.ndarray, good: np.ndarray, peer: str) -> None:
    bad = [
        f"{b.name}({', '.join(str(a[i]) for a in b.arrays)}) = {actual[i]}, {peer} {want[i]}"
        for i in np.flatnonzero(~good)
    ]
    assert not bad, f"{b.type}: " + "; ".join(bad[:6])


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_integer_edges(name: str) -> None:
    """The ends of the range, division by zero and negative powers, against numpy."""
    types = [d for d in (*INTEGERS, bool_) if d in SAMPLES[name].dtypes]
    built = [elementwise(name, edges(d), d) for d in types]
    for b, results in zip(built, run_all(built), strict=True):
        actual, oracle = results[0], interpret(b)[0]
        _report(b, actual, oracle, same(actual, oracle, 2), "numpy")


def edges(type_: DType) -> np.ndarray:
    if type_ is bool_:
        return np.array([False, True])
    low, high = np.iinfo(type_.numpy).min, np.iinfo(type_.numpy).max
    return np.unique(
        np.array([low, low + 1, -7, -2, -1, 0, 1, 2, 3, 7, 63, high - 1, high]).clip(low, high)
    ).astype(type_.numpy)


def test_casts_at_the_edges() -> None:
    """Every type to every type: NaN gives 0, integers wrap around, floats overflow to inf."""
    built = []
    for source in ALL:
        values = specials(source) if source.is_float else edges(source)
        built += [build("cast", case(values.shape, dtype=d), source, [values]) for d in ALL]
    for b, results in zip(built, run_all(built), strict=True):
        actual, oracle = results[0], interpret(b)[0]
        _report(b, actual, oracle, same(actual, oracle, 0), "numpy")


def test_division_by_zero_is_zero() -> None:
    values = np.array([-128, -1, 0, 5, 127], np.int8)
    arrays = [values, np.zeros(5, np.int8)]
    built = [build(n, case((5,), (5,)), i8, arrays) for n in ("floor_div", "mod")]
    for results in run_all(built):
        assert not results[0].any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_scores_with_a_large_offset(smoothing: float) -> None:
    """The digits of a row are those of its differences."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((16, 10)) + 1e7).astype("f4")
    target = rng.integers(0, 10, 16)

    def loss(x: Any) -> Any:
        return nova.cross_entropy(x, target, label_smoothing=smoothing)

    value, gradient = nova.jit(nova.value_and_grad(loss))(x)
    truth = torch.tensor(x.astype("f8"), requires_grad=True)
    expected = torch.nn.functional.cross_entropy(
        truth, torch.tensor(target), label_smoothing=smoothing
    )
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-6)
    np.testing.assert_allclose(gradient, truth.grad, atol=1e-7)
