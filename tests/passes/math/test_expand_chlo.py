"""Special functions of CHLO: numbers against scipy, and one op for each use."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nova
from nova.frontends.import_mlir import import_program
from nova.frontends.source import read_source
from nova.ir.walk import find_tensor_ops

FUNCTIONS = {
    "bessel_i1e": scipy.special.i1e,
    "digamma": scipy.special.digamma,
    "erf": scipy.special.erf,
    "erf_inv": scipy.special.erfinv,
    "erfc": scipy.special.erfc,
    "lgamma": scipy.special.gammaln,
}


def program(name: str, element: str) -> str:
    """The function of a matrix and, with another shape of the same type, of its square."""
    x = f"tensor<4x6x{element}>"
    return f"""
func.func @main(%x: {x}) -> ({x}, {x}) {{
  %0 = stablehlo.multiply %x, %x : {x}
  %1 = chlo.{name} %x : {x} -> {x}
  %2 = chlo.{name} %0 : {x} -> {x}
  return %1, %2 : {x}, {x}
}}"""


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("element", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_functions_are_those_of_scipy(name, element, dtype):
    x = np.linspace(0.05, 0.95, 24).reshape(4, 6).astype(dtype)
    results = nova.translate(program(name, element)).load()(x)
    tolerance = 3e-5 if dtype is np.float32 else 1e-12
    for value, result in zip((x, x * x), results, strict=True):
        expected = FUNCTIONS[name](value.astype(np.float64))
        np.testing.assert_allclose(np.asarray(result), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_use_is_one_op(name):
    module = import_program(read_source(program(name, "f32"))).module
    # The product is fused with one of the two.
    assert len(find_tensor_ops(module, "linalg.generic")) <= 3
