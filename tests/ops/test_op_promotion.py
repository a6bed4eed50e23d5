"""Element types: torch's promotion for all pairs, weak Python numbers, and torch's result types."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

import nova
from nova.core.dtypes import ALL, DType, bool_, f32, f64, i8, i32, i64, promote, u8
from nova.errors import DTypeError
from nova.graph.tensor import placeholder

TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}
NOVA = {kind: nova.core.dtypes.dtype(name) for name, kind in TORCH.items()}
# torch would answer with a type that Nova does not have.
OWN = {frozenset({i8, u8}): i32}


@pytest.mark.parametrize("a, b", list(product(ALL, ALL)))
def test_promotion(a: DType, b: DType) -> None:
    common = torch.promote_types(TORCH[a.name], TORCH[b.name])
    expected = OWN.get(frozenset({a, b})) or NOVA[common]
    assert promote(a, b) is expected
    assert (placeholder((2,), a) * placeholder((2,), b)).dtype is expected
    assert (
        nova.where(placeholder((2,), bool_), placeholder((2,), a), placeholder((2,), b)).dtype
        is expected
    )


@pytest.mark.parametrize("number", [True, 3, 2.5])
@pytest.mark.parametrize("second", ALL)
def test_python_numbers_are_weak(number: bool | int | float, second: DType) -> None:
    expected = NOVA[(torch.ones(1, dtype=TORCH[second.name]) * number).dtype]
    x = placeholder((1,), second)
    assert (x * number).dtype is expected and (number * x).dtype is expected


BINARY = {
    **{n: n for n in ("add", "mul", "minimum", "maximum", "atan2", "lt", "logical_and", "pow")},
    "div": "true_divide",
    "floor_div": "floor_divide",
    "mod": "remainder",
    "sub": "sub",
}
UNARY = {
    **{n: n for n in ("square", "abs", "sign", "neg", "exp", "log1p", "sin", "atan", "sqrt")},
    **{n: n for n in ("tanh", "isnan", "sigmoid", "rsqrt", "erf", "reciprocal", "floor", "trunc")},
}
# torch refuses these, or has bool for them: numpy's types are taken.
SKIPPED = {("square", bool_), ("sub", bool_), ("neg", bool_), ("sign", bool_), ("abs", bool_)}
SKIPPED |= {(name, bool_) for name in ("floor", "trunc", "pow", "mod", "floor_div")}


@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_result_types_are_torchs(name: str) -> None:
    for private in ALL:
        if (name, private) in SKIPPED:
            continue
        operands = 2 if name in BINARY else 1
        function = getattr(torch, BINARY.get(name) or UNARY[name])
        expected = NOVA[function(*[torch.ones(2, dtype=TORCH[private.name])] * operands).dtype]
        result = getattr(nova, name)(*[placeholder((2,), private) for _ in range(operands)]).dtype
        assert result is expected, (name, private)


@pytest.mark.parametrize("name", ["mean", "var", "softmax", "gelu", "div"])
def test_f64_comes_from_f64_alone(name: str) -> None:
    for private in ALL:
        x = placeholder((3,), private)
        result = nova.div(x, x) if name == "div" else getattr(nova, name)(x)
        assert result.dtype is (private if private.is_float else f32), private


def test_an_integer_input_of_an_f32_model_stays_f32() -> None:
    images = np.arange(12, dtype=np.uint8).reshape(3, 4)
    labels = np.array([0, 2, 1])
    weight = np.linspace(-1, 1, 12, dtype="f4").reshape(4, 3)
    scaled = nova.tensor(images) / 255.0
    scores = scaled @ nova.tensor(weight) + nova.tensor(labels)
    assert scores.dtype is f32
    inputs = torch.from_numpy(images) / 255.0 @ torch.from_numpy(weight) + torch.from_numpy(labels)
    assert inputs.dtype is torch.float32
    np.testing.assert_allclose(scores.numpy(), inputs.numpy(), rtol=1e-6)
    assert (nova.tensor(labels) * nova.tensor(np.ones(3))).dtype is f64


def test_floats_of_bool_and_integers_are_refused_where_torch_has_none() -> None:
    with pytest.raises(DTypeError):
        nova.neg(placeholder((2,), bool_))
    with pytest.raises(DTypeError):
        nova.sub(placeholder((2,), bool_), placeholder((2,), bool_))


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_totals_of_integers_are_i64(name: str) -> None:
    for d in (i64, i32, i8, u8, bool_):
        assert getattr(nova, name)(placeholder((3,), d)).dtype is i64
