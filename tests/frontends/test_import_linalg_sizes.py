"""Programs in linalg on tensors with `?` sizes: one program, against numpy at many sizes."""

# ruff: noqa: E501 (MLIR text)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova
from nova import errors

RNG = np.random.default_rng(3)
SIZES = (1, 2, 7, 31, 64, 65)

LAYER = """
func.func @main(%x: tensor<?x16xf32>, %w: tensor<16x?xf32>, %b: tensor<?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x16xf32>
  %n = tensor.dim %w, %c1 : tensor<16x?xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x16xf32>, tensor<16x?xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %bb = linalg.broadcast ins(%b : tensor<?xf32>) outs(%e : tensor<?x?xf32>) dimensions = [0]
  %s = linalg.add ins(%p, %bb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %t = linalg.tanh ins(%s : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %t : tensor<?x?xf32>
}
"""

MEAN = """
#row = affine_map<(d0, d1) -> (d0)>
#all = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<4x?xf32>) -> tensor<4xf32> {
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %n = tensor.dim %x, %c1 : tensor<4x?xf32>
  %i = arith.index_cast %n : index to i64
  %count = arith.sitofp %i : i64 to f32
  %sum = linalg.reduce {arith.addf} ins(%x : tensor<4x?xf32>) outs(%zero : tensor<4xf32>) dimensions = [1]
  %e = tensor.empty() : tensor<4xf32>
  %mean = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%sum : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %q = arith.divf %a, %count : f32
    linalg.yield %q : f32
  } -> tensor<4xf32>
  return %mean : tensor<4xf32>
}
"""

SLICES = """
func.func @main(%x: tensor<?x6xf32>) -> (tensor<?x6xf32>, tensor<?x6xf32>, tensor<?xf32>, tensor<?x2x3xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x6xf32>
  %rest = arith.subi %n, %c1 : index
  %tail = tensor.extract_slice %x[1, 0] [%rest, 6] [1, 1] : tensor<?x6xf32> to tensor<?x6xf32>
  %padded = tensor.pad %x low[1, 0] high[%n, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<?x6xf32> to tensor<?x6xf32>
  %flat = tensor.collapse_shape %x [[0, 1]] : tensor<?x6xf32> into tensor<?xf32>
  %split = tensor.expand_shape %x [[0], [1, 2]] output_shape [%n, 2, 3] : tensor<?x6xf32> into tensor<?x2x3xf32>
  return %tail, %padded, %flat, %split : tensor<?x6xf32>, tensor<?x6xf32>, tensor<?xf32>, tensor<?x2x3xf32>
}
"""

ELEMENTWISE = """
func.func @main(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = math.exp %x : tensor<?x?xf32>
  %1 = arith.mulf %0, %y : tensor<?x?xf32>
  %2 = arith.cmpf ogt, %1, %y : tensor<?x?xf32>
  %3 = arith.select %2, %1, %x : tensor<?x?xi1>, tensor<?x?xf32>
  return %3 : tensor<?x?xf32>
}
"""

LOOP = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%v = %x) -> (tensor<?xf32>) {
    %h = math.tanh %v : tensor<?xf32>
    scf.yield %h : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
"""


def repeated_tanh(x: np.ndarray) -> np.ndarray:
    for _ in range(len(x)):
        x = np.tanh(x)
    return x


CASES: dict[str, tuple[str, Callable[[int, int], list[tuple[int, ...]]], Callable[..., Any]]] = {
    "layer": (LAYER, lambda n, m: [(n, 16), (16, m), (m,)], lambda x, w, b: np.tanh(x @ w + b)),
    "mean": (MEAN, lambda n, m: [(4, n)], lambda x: x.mean(axis=1)),
    "slices": (
        SLICES,
        lambda n, m: [(n, 6)],
        lambda x: (x[1:], np.pad(x, ((1, len(x)), (0, 0))), x.reshape(-1), x.reshape(-1, 2, 3)),
    ),
    "elementwise": (
        ELEMENTWISE,
        lambda n, m: [(n, m)] * 2,
        lambda x, y: np.where(np.exp(x) * y > y, np.exp(x) * y, x),
    ),
    "loop": (LOOP, lambda n, m: [(n,)], repeated_tanh),
}


@pytest.mark.parametrize("name", CASES)
def test_one_program_for_all_sizes(name: str) -> None:
    text, shapes, reference = CASES[name]
    model = nova.translate(text).load()
    for n, m in zip(SIZES, SIZES[::-1], strict=True):
        arrays = [RNG.standard_normal(shape).astype("f4") for shape in shapes(n, m)]
        results = model(*arrays)
        expected = reference(*arrays)
        pairs = zip(
            results if isinstance(results, tuple) else (results,),
            expected if isinstance(expected, tuple) else (expected,),
            strict=True,
        )
        for actual, right in pairs:
            assert actual.shape == right.shape
            np.testing.assert_allclose(actual, right, rtol=2e-5, atol=1e-6)


def test_an_empty_axis() -> None:
    model = nova.translate(ELEMENTWISE).load()
    empty = np.zeros((0, 5), "f4")
    assert model(empty, empty).shape == (0, 5)


def test_equal_sizes_are_one_dim() -> None:
    model = nova.translate(LAYER).load()
    assert [dim.name for dim in model.signature.dims] == ["arg0_0", "arg2_0"]
    with pytest.raises(errors.SignatureError, match="axis 0 of 'arg2' is 4, and arg2_0 is 5"):
        model(np.ones((2, 16), "f4"), np.ones((16, 5), "f4"), np.ones(4, "f4"))


def test_sizes_from_data_are_refused() -> None:
    text = """
func.func @main(%x: tensor<?xf32>, %n: tensor<1xindex>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %k = tensor.extract %n[%c0] : tensor<1xindex>
  %s = tensor.extract_slice %x[0] [%k] [1] : tensor<?xf32> to tensor<?xf32>
  return %s : tensor<?xf32>
}
"""
    match = "a size of tensor.extract_slice is computed from data"
    with pytest.raises(errors.SymbolicImportError, match=match) as caught:
        nova.translate(text)
    assert caught.value.where and ":5:" in caught.value.where
