"""The exponential of matrices by scaling, a Pade approximant and squaring (Higham 2005)."""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import i64, real_of
from nova.core.user_facing import user_facing
from nova.graph.control.functions import fori_loop
from nova.graph.custom_gradient import custom_vjp
from nova.linalg.batches import adjoint, as_matrices, flat, identities, restored
from nova.linalg.lu import solve_batch
from nova.ops import F

_DEGREE = 13
# Up to this norm the approximant of degree 13 is exact to the last bits of f64.
_LARGEST_NORM = 5.371920351148152


def _coefficients() -> list[float]:
    """Those of the approximant's numerator, the first one 1."""
    values = [1.0]
    for j in range(1, _DEGREE + 1):
        values.append(values[-1] * (_DEGREE - j + 1) / (j * (2 * _DEGREE - j + 1)))
    return values


@user_facing
def matrix_exp(a: Any) -> Any:
    """The exponential of square matrices."""
    (a,) = as_matrices("matrix_exp", a, square=True)
    if not prod(a.shape):
        return a
    return restored(exponential(flat(a)), a.shape[:-2], a.dtype)


def _exponential(a: Any) -> Any:
    a = F.detach(a)
    norm = F.max(F.sum(F.abs(a), axis=1), axis=1)
    safe = F.where(F.isfinite(norm) & (norm > 0.0), norm, 1.0)
    times = F.maximum(F.ceil(F.log2(safe / _LARGEST_NORM)), 0.0)
    scale = F.exp2(-F.cast(times, dtype=real_of(a.dtype)))
    result = _approximant(a * F.reshape(scale, (-1, 1, 1)))
    limits = F.reshape(times, (-1, 1, 1))

    def square(i: Any, x: Any) -> Any:
        return F.where(F.cast(i, dtype=limits.dtype) < limits, F.matmul(x, x), x)

    return fori_loop(0, F.cast(F.max(times), dtype=i64), square, result)


def _approximant(a: Any) -> Any:
    """exp(A) as (V - U)^-1 (V + U): U has the odd powers of A, V the even ones."""
    c = _coefficients()
    eye = identities(a.shape[0], a.shape[1], a.dtype)
    a2 = F.matmul(a, a)
    a4 = F.matmul(a2, a2)
    a6 = F.matmul(a4, a2)
    odd = F.matmul(a6, a6 * c[13] + a4 * c[11] + a2 * c[9])
    odd = F.matmul(a, odd + a6 * c[7] + a4 * c[5] + a2 * c[3] + eye * c[1])
    even = F.matmul(a6, a6 * c[12] + a4 * c[10] + a2 * c[8])
    even = even + a6 * c[6] + a4 * c[4] + a2 * c[2] + eye * c[0]
    return solve_batch(even - odd, even + odd)


exponential = custom_vjp(_exponential)
"""dA is the upper right block of exp([[A^H, G], [0, A^H]]) (Najfeld and Havel 1995)."""


def _forward(a: Any) -> Any:
    return exponential(a), a


def _backward(a: Any, grad: Any) -> Any:
    n = a.shape[1]
    left = F.concat([adjoint(a), F.zeros_like(a)], axis=1)
    right = F.concat([grad, adjoint(a)], axis=1)
    block = exponential(F.concat([left, right], axis=2))
    return (F.narrow(F.narrow(block, 1, 0, n), 2, n, n),)


exponential.defvjp(_forward, _backward)
