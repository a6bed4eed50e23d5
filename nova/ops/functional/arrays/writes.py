"""Copies with other elements in some places: select_scatter, masked_scatter, index_reduce, ..."""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import bool_, i64
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.functional.common import (
    as_integers,
    as_tensor,
    choice,
    function,
    to_dtype,
)
from nova.ops.rules import broadcast_shapes, int_value, resolve_axis, static_axis
from nova.ops.table import Op, register


def _operands(F: Any, x: Any, source: Any) -> tuple[Any, Any]:
    x = as_tensor(F, x)
    return x, to_dtype(F, as_tensor(F, source), x.dtype)


def _require_shape(name: str, source: Any, shape: Any) -> None:
    if tuple(source.shape) != tuple(shape):
        raise ShapeError(f"{name}: a source of {source.shape}, it should be {tuple(shape)}")


def _select_scatter(F: Any, x: Any, source: Any, axis: int, index: int) -> Any:
    x, source = _operands(F, x, source)
    axis = resolve_axis(axis, len(x.shape))
    _require_shape("select_scatter", source, (*x.shape[:axis], *x.shape[axis + 1 :]))
    place = int_value(index, "select_scatter: index")
    n = x.shape[axis]
    place = place + n if place < 0 else place
    if place < 0 or place >= n:
        raise ShapeError(f"select_scatter: index {index} of an axis of {n}")
    return _with_slice(F, x, F.unsqueeze(source, axis), axis, place, 1)


def _with_slice(F: Any, x: Any, source: Any, axis: int, start: int, step: int) -> Any:
    """The source at start, start + step, ... of an axis, x elsewhere."""
    starts = [start if i == axis else 0 for i in range(len(x.shape))]
    steps = [step if i == axis else 1 for i in range(len(x.shape))]
    placed = F.unslice(source, x.shape, starts, steps)
    ones = F.ones([source.shape[i] if i == axis else 1 for i in range(len(x.shape))])
    shape = [x.shape[i] if i == axis else 1 for i in range(len(x.shape))]
    inside = F.unslice(ones, shape, starts, steps) > 0
    return F.where(inside, placed, x)


