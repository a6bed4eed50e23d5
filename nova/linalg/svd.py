"""Singular values and vectors, by the one-sided Jacobi method (Hestenes 1958)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import real_of
from nova.core.user_facing import user_facing
from nova.errors import ShapeError
from nova.graph.custom_gradient import custom_vjp
from nova.graph.transforms import as_tensor
from nova.linalg.batches import (
    adjoint,
    as_matrices,
    cast,
    compute_type,
    diagonals,
    flat,
    identities,
    restored,
    squared,
    without_gradient,
)
from nova.linalg.eigen import symmetric
from nova.linalg.jacobi import (
    orthonormal,
    phased_rotation,
    rotate_columns,
    scales,
    sweep_until,
    tournament,
)
from nova.linalg.qr import reflect
from nova.ops import F
from nova.ops.rules import broadcast_shapes


@user_facing
def svd(a: Any, full_matrices: bool = True) -> Any:
    """U, the singular values in descending order, and V^H, with A = U diag(S) V^H.

    With `full_matrices`, the default, U and V are square, and have no gradient unless A is square.
    The signs (phases, if complex) of a pair of singular vectors are not defined.
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
        restored(adjoint(v), batch, a.dtype),
    )


@user_facing
def svdvals(a: Any) -> Any:
    """The singular values of matrices in descending order."""
    (a,) = as_matrices("svdvals", a)
    matrices = flat(a)
    # Not those of `decompose`: its derivative divides by gaps, which singular values do not need.
    s = singular_values(matrices, *decompose(matrices))
    return restored(s, a.shape[:-2], a.dtype)


@user_facing
def pinv(a: Any, rtol: Any = None, *, atol: Any = None, hermitian: bool = False) -> Any:
    """The Moore-Penrose inverse; singular values up to a tolerance count as 0.

    That is the larger of `atol` and `rtol` times the largest one, numbers or tensors. With
    `hermitian` only the lower triangle is read.
    """
    (a,) = as_matrices("pinv", a, square=hermitian)
    matrices = symmetric(flat(a), "L") if hermitian else flat(a)
    limits = tolerances("pinv", a, rtol, atol)
    return restored(pseudo_inverse(matrices, *limits), a.shape[:-2], a.dtype)


pinverse = pinv
"""`torch.pinverse`."""


@user_facing
def lstsq(a: Any, b: Any, rtol: float | None = None) -> Any:
    """The X of least norm that minimizes the norm of A X - B."""
    a, b = as_matrices("lstsq", a, b)
    return F.matmul(pinv(a, rtol), b)


def tolerances(name: str, a: Any, rtol: Any, atol: Any) -> tuple[Any, Any]:
    """The relative and the absolute tolerance of each matrix of a batch, (batch, 1).

    The default of `rtol` is the precision times the larger side, or 0 if there is an `atol`.
    """
    type_ = compute_type(real_of(a.dtype))
    precision = max(a.shape[-2:], default=0) * float(np.finfo(type_.numpy).eps)
    batch = a.shape[:-2]

    def spread(option: str, value: Any) -> Any:
        value = cast(as_tensor(value), type_)
        if broadcast_shapes(value.shape, batch) != tuple(batch):
            raise ShapeError(f"{name}: {option} {value.shape} for a batch {batch}")
        return F.reshape(F.expand(value, batch), (prod(batch), 1))

    absolute = spread("atol", 0.0 if atol is None else atol)
    if rtol is not None:
        return spread("rtol", rtol), absolute
    relative = spread("rtol", precision)
    return (relative if atol is None else F.where(absolute > 0.0, 0.0, relative)), absolute


def _compute_inverse(a: Any, rtol: Any, atol: Any) -> Any:
    u, s, v = decompose(a)
    return F.matmul(v * F.unsqueeze(_inverse(s, rtol, atol), 1), adjoint(u))


pseudo_inverse = custom_vjp(_compute_inverse)


def _pinv_forward(a: Any, rtol: Any, atol: Any) -> Any:
    inverse = pseudo_inverse(a, rtol, atol)
    return inverse, (a, inverse)


