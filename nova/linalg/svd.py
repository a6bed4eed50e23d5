"""Singular values and vectors, by the one-sided Jacobi method (Hestenes 1958)."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.user_facing import user_facing
from nova.graph.custom_gradient import custom_vjp
from nova.linalg.batches import (
    as_matrices,
    diagonals,
    flat,
    identities,
    restored,
    transposed,
    without_gradient,
)
from nova.linalg.jacobi import (
    orthonormal,
    rotate_columns,
    rotation,
    scales,
    sweep_until,
    tournament,
)
from nova.linalg.qr import reflect
from nova.ops import F


@user_facing
def svd(a: Any, full_matrices: bool = True) -> Any:
    """U, the singular values in descending order, and V^T, with A = U diag(S) V^T.

    With `full_matrices`, the default, U and V are square, and have no gradient unless A is square.
    The signs of a pair of singular vectors are not defined.
    """
    (a,) = as_matrices("svd", a)
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    matrices = flat(a)
    if full_matrices and m != n:
        parts = _decompose_any(F.detach(matrices), full=True)
        u, v = without_gradient(
            "svd: the square U and V of a matrix that is not square have no gradient",
            "use full_matrices=False: the further columns are not determined by the matrix",
            matrices,
            parts[0],
            parts[2],
        )
        s = singular_values(matrices, *parts)
    else:
        u, s, v = decompose(matrices)
    return (
        restored(u, batch, a.dtype),
        restored(s, batch, a.dtype),
        restored(transposed(v), batch, a.dtype),
    )


@user_facing
def svdvals(a: Any) -> Any:
    """The singular values of matrices in descending order."""
    return svd(a, full_matrices=False)[1]


@user_facing
def pinv(a: Any, rtol: float | None = None) -> Any:
    """The Moore-Penrose inverse; singular values up to `rtol` times the largest one count as 0."""
    (a,) = as_matrices("pinv", a)
    u, s, vh = svd(a, full_matrices=False)
    inverse = _inverse(s, a, rtol)
    return F.matmul(transposed(vh) * F.unsqueeze(inverse, -2), transposed(u))


@user_facing
def lstsq(a: Any, b: Any, rtol: float | None = None) -> Any:
    """The X of least norm that minimizes the norm of A X - B."""
    a, b = as_matrices("lstsq", a, b)
    return F.matmul(pinv(a, rtol), b)


def _inverse(s: Any, a: Any, rtol: float | None) -> Any:
    if not s.shape[-1]:
        return s
    largest = F.max(s, axis=-1, keepdims=True)
    limit = max(a.shape[-2:]) * float(np.finfo(s.dtype.numpy).eps) if rtol is None else rtol
    is_small = s <= largest * limit
    return F.where(is_small, 0.0, 1.0 / F.where(is_small, 1.0, s))


# --- the decomposition ----------------------------------------------------------------------------


def _decompose_any(a: Any, full: bool) -> tuple[Any, Any, Any]:
    if a.shape[1] < a.shape[2]:
        v, s, u = _decompose_tall(transposed(a), full)
        return u, s, v
    return _decompose_tall(a, full)


def _decompose_tall(a: Any, full: bool) -> tuple[Any, Any, Any]:
    """Columns are rotated until they are orthogonal: A V = U S."""
    batch, m, n = a.shape
    if not batch or not n:
        square = identities(batch, m, a.dtype)
        u = square if full else F.narrow(square, 2, 0, n)
        return u, F.zeros((batch, n), dtype=a.dtype), F.zeros((batch, n, n), dtype=a.dtype)
    size = max(n + n % 2, 2)
    padded = F.pad(a, [(0, 0), (0, 0), (0, size - n)])
    order = tournament(size)
    half = size // 2
    tiny = float(np.finfo(a.dtype.numpy).tiny)

    def halves(columns: Any) -> tuple[Any, Any]:
        return F.narrow(columns, 2, 0, half), F.narrow(columns, 2, half, half)

    def one_round(state: Any) -> Any:
        columns, vectors, largest = state
        first, second = halves(columns)
        squares = F.sum(first * first, axis=1), F.sum(second * second, axis=1)
        product = F.sum(first * second, axis=1)
        cosine = F.abs(product) / F.maximum(F.sqrt(squares[0]) * F.sqrt(squares[1]), tiny)
        angles = rotation(*squares, product)
        return (
            F.take(rotate_columns(columns, *angles), order, axis=2),
            F.take(rotate_columns(vectors, *angles), order, axis=2),
            F.maximum(largest, F.max(F.where(F.isnan(cosine), 0.0, cosine))),
        )

    def residual(state: Any) -> Any:
        return state[2]

    def sweep_start(state: Any) -> Any:
        return state[0], state[1], F.zeros_like(state[2])

    # The residual is the largest cosine of a pair before its rotation, within one sweep.
    scale = scales(padded)
    start = (padded / scale, identities(batch, size, a.dtype), F.full((), 1.0, dtype=a.dtype))
    tolerance = float(np.finfo(a.dtype.numpy).eps) * 4
    _, vectors, _ = sweep_until(start, size - 1, one_round, residual, tolerance, before=sweep_start)
    vectors = orthonormal(F.narrow(F.narrow(vectors, 1, 0, n), 2, 0, n))
    columns = F.matmul(a / scale, vectors)
    descending = F.argsort(F.sum(columns * columns, axis=1), axis=1, descending=True)
    columns = _take_columns(columns, descending)
    # The QR factors of orthogonal columns: R is diagonal, and Q is orthonormal also where a
    # column is zero.
    u, r = reflect(columns)
    signed = diagonals(F.narrow(r, 1, 0, n))
    signs = F.where(signed < 0.0, -1.0, 1.0)
    v = _take_columns(vectors, descending) * F.unsqueeze(signs, 1)
    return (u if full else F.narrow(u, 2, 0, n)), F.abs(signed) * F.squeeze(scale, 2), v


def _take_columns(x: Any, order: Any) -> Any:
    index = F.expand(F.unsqueeze(order, 1), (x.shape[0], x.shape[1], order.shape[1]))
    return F.gather(x, index, axis=2)


def _decompose(a: Any) -> tuple[Any, Any, Any]:
    return _decompose_any(a, full=False)


decompose = custom_vjp(_decompose)


def _forward(a: Any) -> Any:
    parts = decompose(a)
    return parts, parts


def _backward(residuals: Any, grads: Any) -> Any:
    """Townsend 2016: the part in the spans of U and V, and what is orthogonal to them."""
    u, s, v = residuals
    grad_u, grad_s, grad_v = grads
    k = s.shape[1]
    is_diagonal = F.eq(F.reshape(F.arange(k), (k, 1)), F.arange(k))
    gaps = F.unsqueeze(F.square(s), 1) - F.unsqueeze(F.square(s), 2)
    factor = F.where(is_diagonal, 0.0, 1.0 / F.where(is_diagonal, 1.0, gaps))
    row, column = F.unsqueeze(s, 1), F.unsqueeze(s, 2)
    left = _skew(F.matmul(transposed(u), grad_u)) * factor * row
    right = _skew(F.matmul(transposed(v), grad_v)) * factor * column
    inner = left + right + F.diag_embed(grad_s)
    total = F.matmul(F.matmul(u, inner), transposed(v))
    if u.shape[1] > k:
        outside = grad_u - F.matmul(u, F.matmul(transposed(u), grad_u))
        total = total + F.matmul(outside / row, transposed(v))
    if v.shape[1] > k:
        outside = grad_v - F.matmul(v, F.matmul(transposed(v), grad_v))
        total = total + F.matmul(u, transposed(outside / row))
    return (total,)


singular_values = custom_vjp(lambda a, u, s, v: s)
"""The singular values of square factors that were computed before: dA = U diag(ds) V^T."""


def _values_forward(a: Any, u: Any, s: Any, v: Any) -> Any:
    k = s.shape[1]
    return s, (F.narrow(u, 2, 0, k), F.narrow(v, 2, 0, k))


def _values_backward(residuals: Any, grad: Any) -> Any:
    u, v = residuals
    return F.matmul(u * F.unsqueeze(grad, 1), transposed(v)), None, None, None


singular_values.defvjp(_values_forward, _values_backward)


def _skew(x: Any) -> Any:
    return x - transposed(x)


decompose.defvjp(_forward, _backward)
