"""Single StableHLO ops against StableHLO's own reference interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nova
from nova.frontends.source import parse_source, read_source
from nova.ir.bindings import ir, stablehlo

_NUMPY = {"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8", "i1": "?", "i8": "i1", "ui8": "u1"}

UNARY = (
    "abs ceil cosine exponential exponential_minus_one floor log log_plus_one logistic negate "
    "round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh cbrt"
)
BINARY = "add atan2 divide maximum minimum multiply power remainder subtract"
INTEGER = "add and divide maximum minimum multiply or remainder subtract xor"
SHIFTS = "shift_left shift_right_arithmetic shift_right_logical"
CONVERTED = (
    "i1-f32 i8-i1 f32-i32 i32-f32 f32-f64 f64-f32 i32-i8 i32-i64 ui8-f32 ui8-i32 i1-i32 f32-i1 "
    "i32-i1"
)


def elementwise(op: str, type_: str, operands: str) -> str:
    return f"stablehlo.{op} {operands} : tensor<3x4x{type_}>"


def reduction(op: str, type_: str, start: str) -> tuple[str, str]:
    return (
        f"stablehlo.reduce(%0 init: %c) applies stablehlo.{op} across dimensions = [1] : "
        f"(tensor<3x4x{type_}>, tensor<{type_}>) -> tensor<3x{type_}>",
        f"%c = stablehlo.constant dense<{start}> : tensor<{type_}>",
    )


# Name -> types of the arguments, the op (its last type is the result), and ops before it.
CASES: dict[str, tuple[str, ...]] = {
    **{f"{op}-f32": ("3x4xf32", elementwise(op, "f32", "%0")) for op in UNARY.split()},
    **{
        f"{op}-{t}": (f"3x4x{t} 3x4x{t}", elementwise(op, t, "%0, %1"))
        for ops, types in ((BINARY, "f32 f64"), (INTEGER, "i32 i64 i8 ui8"), (SHIFTS, "i32 ui8"))
        for op in ops.split()
        for t in types.split()
    },
    **{
        f"{op}-i1": ("3x4xi1 3x4xi1", elementwise(op, "i1", "%0, %1"))
        for op in ("and", "or", "xor", "add", "multiply", "maximum", "minimum")
    },
    "not-i1": ("3x4xi1", elementwise("not", "i1", "%0")),
    "not-i32": ("3x4xi32", elementwise("not", "i32", "%0")),
    "popcnt": ("3x4xi32", elementwise("popcnt", "i32", "%0")),
    "count_leading_zeros": ("3x4xi32", elementwise("count_leading_zeros", "i32", "%0")),
    **{
        f"compare-{name}-{t}": (
            f"9x{t} 9x{t}",
            f"stablehlo.compare {name}, %0, %1 : (tensor<9x{t}>, tensor<9x{t}>) -> tensor<9xi1>",
        )
        for name in ("EQ", "NE", "LT", "LE", "GT", "GE")
        for t in ("f32", "i32", "ui8", "i1")
    },
    **{
        f"convert-{pair}": (
            f"9x{pair.split('-')[0]}",
            "stablehlo.convert %0 : (tensor<9x{}>) -> tensor<9x{}>".format(*pair.split("-")),
        )
        for pair in CONVERTED.split()
    },
    **{
        f"reduce-{op}-{t}": (f"3x4x{t}", *reduction(op, t, start))
        for op, t, start in (
            ("add", "f32", "1.0"),
            ("multiply", "f32", "2.0"),
            ("maximum", "f32", "0.25"),
            ("minimum", "i32", "2"),
            ("maximum", "ui8", "7"),
            ("and", "i1", "true"),
            ("or", "i1", "false"),
            ("add", "i1", "false"),
        )
    },
    "select": ("9xi1 9xf32 9xf32", "stablehlo.select %0, %1, %2 : tensor<9xi1>, tensor<9xf32>"),
    "clamp": ("9xf32 9xf32 9xf32", "stablehlo.clamp %0, %1, %2 : tensor<9xf32>"),
    "is_finite": ("9xf32", "stablehlo.is_finite %0 : (tensor<9xf32>) -> tensor<9xi1>"),
    "iota": ("", "stablehlo.iota dim = 1 : tensor<3x4xi32>"),
    "transpose": (
        "2x3x4xf32",
        "stablehlo.transpose %0, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>",
    ),
    "reshape": ("3x4xf32", "stablehlo.reshape %0 : (tensor<3x4xf32>) -> tensor<2x6xf32>"),
    "reverse": ("3x4xf32", "stablehlo.reverse %0, dims = [0, 1] : tensor<3x4xf32>"),
    "broadcast": (
        "3x1xf32",
        "stablehlo.broadcast_in_dim %0, dims = [2, 0] : (tensor<3x1xf32>) -> tensor<4x2x3xf32>",
    ),
    "slice": (
        "6x7xf32",
        "stablehlo.slice %0 [1:6:2, 0:5] : (tensor<6x7xf32>) -> tensor<3x5xf32>",
    ),
    "concatenate": (
        "3x4xf32 3x2xf32",
        "stablehlo.concatenate %0, %1, dim = 1 : (tensor<3x4xf32>, tensor<3x2xf32>) "
        "-> tensor<3x6xf32>",
    ),
    "pad": (
        "3x4xf32",
        "stablehlo.pad %0, %c, low = [1, -1], high = [0, 2], interior = [1, 0] : "
        "(tensor<3x4xf32>, tensor<f32>) -> tensor<6x5xf32>",
        "%c = stablehlo.constant dense<5.0> : tensor<f32>",
    ),
    "dot": (
        "2x3x4xf32 2x4x5xf32",
        "stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : "
        "(tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>",
    ),
    "dynamic_slice": (
        "6x7xf32",
        "stablehlo.dynamic_slice %0, %i, %j, sizes = [2, 3] : "
        "(tensor<6x7xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>",
        "%i = stablehlo.constant dense<-3> : tensor<i32>",
        "%j = stablehlo.constant dense<6> : tensor<i32>",
    ),
    "gather": (
        "3x4x2xf32",
        '"stablehlo.gather"(%0, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], '
        "collapsed_slice_dims = [0], start_index_map = [1, 0], index_vector_dim = 1>, "
        "slice_sizes = array<i64: 1, 2, 2>}> : "
        "(tensor<3x4x2xf32>, tensor<3x2xi64>) -> tensor<3x2x2xf32>",
        "%i = stablehlo.constant dense<[[0, 0], [9, 1], [2, -2]]> : tensor<3x2xi64>",
    ),
}


def arguments(types: str) -> list[np.ndarray]:
    rng = np.random.default_rng(len(types))
    arrays = []
    for type_ in types.split():
        *shape, element = type_.split("x")
        size = tuple(map(int, shape))
        mode = np.dtype(_NUMPY[element])
        if mode.kind == "f":
            # Positive, so that every function is defined; halves test the rounding.
            arrays.append((rng.integers(1, 12, size) / 4).astype(mode))
        elif mode.kind == "b":
            arrays.append(rng.random(size) > 0.5)
        else:
            arrays.append(rng.integers(1 if mode.kind == "u" else -6, 7, size).astype(mode))
            arrays[-1][arrays[-1] == 0] = 3  # no division by zero
    return arrays


def module_text(case: tuple[str, ...]) -> str:
    types, op, *before = case
    formal = ", ".join(f"%{i}: tensor<{t}>" for i, t in enumerate(types.split()))
    result = re.findall(r"tensor<[^>]*>", op)[-1]
    lines = [*before, f"%r = {op}", f"return %r : {result}"]
    return f"func.func @main({formal}) -> {result} {{\n" + "\n".join(lines) + "\n}\n"


def dense(array: np.ndarray, type_: ir.Type) -> ir.Attribute:
    element = type_.element_type
    if array.dtype == bool:
        flags = [ir.IntegerAttr.get(element, int(v)) for v in array.reshape(-1)]
        return ir.DenseElementsAttr.get(flags, type_)
    return ir.DenseElementsAttr.get(array, type=element, shape=list(array.shape))


def interpret(text: str, arrays: list[np.ndarray]) -> np.ndarray:
    module = parse_source(read_source(text))
    with module.context:
        [function] = module.body.operations
        types = function.type.inputs
        supplied = [dense(a, t) for a, t in zip(arrays, types, strict=True)]
        [result] = stablehlo.eval_module(module, supplied)
        values = np.array(result) if result.type.element_type.width > 1 else np.array(list(result))
        return values.reshape(list(result.type.shape))


@pytest.mark.parametrize("name", CASES)
def test_op(name: str) -> None:
    text, arrays = module_text(CASES[name]), arguments(CASES[name][0])
    expected = interpret(text, arrays)
    actual = nova.translate(text).load()(*arrays)
    assert actual.shape == expected.shape
    if actual.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-7)
    else:
        np.testing.assert_array_equal(actual, expected)
