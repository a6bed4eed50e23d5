"""Slices at positions that are known at run time: `dynamic_slice` and `dynamic_update_slice`.

They have the signatures of `jax.lax`. The start positions are one tensor, or a sequence of scalars,
which `nova/graph/build.py` stacks. A negative position counts from the end. The slice always lies
inside of the tensor: a position too large is moved back, as in StableHLO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, i64
from nova.core.sizes import Shape, Size, at_most, known_equal, known_less
from nova.errors import ShapeError
from nova.ops.rules import Types, clamp_position, index_operand, size_tuple
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]


def _slice_casts(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    return dtypes[0], index_operand(dtypes[1])


def _update_casts(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    return dtypes[0], dtypes[0], index_operand(dtypes[2])


def _check_window(x: TensorType, index: TensorType, sizes: Shape) -> None:
    if index.shape != (x.rank,):
        raise ShapeError(
            f"{index.shape} start positions for a tensor of rank {x.rank}",
            hint="one position for each axis",
        )
    pairs = list(zip(sizes, x.shape, strict=False))
    if len(sizes) != x.rank or any(known_less(n, 0) or known_less(m, n) for n, m in pairs):
        raise ShapeError(f"a slice of shape {sizes} does not fit into {x.shape}")
    for n, m in pairs:
        if not (at_most(0, n) and at_most(n, m)):
            raise ShapeError(
                f"a slice of shape {sizes} does not fit into {x.shape} for all sizes",
                hint=f"narrow the bounds of nova.dim until they decide that {n} is at most {m}",
            )


def _slice_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {"slice_sizes": size_tuple(attrs["slice_sizes"], "slice sizes")}


def _slice_type(ins: Types, attrs: Attrs) -> TensorType:
    _check_window(ins[0], ins[1], attrs["slice_sizes"])
    return ins[0].with_shape(attrs["slice_sizes"])


def _update_type(ins: Types, attrs: Attrs) -> TensorType:
    _check_window(ins[0], ins[2], ins[1].shape)
    return ins[0]


# --- numpy ----------------------------------------------------------------------------------------


def _window(x: np.ndarray, index: np.ndarray, sizes: Sequence[int]) -> tuple[slice, ...]:
    starts = np.where(index < 0, index + np.asarray(x.shape, np.int64), index)
    starts = np.clip(starts, 0, np.asarray(x.shape, np.int64) - np.asarray(sizes, np.int64))
    return tuple(slice(int(s), int(s) + n) for s, n in zip(starts, sizes, strict=True))


def _slice_numpy(x: np.ndarray, index: np.ndarray, *, slice_sizes: tuple[int, ...]) -> np.ndarray:
    return np.array(x[_window(x, index, slice_sizes)])


def _update_numpy(x: np.ndarray, update: np.ndarray, index: np.ndarray) -> np.ndarray:
    out = np.array(x)
    out[_window(x, index, update.shape)] = update
    return out


# --- lowering -------------------------------------------------------------------------------------


def _start(s: Any, index: Any, axis: int, size: Size, window: Size) -> Any:
    """The position of a slice along an axis, inside of a lowered body."""
    position = s.load(index.value, [s.const(axis, i64)], i64)
    position = s.select(position < 0, position + size, position)
    return s.minimum(s.maximum(position, 0), size - window)


def _slice_lower(b: Any, out: TensorType, x: Any, index: Any, *, slice_sizes: Any) -> Any:
    sizes: Shape = slice_sizes
    if out.is_empty:
        return b.empty(out)

    def body(s: Any) -> Any:
        at = [
            s.index(d)
            if known_equal(sizes[d], x.shape[d])
            else s.index(d) + _start(s, index, d, x.shape[d], sizes[d])
            for d in range(out.rank)
        ]
        return s.load(x.value, at, x.dtype)

    return b.pointwise(out, [], body)


def _update_lower(b: Any, out: TensorType, x: Any, update: Any, index: Any) -> Any:
    if update.type.is_empty:
        return x.value

    def body(s: Any, old: Any) -> Any:
        inside, at = None, []
        for d in range(out.rank):
            size, window = x.shape[d], update.shape[d]
            if known_equal(window, size):
                at.append(s.index(d))
                continue
            offset = s.index(d) - _start(s, index, d, size, window)
            fits = (offset >= 0) & (offset < window)
            inside = fits if inside is None else inside & fits
            at.append(clamp_position(s, offset, window))
        new = s.load(update.value, at, update.dtype)
        return new if inside is None else s.select(inside, new, old)

    return b.pointwise(out, [x], body)


def _update_in_place(b: Any, out: TensorType, x: Any, update: Any, index: Any) -> Any:
    """Loops over the update alone: the time does not depend on the size of x."""
    if update.type.is_empty:
        return x.value
    return b.write_slice(out, x, update, index, _start)


ROWS = (
    Op(
        "dynamic_slice",
        "The slice of x of some sizes that starts at the positions in index (jax.lax).",
        operands=("x", "index"),
        attrs={"slice_sizes": REQUIRED},
        cast=_slice_casts,
        canon=_slice_canon,
        infer=_slice_type,
        numpy=_slice_numpy,
        vjp=lambda F, g, out, x, index, slice_sizes: (
            F.dynamic_update_slice(F.zeros_like(x), g, index),
            None,
        ),
        lower=_slice_lower,
        domain=("real", "index"),
    ),
    Op(
        "dynamic_update_slice",
        "x with the slice that starts at the positions in index replaced by update (jax.lax).",
        operands=("x", "update", "index"),
        cast=_update_casts,
        infer=_update_type,
        numpy=_update_numpy,
        vjp=lambda F, g, out, x, update, index: (
            F.dynamic_update_slice(g, F.zeros_like(update), index),
            F.dynamic_slice(g, index, slice_sizes=update.shape),
            None,
        ),
        lower=_update_lower,
        lower_in_place=_update_in_place,
        domain=("real", "real", "index"),
    ),
)


def register_rows() -> None:
    register(*ROWS)
