"""Slices at positions that are known at run time: `dynamic_slice` and `dynamic_update_slice`.

The functions have the signatures of `jax.lax`; the rows take all start positions as one tensor. A
negative position counts from the end. The slice always lies inside of the tensor: a position too
large is moved back, as in StableHLO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, i64
from nova.errors import ShapeError
from nova.ops.rules import Types, index_operand, int_tuple
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]


def _slice_casts(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    return dtypes[0], index_operand(dtypes[1])


def _update_casts(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    return dtypes[0], index_operand(dtypes[1]), dtypes[0]


def _check_window(x: TensorType, index: TensorType, sizes: tuple[int, ...]) -> None:
    if index.shape != (x.rank,):
        raise ShapeError(
            f"{index.shape} start positions for a tensor of rank {x.rank}",
            hint="one position for each axis",
        )
    if len(sizes) != x.rank or any(not 0 <= n <= m for n, m in zip(sizes, x.shape, strict=True)):
        raise ShapeError(f"a slice of shape {sizes} does not fit into {x.shape}")


def _slice_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {"sizes": int_tuple(attrs["sizes"], "slice sizes")}


def _slice_type(ins: Types, attrs: Attrs) -> TensorType:
    _check_window(ins[0], ins[1], attrs["sizes"])
    return ins[0].with_shape(attrs["sizes"])


def _update_type(ins: Types, attrs: Attrs) -> TensorType:
    _check_window(ins[0], ins[1], ins[2].shape)
    return ins[0]


# --- numpy ----------------------------------------------------------------------------------------


def _window(x: np.ndarray, index: np.ndarray, sizes: Sequence[int]) -> tuple[slice, ...]:
    starts = np.where(index < 0, index + np.asarray(x.shape, np.int64), index)
    starts = np.clip(starts, 0, np.asarray(x.shape, np.int64) - np.asarray(sizes, np.int64))
    return tuple(slice(int(s), int(s) + n) for s, n in zip(starts, sizes, strict=True))


def _slice_numpy(x: np.ndarray, index: np.ndarray, *, sizes: tuple[int, ...]) -> np.ndarray:
    return np.array(x[_window(x, index, sizes)])


def _update_numpy(x: np.ndarray, index: np.ndarray, update: np.ndarray) -> np.ndarray:
    out = np.array(x)
    out[_window(x, index, update.shape)] = update
    return out


# --- lowering -------------------------------------------------------------------------------------


def _start(s: Any, index: Any, axis: int, size: int, window: int) -> Any:
    """The position of a slice along an axis, inside of a lowered body."""
    position = s.load(index.value, [s.const(axis, i64)], i64)
    position = s.select(position < 0, position + size, position)
    return s.minimum(s.maximum(position, 0), size - window)


def _slice_lower(b: Any, out: TensorType, x: Any, index: Any, *, sizes: tuple[int, ...]) -> Any:
    if out.is_empty:
        return b.empty(out)

    def body(s: Any) -> Any:
        at = [
            s.index(d) + _start(s, index, d, x.shape[d], sizes[d])
            if sizes[d] != x.shape[d]
            else s.index(d)
            for d in range(out.rank)
        ]
        return s.load(x.value, at, x.dtype)

    return b.pointwise(out, [], body)


def _update_lower(b: Any, out: TensorType, x: Any, index: Any, update: Any) -> Any:
    if update.type.is_empty:
        return x.value

    def body(s: Any, old: Any) -> Any:
        inside, at = None, []
        for d in range(out.rank):
            size, window = x.shape[d], update.shape[d]
            if window == size:
                at.append(s.index(d))
                continue
            offset = s.index(d) - _start(s, index, d, size, window)
            fits = (offset >= 0) & (offset < window)
            inside = fits if inside is None else inside & fits
            at.append(s.minimum(s.maximum(offset, 0), window - 1))
        new = s.load(update.value, at, update.dtype)
        return new if inside is None else s.select(inside, new, old)

    return b.pointwise(out, [x], body)


# --- functions ------------------------------------------------------------------------------------


def _positions(F: Any, starts: Any) -> Any:
    """Start positions, a tensor or a sequence of scalars, as one i64 tensor."""
    if not isinstance(starts, tuple | list):
        return starts
    scalars = [
        F.cast(start, dtype=i64) if hasattr(start, "dtype") else F.full((), start, dtype=i64)
        for start in starts
    ]
    return F.stack(scalars) if scalars else F.zeros((0,), dtype=i64)


def _dynamic_slice(F: Any, operand: Any, start_indices: Any, slice_sizes: Any) -> Any:
    return F.slice_at(operand, _positions(F, start_indices), sizes=tuple(slice_sizes))


def _dynamic_update_slice(F: Any, operand: Any, update: Any, start_indices: Any) -> Any:
    return F.update_at(operand, _positions(F, start_indices), update)


ROWS = (
    Op(
        "slice_at",
        "The slice of x of some sizes that starts at the positions in index.",
        operands=("x", "index"),
        attrs={"sizes": REQUIRED},
        cast=_slice_casts,
        canon=_slice_canon,
        infer=_slice_type,
        numpy=_slice_numpy,
        vjp=lambda F, g, out, x, index, sizes: (F.update_at(F.zeros_like(x), index, g), None),
        lower=_slice_lower,
        domain=("real", "index"),
    ),
    Op(
        "update_at",
        "x with the slice that starts at the positions in index replaced by update.",
        operands=("x", "index", "update"),
        cast=_update_casts,
        infer=_update_type,
        numpy=_update_numpy,
        vjp=lambda F, g, out, x, index, update: (
            F.update_at(g, index, F.zeros_like(update)),
            None,
            F.slice_at(g, index, sizes=update.shape),
        ),
        lower=_update_lower,
        domain=("real", "index", "real"),
    ),
    Op(
        "dynamic_slice",
        "A slice of some sizes at start positions that may be tensors (jax.lax).",
        build=_dynamic_slice,
    ),
    Op(
        "dynamic_update_slice",
        "operand with a slice replaced, at start positions that may be tensors (jax.lax).",
        build=_dynamic_update_slice,
    ),
)


def register_rows() -> None:
    register(*ROWS)
