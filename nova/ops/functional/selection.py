"""Elements that data select: writes at indices, and selections with a bound on their number.

A program has static shapes (or symbolic ones): the number of elements that a mask selects is not
known, so `size` bounds it, as in jax.numpy. Places that are not needed hold `fill_value`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import bool_, i64
from nova.core.sizes import is_static
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import (
    as_common,
    as_floats,
    as_integers,
    as_tensor,
    choice,
    function,
    to_dtype,
)
from nova.ops.functional.ordering import count_in_bins, data_bounds
from nova.ops.reductions import highest, lowest
from nova.ops.rules import clamped_index, int_value, resolve_axis
from nova.ops.table import Op, register

# --- writes ---------------------------------------------------------------------------------------


def _clamped(F: Any, index: Any, size: Any) -> Any:
    """i64 indices as the rows of `nova/ops/indexing.py` read them."""
    if is_static(size) and size > 0:
        return F.clamp_index(index, axis_size=size)
    return clamped_index(F, to_dtype(F, index, i64), size)


def _expanded(F: Any, name: str, x: Any, axis: int, index: Any) -> Any:
    """A vector of indices along an axis, for every element of the other axes."""
    index = as_integers(F, name, index)
    if len(index.shape) > 1:
        raise ShapeError(f"{name}: index {index.shape} is not a vector")
    count = prod(index.shape)
    shape = [count if i == axis else 1 for i in range(len(x.shape))]
    full = [count if i == axis else n for i, n in enumerate(x.shape)]
    return F.expand(F.reshape(to_dtype(F, index, i64), shape), full)


def _index_copy(F: Any, x: Any, axis: int, index: Any, source: Any) -> Any:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    return F.scatter(x, _expanded(F, "index_copy", x, axis, index), source, axis=axis)


def _index_fill(F: Any, x: Any, axis: int, index: Any, value: Any) -> Any:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    index = _expanded(F, "index_fill", x, axis, index)
    value = as_tensor(F, value)
    if value.shape:
        raise ShapeError(f"index_fill: value {value.shape} is not a number")
    updates = F.expand(to_dtype(F, value, x.dtype), index.shape)
    return F.scatter(x, index, updates, axis=axis)


def _index_put(F: Any, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """torch's: the tensors of `indices` are for the first axes, and broadcast."""
    x = as_tensor(F, x)
    items = list(indices) if isinstance(indices, tuple | list) else [indices]
    if not 1 <= len(items) <= len(x.shape):
        raise ShapeError(f"index_put: {len(items)} index tensors for x {x.shape}")
    tensors = [as_tensor(F, item) for item in items]
    if tensors[0].dtype is bool_ and len(tensors) == 1:
        return _put_selected(F, x, tensors[0], values, accumulate)
    if any(t.dtype is bool_ for t in tensors):
        raise AttributeValueError(
            "index_put: a bool index among others", hint="write nova.where(mask, values, x)"
        )
    lead, inner = x.shape[: len(tensors)], x.shape[len(tensors) :]
    flat = to_dtype(F, as_integers(F, "index_put", tensors[0]), i64)
    for axis, tensor in enumerate(tensors[1:], start=1):
        if axis == 1:
            flat = _clamped(F, flat, lead[0])
        index = _clamped(F, as_integers(F, "index_put", tensor), lead[axis])
        flat = flat * lead[axis] + index
    count = prod(flat.shape)
    values = F.expand(to_dtype(F, as_tensor(F, values), x.dtype), (*flat.shape, *inner))
    rows = F.reshape(x, (prod(lead), *inner))
    updates = F.reshape(values, (count, *inner))
    flat = F.reshape(flat, (count,))
    if accumulate:
        return F.reshape(F.index_add(rows, flat, updates), x.shape)
    index = _expanded(F, "index_put", rows, 0, flat)
    return F.reshape(F.scatter(rows, index, updates, axis=0), x.shape)


def _put_selected(F: Any, x: Any, mask: Any, values: Any, accumulate: bool) -> Any:
    """Values at the true elements of a mask of the first axes: one for all, or one for each."""
    rank = len(mask.shape)
    if tuple(mask.shape) != tuple(x.shape[:rank]):
        raise ShapeError(f"index_put: a mask {mask.shape} for x {x.shape}")
    inner = x.shape[rank:]
    values = to_dtype(F, as_tensor(F, values), x.dtype)
    if len(values.shape) > len(inner) and values.shape[0] != 1:
        order = F.cumsum(F.cast(F.reshape(mask, (prod(mask.shape),)), dtype=i64), axis=0) - 1
        each = F.take(values, F.clamp(order, min=0, max=values.shape[0] - 1), axis=0)
        values = F.reshape(F.expand(each, (prod(mask.shape), *inner)), x.shape)
    elif len(values.shape) > len(inner):
        values = F.squeeze(values, 0)
    chosen = F.reshape(mask, (*mask.shape, *(1,) * len(inner)))
    return F.where(chosen, x + values if accumulate else F.expand(values, x.shape), x)


