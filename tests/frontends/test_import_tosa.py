"""TOSA programs against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova

_RNG = np.random.default_rng(2)


def f(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype("f4")


def function(arguments: str, results: str, *lines: str) -> str:
    """Text of `@main`; arguments are %0, %1, ... and the last line names what is returned."""
    formal = ", ".join(f"%{i}: tensor<{t}>" for i, t in enumerate(arguments.split()))
    types = ", ".join(f"tensor<{t}>" for t in results.split())
    body = "\n  ".join([*lines[:-1], f"return {lines[-1]} : {types}"])
    return f"func.func @main({formal}) -> ({types}) {{\n  {body}\n}}\n"


def shape(name: str, *sizes: int) -> str:
    values = ", ".join(map(str, sizes))
    return (
        f"%{name} = tosa.const_shape {{values = dense<[{values}]> : tensor<{len(sizes)}xindex>}} "
        f": () -> !tosa.shape<{len(sizes)}>"
    )


ZERO = '%z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>'
NO_SHIFT = '%s = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>'


def convolve(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    result = np.zeros((*x.shape[:3], w.shape[0])) + b
    for i in range(3):
        for j in range(3):
            window = padded[:, i : i + x.shape[1], j : j + x.shape[2]]
            result += np.einsum("nhwc,oc->nhwo", window, w[:, i, j])
    return result


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def placed(x: np.ndarray, index: np.ndarray, updates: np.ndarray) -> np.ndarray:
    result = x.copy()
    result[:, index[0]] = updates
    return result


Reference = Callable[..., Any]
CASES: dict[str, tuple[str, list[np.ndarray], Reference]] = {
    "add": (
        function(
            "3x4xf32 4xf32",
            "3x4xf32",
            shape("n", 1, 4),
            "%r = tosa.reshape %1, %n : (tensor<4xf32>, !tosa.shape<2>) -> tensor<1x4xf32>",
            "%2 = tosa.add %0, %r : (tensor<3x4xf32>, tensor<1x4xf32>) -> tensor<3x4xf32>",
            "%2",
        ),
        [f(3, 4), f(4)],
        np.add,
    ),
    "matmul": (
        function(
            "2x3x4xf32 2x4x5xf32",
            "2x3x5xf32",
            ZERO,
            "%2 = tosa.matmul %0, %1, %z, %z : (tensor<2x3x4xf32>, tensor<2x4x5xf32>, "
            "tensor<1xf32>, tensor<1xf32>) -> tensor<2x3x5xf32>",
            "%2",
        ),
        [f(2, 3, 4), f(2, 4, 5)],
        np.matmul,
    ),
    "conv2d": (
        function(
            "2x8x8x3xf32 5x3x3x3xf32 5xf32",
            "2x8x8x5xf32",
            ZERO,
            "%3 = tosa.conv2d %0, %1, %2, %z, %z {acc_type = f32, dilation = array<i64: 1, 1>, "
            "pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<2x8x8x3xf32>, "
            "tensor<5x3x3x3xf32>, tensor<5xf32>, tensor<1xf32>, tensor<1xf32>) "
            "-> tensor<2x8x8x5xf32>",
            "%3",
        ),
        [f(2, 8, 8, 3), f(5, 3, 3, 3), f(5)],
        convolve,
    ),
    "max_pool2d": (
        function(
            "1x8x8x3xf32",
            "1x4x4x3xf32",
            "%1 = tosa.max_pool2d %0 {kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>, "
            "stride = array<i64: 2, 2>} : (tensor<1x8x8x3xf32>) -> tensor<1x4x4x3xf32>",
            "%1",
        ),
        [f(1, 8, 8, 3)],
        lambda x: x.reshape(1, 4, 2, 4, 2, 3).max((2, 4)),
    ),
    "softmax": (
        function(
            "4x8xf32",
            "4x8xf32",
            NO_SHIFT,
            "%1 = tosa.reduce_max %0 {axis = 1 : i32} : (tensor<4x8xf32>) -> tensor<4x1xf32>",
            "%2 = tosa.sub %0, %1 : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>",
            "%3 = tosa.exp %2 : (tensor<4x8xf32>) -> tensor<4x8xf32>",
            "%4 = tosa.reduce_sum %3 {axis = 1 : i32} : (tensor<4x8xf32>) -> tensor<4x1xf32>",
            "%5 = tosa.reciprocal %4 : (tensor<4x1xf32>) -> tensor<4x1xf32>",
            "%6 = tosa.mul %3, %5, %s : (tensor<4x8xf32>, tensor<4x1xf32>, tensor<1xi8>) "
            "-> tensor<4x8xf32>",
            "%6",
        ),
        [f(4, 8)],
        softmax,
    ),
    "movement": (
        function(
            "4x6xf32",
            "6x4xf32 8x6xf32 2x3xf32 4x12xf32 4x6xf32 5x8xf32",
            "%1 = tosa.transpose %0 {perms = array<i32: 1, 0>} : (tensor<4x6xf32>) "
            "-> tensor<6x4xf32>",
            "%2 = tosa.concat %0, %0 {axis = 0 : i32} : (tensor<4x6xf32>, tensor<4x6xf32>) "
            "-> tensor<8x6xf32>",
            shape("start", 1, 2),
            shape("size", 2, 3),
            "%3 = tosa.slice %0, %start, %size : (tensor<4x6xf32>, !tosa.shape<2>, "
            "!tosa.shape<2>) -> tensor<2x3xf32>",
            shape("times", 1, 2),
            "%4 = tosa.tile %0, %times : (tensor<4x6xf32>, !tosa.shape<2>) -> tensor<4x12xf32>",
            "%5 = tosa.reverse %0 {axis = 1 : i32} : (tensor<4x6xf32>) -> tensor<4x6xf32>",
            shape("widths", 1, 0, 2, 0),
            '%v = "tosa.const"() <{values = dense<3.0> : tensor<1xf32>}> : () -> tensor<1xf32>',
            "%6 = tosa.pad %0, %widths, %v : (tensor<4x6xf32>, !tosa.shape<4>, tensor<1xf32>) "
            "-> tensor<5x8xf32>",
            "%1, %2, %3, %4, %5, %6",
        ),
        [f(4, 6)],
        lambda x: (
            x.T,
            np.concatenate([x, x]),
            x[1:3, 2:5],
            np.tile(x, (1, 2)),
            x[:, ::-1],
            np.pad(x, ((1, 0), (2, 0)), constant_values=3),
        ),
    ),
    "functions": (
        function(
            "8xf32",
            "8xf32 8xf32 8xf32 8xf32 8xf32",
            *(
                f"%{i} = tosa.{op} %0 : (tensor<8xf32>) -> tensor<8xf32>"
                for i, op in enumerate(("tanh", "sigmoid", "abs", "floor"), start=1)
            ),
            "%5 = tosa.clamp %0 {min_val = -0.5 : f32, max_val = 0.5 : f32} : (tensor<8xf32>) "
            "-> tensor<8xf32>",
            "%1, %2, %3, %4, %5",
        ),
        [f(8)],
        lambda x: (np.tanh(x), 1 / (1 + np.exp(-x)), abs(x), np.floor(x), np.clip(x, -0.5, 0.5)),
    ),
    "argmax": (
        function(
            "4x6xf32",
            "4xi32",
            "%1 = tosa.argmax %0 {axis = 1 : i32} : (tensor<4x6xf32>) -> tensor<4xi32>",
            "%1",
        ),
        [f(4, 6)],
        lambda x: x.argmax(1),
    ),
    "gather_scatter": (
        function(
            "1x6x4xf32 1x3xi32 1x3x4xf32",
            "1x3x4xf32 1x6x4xf32",
            "%3 = tosa.gather %0, %1 : (tensor<1x6x4xf32>, tensor<1x3xi32>) -> tensor<1x3x4xf32>",
            "%4 = tosa.scatter %0, %1, %2 : (tensor<1x6x4xf32>, tensor<1x3xi32>, "
            "tensor<1x3x4xf32>) -> tensor<1x6x4xf32>",
            "%3, %4",
        ),
        [f(1, 6, 4), np.array([[0, 5, 2]], "i4"), f(1, 3, 4)],
        lambda x, i, u: (x[:, i[0]], placed(x, i, u)),
    ),
    "while": (
        function(
            "4xf32 i32",
            "4xf32",
            '%c = "tosa.const"() <{values = dense<0> : tensor<i32>}> : () -> tensor<i32>',
            '%one = "tosa.const"() <{values = dense<1> : tensor<i32>}> : () -> tensor<i32>',
            "%r:2 = tosa.while_loop (%a = %c, %b = %0) : (tensor<i32>, tensor<4xf32>) -> "
            "(tensor<i32>, tensor<4xf32>) {",
            "  %g = tosa.greater %1, %a : (tensor<i32>, tensor<i32>) -> tensor<i1>",
            "  tosa.yield %g : tensor<i1>",
            "} do {",
            "^bb0(%a: tensor<i32>, %b: tensor<4xf32>):",
            "  %n = tosa.add %a, %one : (tensor<i32>, tensor<i32>) -> tensor<i32>",
            "  %d = tosa.add %b, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>",
            "  tosa.yield %n, %d : tensor<i32>, tensor<4xf32>",
            "}",
            "%r#1",
        ),
        [f(4), np.array(3, "i4")],
        lambda x, n: x * 2**n,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    text, arrays, reference = CASES[name]
    translation = nova.translate(text)
    actual, expected = translation.load()(*arrays), reference(*arrays)
    pairs = (
        zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    )
    for result, want in pairs:
        assert result.shape == want.shape
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5)
    assert "tosa." in translation.stages["tosa"] and "tosa." not in translation.stages["linalg"]
