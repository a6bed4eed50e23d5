"""LAPACK calls of jax's programs, and StableHLO's own solvers, against jax and numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nova
from nova.errors import UnsupportedOpError

RNG = np.random.default_rng(9)
A = RNG.normal(size=(2, 5, 5)).astype("f4")
SPD = (A @ A.transpose(0, 2, 1) + np.eye(5, dtype="f4")).astype("f4")
COMPLEX = (A + 1j * RNG.normal(size=A.shape)).astype("c8")
COMPLEX_SPD = (COMPLEX @ COMPLEX.conj().transpose(0, 2, 1) + np.eye(5)).astype("c8")
WIDE, TALL = A[:, :3], A[:, :, :3]
SIDE = RNG.normal(size=(2, 5, 2)).astype("f4")

# Magnitudes are compared: the signs of eigenvectors and singular vectors are not defined.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "cholesky": (jnp.linalg.cholesky, (SPD,)),
    "triangular_solve": (
        lambda a, b: jax.lax.linalg.triangular_solve(
            a, b, left_side=True, lower=True, transpose_a=True
        ),
        (SPD, SIDE),
    ),
    "solve": (jnp.linalg.solve, (SPD, SIDE)),
    "lu": (jax.lax.linalg.lu, (A,)),
    "lu of tall matrices": (jax.lax.linalg.lu, (TALL,)),
    "qr": (jnp.linalg.qr, (TALL,)),
    "qr of wide matrices": (jnp.linalg.qr, (WIDE,)),
    "eigh": (lambda a: tuple(jnp.linalg.eigh(a)), (SPD,)),
    "svd": (lambda a: tuple(jnp.linalg.svd(a, full_matrices=False)), (TALL,)),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), (TALL,)),
    "singular values of wide matrices": (lambda a: jnp.linalg.svd(a, compute_uv=False), (WIDE,)),
    "complex cholesky": (jnp.linalg.cholesky, (COMPLEX_SPD,)),
    "complex triangular_solve": (
        lambda a, b: jax.lax.linalg.triangular_solve(
            a, b, left_side=True, lower=True, transpose_a=True, conjugate_a=True
        ),
        (COMPLEX_SPD, SIDE.astype("c8")),
    ),
    "complex lu": (jax.lax.linalg.lu, (COMPLEX,)),
    "complex qr": (jnp.linalg.qr, (COMPLEX[:, :, :3],)),
    "complex eigh": (lambda a: tuple(jnp.linalg.eigh(a)), (COMPLEX_SPD,)),
    "complex svd": (
        lambda a: tuple(jnp.linalg.svd(a, full_matrices=False)),
        (COMPLEX[:, :3],),
    ),
    "gradient": (jax.grad(lambda a: jnp.linalg.slogdet(a)[1].sum()), (SPD,)),
}


SIGNS_ARE_FREE = ("eigh", "svd", "qr", "qr of wide matrices", "complex eigh", "complex svd")
"""Each vector may be multiplied by -1, or by a phase."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_factorizations_are_those_of_jax(name: str) -> None:
    function, arguments = PROGRAMS[name]
    results = nova.from_jax(function, *arguments)(*arguments)
    expected = jax.jit(function)(*arguments)
    for result, want in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        result, want = np.asarray(result), np.asarray(want)
        assert result.dtype == want.dtype
        if name in SIGNS_ARE_FREE:
            result, want = abs(result), abs(want)
        np.testing.assert_allclose(result, want, rtol=2e-3, atol=2e-3)


def test_a_matrix_that_is_not_positive_definite_gives_nan() -> None:
    result = nova.from_jax(jnp.linalg.cholesky, -SPD)(-SPD)
    assert np.isnan(np.asarray(result)).any()


def test_solvers_of_stablehlo() -> None:
    text = """
    func.func @main(%a: tensor<2x5x5xf32>, %b: tensor<2x5x2xf32>) -> tensor<2x5x2xf32> {
      %0 = "stablehlo.cholesky"(%a) {lower = false} : (tensor<2x5x5xf32>) -> tensor<2x5x5xf32>
      %1 = "stablehlo.triangular_solve"(%0, %b) {left_side = true, lower = false,
        unit_diagonal = false, transpose_a = #stablehlo<transpose TRANSPOSE>}
        : (tensor<2x5x5xf32>, tensor<2x5x2xf32>) -> tensor<2x5x2xf32>
      return %1 : tensor<2x5x2xf32>
    }
    """
    want = np.linalg.solve(np.linalg.cholesky(SPD), SIDE)
    np.testing.assert_allclose(nova.translate(text).load()(SPD, SIDE), want, rtol=1e-3, atol=1e-3)


def test_other_routines_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOpError, match="lapack_sgeev_ffi"):
        nova.from_jax(lambda a: jnp.linalg.eig(a)[0].real, A)
