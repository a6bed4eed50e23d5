"""QR factors by Householder reflections, with LAPACK's signs (Golub and Van Loan, 5.2)."""

from __future__ import annotations

from typing import Any

from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError
from nova.graph.control.functions import fori_loop
from nova.graph.custom_gradient import custom_vjp
from nova.linalg.batches import (
    adjoint,
    as_matrices,
    column,
    diagonals,
    flat,
    identities,
    restored,
    row,
    squared,
    without_gradient,
)
from nova.linalg.jacobi import scales
from nova.linalg.triangular import substitute
from nova.ops import F

_MODES = ("reduced", "complete", "r")


@user_facing
def qr(a: Any, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and upper triangular R, A = Q R.

    `mode` is 'reduced', 'complete' (Q is square; no gradient for more rows than columns) or 'r'
    (Q is empty), as in torch.
    """
    if mode not in _MODES:
        raise AttributeValueError(f"qr: mode {mode!r}", hint=f"it is one of {', '.join(_MODES)}")
    (a,) = as_matrices("qr", a)
    batch = a.shape[:-2]
    if mode == "complete" and a.shape[-2] > a.shape[-1]:
        matrices = flat(a)
        q, r = without_gradient(
            "qr: mode 'complete' of more rows than columns has no gradient",
            "use mode='reduced': the further columns of Q are not determined by the matrix",
            matrices,
            *reflect(F.detach(matrices)),
        )
    else:
        q, r = factorize(flat(a))
    if mode == "r":
        q = F.zeros((q.shape[0], 0, 0), dtype=q.dtype)
    return restored(q, batch, a.dtype), restored(r, batch, a.dtype)


def reflect(a: Any) -> tuple[Any, Any]:
    """Square Q, and R in the shape of A."""
    batch, m, n = a.shape
    if not batch or not m or not n:
        return identities(batch, m, a.dtype), a
    rows = F.reshape(F.arange(m), (1, m, 1))

    def step(k: Any, state: Any) -> Any:
        q, r = state
        x = F.where(rows >= k, column(r, k), 0.0)
        # The reflection does not depend on the scale of the column.
        x = x / scales(x)
        alpha = row(x, k)
        tail = F.sum(F.where(rows > k, squared(x), 0.0), axis=1, keepdims=True)
        norm = F.sqrt(squared(alpha) + tail)
        beta = F.where(F.real(alpha) >= 0.0, -norm, norm)
        v = F.where(F.eq(rows, k), alpha - beta, x)
        is_reduced = _is_reduced(alpha, tail)
        if a.dtype.is_complex:  # beta is real, as LAPACK's zlarfg has it: the scale is complex
            scale = 1.0 / F.where(is_reduced, 1.0, beta * (beta - F.conj(alpha)))
        else:
            squares = F.sum(squared(v), axis=1, keepdims=True)
            scale = 2.0 / F.where(is_reduced, 1.0, squares)
        scale = F.where(is_reduced, 0.0, scale)
        r = r - F.conj(scale) * v * F.matmul(adjoint(v), r)
        q = q - scale * F.matmul(q, v) * adjoint(v)
        return q, r

    q, r = fori_loop(0, min(m, n), step, (identities(batch, m, a.dtype), a))
    return q, F.triu(r)


def _is_reduced(alpha: Any, tail: Any) -> Any:
    """Whether a column is zero below a real diagonal element: it is not reflected."""
    is_zero = F.eq(tail, 0.0)
    return is_zero & F.eq(F.imag(alpha), 0.0) if alpha.dtype.is_complex else is_zero


def householder_factors(a: Any) -> tuple[Any, Any]:
    """LAPACK's geqrf of a batch: R and below it the vectors of the reflections, and their scales.

    Reflection k is I - tau_k v v^H, with v = 1 at row k, zeros above, and column k below it.
    """
    batch, m, n = a.shape
    k_end = min(m, n)
    if not batch or not k_end:
        return a, F.zeros((batch, k_end), dtype=a.dtype)
    rows = F.reshape(F.arange(m), (1, m, 1))
    columns = F.reshape(F.arange(n), (1, 1, n))

    def step(k: Any, state: Any) -> Any:
        factors, taus = state
        x = column(factors, k)
        alpha = row(x, k)
        scale = scales(F.where(rows >= k, x, 0.0))
        tail = F.sum(squared(F.where(rows > k, x / scale, 0.0)), axis=1, keepdims=True)
        norm = F.sqrt(squared(alpha / scale) + tail) * scale
        is_reduced = _is_reduced(alpha, tail)
        real = F.real(alpha)
        beta = F.where(is_reduced, real, F.where(real >= 0.0, -norm, norm))
        tau = F.where(is_reduced, 0.0, (beta - alpha) / F.where(F.eq(beta, 0.0), 1.0, beta))
        below = F.where(is_reduced, 0.0, x / F.where(is_reduced, 1.0, alpha - beta))
        v = F.where(rows > k, below, F.cast(F.eq(rows, k), dtype=a.dtype))
        reflected = factors - F.conj(tau) * v * F.matmul(adjoint(v), factors)
        stored = F.where(rows > k, below, F.where(F.eq(rows, k), beta, x))
        factors = F.where(columns > k, reflected, F.where(F.eq(columns, k), stored, factors))
        taus = F.where(F.eq(F.arange(k_end), k), F.squeeze(tau, 2), taus)
        return factors, taus

    return fori_loop(0, k_end, step, (a, F.zeros((batch, k_end), dtype=a.dtype)))


def householder_product(vectors: Any, taus: Any) -> Any:
    """LAPACK's orgqr: the product of the reflections of `householder_factors`, in their shape."""
    batch, m, n = vectors.shape
    count = taus.shape[1]
    rows = F.reshape(F.arange(m), (1, m, 1))
    start = F.expand(F.cast(F.eq(rows, F.arange(n)), dtype=vectors.dtype), (batch, m, n))
    if not batch or not count:
        return start

    def step(i: Any, q: Any) -> Any:
        k = count - 1 - i
        unit = F.cast(F.eq(rows, k), dtype=q.dtype)
        v = F.where(rows > k, column(vectors, k), unit)
        tau = column(F.unsqueeze(taus, 1), k)
        return q - tau * v * F.matmul(adjoint(v), q)

    return fori_loop(0, count, step, start)


def _factorize(a: Any) -> tuple[Any, Any]:
    k = min(a.shape[1:])
    q, r = reflect(a)
    return F.narrow(q, 2, 0, k), F.narrow(r, 1, 0, k)


factorize = custom_vjp(_factorize)


def _forward(a: Any) -> Any:
    q, r = factorize(a)
    return (q, r), (a, q, r)


def _backward(residuals: Any, grads: Any) -> Any:
    """Roberts and Roberts 2020: a wide A = [X Y] has R = [U V] with V = Q^H Y."""
    a, q, r = residuals
    grad_q, grad_r = grads
    n, k = a.shape[2], q.shape[2]
    if n == k:
        return (_square_backward(q, r, grad_q, grad_r),)
    y = F.narrow(a, 2, k, n - k)
    grad_v = F.narrow(grad_r, 2, k, n - k)
    grad_q = grad_q + F.matmul(y, adjoint(grad_v))
    grad_x = _square_backward(q, F.narrow(r, 2, 0, k), grad_q, F.narrow(grad_r, 2, 0, k))
    return (F.concat([grad_x, F.matmul(q, grad_v)], axis=2),)


def _square_backward(q: Any, r: Any, grad_q: Any, grad_r: Any) -> Any:
    """(dQ + Q copyltu(R dR^H - dQ^H Q)) R^-H, where copyltu mirrors the lower triangle."""
    m = F.matmul(r, adjoint(grad_r)) - F.matmul(adjoint(grad_q), q)
    below = F.tril(m, k=-1)
    mirrored = below + adjoint(below) + F.diag_embed(F.real(diagonals(m)))
    left = grad_q + F.matmul(q, mirrored)
    return adjoint(substitute(r, adjoint(left), True, False))


factorize.defvjp(_forward, _backward)
