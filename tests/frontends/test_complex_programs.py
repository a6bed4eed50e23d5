"""Complex numbers of StableHLO: programs of jax against jax itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nova
from nova.errors import ImportedProgramError, UnsupportedOpError

RNG = np.random.default_rng(3)
Z = (RNG.normal(size=(4, 6)) + 1j * RNG.normal(size=(4, 6))).astype("c8")
CONSTANT = np.array([1 + 2j, -0.0, complex("inf+nanj"), 3j] * 30, "c8")

PROGRAMS: dict[str, Callable[..., Any]] = {
    "identity": lambda z: z,
    "arithmetic": lambda z: (z * z + 1j) / (z - 2) - z,
    "elementary": lambda z: jnp.exp(z) + jnp.log(z) * jnp.sqrt(z) + jnp.tanh(z) ** (1 + 1j),
    "inverse functions": lambda z: jnp.arcsin(z) + jnp.arctan(z) + jnp.arccosh(z),
    "matmul": lambda z: z @ z.T.conj(),
    "sums": lambda z: (z.sum(0), jnp.cumsum(z, 1), jnp.abs(z).sum(), z.mean()),
    "products": lambda z: (z.prod(1), jnp.cumprod(z, 0)),
    "order": lambda z: (jnp.sort(z, 1), z.max(), z == z[0]),
    "loop": lambda z: jax.lax.fori_loop(0, 3, lambda i, c: c * 0.5j + 1, z),
    "branch": lambda z: jax.lax.cond(z[0, 0].real > 0, lambda z: z * 2j, lambda z: -z, z),
    "indexing": lambda z: (z[np.array([1, 0])], z.at[1].set(2j), z.at[:, 0].add(z[:, 1])),
    "constant": lambda z: z[0, 0] * 0 + CONSTANT,
    "transform": lambda z: (jnp.fft.fft(z), jnp.fft.irfft(z), jnp.fft.rfft2(z.real)),
    "gradient": jax.grad(lambda z: jnp.abs(jnp.fft.fft(z * z)).sum()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_those_of_jax(name: str) -> None:
    function = PROGRAMS[name]
    results = nova.from_jax(function, Z)(Z)
    expected = jax.jit(function)(Z)
    for result, want in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        result, want = np.asarray(result), np.asarray(want)
        assert result.dtype == want.dtype
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


def test_a_linalg_program_of_complex_numbers_is_refused() -> None:
    text = """
    func.func @main(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
      %0 = tensor.empty() : tensor<4xcomplex<f32>>
      return %0 : tensor<4xcomplex<f32>>
    }
    """
    with pytest.raises(ImportedProgramError, match=r"tensor.empty: complex numbers"):
        nova.translate(text)


def test_a_scatter_that_multiplies_is_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="scatter"):
        nova.from_jax(lambda z: z.at[0].multiply(2j), Z)
