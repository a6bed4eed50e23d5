"""Eigenvalues and eigenvectors of symmetric and Hermitian matrices, by the cyclic Jacobi method."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import real_of
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError
from nova.graph.custom_gradient import custom_vjp
from nova.linalg.batches import (
    adjoint,
    as_matrices,
    diagonals,
    flat,
    identities,
    restored,
    squared,
)
from nova.linalg.jacobi import (
    orthonormal,
    phased_rotation,
    rotate_columns,
    scales,
    sweep_until,
    tournament,
)
from nova.ops import F


@user_facing
def eigh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of symmetric matrices in ascending order, and their eigenvectors as columns.

    Complex matrices are Hermitian; their eigenvalues are real. Only the triangle `UPLO` is read.
    The gradient of the eigenvectors is that of a matrix with different eigenvalues. The sign or
    phase of an eigenvector is not defined.
    """
    if UPLO not in ("L", "U"):
        raise AttributeValueError(f"eigh: UPLO {UPLO!r}", hint="it is 'L' or 'U'")
    (a,) = as_matrices("eigh", a, square=True)
    values, vectors = decompose(symmetric(flat(a), UPLO))
    batch = a.shape[:-2]
    return restored(values, batch, a.dtype), restored(vectors, batch, a.dtype)


@user_facing
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of symmetric or Hermitian matrices in ascending order."""
    return eigh(a, UPLO)[0]


def _symmetric(a: Any, uplo: str) -> Any:
    """The Hermitian matrices of one triangle and the real part of the diagonal."""
    inside = F.tril(a, k=-1) if uplo == "L" else F.triu(a, k=1)
    if a.dtype.is_complex:
        return inside + adjoint(inside) + F.diag_embed(F.real(diagonals(a)))
    return (F.tril(a) if uplo == "L" else F.triu(a)) + adjoint(inside)


symmetric = custom_vjp(_symmetric, nondiff_argnums=(1,))
"""Its gradient passes: that of a Hermitian matrix is Hermitian, as torch has it."""
symmetric.defvjp(lambda a, uplo: (symmetric(a, uplo), ()), lambda uplo, residuals, grad: (grad,))


def _decompose(a: Any) -> tuple[Any, Any]:
    batch, n = a.shape[:2]
    if not batch or not n:
        return F.zeros((batch, n), dtype=real_of(a.dtype)), F.zeros((batch, n, n), dtype=a.dtype)
    scale = scales(a)
    a = a / scale
    size = max(n + n % 2, 2)
    # A row and a column of zeros make the number of columns even: nothing rotates into them.
    padded = F.pad(a, [(0, 0), (0, size - n), (0, size - n)])
    order = tournament(size)

    def one_round(state: Any) -> Any:
        matrix, vectors = state
        half = size // 2
        diagonal = F.real(diagonals(matrix))
        product = diagonals(F.narrow(F.narrow(matrix, 1, 0, half), 2, half, half))
        angles = phased_rotation(
            F.narrow(diagonal, 1, 0, half), F.narrow(diagonal, 1, half, half), product
        )
        matrix = rotate_columns(matrix, *angles)
        matrix = adjoint(rotate_columns(adjoint(matrix), *angles))
        matrix = F.take(F.take(matrix, order, axis=1), order, axis=2)
        return matrix, F.take(rotate_columns(vectors, *angles), order, axis=2)

    off_diagonal = F.reshape(F.arange(size), (size, 1)) != F.arange(size)

    def residual(state: Any) -> Any:
        squares = squared(state[0])
        total = F.sum(squares, axis=(1, 2))
        rest = F.sum(F.where(off_diagonal, squares, 0.0), axis=(1, 2))
        return rest / F.where(F.eq(total, 0.0), 1.0, total)

    # Relative to the norm; squared, as the residual is.
    tolerance = float(np.finfo(a.dtype.numpy).eps) ** 2
    state = (padded, identities(batch, size, a.dtype))
    state = sweep_until(state, size - 1, one_round, residual, tolerance)
    vectors = orthonormal(F.narrow(F.narrow(state[1], 1, 0, n), 2, 0, n))
    # Rayleigh quotients are right to twice as many digits as the vectors.
    quotients = F.real(F.sum(F.conj(vectors) * F.matmul(a, vectors), axis=1))
    values = quotients * F.squeeze(scale, 2)
    ascending = F.argsort(values, axis=1)
    index = F.expand(F.unsqueeze(ascending, 1), (batch, n, n))
    return F.gather(values, ascending, axis=1), F.gather(vectors, index, axis=2)


decompose = custom_vjp(_decompose)
"""dA = V (diag(dw) + (V^H dV) / (w_j - w_i) off the diagonal) V^H, Hermitian (Giles 2008)."""


def _forward(a: Any) -> Any:
    values, vectors = decompose(a)
    return (values, vectors), (values, vectors)


def _backward(residuals: Any, grads: Any) -> Any:
    values, vectors = residuals
    grad_values, grad_vectors = grads
    gaps = F.unsqueeze(values, 1) - F.unsqueeze(values, 2)
    n = values.shape[1]
    is_diagonal = F.eq(F.reshape(F.arange(n), (n, 1)), F.arange(n))
    rotated = F.matmul(adjoint(vectors), grad_vectors)
    inner = F.where(is_diagonal, 0.0, rotated / F.where(is_diagonal, 1.0, gaps))
    inner = inner + F.diag_embed(grad_values)
    full = F.matmul(F.matmul(vectors, inner), adjoint(vectors))
    return ((full + adjoint(full)) * 0.5,)


decompose.defvjp(_forward, _backward)
