"""Scatters that set elements or keep the extreme of several, in row-major order of the updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, promote
from nova.core.sizes import at_most, same_shape
from nova.errors import ShapeError
from nova.ops.rules import (
    Types,
    clamp_index,
    clamp_index_scalar,
    index_operand,
    is_zero,
    resolve_axis,
    widen,
)
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]


def _canon(ins: Types, attrs: Attrs) -> Attrs:
    return {"axis": resolve_axis(attrs["axis"], ins[0].rank)}


def _cast(types: tuple[DType, ...]) -> tuple[DType, ...]:
    common = promote(types[0], types[2])
    return common, index_operand(types[1]), common


def _type(ins: Types, attrs: Attrs) -> TensorType:
    x, index, updates = ins
    axis = attrs["axis"]
    if index.rank != x.rank or not same_shape(updates.shape, index.shape):
        raise ShapeError(f"index {index.shape} and updates {updates.shape} for x {x.shape}")
    sizes = zip(x.shape, index.shape, strict=True)
    if any(not at_most(m, n) for i, (n, m) in enumerate(sizes) if i != axis):
        raise ShapeError(f"index {index.shape} is larger than x {x.shape} outside axis {axis}")
    if is_zero(x.shape[axis]) and not index.is_empty:
        raise ShapeError(f"axis {axis} of {x.shape} has no element that an index could name")
    return x


def _reference(combine: Any) -> Any:
    def reference(
        x: np.ndarray, index: np.ndarray, updates: np.ndarray, *, axis: int
    ) -> np.ndarray:
        result = widen(x).copy()
        if index.size:
            at: list[Any] = list(np.indices(index.shape, sparse=True))
            at[axis] = clamp_index(index, x.shape[axis])
            combine(result, tuple(at), widen(updates))
        return result.astype(x.dtype, copy=False)

    return reference


def _set_last(result: np.ndarray, at: tuple[Any, ...], updates: np.ndarray) -> None:
    """In row-major order, so that the last of equal positions stays."""
    every = np.broadcast_arrays(*at)
    for position in np.ndindex(updates.shape):
        result[tuple(a[position] for a in every)] = updates[position]


def _lower(combine: Any) -> Any:
    def lower(b: Any, out: TensorType, x: Any, index: Any, updates: Any, *, axis: int) -> Any:
        return b.scatter_add(out, x, index, updates, axis, clamp_index_scalar, combine)

    return lower


def _set_vjp(
    F: Any, g: Any, out: Any, x: Any, index: Any, updates: Any, *, axis: int
) -> tuple[Any, None, Any]:
    if index.type.is_empty:
        return g, None, F.zeros_like(updates)
    # The number of the update that stayed at each position: only it has a gradient.
    numbers = F.reshape(F.arange(index.size), index.shape)
    last = F.scatter(F.full(shape=x.shape, value=-1, dtype="i64"), index, numbers, axis=axis)
    stayed = F.eq(F.gather(last, index, axis=axis), numbers)
    mine = F.where(stayed, F.gather(g, index, axis=axis), 0.0)
    return F.where(last < 0, g, 0.0), None, mine


def _extreme_vjp(
    F: Any, g: Any, out: Any, x: Any, index: Any, updates: Any, *, axis: int
) -> tuple[Any, None, Any]:
    """Elements that are the extreme share the gradient evenly, as in torch."""
    if index.type.is_empty:
        return g, None, F.zeros_like(updates)
    own = F.cast(F.eq(x, out), dtype=x.dtype)
    theirs = F.cast(F.eq(updates, F.gather(out, index, axis=axis)), dtype=x.dtype)
    share = g / F.scatter_add(own, index, theirs, axis=axis)
    return share * own, None, F.gather(share, index, axis=axis) * theirs


def _row(name: str, doc: str, combine: Any, reference: Any, vjp: Any) -> Op:
    return Op(
        name,
        doc,
        operands=("x", "index", "updates"),
        attrs={"axis": REQUIRED},
        cast=_cast,
        canon=_canon,
        infer=_type,
        numpy=_reference(reference),
        vjp=vjp,
        lower=_lower(combine),
        methods=(name,),
        domain=("real", "index", "real"),
    )


ROWS: tuple[Op, ...] = (
    _row(
        "scatter",
        "A copy of x with each update written at its index along an axis; of updates of one "
        "position the last stays.",
        lambda s, old, new: new,
        _set_last,
        _set_vjp,
    ),
    _row(
        "scatter_max",
        "A copy of x with the largest of each element and its updates; ties share the gradient.",
        lambda s, old, new: s.maximum(old, new),
        np.maximum.at,
        _extreme_vjp,
    ),
    _row(
        "scatter_min",
        "A copy of x with the smallest of each element and its updates; ties share the gradient.",
        lambda s, old, new: s.minimum(old, new),
        np.minimum.at,
        _extreme_vjp,
    ),
)


def register_rows() -> None:
    register(*ROWS)
