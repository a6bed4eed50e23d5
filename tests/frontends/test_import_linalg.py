"""Programs in linalg on tensors, as other compilers write them, against numpy."""

# ruff: noqa: E501 (MLIR text)

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova
from nova.ir.bindings import ir
from nova.ir.context import make_context

_RNG = np.random.default_rng(3)


def f(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype("f4")


LAYER = """
func.func @main(%x: tensor<{m}x{k}xf32>, %w: tensor<{k}x{n}xf32>, %b: tensor<{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{m}x{n}xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %p = linalg.matmul ins(%x, %w : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) outs(%z : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %bb = linalg.broadcast ins(%b : tensor<{n}xf32>) outs(%e : tensor<{m}x{n}xf32>) dimensions = [0]
  %s = linalg.add ins(%p, %bb : tensor<{m}x{n}xf32>, tensor<{m}x{n}xf32>) outs(%e : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %t = linalg.tanh ins(%s : tensor<{m}x{n}xf32>) outs(%e : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %t : tensor<{m}x{n}xf32>
}}
"""

CASES: dict[str, tuple[str, list[np.ndarray], Callable[..., Any]]] = {
    "layer": (
        LAYER.format(m=8, k=16, n=10),
        [f(8, 16), f(16, 10), f(10)],
        lambda x, w, b: np.tanh(x @ w + b),
    ),
    "calls": (
        """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = call @twice(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
""",
        [f(4)],
        lambda x: 4 * x,
    ),
    "whole_tensors": (
        """
func.func @main(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = math.exp %x : tensor<3x4xf32>
  %1 = arith.mulf %0, %y : tensor<3x4xf32>
  %2 = arith.cmpf ogt, %1, %y : tensor<3x4xf32>
  %3 = arith.select %2, %1, %x : tensor<3x4xi1>, tensor<3x4xf32>
  return %3 : tensor<3x4xf32>
}
""",
        [f(3, 4), f(3, 4)],
        lambda x, y: np.where(np.exp(x) * y > y, np.exp(x) * y, x),
    ),
    "reduce": (
        """
func.func @main(%x: tensor<3x4xf32>) -> tensor<3xf32> {
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  %0 = linalg.reduce {arith.addf} ins(%x : tensor<3x4xf32>) outs(%zero : tensor<3xf32>) dimensions = [1]
  return %0 : tensor<3xf32>
}
""",
        [f(3, 4)],
        lambda x: x.sum(1),
    ),
    "conv": (
        """
func.func @main(%x: tensor<1x10xf32>, %w: tensor<1x3xf32>, %o: tensor<1x8xf32>) -> tensor<8xf32> {
  %a = tensor.collapse_shape %x [[0, 1]] : tensor<1x10xf32> into tensor<10xf32>
  %b = tensor.collapse_shape %w [[0, 1]] : tensor<1x3xf32> into tensor<3xf32>
  %c = tensor.collapse_shape %o [[0, 1]] : tensor<1x8xf32> into tensor<8xf32>
  %0 = linalg.conv_1d ins(%a, %b : tensor<10xf32>, tensor<3xf32>) outs(%c : tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
""",
        [f(1, 10), f(1, 3), f(1, 8)],
        lambda x, w, o: np.convolve(x[0], w[0, ::-1], "valid") + o[0],
    ),
    "slices": (
        """
func.func @main(%x: tensor<6x8xf32>, %y: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<6x8xf32>, tensor<9x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.extract_slice %x[1, 2] [2, 3] [2, 1] : tensor<6x8xf32> to tensor<2x3xf32>
  %1 = tensor.insert_slice %y into %x[4, 5] [2, 3] [1, 1] : tensor<2x3xf32> into tensor<6x8xf32>
  %2 = tensor.pad %x low[2, 0] high[1, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<6x8xf32> to tensor<9x8xf32>
  return %0, %1, %2 : tensor<2x3xf32>, tensor<6x8xf32>, tensor<9x8xf32>
}
""",
        [f(6, 8), f(2, 3)],
        lambda x, y: (
            x[1:5:2, 2:5],
            np.block([[x[:4]], [x[4:, :5], y]]),
            np.pad(x, ((2, 1), (0, 0))),
        ),
    ),
    "loop": (
        """
func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %0 = scf.for %i = %c0 to %c7 step %c1 iter_args(%a = %x) -> tensor<5xf32> {
    %1 = arith.mulf %a, %a : tensor<5xf32>
    %2 = math.sqrt %1 : tensor<5xf32>
    %3 = arith.addf %2, %x : tensor<5xf32>
    scf.yield %3 : tensor<5xf32>
  }
  return %0 : tensor<5xf32>
}
""",
        [f(5)],
        lambda x: _repeat(lambda a: abs(a) + x, x, 7),
    ),
    "from_elements": (
        """
func.func @main(%x: tensor<5xf32>) -> tensor<2xf32> {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %0 = tensor.extract %x[%c0] : tensor<5xf32>
  %1 = tensor.extract %x[%c3] : tensor<5xf32>
  %2 = arith.addf %0, %1 : f32
  %3 = tensor.from_elements %2, %0 : tensor<2xf32>
  return %3 : tensor<2xf32>
}
""",
        [f(5)],
        lambda x: np.array([x[0] + x[3], x[0]]),
    ),
    "bools_and_bytes": (
        """
func.func @main(%m: tensor<4xi1>, %x: tensor<4xui8>, %y: tensor<4xi8>) -> (tensor<4xi1>, tensor<4xi8>) {
  %true = arith.constant dense<true> : tensor<4xi1>
  %0 = arith.xori %m, %true : tensor<4xi1>
  %1 = arith.select %0, %y, %y : tensor<4xi1>, tensor<4xi8>
  return %0, %1 : tensor<4xi1>, tensor<4xi8>
}
""",
        [np.array([1, 0, 1, 1], "?"), np.arange(4, dtype="u1"), np.arange(4, dtype="i1")],
        lambda m, x, y: (~m, y),
    ),
}


def _repeat(function: Callable[[Any], Any], value: Any, times: int) -> Any:
    for _ in range(times):
        value = function(value)
    return value


def check(translation: Any, arrays: list[np.ndarray], reference: Callable[..., Any]) -> None:
    actual, expected = translation.load()(*arrays), reference(*arrays)
    pairs = (
        zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    )
    for result, want in pairs:
        assert result.shape == want.shape
        np.testing.assert_allclose(result, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    text, arrays, reference = CASES[name]
    check(nova.translate(text), arrays, reference)


def test_products_get_the_packed_schedule() -> None:
    """A named product is worth as much as one of Nova's own, with its bias and activation."""
    arrays = [f(64, 96), f(96, 128), f(128)]
    translation = nova.translate(LAYER.format(m=64, k=96, n=128))
    check(translation, arrays, lambda x, w, b: np.tanh(x @ w + b))
    assert 'nova.core = "matrix"' in translation.stages["loops"]
    kernels = translation.stages["kernels"]
    assert kernels.count("func.func private @kernel") == 1, "bias and tanh are behind the product"


def test_convolutions_get_the_packed_schedule() -> None:
    text = """
func.func @main(%x: tensor<4x18x18x8xf32>, %w: tensor<3x3x8x32xf32>, %y: tensor<4x16x16x32xf32>) -> tensor<4x16x16x32xf32> {
  %0 = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>} ins(%x, %w : tensor<4x18x18x8xf32>, tensor<3x3x8x32xf32>) outs(%y : tensor<4x16x16x32xf32>) -> tensor<4x16x16x32xf32>
  return %0 : tensor<4x16x16x32xf32>
}
"""

    def reference(x: np.ndarray, w: np.ndarray, y: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
        return y + np.einsum("nijckl,klco->nijo", windows, w)

    translation = nova.translate(text)
    check(translation, [f(4, 18, 18, 8), f(3, 3, 8, 32), f(4, 16, 16, 32)], reference)
    assert 'nova.core = "matrix"' in translation.stages["loops"]


def test_bytecode() -> None:
    text, arrays, reference = CASES["layer"]
    written = io.BytesIO()
    ir.Module.parse(text, make_context()).operation.write_bytecode(written)
    translation = nova.translate(written.getvalue())
    check(translation, arrays, reference)
    assert translation.stages["ll"] == nova.translate(text).stages["ll"]


def test_the_nova_dialect_comes_back() -> None:
    """What a compile prints can be translated, and gives the same code."""
    x, w = nova.tensor(f(8, 16), name="x"), nova.tensor(f(16, 4), name="w")
    program = nova.compile(nova.gelu(x @ w), inputs=[x], params=[w])
    translation = nova.translate(program.mlir_source)
    assert [(s.name, s.role) for s in translation.signature.args] == [
        ("x", "input"),
        ("w", "param"),
    ]
    np.testing.assert_array_equal(translation.load()(x.data, w.data), program(x.data, w.data))
    # A program knows its lines, which its text does not have: the files differ in that alone.
    again = nova.translate(program)
    assert again.data == nova.translate(program).data
    assert again.stages == translation.stages
    assert {kernel.location.split(":")[0] for kernel in again.load().kernels} == {__file__}


def test_a_pad_that_shifts_an_axis() -> None:
    text = """func.func @main(%x: tensor<5x9xf32>) -> tensor<5x10xf32> {
      %z = arith.constant 7.0 : f32
      %y = tensor.pad %x low[1, 1] high[-1, 0] {
      ^bb0(%i: index, %j: index):
        tensor.yield %z : f32
      } : tensor<5x9xf32> to tensor<5x10xf32>
      return %y : tensor<5x10xf32>
    }"""
    x = np.arange(1, 46, dtype="f4").reshape(5, 9)
    expected = np.pad(x[:4], ((1, 0), (1, 0)), constant_values=7)
    np.testing.assert_array_equal(nova.translate(text).load()(x), expected)


def test_a_pad_that_keeps_the_shape() -> None:
    """Upstream's canonicalizer takes it for its operand."""
    text = """func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
      %z = arith.constant 7.0 : f32
      %y = tensor.pad %x low[0, -1] high[0, 1] {
      ^bb0(%i: index, %j: index):
        tensor.yield %z : f32
      } : tensor<2x4xf32> to tensor<2x4xf32>
      return %y : tensor<2x4xf32>
    }"""
    x = np.arange(1, 9, dtype="f4").reshape(2, 4)
    expected = np.pad(x[:, 1:], ((0, 0), (0, 1)), constant_values=7)
    np.testing.assert_array_equal(nova.translate(text).load()(x), expected)