_REDUCE = ("sum", "prod", "mean", "amax", "amin")


def _scatter_reduce(
    F: Any, x: Any, axis: int, index: Any, src: Any, reduce: str, include_self: bool = True
) -> Any:
    choice("scatter_reduce", "reduce", reduce, _REDUCE)
    x, src = as_common(F, x, src)
    axis = resolve_axis(axis, len(x.shape))
    index = as_integers(F, "scatter_reduce", index)
    if len(index.shape) != len(src.shape) or len(src.shape) != len(x.shape):
        raise ShapeError(f"scatter_reduce: x {x.shape}, index {index.shape}, src {src.shape}")
    src = F.slice(src, (0,) * len(src.shape), index.shape)
    ones = F.ones_like(src)
    counts = F.scatter_add(F.zeros_like(x), index, ones, axis=axis)
    if not include_self:
        identities = {
            "sum": 0,
            "mean": 0,
            "prod": 1,
            "amax": lowest(x.dtype),
            "amin": highest(x.dtype),
        }
        identity = identities[reduce]
        start = F.where(counts > 0, F.full(shape=x.shape, value=identity, dtype=x.dtype), x)
    else:
        start = x
    if reduce in ("amax", "amin"):
        return (F.scatter_max if reduce == "amax" else F.scatter_min)(start, index, src, axis=axis)
    if reduce == "prod":
        return _scatter_product(F, start, axis, index, src)
    total = F.scatter_add(start, index, src, axis=axis)
    if reduce == "sum":
        return total
    own = 1 if include_self else 0
    divisor = F.maximum(counts + own, 1)
    return total / divisor if x.dtype.is_float else F.floor_div(total, divisor)


def _scatter_product(F: Any, x: Any, axis: int, index: Any, src: Any) -> Any:
    """Products by position: the updates of each position, one dense row of factors per update."""
    n, count = x.shape[axis], index.shape[axis]
    index = F.movedim(index, axis, -1)
    src = F.movedim(src, axis, -1)
    inner = tuple(slice(0, m) for m in index.shape[:-1])
    moved = F.movedim(x, axis, -1)
    part = moved[inner] if inner else moved
    chosen = F.eq(F.unsqueeze(index, -2), F.reshape(F.arange(n), (n, 1)))
    factors = F.where(chosen, F.unsqueeze(src, -2), F.ones_like(F.unsqueeze(src, -2)))
    product = to_dtype(F, part * (F.prod(factors, axis=-1) if count else 1), x.dtype)
    if tuple(product.shape) == tuple(moved.shape):
        return F.movedim(product, -1, axis)
    low = (0,) * len(moved.shape)
    high = tuple(m - p for m, p in zip(moved.shape, product.shape, strict=True))
    inside = F.pad(F.ones_like(product), low, high)
    return F.movedim(F.where(inside > 0, F.pad(product, low, high), moved), -1, axis)


# --- selections with a bound ----------------------------------------------------------------------


def _positions(F: Any, name: str, flags: Any, size: Any) -> tuple[Any, Any]:
    """The flat positions of the first `size` true elements, and which of the places are used."""
    count = int_value(size, f"{name}: size")
    if count < 0:
        raise AttributeValueError(f"{name}: size must be at least 0, not {count}")
    total = prod(flags.shape)
    flat = F.cast(F.reshape(flags, (total,)), dtype=i64)
    if not total or not count:
        return F.zeros((count,), dtype=i64), F.zeros((count,), dtype=bool_)
    order = F.cumsum(flat, axis=0)
    # Elements that are not selected, or come too late, go to a place after the result.
    place = F.where((flat > 0) & (order <= count), order - 1, count)
    result = F.scatter(F.zeros((count + 1,), dtype=i64), place, F.arange(total), axis=0)
    used = F.arange(count) < F.sum(flat)
    return F.slice(result, (0,), (count,)), used


