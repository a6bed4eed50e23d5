"""LU factors in LAPACK's form: L and U in one matrix, and the row that each step swapped with."""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import i32, i64
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.graph.control.functions import fori_loop
from nova.graph.transforms import as_tensor
from nova.linalg.batches import adjoint, as_matrices, broadcast_batches, flat, identities, restored
from nova.linalg.lu import eliminate, take_rows, trapezoids
from nova.linalg.triangular import substitute
from nova.ops import F


@user_facing
def lu_factor(a: Any, *, pivot: bool = True) -> tuple[Any, Any]:
    """L and U of A = P L U in one matrix, and the pivots, i32 from 1, as LAPACK has them.

    L is below the diagonal, its diagonal of ones is not stored; U is from the diagonal on.
    """
    if not pivot:
        raise AttributeValueError(
            "lu_factor: pivot=False", hint="factors without pivots are not accurate: leave it out"
        )
    (a,) = as_matrices("lu_factor", a)
    matrices = flat(a)
    _, order, pivots = eliminate(matrices)
    lower, upper = trapezoids(take_rows(matrices, F.detach(order)))
    k = min(a.shape[-2:])
    rows, columns = a.shape[-2] - k, a.shape[-1] - k
    packed = F.pad(F.tril(lower, k=-1), (0, 0, 0), (0, 0, columns))
    packed = packed + F.pad(upper, (0, 0, 0), (0, rows, 0))
    pivots = F.cast(pivots + 1, dtype=i32)
    return restored(packed, a.shape[:-2], a.dtype), F.reshape(pivots, (*a.shape[:-2], k))


@user_facing
def lu_solve(lu: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    """The solution X of A X = B from `lu_factor(A)`; of X A = B without `left`.

    With `adjoint` A is replaced by its conjugate transpose.
    """
    lu, b = as_matrices("lu_solve", lu, b, square=True)
    if not left:  # X A = B is A^H X^H = B^H
        solution = lu_solve(lu, pivots, _adjoint(b), adjoint=not adjoint)
        return _adjoint(solution)
    if b.shape[-2] != lu.shape[-1]:
        raise ShapeError(f"lu_solve: factors of {lu.shape} and a right side of {b.shape}")
    pivots = _as_pivots("lu_solve", lu, pivots)
    wide, b = broadcast_batches(lu, b)
    n = lu.shape[-1]
    swaps = F.expand(pivots, (*wide.shape[:-2], n))
    order = _row_order(F.reshape(swaps, (prod(wide.shape[:-2]), n)), n)
    factors, right = flat(wide), flat(b)
    if adjoint:
        y = substitute(_adjoint(factors), right, False, False)
        y = substitute(_adjoint(factors), y, True, True)
        x = take_rows(y, F.argsort(order, axis=1))
    else:
        y = substitute(factors, take_rows(right, order), False, True)
        x = substitute(factors, y, True, False)
    return restored(x, b.shape[:-2], b.dtype)


@user_facing
def lu_unpack(
    lu: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Any, Any, Any]:
    """P, L and U of the results of `lu_factor`; parts that are not unpacked are empty."""
    (lu,) = as_matrices("lu_unpack", lu)
    batch, (m, n) = lu.shape[:-2], lu.shape[-2:]
    k = min(m, n)
    empty = F.zeros((0,), dtype=lu.dtype)
    permutation = lower = upper = empty
    if unpack_pivots:
        order = _row_order(F.reshape(_as_pivots("lu_unpack", lu, pivots), (prod(batch), k)), m)
        at = F.eq(F.reshape(F.arange(m), (1, m, 1)), F.unsqueeze(order, 1))
        permutation = F.cast(F.reshape(at, (*batch, m, m)), dtype=lu.dtype)
    if unpack_data:
        matrices = flat(lu)
        eye = F.eye(m, k, dtype=matrices.dtype)
        lower = restored(F.tril(F.narrow(matrices, 2, 0, k), k=-1) + eye, batch, lu.dtype)
        upper = restored(F.triu(F.narrow(matrices, 1, 0, k)), batch, lu.dtype)
    return permutation, lower, upper


@user_facing
def cholesky_inverse(factor: Any, upper: bool = False) -> Any:
    """The inverse of A from its Cholesky factor."""
    (factor,) = as_matrices("cholesky_inverse", factor, square=True)
    matrices = flat(factor)
    lower = _adjoint(matrices) if upper else matrices
    y = substitute(lower, identities(lower.shape[0], lower.shape[1], lower.dtype), False, False)
    return restored(substitute(_adjoint(lower), y, True, False), factor.shape[:-2], factor.dtype)


_adjoint = adjoint


def _as_pivots(name: str, lu: Any, pivots: Any) -> Any:
    pivots = as_tensor(pivots)
    if not pivots.dtype.is_integer:
        raise DTypeError(f"{name}: pivots are {pivots.dtype}, not integers")
    expected = (*lu.shape[:-2], min(lu.shape[-2:]))
    if tuple(pivots.shape) != tuple(expected):
        raise ShapeError(f"{name}: pivots {pivots.shape} for factors of {lu.shape}")
    return F.cast(pivots, dtype=i64) - 1


def _row_order(pivots: Any, n: int) -> Any:
    """The order of n rows after step k swapped row k with row pivots[k]."""
    batch, count = pivots.shape
    rows = F.reshape(F.arange(n), (1, n))
    initial = F.expand(rows, (batch, n))
    if not batch or not count:
        return initial

    def step(k: Any, order: Any) -> Any:
        place = F.stack([F.zeros_like(k), k])
        pivot = F.dynamic_slice(pivots, place, slice_sizes=(batch, 1))
        swapped = F.where(F.eq(rows, k), pivot, F.where(F.eq(rows, pivot), k, rows))
        return F.gather(order, swapped, axis=1)

    return fori_loop(0, count, step, initial)