def _slice_scatter(
    F: Any,
    x: Any,
    source: Any,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    x, source = _operands(F, x, source)
    axis = resolve_axis(axis, len(x.shape))
    n = static_axis(x.type, axis, "slice_scatter along")
    stride = int_value(step, "slice_scatter: step")
    if stride < 1:
        raise AttributeValueError(f"slice_scatter: step must be at least 1, not {stride}")
    bounds = [None if b is None else int_value(b, "slice_scatter: bound") for b in (start, end)]
    places = range(*slice(bounds[0], bounds[1], stride).indices(n))
    shape = [len(places) if i == axis else m for i, m in enumerate(x.shape)]
    _require_shape("slice_scatter", source, shape)
    return _with_slice(F, x, source, axis, places.start, stride) if len(places) else x


def _diagonal_scatter(
    F: Any, x: Any, source: Any, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> Any:
    x, source = _operands(F, x, source)
    rank = len(x.shape)
    first, second = resolve_axis(axis1, rank), resolve_axis(axis2, rank)
    if first == second:
        raise ShapeError(f"diagonal_scatter: axes {axis1} and {axis2} are the same")
    shift = int_value(offset, "diagonal_scatter: offset")
    moved = F.movedim(x, (first, second), (-2, -1))
    *lead, rows, columns = moved.shape
    count = max(min(rows + min(shift, 0), columns - max(shift, 0)), 0)
    _require_shape("diagonal_scatter", source, (*lead, count))
    matrix = F.diag_embed(source)
    low = (*(0,) * len(lead), max(-shift, 0), max(shift, 0))
    high = (*(0,) * len(lead), rows - count - low[-2], columns - count - low[-1])
    placed = F.pad(matrix, low, high)
    row, column = F.reshape(F.arange(rows), (rows, 1)), F.arange(columns)
    result = F.where(F.eq(column - row, shift), placed, moved)
    return F.movedim(result, (-2, -1), (first, second))


def _masked_scatter(F: Any, x: Any, mask: Any, source: Any) -> Any:
    x, source = _operands(F, x, source)
    mask = as_tensor(F, mask)
    if mask.dtype is not bool_:
        raise DTypeError(f"masked_scatter: the mask is {mask.dtype}, not bool")
    shape = broadcast_shapes(x.shape, mask.shape)
    x, mask = F.expand(x, shape), F.expand(mask, shape)
    if not prod(shape) or not source.size:
        return x
    flags = F.cast(F.reshape(mask, (-1,)), dtype=i64)
    order = F.clamp(F.cumsum(flags, axis=0) - 1, min=0, max=source.size - 1)
    values = F.take(F.reshape(source, (-1,)), order, axis=0)
    return F.where(mask, F.reshape(values, shape), x)


_REDUCE = ("prod", "mean", "amax", "amin")


def _index_reduce(
    F: Any, x: Any, axis: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    choice("index_reduce", "reduce", reduce, _REDUCE)
    x, source = _operands(F, x, source)
    axis = resolve_axis(axis, len(x.shape))
    index = as_integers(F, "index_reduce", index)
    if len(index.shape) != 1 or tuple(source.shape) != tuple(
        index.shape[0] if i == axis else n for i, n in enumerate(x.shape)
    ):
        raise ShapeError(f"index_reduce: index {index.shape}, source {source.shape} for {x.shape}")
    shape = [index.shape[0] if i == axis else 1 for i in range(len(x.shape))]
    full = F.expand(F.reshape(to_dtype(F, index, i64), shape), source.shape)
    return F.scatter_reduce(x, axis, full, source, reduce, include_self)


def _put(F: Any, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    x, source = _operands(F, x, source)
    index = as_integers(F, "put", index)
    if index.size != source.size:
        raise ShapeError(f"put: index {index.shape} for a source of {source.shape}")
    if not x.size or not index.size:
        return x
    flat = [F.reshape(t, (-1,)) for t in (x, index, source)]
    return F.reshape(F.index_put(flat[0], (flat[1],), flat[2], accumulate), x.shape)


def _take_along_dim(F: Any, x: Any, index: Any, axis: Any = None) -> Any:
    x, index = as_tensor(F, x), as_integers(F, "take_along_dim", index)
    if axis is None:
        return F.gather(F.reshape(x, (-1,)), F.reshape(index, (-1,)), axis=0)
    axis = resolve_axis(axis, len(x.shape))
    x, index = _aligned(F, "take_along_dim", x, index, axis)
    return F.gather(x, index, axis=axis)


def _aligned(F: Any, name: str, x: Any, index: Any, axis: int) -> tuple[Any, Any]:
    """Both with their common sizes of the other axes."""
    if len(x.shape) != len(index.shape):
        raise ShapeError(f"{name}: index {index.shape} for {x.shape}: the ranks differ")
    sizes = [list(t.shape) for t in (x, index)]
    own = [s[axis] for s in sizes]
    for s in sizes:
        s[axis] = 1
    common = list(broadcast_shapes(*sizes))
    shapes = [[n if i == axis else m for i, m in enumerate(common)] for n in own]
    return F.expand(x, shapes[0]), F.expand(index, shapes[1])


def _put_along_axis(F: Any, x: Any, index: Any, values: Any, axis: int) -> Any:
    x, values = _operands(F, x, values)
    index = as_integers(F, "put_along_axis", index)
    axis = resolve_axis(axis, len(x.shape))
    x, index = _aligned(F, "put_along_axis", x, index, axis)
    return F.scatter(x, index, F.expand(values, index.shape), axis=axis)


def _fill_diagonal(F: Any, x: Any, value: Any) -> Any:
    x = as_tensor(F, x)
    if len(x.shape) != 2:
        raise ShapeError(f"fill_diagonal: {x.shape} is not a matrix")
    rows, columns = x.shape
    is_diagonal = F.eq(F.reshape(F.arange(rows), (rows, 1)), F.arange(columns))
    return F.where(is_diagonal, to_dtype(F, as_tensor(F, value), x.dtype), x)


ROWS: tuple[Op, ...] = (
    function(
        "select_scatter",
        "A copy of x with a source at one position of an axis.",
        _select_scatter,
        method=True,
        operands=("x", "source"),
    ),
    function(
        "slice_scatter",
        "A copy of x with a source in a slice of an axis.",
        _slice_scatter,
        method=True,
        operands=("x", "source"),
    ),
    function(
        "diagonal_scatter",
        "A copy of x with a source on a diagonal.",
        _diagonal_scatter,
        method=True,
        operands=("x", "source"),
    ),
    function(
        "masked_scatter",
        "A copy of x with the elements of a source, in order, where a mask is true.",
        _masked_scatter,
        method=True,
        operands=("x", "mask", "source"),
    ),
    function(
        "index_reduce",
        "A copy of x with slices of a source combined at positions of an axis: prod, mean, amax "
        "or amin.",
        _index_reduce,
        method=True,
    ),
    function(
        "put",
        "A copy of x with elements of a source written (or added) at flat positions.",
        _put,
        method=True,
        operands=("x", "index", "source"),
    ),
    function(
        "take_along_dim",
        "The elements at indices along an axis; other axes broadcast.",
        _take_along_dim,
        method=True,
        operands=("x", "index"),
    ),
    function(
        "put_along_axis",
        "A copy of x with values written at indices along an axis; other axes broadcast.",
        _put_along_axis,
        operands=("x", "index", "values"),
    ),
    function(
        "fill_diagonal",
        "A copy of a matrix with a number on its diagonal.",
        _fill_diagonal,
        method=True,
        operands=("x", "value"),
    ),
)


def register_rows() -> None:
    register(*ROWS)
