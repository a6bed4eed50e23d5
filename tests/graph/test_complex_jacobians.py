"""Products with Jacobians of complex functions against torch and jax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import nova
from nova import errors

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
RNG = np.random.default_rng(3)


def numbers(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(np.complex64)


def close(actual: Any, expected: Any) -> None:
    assert str(actual.dtype) == {torch.float32: "f32", torch.complex64: "complex64"}[expected.dtype]
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


Z, T = numbers(3), numbers(3)
MATRIX = numbers(3, 3)
REAL = RNG.normal(size=8).astype(np.float32)
DIRECTION = RNG.normal(size=8).astype(np.float32)
Function = Callable[[Any], Any]
OF_COMPLEX: dict[str, tuple[Function, Function]] = {
    "square": (lambda z: z * z, lambda z: z * z),
    "identity": (lambda z: z, lambda z: z),
    "matmul": (lambda z: MATRIX @ nova.exp(z), lambda z: torch.tensor(MATRIX) @ torch.exp(z)),
    "conj": (lambda z: nova.conj(z) * z * z, lambda z: z.conj() * z * z),
    "abs": (nova.abs, torch.abs),
    "fft": (nova.fft.fft, torch.fft.fft),
}


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_products_of_complex_arguments(name: str) -> None:
    ours, theirs = OF_COMPLEX[name]
    value, pushed = nova.jvp(ours, (nova.tensor(Z),), (nova.tensor(T),))
    expected = torch.func.jvp(theirs, (torch.tensor(Z),), (torch.tensor(T),))
    close(value, expected[0])
    close(pushed, expected[1])
    value, pullback = nova.vjp(ours, nova.tensor(Z))
    output, reference = torch.func.vjp(theirs, torch.tensor(Z))
    cotangent = T.real.copy() if name == "abs" else T
    close(value, output)
    close(pullback(nova.tensor(cotangent))[0], reference(torch.tensor(cotangent))[0])


def test_products_of_real_arguments_of_complex_functions() -> None:
    pushed = nova.jvp(nova.fft.fft, (nova.tensor(REAL),), (nova.tensor(DIRECTION),))[1]
    close(pushed, torch.fft.fft(torch.tensor(DIRECTION)))
    cotangent = numbers(8)
    pulled = nova.vjp(nova.fft.fft, nova.tensor(REAL))[1](nova.tensor(cotangent))[0]
    close(pulled, torch.func.vjp(torch.fft.fft, torch.tensor(REAL))[1](torch.tensor(cotangent))[0])
    close(
        nova.jacfwd(nova.fft.fft)(nova.tensor(REAL)),
        torch.fft.fft(torch.eye(8), dim=0),
    )


HOLOMORPHIC: dict[str, tuple[Function, Function]] = {
    "square": (lambda z: z * z, lambda z: z * z),
    "identity": (lambda z: z, lambda z: z),
    "matmul": (lambda z: MATRIX @ nova.exp(z), lambda z: MATRIX @ jnp.exp(z)),
    "fft": (nova.fft.fft, jnp.fft.fft),
}


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_jacobians_of_holomorphic_functions(name: str) -> None:
    ours, theirs = HOLOMORPHIC[name]
    for mode in ("jacrev", "jacfwd"):
        expected = getattr(jax, mode)(theirs, holomorphic=True)(Z)
        close(getattr(nova, mode)(ours)(nova.tensor(Z)), torch.tensor(np.array(expected)))


def test_jacobian_of_a_real_function_of_complex_arguments() -> None:
    pullback = torch.func.vjp(torch.abs, torch.tensor(Z))[1]
    rows = torch.stack([pullback(unit)[0] for unit in torch.eye(3)])
    close(nova.jacrev(nova.abs)(nova.tensor(Z)), rows)
    assert nova.jacrev(nova.abs)(nova.tensor(Z[:0])).shape == (0, 0)


def test_several_arguments_in_a_program() -> None:
    def ours(z: Any, x: Any) -> Any:
        return z * x, nova.abs(z) + x

    def theirs(z: Any, x: Any) -> Any:
        return z * x, torch.abs(z) + x

    @nova.jit
    def push(z: Any, x: Any, dz: Any, dx: Any) -> Any:
        return nova.jvp(ours, (z, x), (dz, dx))[1]

    arrays = (Z, REAL[:3], T, DIRECTION[:3])
    z, x, dz, dx = (torch.tensor(a) for a in arrays)
    expected = torch.func.jvp(theirs, (z, x), (dz, dx))[1]
    for actual, reference in zip(push(*map(nova.tensor, arrays)), expected, strict=True):
        close(actual, reference)


def test_half_a_jacobian_is_refused() -> None:
    with pytest.raises(errors.GradientError, match="jacfwd") as caught:
        nova.jacrev(nova.fft.fft)(nova.tensor(REAL))
    assert "test_complex_jacobians.py" in str(caught.value)
    with pytest.raises(errors.GradientError, match="jacrev"):
        nova.jacfwd(nova.abs)(nova.tensor(Z))
