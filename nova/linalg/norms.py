"""Norms, condition numbers, ranks and powers of matrices."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import numpy as np

from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError, AxisError
from nova.graph.spelling import takes_torch_keywords
from nova.graph.transforms import as_tensor
from nova.linalg.batches import as_matrices, flat, identities, restored
from nova.linalg.eigen import symmetric
from nova.linalg.lu import inv
from nova.linalg.svd import svdvals, tolerances
from nova.ops import F
from nova.ops.rules import int_tuple, resolve_axis

_ORDERS = ("fro", "nuc", inf, -inf, 1, -1, 2, -2)


@takes_torch_keywords
@user_facing
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """A norm of vectors or matrices, as numpy's and torch's `linalg.norm`.

    Two axes (or a matrix with an `ord`) have a norm of matrices, others one of vectors.
    """
    x = as_tensor(x)
    axes = tuple(range(len(x.shape))) if axis is None else int_tuple(axis, "norm: axis")
    if ord is None or (axis is None and len(axes) < 2) or len(axes) == 1:
        return vector_norm(x, 2 if ord is None else ord, axis, keepdims)
    if len(axes) != 2:
        raise AxisError(f"norm: ord {ord!r} over {len(axes)} axes: a norm of matrices has two")
    rank = len(x.shape)
    rows, columns = (resolve_axis(a, rank) for a in axes)
    if rows == columns:
        raise AxisError(f"norm: axes {axes} are the same")
    value = matrix_norm(F.movedim(x, (rows, columns), (-2, -1)), ord)
    for a in sorted((rows, columns)) if keepdims else ():
        value = F.unsqueeze(value, a)
    return value


@takes_torch_keywords
@user_facing
def vector_norm(x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Any:
    """The p-norm of the elements along axes (all of them by default)."""
    x = as_tensor(x)
    if axis is None:
        shape = (1,) * len(x.shape)
        value = F.norm(F.reshape(x, (-1,)), p=ord)
        return F.reshape(value, shape) if keepdims else value
    return F.norm(x, p=ord, axis=axis, keepdims=keepdims)


@takes_torch_keywords
@user_facing
def matrix_norm(a: Any, ord: Any = "fro", keepdims: bool = False) -> Any:
    """A norm of the matrices of the last two axes: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf."""
    if ord not in _ORDERS:
        raise AttributeValueError(
            f"matrix_norm: ord {ord!r}", hint=f"it is one of {', '.join(map(str, _ORDERS))}"
        )
    (a,) = as_matrices("matrix_norm", a)
    if ord == "fro":
        value = F.norm(F.reshape(a, (*a.shape[:-2], prod(a.shape[-2:]))), p=2, axis=-1)
        return F.unsqueeze(F.unsqueeze(value, -1), -1) if keepdims else value
    if ord in ("nuc", 2, -2):
        values = svdvals(a)
        reduce = {"nuc": F.sum, 2: _largest, -2: F.min}[ord]
        value = reduce(values, axis=-1)
    else:
        sums = F.sum(F.abs(a), axis=-2 if abs(ord) == 1 else -1)
        value = (_largest if ord > 0 else F.min)(sums, axis=-1)
    return F.unsqueeze(F.unsqueeze(value, -1), -1) if keepdims else value


def _largest(values: Any, axis: int) -> Any:
    """The largest of values that are not negative: 0 of none."""
    if not values.shape[axis]:
        return F.sum(values, axis=axis)
    return F.max(values, axis=axis)


@user_facing
def cond(a: Any, p: Any = None) -> Any:
    """The condition number: the ratio of the extreme singular values, or |A| |A^-1| of a norm."""
    if p is None or p in (2, -2):
        values = svdvals(a)
        ratio = F.max(values, axis=-1) / F.min(values, axis=-1)
        return 1.0 / ratio if p == -2 else ratio
    return matrix_norm(a, p) * matrix_norm(inv(a), p)


@user_facing
def matrix_rank(a: Any, rtol: Any = None, *, atol: Any = None, hermitian: bool = False) -> Any:
    """The number of singular values above a tolerance, as `pinv` has it."""
    (a,) = as_matrices("matrix_rank", a, square=hermitian)
    batch = a.shape[:-2]
    matrices = symmetric(flat(a), "L") if hermitian else flat(a)
    values = svdvals(F.detach(matrices))
    if not values.shape[-1]:
        return F.zeros(batch, dtype="i64")
    relative, absolute = tolerances("matrix_rank", a, rtol, atol)
    above = values > F.maximum(F.max(values, axis=-1, keepdims=True) * relative, absolute)
    return F.reshape(F.sum(F.cast(above, dtype="i64"), axis=-1), batch)


@user_facing
def matrix_power(a: Any, n: int) -> Any:
    """A to an integer power, by repeated squaring; a negative one takes the inverse."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise AttributeValueError(f"matrix_power: n {n!r} is not an int")
    (a,) = as_matrices("matrix_power", a, square=True)
    if n < 0:
        a, n = inv(a), -n
    if n == 0:
        batch = int(np.prod(a.shape[:-2]))
        return restored(identities(batch, a.shape[-1], a.dtype), a.shape[:-2], a.dtype)
    result = None
    while n:
        if n & 1:
            result = a if result is None else F.matmul(result, a)
        n >>= 1
        a = F.matmul(a, a) if n else a
    return result
