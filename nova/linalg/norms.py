"""Norms, condition numbers, ranks and powers of matrices."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import numpy as np

from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError
from nova.graph.transforms import as_tensor
from nova.linalg.batches import as_matrices, identities, restored
from nova.linalg.lu import inv
from nova.linalg.svd import svdvals
from nova.ops import F

_ORDERS = ("fro", "nuc", inf, -inf, 1, -1, 2, -2)


@user_facing
def vector_norm(x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Any:
    """The p-norm of the elements along axes (all of them by default)."""
    x = as_tensor(x)
    if axis is None:
        shape = (1,) * len(x.shape)
        value = F.norm(F.reshape(x, (-1,)), p=ord)
        return F.reshape(value, shape) if keepdims else value
    return F.norm(x, p=ord, axis=axis, keepdims=keepdims)


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
        reduce = {"nuc": F.sum, 2: F.max, -2: F.min}[ord]
        value = reduce(values, axis=-1)
    else:
        sums = F.sum(F.abs(a), axis=-2 if abs(ord) == 1 else -1)
        value = (F.max if ord > 0 else F.min)(sums, axis=-1)
    return F.unsqueeze(F.unsqueeze(value, -1), -1) if keepdims else value


@user_facing
def cond(a: Any, p: Any = None) -> Any:
    """The condition number: the ratio of the extreme singular values, or |A| |A^-1| of a norm."""
    if p is None or p in (2, -2):
        values = svdvals(a)
        ratio = F.max(values, axis=-1) / F.min(values, axis=-1)
        return 1.0 / ratio if p == -2 else ratio
    return matrix_norm(a, p) * matrix_norm(inv(a), p)


@user_facing
def matrix_rank(a: Any, rtol: float | None = None) -> Any:
    """The number of singular values above `rtol` times the largest one."""
    (a,) = as_matrices("matrix_rank", a)
    values = svdvals(a)
    if not values.shape[-1]:
        return F.zeros(values.shape[:-1], dtype="i64")
    limit = max(a.shape[-2:]) * float(np.finfo(a.dtype.numpy).eps) if rtol is None else rtol
    above = values > F.max(values, axis=-1, keepdims=True) * limit
    return F.sum(F.cast(above, dtype="i64"), axis=-1)


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
