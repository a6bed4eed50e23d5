"""Writes at positions that are tensors, and into parts of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.dtypes import accumulator, bool_, i64, u8
from nova.frontends.torch.rows.indexing import Selection
from nova.frontends.torch.rows.table import axis_of, cast, row, unsupported
from nova.graph.tensor import Tensor


def _cut(F: Any, x: Any, shape: Sequence[int]) -> Any:
    """The first elements of `x` along each axis; x itself if it has that shape."""
    return x if x.shape == tuple(shape) else F.slice(x, [0] * len(shape), list(shape))


def _along(F: Any, name: str, x: Any, dim: int, index: Any, source: Any, wide: bool = False) -> Any:
    """A scatter of Nova along an axis, for any ranks."""
    if not index.size:
        return x
    if not isinstance(source, Tensor):
        source = F.full(shape=index.shape, value=source, dtype=x.dtype)
    shape = x.shape
    if not shape:
        x, index, source = (F.reshape(t, (1,)) for t in (x, index, source))
    dtype = accumulator(x.dtype) if wide else x.dtype
    dtype = u8 if dtype is bool_ else dtype
    updates = cast(F, _cut(F, source, index.shape), dtype)
    axis = axis_of(dim, len(x.shape))
    result = getattr(F, name)(cast(F, x, dtype), index, updates, axis=axis)
    return F.reshape(cast(F, result, x.dtype), shape)


@row("scatter.src", "scatter.value")
def _scatter(F: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
    return _along(F, "scatter", x, dim, index, source)


@row("scatter_add.default")
def _scatter_add(F: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
    return _along(F, "scatter_add", x, dim, index, source, wide=True)


@row("scatter_reduce.two")
def _scatter_reduce(
    F: Any, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    names = {"sum": "scatter_add", "amax": "scatter_max", "amin": "scatter_min"}
    if reduce not in names or not include_self:
        raise unsupported(f"scatter_reduce by {reduce} with include_self={include_self}")
    return _along(F, names[reduce], x, dim, index, source, wide=True)


@row("index_add.default")
def _index_add(F: Any, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    if not x.shape:
        return F.add(x, F.reshape(source, ()) * alpha)
    wide = accumulator(x.dtype)
    updates = cast(F, source, wide)
    updates = updates if alpha == 1 else updates * alpha
    index = index if index.shape else F.reshape(index, (1,))
    if len(updates.shape) < len(x.shape):
        updates = F.reshape(updates, (*updates.shape, *(1,) * (len(x.shape) - len(updates.shape))))
    axis = axis_of(dim, len(x.shape))
    return cast(F, F.index_add(cast(F, x, wide), index, updates, axis=axis), x.dtype)


@row("index_put.default", "_unsafe_index_put.default", "_index_put_impl.default")
def _index_put(
    F: Any, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, *unsafe: Any
) -> Any:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is bool_:
        return _masked_put(F, x, indices[0], values, accumulate)
    selection = Selection(F, x, indices)
    if not selection.index.size:
        return x
    dtype = accumulator(x.dtype) if accumulate else x.dtype
    dtype = u8 if dtype is bool_ else dtype
    rows = cast(F, selection.rows(F, x), dtype)
    shape = (*selection.index.shape, *selection.rest)
    placed = selection.placed()
    wide = F.expand(cast(F, values, dtype), shape=tuple(shape[a] for a in placed))
    inverse = tuple(sorted(range(len(placed)), key=placed.__getitem__))
    updates = F.permute(wide, axes=inverse) if placed else wide
    count = selection.index.size
    updates = F.reshape(updates, (count, *selection.rest))
    index = F.reshape(selection.index, (count,))
    if accumulate:
        out = F.index_add(rows, index, updates, axis=0)
    else:
        full = F.expand(F.reshape(index, (count, *(1,) * len(selection.rest))), shape=updates.shape)
        out = F.scatter(rows, full, updates, axis=0)
    return selection.unrows(F, cast(F, out, x.dtype))


def _masked_put(F: Any, x: Any, mask: Any, values: Any, accumulate: bool) -> Any:
    """x[mask] = value: of one value, a select; of several, their number depends on the mask."""
    if values.size != 1:
        raise unsupported("an index by a mask, whose size depends on values")
    value = F.reshape(cast(F, values, x.dtype), ())
    mask = F.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
    return F.where(mask, x + value if accumulate else value, x)


# --- parts of a tensor ----------------------------------------------------------------------------


def _replaced(F: Any, x: Any, axis: int, inside: Any, positions: Any, source: Any) -> Any:
    """`x` with the slices of `source` at `positions` along an axis, where `inside` is true."""
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    picked = F.take(cast(F, source, x.dtype), positions, axis=axis)
    return F.where(F.reshape(inside, tuple(shape)), picked, x)


@row("slice_scatter.default")
def _slice_scatter(
    F: Any, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    axis = axis_of(dim, len(x.shape))
    n = x.shape[axis]
    first = 0 if start is None else max(start + n, 0) if start < 0 else min(start, n)
    last = n if end is None else max(end + n, 0) if end < 0 else min(end, n)
    count = max(0, -(-(last - first) // step))
    if not count:
        return x
    if count == n:
        return F.expand(cast(F, source, x.dtype), shape=x.shape)
    offset = F.arange(start=0, stop=n, step=1, dtype=i64) - first
    inside = F.logical_and(F.ge(offset, 0), F.lt(offset, count * step))
    if step != 1:
        inside = F.logical_and(inside, F.eq(F.mod(offset, step), 0))
        offset = F.floor_div(offset, step)
    positions = F.minimum(F.maximum(offset, 0), count - 1)
    return _replaced(F, x, axis, inside, positions, source)


@row("select_scatter.default")
def _select_scatter(F: Any, x: Any, source: Any, dim: int, index: int) -> Any:
    axis = axis_of(dim, len(x.shape))
    wide = F.expand(F.unsqueeze(cast(F, source, x.dtype), axis), shape=x.shape)
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    at = F.arange(start=0, stop=x.shape[axis], step=1, dtype=i64)
    return F.where(F.reshape(F.eq(at, index % x.shape[axis]), tuple(shape)), wide, x)


@row("diagonal_scatter.default")
def _diagonal_scatter(
    F: Any, x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    rank = len(x.shape)
    first, second = dim1 % rank, dim2 % rank
    order = (*(i for i in range(rank) if i not in (first, second)), first, second)
    moved = F.permute(x, axes=order)
    rows, columns = moved.shape[-2:]
    i = F.unsqueeze(F.arange(start=0, stop=rows, step=1, dtype=i64), 1)
    j = F.arange(start=0, stop=columns, step=1, dtype=i64)
    hit = F.eq(i + offset, j)
    if not source.size:
        return x
    position = F.minimum(i if offset >= 0 else i + offset, source.shape[-1] - 1)
    along = F.take(
        cast(F, source, x.dtype), F.reshape(F.maximum(position, 0), (rows,)), axis=rank - 2
    )
    out = F.where(hit, F.unsqueeze(along, rank - 1), moved)
    return F.permute(out, axes=tuple(sorted(range(rank), key=order.__getitem__)))


@row("masked_scatter.default")
def _masked_scatter(F: Any, x: Any, mask: Any, source: Any) -> Any:
    mask = F.expand(mask, shape=x.shape)
    if not x.size or not source.size:
        return x
    order = F.cumsum(F.reshape(cast(F, mask, i64), (x.size,)), axis=0) - 1
    index = F.minimum(F.maximum(order, 0), source.size - 1)
    picked = F.take(F.reshape(cast(F, source, x.dtype), (source.size,)), index, axis=0)
    return F.where(mask, F.reshape(picked, x.shape), x)