def _nonzero(F: Any, x: Any, size: int, fill_value: int = 0) -> Any:
    x = as_tensor(F, x)
    if not x.shape:
        raise ShapeError("nonzero: a number has no positions", hint="reshape it to (1,)")
    position, used = _positions(F, "nonzero", F.ne(x, 0), size)
    results = []
    for axis, n in enumerate(x.shape):
        index = (position // prod(x.shape[axis + 1 :])) % max(n, 1)
        results.append(F.where(used, index, int_value(fill_value, "nonzero: fill_value")))
    return tuple(results)


def _masked_select(F: Any, x: Any, mask: Any, size: int, fill_value: Any = 0) -> Any:
    x, mask = as_tensor(F, x), as_tensor(F, mask)
    if mask.dtype is not bool_:
        raise AttributeValueError(f"masked_select: mask is {mask.dtype}, not bool")
    zeros = F.zeros_like(x) + F.cast(F.zeros_like(mask), dtype=x.dtype)
    x = x + zeros if tuple(zeros.shape) != tuple(x.shape) else x
    mask = F.expand(mask, x.shape)
    position, used = _positions(F, "masked_select", mask, size)
    if not prod(x.shape):
        return F.full(shape=position.shape, value=fill_value, dtype=x.dtype)
    taken = F.take(F.reshape(x, (prod(x.shape),)), position, axis=0)
    return F.where(used, taken, F.full(shape=position.shape, value=fill_value, dtype=x.dtype))


def _unique(
    F: Any,
    x: Any,
    size: int,
    fill_value: Any = 0,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    x = as_tensor(F, x)
    total = prod(x.shape)
    flat = F.reshape(x, (total,))
    if not total:
        raise ShapeError("unique: x is empty")
    order = F.argsort(flat, axis=0)
    ranked = F.take(flat, order, axis=0)
    after = F.ne(F.slice(ranked, (1,), (total,)), F.slice(ranked, (0,), (total - 1,)))
    first = F.concat([F.ones((1,), dtype=bool_), after], axis=0)
    values = _masked_select(F, ranked, first, size, fill_value)
    results = [values]
    group = F.cumsum(F.cast(first, dtype=i64), axis=0) - 1
    if return_inverse:
        inverse = F.scatter(F.zeros((total,), dtype=i64), order, group, axis=0)
        results.append(F.reshape(inverse, x.shape))
    if return_counts:
        results.append(F.bincount(group, max(values.shape[0], 1))[: values.shape[0]])
    return results[0] if len(results) == 1 else tuple(results)


def _histogram(
    F: Any,
    x: Any,
    bins: int = 10,
    range: Any = None,
    weight: Any = None,
    density: bool = False,
) -> Any:
    """numpy's: counts (or sums of weights) and edges of bins in a range, by default that of x."""
    (x,) = as_floats(F, x)
    count = int_value(bins, "histogram: bins")
    flat = F.reshape(x, (x.size,))
    if range is None:
        low, high = data_bounds(F, flat, 0.5, 0.5)
        edges = F.linspace(as_tensor(F, low), as_tensor(F, high), count + 1, dtype=x.dtype)
    elif isinstance(range, tuple | list) and len(range) == 2 and range[0] < range[1]:
        low, high = float(range[0]), float(range[1])
        edges = F.detach(np.linspace(low, high, count + 1).astype(x.dtype.numpy))
    else:
        raise AttributeValueError(f"histogram: range {range!r} is not (low, high)")
    if weight is not None:
        (weight,) = as_floats(F, weight)
        if weight.shape != x.shape:
            raise ShapeError(f"histogram: weight {weight.shape} for x {x.shape}")
        weight = F.reshape(weight, flat.shape)
    counts = count_in_bins(F, flat, count, low, high, weight)
    if density:
        counts = to_dtype(F, counts, x.dtype)
        counts = counts / (F.sum(counts) * (edges[1:] - edges[:-1]))
    return counts, edges


ROWS: tuple[Op, ...] = (
    function(
        "index_copy",
        "A copy of x with slice i of the source written at position index[i] of an axis.",
        _index_copy,
        method=True,
    ),
    function(
        "index_fill",
        "A copy of x with a number written at positions of an axis.",
        _index_fill,
        method=True,
    ),
    function(
        "index_put",
        "A copy of x with values written (or added) at the positions of index tensors.",
        _index_put,
        method=True,
    ),
    function(
        "scatter_reduce",
        "A copy of x with updates combined at their indices: sum, prod, mean, amax or amin.",
        _scatter_reduce,
        method=True,
    ),
    function(
        "nonzero",
        "The indices of the first `size` elements other than 0, a tensor for each axis.",
        _nonzero,
        method=True,
    ),
    function(
        "masked_select",
        "The first `size` elements where a mask is true, then fill_value.",
        _masked_select,
        method=True,
    ),
    function(
        "unique",
        "The first `size` different elements in order, then fill_value; also the position of each "
        "element among them, and their counts.",
        _unique,
        method=True,
    ),
    function(
        "histogram",
        "Counts of elements in bins of equal width, and the edges of the bins.",
        _histogram,
    ),
)


def register_rows() -> None:
    register(*ROWS)