def _pinv_backward(residuals: Any, grad: Any) -> Any:
    """Golub and Pereyra 1973: it divides by no gaps of singular values.

    dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P.
    """
    a, p = residuals
    pt, gt = adjoint(p), adjoint(grad)
    total = -F.matmul(F.matmul(pt, grad), pt)
    left = F.matmul(F.matmul(gt, p), pt)
    right = F.matmul(F.matmul(pt, p), gt)
    total = total + left - F.matmul(a, F.matmul(p, left))
    return total + right - F.matmul(F.matmul(right, p), a), None, None


pseudo_inverse.defvjp(_pinv_forward, _pinv_backward)


def _inverse(s: Any, rtol: Any, atol: Any) -> Any:
    if not s.shape[-1]:
        return s
    is_small = s <= F.maximum(F.max(s, axis=-1, keepdims=True) * rtol, atol)
    return F.where(is_small, 0.0, 1.0 / F.where(is_small, 1.0, s))


# --- the decomposition ----------------------------------------------------------------------------


def _decompose_any(a: Any, full: bool) -> tuple[Any, Any, Any]:
    if a.shape[1] < a.shape[2]:
        v, s, u = _decompose_tall(adjoint(a), full)
        return u, s, v
    return _decompose_tall(a, full)


def _decompose_tall(a: Any, full: bool) -> tuple[Any, Any, Any]:
    """Columns are rotated until they are orthogonal: A V = U S."""
    batch, m, n = a.shape
    if not batch or not n:
        square = identities(batch, m, a.dtype)
        u = square if full else F.narrow(square, 2, 0, n)
        values = F.zeros((batch, n), dtype=real_of(a.dtype))
        return u, values, F.zeros((batch, n, n), dtype=a.dtype)
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
        squares = F.sum(squared(first), axis=1), F.sum(squared(second), axis=1)
        product = F.sum(F.conj(first) * second, axis=1)
        cosine = F.abs(product) / F.maximum(F.sqrt(squares[0]) * F.sqrt(squares[1]), tiny)
        angles = phased_rotation(*squares, product)
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
    start = (
        padded / scale,
        identities(batch, size, a.dtype),
        F.full((), 1.0, dtype=real_of(a.dtype)),
    )
    tolerance = float(np.finfo(a.dtype.numpy).eps) * 4
    _, vectors, _ = sweep_until(start, size - 1, one_round, residual, tolerance, before=sweep_start)
    vectors = orthonormal(F.narrow(F.narrow(vectors, 1, 0, n), 2, 0, n))
    columns = F.matmul(a / scale, vectors)
    descending = F.argsort(F.sum(squared(columns), axis=1), axis=1, descending=True)
    columns = _take_columns(columns, descending)
    # The QR factors of orthogonal columns: R is diagonal, and Q is orthonormal also where a
    # column is zero.
    u, r = reflect(columns)
    signed = F.real(diagonals(F.narrow(r, 1, 0, n)))
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
    turned = F.matmul(adjoint(u), grad_u)
    left = _skew(turned) * factor * row
    right = _skew(F.matmul(adjoint(v), grad_v)) * factor * column
    on_diagonal = grad_s
    if u.dtype.is_complex:  # the common phase of a pair of vectors is not defined: that of v stays
        on_diagonal = F.complex(grad_s, F.imag(diagonals(turned)) / s)
    inner = left + right + F.diag_embed(on_diagonal)
    total = F.matmul(F.matmul(u, inner), adjoint(v))
    if u.shape[1] > k:
        outside = grad_u - F.matmul(u, F.matmul(adjoint(u), grad_u))
        total = total + F.matmul(outside / row, adjoint(v))
    if v.shape[1] > k:
        outside = grad_v - F.matmul(v, F.matmul(adjoint(v), grad_v))
        total = total + F.matmul(u, adjoint(outside / row))
    return (total,)


singular_values = custom_vjp(lambda a, u, s, v: s)
"""The singular values of square factors that were computed before: dA = U diag(ds) V^H."""


def _values_forward(a: Any, u: Any, s: Any, v: Any) -> Any:
    k = s.shape[1]
    return s, (F.narrow(u, 2, 0, k), F.narrow(v, 2, 0, k))


def _values_backward(residuals: Any, grad: Any) -> Any:
    u, v = residuals
    return F.matmul(u * F.unsqueeze(grad, 1), adjoint(v)), None, None, None


singular_values.defvjp(_values_forward, _values_backward)


def _skew(x: Any) -> Any:
    return x - adjoint(x)


decompose.defvjp(_forward, _backward)
