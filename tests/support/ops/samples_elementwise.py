"""Samples of the elementwise rows: arithmetic, comparison, logic, transcendental, activations."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as tf
from op_cases import Case, Sample, case

from nova.core.dtypes import ALL, bool_, f32, f64

SHAPES = ((67,), (5, 13), (), (1,), (0,), (3, 0, 2), (2, 3, 65))
LARGE = (67, 331)
PAIRS = (
    ((67,), ()),
    ((3, 1), (1, 5)),
    ((), ()),
    ((1,), (13,)),
    ((2, 3, 4), (4,)),
    ((0, 3), (1, 3)),
    ((5, 1, 7), (3, 1)),
    ((1,), (0,)),
    ((33, 2), (33, 2)),
)
NUMBERS = tuple(d for d in ALL if d is not bool_)


def unary(torch_function: Any, *attrs: dict[str, Any], **more: Any) -> Sample:
    """Every shape with the first attributes, a vector and a matrix with the others."""
    first = attrs[0] if attrs else {}
    cases = [case(s, **first) for s in SHAPES]
    for second in attrs[1:]:
        cases[1:1] = [case((13,), **second), case((2, 33), **second)]
    large = (case(LARGE, **first),)
    return Sample(tuple(cases), torch_function, large=large, **more)


def binary(torch_function: Any, **more: Any) -> Sample:
    """Broadcasting both ways."""
    large = (case(LARGE, (331,)), case((67, 1), LARGE))
    return Sample(tuple(case(*p) for p in PAIRS), torch_function, large=large, **more)


def _power(x: Any, y: Any) -> Any:
    if x.is_floating_point():
        return torch.pow(x, y)
    return torch.pow(x.double(), y.double()).trunc().to(torch.int64)


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    return torch.clamp(x, min, max)


def _cast(x: Any, dtype: Any) -> Any:
    return x.trunc() if dtype.is_integer and x.is_floating_point() else x


def _cast_cases() -> tuple[Case, ...]:
    # The negative zero of a truncated -0.3 is nobody's business: integers have none.
    return (*(case((67,), dtype=d) for d in ALL), case((), dtype=f32), case((3, 0), dtype=f64))


def _swiglu(x: Any, y: Any = None) -> Any:
    x, y = x.chunk(2, -1) if y is None else (x, y)
    return tf.silu(x) * y


def _where_cases() -> tuple[Case, ...]:
    triples = (
        ((67,), (), (67,)),
        ((3, 1), (1, 5), ()),
        ((), (), ()),
        ((2, 1, 1), (3, 1), (4,)),
        ((0, 3), (1,), (3,)),
        ((33, 2), (33, 2), (33, 2)),
    )
    return tuple(case(*t) for t in triples)


ARITHMETIC = {
    "neg": unary(torch.neg, dtypes=NUMBERS),
    "add": binary(torch.add),
    "sub": binary(torch.sub, dtypes=NUMBERS),
    "mul": binary(torch.mul),
    "div": binary(torch.div),
    "floor_div": binary(partial(torch.div, rounding_mode="floor")),
    "mod": binary(torch.remainder),
    "pow": binary(_power),
    "square": unary(torch.square),
    "reciprocal": unary(torch.reciprocal),
    "abs": unary(torch.abs),
    "sign": unary(torch.sign),
    "floor": unary(torch.floor),
    "ceil": unary(torch.ceil),
    "round": unary(torch.round),
    "trunc": unary(torch.trunc),
}

SELECTION = {
    "minimum": binary(torch.minimum),
    "maximum": binary(torch.maximum),
    "clamp": unary(_clamp, {"min": -1, "max": 1}, {"min": 0}, {"max": 1.0}),
    "where": Sample(_where_cases(), torch.where, large=(case(LARGE, LARGE, (331,)),)),
    "bitcast": Sample(
        (case((3, 5), dtype="i32"), case((), dtype="u32"), case((0, 2), dtype="i32")),
        lambda x, dtype: x.float().view({"i32": torch.int32, "u32": torch.uint32}[str(dtype)]),
        dtypes=(f32,),
        grad=False,
        large=(case((67, 331), dtype="i32"),),
    ),
    "cast": Sample(_cast_cases(), _cast, typed=9),
    "detach": unary(torch.detach),
    "barrier": Sample(
        tuple(case(s, s, region=1) for s in SHAPES), lambda x, after, region: x, typed=3
    ),
}

COMPARISON = {n: binary(getattr(torch, n)) for n in ("eq", "ne", "lt", "le", "gt", "ge")}
COMPARISON |= {n: unary(getattr(torch, n)) for n in ("isnan", "isinf", "isfinite", "logical_not")}
COMPARISON |= {n: binary(getattr(torch, n)) for n in ("logical_and", "logical_or", "logical_xor")}

TRANSCENDENTAL = {
    n: unary(getattr(torch, n))
    for n in (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "erf"),
        "erfc",
        *("sin", "cos", "tan", "asin", "acos", "atan"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    )
}
TRANSCENDENTAL["atan2"] = binary(torch.atan2)

ACTIVATIONS = {
    "relu": unary(tf.relu),
    "leaky_relu": unary(tf.leaky_relu, {}, {"negative_slope": 0.2}),
    "elu": unary(tf.elu, {}, {"alpha": 0.7}),
    "gelu": unary(tf.gelu, {}, {"approximate": "tanh"}),
    "sigmoid": unary(torch.sigmoid),
    "silu": unary(tf.silu),
    "softplus": unary(tf.softplus, {}, {"beta": 2.0, "threshold": 1.5}),
    "mish": unary(tf.mish),
    "swiglu": Sample(
        (
            case((5, 14)),
            case((67,), ()),
            case((2, 1), (1, 3)),
            case((2,)),
            case((3, 0)),
            case((2, 3, 66)),
        ),
        _swiglu,
        large=(case((67, 332)), case(LARGE, LARGE)),
        rounds=2,
    ),
}

SAMPLES = ARITHMETIC | SELECTION | COMPARISON | TRANSCENDENTAL | ACTIVATIONS
