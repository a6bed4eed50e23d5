"""Products of several matrices, of reflections, and systems of tensors."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

from nova.core.sizes import is_static_shape
from nova.core.user_facing import user_facing
from nova.errors import ArgumentCountError, AttributeValueError, ShapeError
from nova.graph.spelling import takes_torch_keywords
from nova.graph.transforms import as_tensor
from nova.linalg.batches import adjoint, as_matrices, column, flat, restored
from nova.linalg.lu import inv, solve
from nova.ops import F
from nova.ops.rules import int_tuple, resolve_axis


@user_facing
def multi_dot(tensors: Any) -> Any:
    """The product of matrices in the order with the fewest multiplications.

    The first and the last one may be vectors, a row and a column.
    """
    parts = [as_tensor(t) for t in tensors]
    if len(parts) < 2:
        raise ArgumentCountError(f"multi_dot: {len(parts)} matrices, it needs two or more")
    for i, part in enumerate(parts):
        is_end = i in (0, len(parts) - 1)
        if len(part.shape) != 2 and not (is_end and len(part.shape) == 1):
            raise ShapeError(f"multi_dot: operand {i} of {part.shape} is not a matrix")
    first, last = len(parts[0].shape) == 1, len(parts[-1].shape) == 1
    if first:
        parts[0] = F.unsqueeze(parts[0], 0)
    if last:
        parts[-1] = F.unsqueeze(parts[-1], 1)
    for a, b in pairwise(parts):
        if a.shape[1] != b.shape[0]:
            raise ShapeError(f"multi_dot: matrices of {a.shape} and {b.shape}")
    result = _chain(parts)
    axes = tuple([0] * first + [1] * last)
    return F.squeeze(result, axes) if axes else result


def _chain(parts: list[Any]) -> Any:
    """The product by the table of Cormen et al. (14.2); from the left if sizes are symbolic."""
    count = len(parts)
    sizes = [parts[0].shape[0], *(p.shape[1] for p in parts)]
    if not is_static_shape(tuple(sizes)):
        result = parts[0]
        for part in parts[1:]:
            result = F.matmul(result, part)
        return result
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = [
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], split[i, j] = min(options)

    def product(i: int, j: int) -> Any:
        if i == j:
            return parts[i]
        return F.matmul(product(i, split[i, j]), product(split[i, j] + 1, j))

    return product(0, count - 1)


@takes_torch_keywords
@user_facing
def vecdot(x: Any, y: Any, *, axis: int = -1) -> Any:
    """The sums of conj(x) * y along an axis."""
    return F.vecdot(x, y, axis=axis)


@takes_torch_keywords
@user_facing
def cross(x: Any, y: Any, *, axis: int = -1) -> Any:
    """The cross products of vectors of three elements along an axis."""
    return F.cross(x, y, axis=axis)


@user_facing
def matmul(x: Any, y: Any) -> Any:
    """`nova.matmul`."""
    return F.matmul(x, y)


@takes_torch_keywords
@user_facing
def diagonal(a: Any, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """The diagonals of matrices, which two axes hold."""
    a = as_tensor(a)
    rank = len(a.shape)
    first, second = resolve_axis(axis1, rank), resolve_axis(axis2, rank)
    if first == second:
        raise ShapeError(f"diagonal: axes {axis1} and {axis2} are the same")
    return F.diagonal(F.movedim(a, (first, second), (-2, -1)), offset)


@user_facing
def vander(x: Any, *, N: int | None = None) -> Any:
    """Powers of the elements of vectors, from 0 up, a column each."""
    x = as_tensor(x)
    count = x.shape[-1] if N is None and x.shape else N
    if count is not None and count <= 1:
        raise AttributeValueError(f"vander: N must be above 1, not {count}")
    return F.vander(x, count, True)


@user_facing
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of a tensor as a map from its last axes to its first `ind` ones."""
    a = as_tensor(a)
    if not 0 < ind < len(a.shape) + 1:
        raise AttributeValueError(f"tensorinv: ind is {ind} for {a.shape}")
    first, last = a.shape[:ind], a.shape[ind:]
    if prod(first) != prod(last):
        raise ShapeError(f"tensorinv: {prod(first)} and {prod(last)} elements are not a square")
    inverse = inv(F.reshape(a, (prod(first), prod(last))))
    return F.reshape(inverse, (*last, *first))


@user_facing
def tensorsolve(a: Any, b: Any, dims: Any = None) -> Any:
    """X with tensordot(A, X) = B over the last axes of A; `dims` of A are moved to the end."""
    a, b = as_tensor(a), as_tensor(b)
    rank = len(a.shape)
    if dims is not None:
        moved = [resolve_axis(d, rank) for d in int_tuple(dims, "tensorsolve: dims")]
        a = F.permute(a, [*(i for i in range(rank) if i not in moved), *moved])
    unknown = a.shape[len(b.shape) :]
    if prod(unknown) != prod(b.shape) or prod(a.shape[: len(b.shape)]) != prod(b.shape):
        raise ShapeError(f"tensorsolve: a tensor of {a.shape} and a right side of {b.shape}")
    x = solve(F.reshape(a, (prod(b.shape), prod(unknown))), F.reshape(b, (prod(b.shape),)))
    return F.reshape(x, unknown)


@user_facing
def householder_product(a: Any, tau: Any) -> Any:
    """The first columns of the product of the reflections I - tau[i] v[i] v[i]^H.

    v[i] is column i of A below its diagonal, after zeros and a one, as LAPACK stores it.
    """
    a, tau = as_matrices("householder_product", a, F.unsqueeze(as_tensor(tau), -1))
    (m, n), k = a.shape[-2:], tau.shape[-2]
    if m < n or n < k or a.shape[:-2] != tau.shape[:-2]:
        raise ShapeError(f"householder_product: a matrix of {a.shape} and tau of {tau.shape[:-1]}")
    matrices, factors = flat(a), flat(tau)
    vectors = F.tril(matrices, k=-1) + F.eye(m, n, dtype=matrices.dtype)
    result = F.expand(F.eye(m, n, dtype=matrices.dtype), matrices.shape)
    for i in reversed(range(k)):
        v = column(vectors, i)
        scale = F.narrow(factors, 1, i, 1)
        result = result - scale * F.matmul(v, F.matmul(adjoint(v), result))
    return restored(result, a.shape[:-2], a.dtype)
