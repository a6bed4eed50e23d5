"""LU factors with partial pivoting, and what follows from them: solve, inv, det, slogdet."""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import real_of
from nova.core.user_facing import user_facing
from nova.errors import ShapeError
from nova.graph.control.functions import fori_loop
from nova.graph.custom_gradient import custom_vjp
from nova.graph.transforms import as_tensor
from nova.linalg.batches import (
    adjoint,
    as_matrices,
    broadcast_batches,
    column,
    diagonals,
    flat,
    identities,
    restored,
    row,
    transposed,
)
from nova.linalg.triangular import substitute
from nova.ops import F


@user_facing
def lu(a: Any) -> Any:
    """P, L and U with A = P L U: a permutation, unit lower and upper triangles or trapezoids."""
    (a,) = as_matrices("lu", a)
    matrices = flat(a)
    _, order = factorize(matrices)
    # A[order] = L U; L and U are those of that matrix, and their gradients follow from it.
    permuted = take_rows(matrices, F.detach(order))
    lower_factor, upper_factor = trapezoids(permuted)
    n = a.shape[-2]
    permutation = F.eq(F.reshape(F.arange(n), (1, n, 1)), F.unsqueeze(order, 1))
    parts = (F.cast(permutation, dtype=matrices.dtype), lower_factor, upper_factor)
    return tuple(restored(part, a.shape[:-2], a.dtype) for part in parts)


@user_facing
def solve(a: Any, b: Any) -> Any:
    """The solution X of A X = B for square A; a vector B is one right side.

    B is a batch of vectors if its shape is that of A without the last axis, as in torch. A singular
    A gives infinities or NaN.
    """
    a, b = as_tensor(a), as_tensor(b)
    is_vector = len(b.shape) == 1 or (
        len(b.shape) == len(a.shape) - 1 and tuple(b.shape) == tuple(a.shape[:-1])
    )
    a, b = as_matrices("solve", a, F.unsqueeze(b, -1) if is_vector else b, square=True)
    if b.shape[-2] != a.shape[-1]:
        raise ShapeError(f"solve: a matrix of {a.shape} and a right side of {b.shape}")
    a, b = broadcast_batches(a, b)
    x = restored(solve_batch(flat(a), flat(b)), b.shape[:-2], b.dtype)
    return F.squeeze(x, -1) if is_vector else x


@user_facing
def inv(a: Any) -> Any:
    """The inverse of square matrices; infinities or NaN for a singular one."""
    (a,) = as_matrices("inv", a, square=True)
    return restored(invert(flat(a)), a.shape[:-2], a.dtype)


inverse = inv
"""`torch.inverse`."""


@user_facing
def det(a: Any) -> Any:
    """The determinant of square matrices."""
    (a,) = as_matrices("det", a, square=True)
    return restored(determinant(flat(a)), a.shape[:-2], a.dtype)


@user_facing
def logdet(a: Any) -> Any:
    """The logarithm of the determinant; NaN for a negative one."""
    sign, log = slogdet(a)
    if sign.dtype.is_complex:
        return F.complex(log, F.angle(sign))
    return F.where(sign < 0.0, float("nan"), log)


@user_facing
def slogdet(a: Any) -> Any:
    """The sign of the determinant (its phase, if complex) and the log of its absolute value."""
    (a,) = as_matrices("slogdet", a, square=True)
    return tuple(restored(part, a.shape[:-2], a.dtype) for part in sign_and_log(flat(a)))


def invert(a: Any) -> Any:
    """The inverses of a batch."""
    return solve_batch(a, identities(a.shape[0], a.shape[1], a.dtype))


# --- the factorization ----------------------------------------------------------------------------


def factorize(a: Any) -> tuple[Any, Any]:
    """L below and U from the diagonal on, in one matrix, and the order of the rows of A."""
    factors, order, _ = eliminate(a)
    return factors, order


def eliminate(a: Any) -> tuple[Any, Any, Any]:
    """L and U in one matrix, the order of the rows, and the row that each step swapped with."""
    a = F.detach(a)
    batch, n, width = a.shape
    if not batch or not n or not width:
        empty = F.zeros((batch, min(n, width)), dtype="i64")
        return a, F.expand(F.arange(n), (batch, n)), empty
    rows, columns = F.arange(n), F.arange(width)
    steps = F.reshape(F.arange(min(n, width)), (1, min(n, width)))

    def step(k: Any, state: Any) -> Any:
        factors, order, pivots = state
        below = F.reshape(rows, (1, n)) >= k
        score = F.where(below, _pivot_size(F.squeeze(column(factors, k), 2)), -1.0)
        pivot_row = F.unsqueeze(F.argmax(score, axis=1), 1)
        swapped = F.where(F.eq(rows, k), pivot_row, F.where(F.eq(rows, pivot_row), k, rows))
        factors, order = take_rows(factors, swapped), F.gather(order, swapped, axis=1)
        pivots = F.where(F.eq(steps, k), pivot_row, pivots)
        top = row(factors, k)
        pivot = column(top, k)
        # A zero pivot has zeros below: its multipliers are 0.
        safe = F.where(F.eq(pivot, 0.0), 1.0, pivot)
        inside = F.reshape(rows, (1, n, 1)) > k
        multipliers = F.where(inside, column(factors, k) / safe, 0.0)
        right = F.where(F.reshape(columns, (1, 1, width)) > k, top, 0.0)
        is_column = F.eq(F.reshape(columns, (1, 1, width)), k) & inside
        return F.where(is_column, multipliers, factors - multipliers * right), order, pivots

    order = F.expand(F.reshape(rows, (1, n)), (batch, n))
    initial = (a, order, F.zeros((batch, min(n, width)), dtype="i64"))
    return fori_loop(0, min(n, width), step, initial)


