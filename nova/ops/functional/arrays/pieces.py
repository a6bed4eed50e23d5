"""Arrays from pieces and pieces of arrays: block_diag, cartesian_prod, tensor_split, ..."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement, pairwise
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import f32, i64
from nova.core.sizes import is_static
from nova.errors import AttributeValueError, AxisError, ShapeError, SymbolicSizeError
from nova.ops.functional.common import (
    as_common,
    as_tensor,
    dtype_or,
    function,
    require_rank,
    require_tensors,
)
from nova.ops.rules import broadcast_shapes, int_tuple, int_value, resolve_axis, static_axis
from nova.ops.table import Op, register


def _block_diag(F: Any, *tensors: Any) -> Any:
    parts = [as_tensor(F, t) for t in require_tensors("block_diag", tensors)]
    if not parts:
        return F.zeros((1, 0))
    for part in parts:
        require_rank("block_diag", part, 0, 2)
    blocks = [F.atleast_2d(t) for t in as_common(F, *parts)]
    width = sum(b.shape[1] for b in blocks)
    rows, column = [], 0
    for block in blocks:
        right = width - column - block.shape[1]
        rows.append(F.pad(block, (0, column), (0, right)))
        column += block.shape[1]
    return F.concat(rows, axis=0)


def _vectors(F: Any, name: str, tensors: Any) -> list[Any]:
    vectors = as_common(F, *require_tensors(name, tensors))
    for v in vectors:
        require_rank(name, v, 1, 1)
    return vectors


def _cartesian_prod(F: Any, *tensors: Any) -> Any:
    vectors = _vectors(F, "cartesian_prod", tensors)
    if not vectors:
        raise ShapeError("cartesian_prod: no vectors")
    if len(vectors) == 1:
        return vectors[0]
    grids = F.meshgrid(*vectors, indexing="ij")
    return F.stack([F.reshape(g, (-1,)) for g in grids], axis=1)


def _combinations(F: Any, x: Any, r: int = 2, with_replacement: bool = False) -> Any:
    x = as_tensor(F, x)
    require_rank("combinations", x, 1, 1)
    count = int_value(r, "combinations: r")
    if count < 0:
        raise AttributeValueError(f"combinations: r must be at least 0, not {count}")
    n = static_axis(x.type, 0, "combinations of the elements of")
    choose = combinations_with_replacement if with_replacement else combinations
    rows = np.array(list(choose(range(n), count)), np.int64).reshape(-1, count)
    return F.take(x, rows, axis=0) if count else F.zeros((0,), dtype=x.dtype)


def _column_stack(F: Any, *tensors: Any) -> Any:
    parts = [as_tensor(F, t) for t in require_tensors("column_stack", tensors)]
    if not parts:
        raise ShapeError("column_stack: no tensors")
    columns = [F.reshape(p, (p.size, 1)) if len(p.shape) < 2 else p for p in parts]
    return F.concat(columns, axis=1)


def _append(F: Any, x: Any, values: Any, axis: Any = None) -> Any:
    x, values = as_common(F, x, values)
    if axis is None:
        return F.concat([F.reshape(x, (-1,)), F.reshape(values, (-1,))], axis=0)
    return F.concat([x, values], axis=axis)


# --- splits ---------------------------------------------------------------------------------------


def _tensor_split(F: Any, x: Any, indices_or_sections: Any, axis: int = 0) -> tuple[Any, ...]:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    n = x.shape[axis]
    if not is_static(n):
        raise SymbolicSizeError(
            f"tensor_split: {x.type} along an axis of symbolic size", hint="use nova.chunk"
        )
    if isinstance(indices_or_sections, tuple | list | np.ndarray):
        places = int_tuple(indices_or_sections, "tensor_split: indices")
        bounds = [0, *(min(max(p + n if p < 0 else p, 0), n) for p in places), n]
    else:
        count = int_value(indices_or_sections, "tensor_split: sections")
        if count < 1:
            raise AttributeValueError(f"tensor_split: {count} sections: there is one or more")
        each, longer = divmod(n, count)
        bounds = [i * each + min(i, longer) for i in range(count + 1)]
    return tuple(F.narrow(x, axis, a, max(b - a, 0)) for a, b in pairwise(bounds))


def _split_along(name: str, axis: int, least: int) -> Any:
    def build(F: Any, x: Any, indices_or_sections: Any) -> tuple[Any, ...]:
        x = as_tensor(F, x)
        require_rank(name, x, least)
        place = 0 if name == "hsplit" and len(x.shape) == 1 else axis
        if not isinstance(indices_or_sections, tuple | list | np.ndarray):
            count = int_value(indices_or_sections, f"{name}: sections")
            if count < 1 or x.shape[place] % count:
                raise ShapeError(f"{name}: {count} equal sections of axis {place} of {x.shape}")
        return _tensor_split(F, x, indices_or_sections, place)

    return build


def _split_with_sizes(F: Any, x: Any, split_sizes: Any, axis: int = 0) -> tuple[Any, ...]:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    sizes = int_tuple(split_sizes, "split_with_sizes: sizes")
    if sum(sizes) != x.shape[axis] or any(n < 0 for n in sizes):
        raise ShapeError(f"split_with_sizes: sizes {sizes} of axis {axis} of {x.shape}")
    bounds = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    return tuple(F.narrow(x, axis, a, b - a) for a, b in pairwise(bounds))


# --- shapes ---------------------------------------------------------------------------------------


def _ravel(F: Any, x: Any) -> Any:
    return F.reshape(x, (-1,))


def _diagflat(F: Any, x: Any, offset: int = 0) -> Any:
    return F.diag_embed(F.reshape(as_tensor(F, x), (-1,)), offset)


def _broadcast_tensors(F: Any, *tensors: Any) -> tuple[Any, ...]:
    parts = [as_tensor(F, t) for t in require_tensors("broadcast_tensors", tensors)]
    shape: tuple[Any, ...] = ()
    for part in parts:
        shape = broadcast_shapes(shape, part.shape)
    return tuple(F.expand(p, shape) for p in parts)


def _matrix_transpose(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    require_rank("matrix_transpose", x, 2)
    return F.swapaxes(x, -1, -2)


def _adjoint(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    require_rank("adjoint", x, 2)
    return F.conj(F.swapaxes(x, -1, -2))


def _rollaxis(F: Any, x: Any, axis: int, start: int = 0) -> Any:
    x = as_tensor(F, x)
    rank = len(x.shape)
    source = resolve_axis(axis, rank)
    place = int_value(start, "rollaxis: start")
    place = place + rank if place < 0 else place
    if not 0 <= place <= rank:
        raise AxisError(f"rollaxis: start {start} for {x.shape}")
    return F.movedim(x, source, place - 1 if source < place else place)


# --- tables of indices ----------------------------------------------------------------------------


def _triangle_indices(name: str, lower: bool) -> Any:
    def build(F: Any, row: int, col: Any = None, offset: int = 0, dtype: Any = i64) -> Any:
        rows = int_value(row, f"{name}: row")
        columns = rows if col is None else int_value(col, f"{name}: col")
        shift = int_value(offset, f"{name}: offset")
        if rows < 0 or columns < 0:
            raise AttributeValueError(f"{name}: a matrix of {rows} by {columns}")
        table = np.tril_indices if lower else np.triu_indices
        return F.detach(np.stack(table(rows, shift, columns)).astype(dtype_or(dtype, i64).numpy))

    return build


def _vander(F: Any, x: Any, N: Any = None, increasing: bool = False) -> Any:
    x = as_tensor(F, x)
    require_rank("vander", x, 1)
    count = x.shape[-1] if N is None else int_value(N, "vander: N")
    if count < 0:
        raise AttributeValueError(f"vander: N must be at least 0, not {count}")
    if not count:
        return F.zeros((*x.shape, 0), dtype=x.dtype)
    column = F.unsqueeze(x, -1)
    powers = [F.ones_like(column)]
    for _ in range(count - 1):
        powers.append(powers[-1] * column)
    return F.concat(powers if increasing else powers[::-1], axis=-1)


def _sum_to_size(F: Any, x: Any, *sizes: Any) -> Any:
    x = as_tensor(F, x)
    shape = int_tuple(sizes[0] if len(sizes) == 1 else sizes, "sum_to_size: sizes")
    if tuple(broadcast_shapes(shape, x.shape)) != tuple(x.shape):
        raise ShapeError(f"sum_to_size: {x.shape} is not a broadcast of {shape}")
    if shape and shape == tuple(x.shape):
        return x
    missing = len(x.shape) - len(shape)
    axes = [*range(missing)]
    axes += [missing + i for i, n in enumerate(shape) if n == 1 and x.shape[missing + i] != 1]
    return F.reshape(F.sum(x, axis=tuple(axes)), shape)


def _ravel_multi_index(F: Any, indices: Any, shape: Any) -> Any:
    sizes = int_tuple(shape, "ravel_multi_index: shape")
    parts = [as_tensor(F, i) for i in require_tensors("ravel_multi_index", [indices])]
    if len(parts) != len(sizes):
        raise ShapeError(f"ravel_multi_index: {len(parts)} indices for {len(sizes)} axes")
    total = None
    for i, part in enumerate(parts):
        term = part * prod(sizes[i + 1 :])
        total = term if total is None else total + term
    return total


def _vdot(F: Any, x: Any, y: Any) -> Any:
    x, y = as_common(F, F.reshape(x, (-1,)), F.reshape(y, (-1,)))
    return F.dot(F.conj(x), y)


def _matvec(F: Any, x: Any, y: Any) -> Any:
    require_rank("matvec", as_tensor(F, y), 1)
    return F.squeeze(F.matmul(x, F.unsqueeze(y, -1)), -1)


def _vecmat(F: Any, x: Any, y: Any) -> Any:
    require_rank("vecmat", as_tensor(F, x), 1)
    return F.squeeze(F.matmul(F.unsqueeze(F.conj(x), -2), y), -2)


def _tri(F: Any, N: int, M: Any = None, k: int = 0, dtype: Any = f32) -> Any:
    rows = int_value(N, "tri: N")
    columns = rows if M is None else int_value(M, "tri: M")
    if rows < 0 or columns < 0:
        raise AttributeValueError(f"tri: a matrix of {rows} by {columns}")
    return F.tril(F.ones((rows, columns), dtype=dtype_or(dtype, f32)), k=k)


def _partition(F: Any, x: Any, kth: int, axis: int = -1) -> Any:
    x = as_tensor(F, x)
    place = int_value(kth, "partition: kth")
    n = x.shape[resolve_axis(axis, len(x.shape))]
    if not -n <= place < n:
        raise AxisError(f"partition: element {place} of an axis of {n}")
    return F.sort(x, axis=axis)[0]


_SPLIT = "Pieces of axis {axis}: a number of equal sections, or the positions between them."
NOGRAD = frozenset({"nograd"})
ROWS: tuple[Op, ...] = (
    function("vdot", "The sum of conj(x) * y over all elements.", _vdot, operands=("x", "y")),
    function("matvec", "Matrices times vectors, with batches.", _matvec, operands=("x", "y")),
    function("vecmat", "Vectors times matrices, with batches.", _vecmat, operands=("x", "y")),
    function(
        "tri", "Ones at and below a diagonal of a matrix, else 0.", _tri, operands=(), tags=NOGRAD
    ),
    function(
        "partition",
        "Elements along an axis with the smaller ones before element kth: they are sorted.",
        _partition,
    ),
    function(
        "block_diag",
        "A matrix with matrices on its diagonal, 0 elsewhere.",
        _block_diag,
        operands=("*tensors",),
    ),
    function(
        "cartesian_prod",
        "All tuples of elements of vectors, a row each.",
        _cartesian_prod,
        operands=("*tensors",),
    ),
    function("combinations", "All choices of r elements of a vector, a row each.", _combinations),
    function(
        "column_stack",
        "Joined along axis 1; vectors are columns.",
        _column_stack,
        operands=("*tensors",),
    ),
    function(
        "append",
        "x and values joined along an axis; flattened without one.",
        _append,
        operands=("x", "values"),
    ),
    function(
        "tensor_split",
        "Pieces of an axis: a number of sections, equal or the first longer by one, or the "
        "positions between them.",
        _tensor_split,
        method=True,
    ),
    *(
        function(name, _SPLIT.format(axis=axis), _split_along(name, axis, least), method=True)
        for name, axis, least in (("hsplit", 1, 1), ("vsplit", 0, 2), ("dsplit", 2, 3))
    ),
    function(
        "split_with_sizes", "Pieces of an axis with these sizes.", _split_with_sizes, method=True
    ),
    function("ravel", "The elements as a vector.", _ravel, method=True),
    function("diagflat", "A matrix with the elements of x on a diagonal.", _diagflat, method=True),
    function(
        "broadcast_tensors",
        "The tensors expanded to their common shape, a tuple.",
        _broadcast_tensors,
        operands=("*tensors",),
    ),
    function("matrix_transpose", "The last two axes swapped.", _matrix_transpose),
    function("adjoint", "The conjugate of the last two axes swapped.", _adjoint, method=True),
    function("rollaxis", "An axis moved before the axis `start` (numpy).", _rollaxis),
    *(
        function(
            name,
            f"The rows and columns of the {side} triangle of a matrix, (2, count).",
            _triangle_indices(name, side == "lower"),
            operands=(),
            tags=NOGRAD,
        )
        for name, side in (("tril_indices", "lower"), ("triu_indices", "upper"))
    ),
    function("vander", "Powers of the elements of vectors, a column each.", _vander),
    function(
        "sum_to_size",
        "Summed over the axes that broadcast `sizes` to x.",
        _sum_to_size,
        method=True,
    ),
    function(
        "ravel_multi_index",
        "Flat positions of indices, a tensor for each axis of `shape`.",
        _ravel_multi_index,
        operands=("indices",),
        tags=NOGRAD,
    ),
)


def register_rows() -> None:
    register(*ROWS)
