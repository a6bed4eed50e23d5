"""Cholesky factors, column by column (left-looking; Golub and Van Loan, 4.2)."""

from __future__ import annotations

from typing import Any

from nova.core.user_facing import user_facing
from nova.graph.control.functions import fori_loop
from nova.graph.custom_gradient import custom_vjp
from nova.graph.transforms import as_tensor
from nova.linalg.batches import (
    adjoint,
    as_matrices,
    column,
    flat,
    restored,
    row,
    with_column,
)
from nova.linalg.triangular import solve_triangular, substitute
from nova.ops import F


@user_facing
def cholesky(a: Any, *, upper: bool = False) -> Any:
    """The lower triangular L with A = L L^H; with `upper`, L^H.

    Only the lower triangle of A is read. A matrix that is not positive definite gives NaN.
    """
    (a,) = as_matrices("cholesky", a, square=True)
    factor = restored(factorize(flat(a)), a.shape[:-2], a.dtype)
    return adjoint(factor) if upper else factor


@user_facing
def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    """The solution of A X = B, from the Cholesky factor of A (torch's order of arguments)."""
    if upper:
        y = solve_triangular(adjoint(as_tensor(factor)), b, upper=False)
        return solve_triangular(factor, y, upper=True)
    y = solve_triangular(factor, b, upper=False)
    return solve_triangular(adjoint(as_tensor(factor)), y, upper=True)


def _factorize(a: Any) -> Any:
    batch, n = a.shape[:2]
    if not batch or not n:
        return a
    rows = F.reshape(F.arange(n), (1, n, 1))

    def step(j: Any, factor: Any) -> Any:
        rest = column(a, j) - F.matmul(factor, adjoint(row(factor, j)))
        pivot = F.sqrt(F.real(row(rest, j)))
        # As in LAPACK, the diagonal is real: an imaginary part is not read.
        below = F.where(rows > j, rest / pivot, 0.0)
        return with_column(factor, j, F.where(F.eq(rows, j), pivot, below))

    return fori_loop(0, n, step, F.zeros_like(a))


factorize = custom_vjp(_factorize)
"""`_factorize` with its gradient (Murray 2016, eq. 10): dA is Hermitian."""


def _forward(a: Any) -> Any:
    factor = factorize(a)
    return factor, factor


def _backward(factor: Any, grad: Any) -> Any:
    product = F.tril(F.matmul(adjoint(factor), grad))
    mirrored = product + adjoint(F.tril(product, k=-1))
    # L^-H M L^-1, by two systems.
    left = substitute(adjoint(factor), mirrored, True, False)
    return adjoint(substitute(adjoint(factor), adjoint(left), True, False)) * 0.5


factorize.defvjp(_forward, _backward)
