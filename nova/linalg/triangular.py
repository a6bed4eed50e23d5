"""Systems of triangular matrices, by substitution."""

from __future__ import annotations

from typing import Any

from nova.core.user_facing import user_facing
from nova.errors import ShapeError
from nova.graph.control.functions import fori_loop
from nova.graph.custom_gradient import custom_vjp
from nova.linalg.batches import (
    adjoint,
    as_matrices,
    broadcast_batches,
    flat,
    restored,
    row,
    transposed,
    with_row,
)
from nova.ops import F


@user_facing
def solve_triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """The solution X of A X = B, or of X A = B if `left` is false, for triangular A.

    The other triangle of A is not read. With `unitriangular` its diagonal is taken as ones. A zero
    on the diagonal gives infinities and NaN.
    """
    a, b = as_matrices("solve_triangular", a, b, square=True)
    n = a.shape[-1]
    if b.shape[-2 if left else -1] != n:
        raise ShapeError(f"solve_triangular: a matrix of {a.shape} and a right side of {b.shape}")
    a, b = broadcast_batches(a, b)
    if not left:
        a, b, upper = transposed(a), transposed(b), not upper
    x = restored(substitute(flat(a), flat(b), upper, unitriangular), b.shape[:-2], b.dtype)
    return x if left else transposed(x)


def _substitute(a: Any, b: Any, is_upper: bool, unit: bool) -> Any:
    """The solutions of batches of systems; an upper triangle is a lower one from its end."""
    if 0 in b.shape:
        return b
    if is_upper:
        return F.flip(_substitute(F.flip(a, (1, 2)), F.flip(b, 1), False, unit), 1)
    triangle = F.tril(a, k=-1 if unit else 0)

    def step(i: Any, x: Any) -> Any:
        factors = row(triangle, i)
        value = row(b, i) - F.matmul(factors, x)  # rows of x from i on are 0
        if not unit:
            pivot = F.dynamic_slice(
                factors, F.stack([F.zeros_like(i), F.zeros_like(i), i]), (a.shape[0], 1, 1)
            )
            value = value / pivot
        return with_row(x, i, value)

    return fori_loop(0, a.shape[1], step, F.zeros_like(b))


substitute = custom_vjp(_substitute, nondiff_argnums=(2, 3))
"""`_substitute` with its gradient: with G = A^-H dX, dB = G and dA = -G X^H in the triangle."""


def _forward(a: Any, b: Any, is_upper: bool, unit: bool) -> Any:
    x = substitute(a, b, is_upper, unit)
    return x, (a, x)


def _backward(is_upper: bool, unit: bool, residuals: Any, grad: Any) -> Any:
    a, x = residuals
    right = substitute(adjoint(a), grad, not is_upper, unit)
    outer = -F.matmul(right, adjoint(x))
    diagonal = 1 if unit else 0
    return (F.triu(outer, k=diagonal) if is_upper else F.tril(outer, k=-diagonal)), right


substitute.defvjp(_forward, _backward)
