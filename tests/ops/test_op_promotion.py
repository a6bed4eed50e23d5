"""Element types: numpy's promotion for all pairs, weak Python numbers, and numpy's result types."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import nova
from nova.dtypes import ALL, DType, bf16, bool_, dtype, f16, f32, f64, i8, i32, i64, promote, u8
from nova.errors import DTypeError
from nova.graph.tensor import placeholder

NUMPY = [d for d in ALL if d is not bf16]
# numpy would answer with a type that Nova does not have.
OWN = {frozenset({i8, u8}): i32}


@pytest.mark.parametrize("a, b", list(product(ALL, ALL)))
def test_promotion(a: DType, b: DType) -> None:
    if bf16 in (a, b):
        other = b if a is bf16 else a
        wanted = {f16: f32, f32: f32, f64: f64, i32: f64, i64: f64}.get(other, bf16)
    else:
        wanted = OWN.get(frozenset({a, b})) or dtype(np.promote_types(a.numpy, b.numpy))
    assert promote(a, b) is wanted
    assert (placeholder((2,), a) * placeholder((2,), b)).dtype is wanted


@pytest.mark.parametrize("number", [True, 3, 2.5])
@pytest.mark.parametrize("other", NUMPY)
def test_python_numbers_are_weak(number: bool | int | float, other: DType) -> None:
    wanted = dtype((np.ones(1, other.numpy) * number).dtype)
    x = placeholder((1,), other)
    assert (x * number).dtype is wanted and (number * x).dtype is wanted


def test_python_numbers_beside_bf16() -> None:
    x = placeholder((1,), bf16)
    assert [(x * n).dtype for n in (True, 3, 2.5)] == [bf16] * 3


UFUNCS = {
    **{n: getattr(np, n) for n in ("add", "subtract", "multiply", "floor_divide", "mod", "power")},
    **{n: getattr(np, n) for n in ("minimum", "maximum", "square", "absolute", "sign", "negative")},
    **{n: getattr(np, n) for n in ("exp", "log1p", "sin", "arctan", "sqrt", "tanh", "isnan")},
    **{n: getattr(np, n) for n in ("true_divide", "arctan2", "less", "logical_and", "rint")},
    **{n: getattr(np, n) for n in ("max", "argmin", "any", "mean", "var", "floor", "trunc")},
}
NAMES = {
    "subtract": "sub",
    "multiply": "mul",
    "floor_divide": "floor_div",
    "power": "pow",
    "absolute": "abs",
    "negative": "neg",
    "arctan": "atan",
    "true_divide": "div",
    "arctan2": "atan2",
    "less": "lt",
    "rint": "round",
}


@pytest.mark.parametrize("ufunc", UFUNCS)
def test_result_types_are_numpys(ufunc: str) -> None:
    name = NAMES.get(ufunc, ufunc)
    for d in NUMPY:
        if name == "round" and not d.is_float:
            continue
        count = getattr(UFUNCS[ufunc], "nin", 1)
        arrays = [np.ones(2, d.numpy)] * count
        tensors = [placeholder((2,), d) for _ in range(count)]
        try:
            wanted = UFUNCS[ufunc](*arrays).dtype
        except TypeError:
            if (name, d) == ("sign", bool_):
                continue
            with pytest.raises(DTypeError):
                getattr(nova, name)(*tensors)
            continue
        if wanted in (np.dtype(np.uint64),):
            wanted = np.dtype(np.int64)
        if name == "div" and d.bits == 8:
            wanted = np.dtype(np.float64)
        assert getattr(nova, name)(*tensors).dtype.numpy == wanted, d


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_totals_of_integers_are_i64(name: str) -> None:
    for d in (i64, i32, i8, u8, bool_):
        assert getattr(nova, name)(placeholder((3,), d)).dtype is i64