def _pivot_size(x: Any) -> Any:
    """The magnitude by which pivots are chosen: |re| + |im| of complex numbers, as in LAPACK."""
    return F.abs(F.real(x)) + F.abs(F.imag(x)) if x.dtype.is_complex else F.abs(x)


def take_rows(x: Any, order: Any) -> Any:
    """The rows of each matrix in another order."""
    index = F.expand(F.unsqueeze(order, 2), (*order.shape, x.shape[2]))
    return F.gather(x, index, axis=1)


def _parity(order: Any, type_: Any) -> Any:
    """1 for an even permutation, -1 for an odd one: by the number of inversions."""
    n = order.shape[1]
    first, second = F.unsqueeze(order, 2), F.unsqueeze(order, 1)
    before = F.reshape(F.arange(n), (1, n, 1)) < F.reshape(F.arange(n), (1, 1, n))
    inversions = F.sum(F.cast(before & (first > second), dtype="i64"), axis=(1, 2))
    return 1.0 - 2.0 * F.cast(F.mod(inversions, 2), dtype=real_of(type_))


# --- gradients ------------------------------------------------------------------------------------


def _solve_batch(a: Any, b: Any) -> Any:
    factors, order = factorize(a)
    y = substitute(factors, take_rows(b, order), False, True)
    return substitute(factors, y, True, False)


solve_batch = custom_vjp(_solve_batch)
"""With G = A^-H dX: dB = G and dA = -G X^H."""


def _solve_forward(a: Any, b: Any) -> Any:
    x = solve_batch(a, b)
    return x, (a, x)


def _solve_backward(residuals: Any, grad: Any) -> Any:
    a, x = residuals
    right = solve_batch(adjoint(a), grad)
    return -F.matmul(right, adjoint(x)), right


solve_batch.defvjp(_solve_forward, _solve_backward)


def _determinant(a: Any) -> Any:
    factors, order = factorize(a)
    return F.prod(diagonals(factors), axis=-1) * _parity(order, a.dtype)


determinant = custom_vjp(_determinant)
"""Jacobi's formula: dA = g conj(det(A)) A^-H."""


def _determinant_forward(a: Any) -> Any:
    value = determinant(a)
    return value, (a, value)


def _determinant_backward(residuals: Any, grad: Any) -> Any:
    a, value = residuals
    scale = F.reshape(grad * F.conj(value), (-1, 1, 1))
    return (scale * adjoint(invert(a)),)


determinant.defvjp(_determinant_forward, _determinant_backward)


def _sign_and_log(a: Any) -> Any:
    factors, order = factorize(a)
    pivots = diagonals(factors)
    sign = F.prod(F.sign(pivots), axis=-1) * _parity(order, pivots.dtype)
    return sign, F.sum(F.log(F.abs(pivots)), axis=-1)


sign_and_log = custom_vjp(_sign_and_log)


def _log_forward(a: Any) -> Any:
    sign, log = sign_and_log(a)
    return (sign, log), (a, sign)


def _log_backward(residuals: Any, grads: Any) -> Any:
    """d log|det A| + i d arg(det A) = tr(A^-1 dA); a real sign is constant."""
    a, sign = residuals
    grad_sign, grad = grads
    if sign.dtype.is_complex:
        grad = F.complex(grad, -F.imag(F.conj(grad_sign) * sign))
    return (F.reshape(grad, (-1, 1, 1)) * adjoint(invert(a)),)


sign_and_log.defvjp(_log_forward, _log_backward)


def trapezoids(a: Any) -> tuple[Any, Any]:
    """L and U of matrices of any shape: from those of the leading square, by one system."""
    _, m, n = a.shape
    k = min(m, n)
    left, right = triangles(F.narrow(F.narrow(a, 1, 0, k), 2, 0, k))
    if m > k:  # L2 U = A2
        below = transposed(F.narrow(a, 1, k, m - k))
        # Rows below a zero pivot are 0 in its column, and so are its multipliers.
        is_zero = F.cast(F.eq(diagonals(right), 0.0), dtype=right.dtype)
        pivots = transposed(right + F.diag_embed(is_zero))
        further = transposed(substitute(pivots, below, False, False))
        return F.concat([left, further], axis=1), right
    if n > k:  # L U2 = A2
        further = substitute(left, F.narrow(a, 2, k, n - k), False, True)
        return left, F.concat([right, further], axis=2)
    return left, right


def _triangles(a: Any) -> Any:
    """L and U of matrices that need no pivoting: rows are in the order of their pivots."""
    factors, _ = factorize(a)
    unit = F.tril(factors, k=-1) + identities(a.shape[0], a.shape[1], a.dtype)
    return unit, F.triu(factors)


triangles = custom_vjp(_triangles)


def _triangles_forward(a: Any) -> Any:
    parts = triangles(a)
    return parts, parts


def _triangles_backward(residuals: Any, grads: Any) -> Any:
    """dA = L^-H (tril(L^H dL, -1) + triu(dU U^H)) U^-H."""
    left, right = residuals
    grad_left, grad_right = grads
    inner = F.tril(F.matmul(adjoint(left), grad_left), k=-1)
    inner = inner + F.triu(F.matmul(grad_right, adjoint(right)))
    inner = substitute(adjoint(left), inner, True, True)
    # X U^-H is the adjoint of U^-1 X^H.
    return (adjoint(substitute(right, adjoint(inner), True, False)),)


triangles.defvjp(_triangles_forward, _triangles_backward)
