"""Shape, type and axis rules that rows share. Pure functions over TensorType."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, accumulator, bool_, dtype, i64
from nova.core.sizes import SizeExpr, is_static, is_static_shape, known_equal, same_shape
from nova.errors import (
    AttributeValueError,
    AxisError,
    BroadcastWarning,
    DTypeError,
    ShapeError,
    SymbolicSizeError,
)

Types = tuple[TensorType, ...]


def broadcast_shapes(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """numpy's broadcasting of shapes; ShapeError names the two that do not match.

    A symbolic size is equal to itself and is not stretched, also if it is 1 at run time.
    """
    first = shapes[0] if shapes else ()
    if type(first) is tuple and all(is_static_shape(s) and s == first for s in shapes):
        return first  # most shapes
    rank = max((len(s) for s in shapes), default=0)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if not known_equal(n, 1):
                if not known_equal(result[i], 1) and not known_equal(result[i], n):
                    text = " and ".join(str(tuple(s)) for s in shapes)
                    raise ShapeError(
                        f"shapes {text} do not broadcast: axis {i - rank} is {result[i]} and {n}",
                        hint="sizes must be equal or 1, counted from the last axis",
                    )
                result[i] = n
    return tuple(result)


def broadcast_warning(loss: str, x: Sequence[Any], target: Sequence[Any]) -> Warning | None:
    """For a loss whose operands are not of one shape; one number fits every shape."""
    if same_shape(x, target) or any(all(known_equal(n, 1) for n in s) for s in (x, target)):
        return None
    return BroadcastWarning(
        f"{loss}: x {tuple(x)} and target {tuple(target)} are compared as "
        f"{broadcast_shapes(x, target)}, which is rarely intended; give them one shape, such as "
        "target.reshape(x.shape), or call nova.expand where it is intended"
    )


def same_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    """Elementwise: broadcast shape, the (already common) dtype of the first operand."""
    return TensorType(broadcast_shapes(*(t.shape for t in ins)), ins[0].dtype)


def bool_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    """Comparisons and tests: broadcast shape, bool."""
    return TensorType(broadcast_shapes(*(t.shape for t in ins)), bool_)


def resolve_axis(axis: Any, rank: int) -> int:
    """A single axis as a non-negative int; AxisError outside -rank..rank-1."""
    axis = _as_int(axis, "axis must be an int", "give the axis by name: axis=0")
    if not -rank <= axis < rank:
        raise AxisError(
            f"axis {axis} is out of range for a tensor of rank {rank}",
            hint=f"use {-rank}..{rank - 1}" if rank else "a 0-d tensor has no axes",
        )
    return axis % rank


def resolve_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """None (all), an int or several: sorted, non-negative, unique."""
    if axis is None:
        return tuple(range(rank))
    requested = _items(axis)
    axes = [resolve_axis(a, rank) for a in requested]
    if len(set(axes)) != len(axes):
        raise AxisError(f"an axis is named twice in {tuple(requested)}")
    return tuple(sorted(axes))


def static_axis(type_: TensorType, axis: int, action: str) -> int:
    """The size of an axis; SymbolicSizeError if it is known only at run time."""
    size = type_.shape[axis]
    if isinstance(size, SizeExpr):
        raise SymbolicSizeError(
            f"{action} axis {axis} of {type_}, whose size {size} is known at run time",
            hint="keep this axis static; other axes may be symbolic",
        )
    return int(size)


def is_unit(size: Any) -> bool:
    """Whether a size is 1 for all values of its symbols."""
    return known_equal(size, 1)


def is_zero(size: Any) -> bool:
    """Whether a size is 0 for all values of its symbols."""
    return known_equal(size, 0)


def reduced_shape(shape: Sequence[Any], axes: Sequence[int], keepdims: bool) -> tuple[Any, ...]:
    """The shape after reducing `axes`."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def size_tuple(value: Any, title: str) -> tuple[Any, ...]:
    """A size or a sequence of sizes as a tuple: ints and symbolic sizes."""
    items = _items(value)
    if not any(isinstance(item, SizeExpr) for item in items):
        return int_tuple(value, title)
    return tuple(n if isinstance(n, SizeExpr) else int_tuple(n, title)[0] for n in items)


def int_tuple(value: Any, title: str) -> tuple[int, ...]:
    """An int or a sequence of ints as a tuple of ints."""
    items = _items(value)
    for item in items:
        if isinstance(item, SizeExpr):
            raise AttributeValueError(
                f"{title} must be ints, and {item} is known at run time", hint="give a number"
            )
    return tuple(_as_int(item, f"{title} must be ints") for item in items)


def is_real(value: Any) -> bool:
    """Whether a value is a number of Python or numpy that is not complex; a bool is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def int_value(value: Any, title: str) -> int:
    """One int; a sequence of one int is rejected."""
    return _as_int(value, f"{title} must be an int")


def _items(value: Any) -> Sequence[Any]:
    """The items of a tuple, a list or an array of rank 1; any other value is one item."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return tuple(value.tolist())
    return value if isinstance(value, (tuple, list)) else (value,)


def _as_int(value: Any, requirement: str, hint: str | None = None) -> int:
    """An int or a 0-d array of integers as an int; AttributeValueError for other values."""
    if isinstance(value, np.ndarray) and (value.ndim or value.dtype.kind not in "iu"):
        text = f"an array of shape {value.shape} and dtype {value.dtype}"
        raise AttributeValueError(f"{requirement}, not {text}", hint=hint)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise AttributeValueError(f"{requirement}, not {value!r}")
    return int(value)


def size_number(F: Any, size: Any, dtype_: DType) -> Any:
    """A size as an operand: a Python float, or a 0-d tensor of `dtype_` if it is symbolic."""
    return F.extent(value=size, dtype=dtype_) if isinstance(size, SizeExpr) else float(size)


def widen(array: np.ndarray) -> np.ndarray:
    """The array in its compute dtype: f32 for f16 and bf16."""
    return array.astype(accumulator(dtype(array.dtype)).numpy, copy=False)


def clamp_position(s: Any, position: Any, size: Any) -> Any:
    """An i64 scalar limited to the positions of an axis; 0 if the axis is empty at run time."""
    if is_static(size):
        return s.minimum(s.maximum(position, 0), size - 1)
    return s.maximum(s.minimum(position, size - 1), 0)


def clamp_index(index: np.ndarray, size: int) -> np.ndarray:
    """Index values as rows read them: negative counts from the end, the rest is clamped."""
    return np.clip(np.where(index < 0, index + size, index), 0, size - 1)


def clamped_index(F: Any, index: Any, size: Any) -> Any:
    """`clamp_index` of an i64 tensor, in ops."""
    return F.minimum(F.maximum(F.where(index < 0, index + size, index), 0), size - 1)


def clamp_index_scalar(s: Any, index: Any, size: Any) -> Any:
    """`clamp_index` of one i64 scalar, inside a lowered body."""
    return clamp_position(s, s.select(index < 0, index + size, index), size)


def index_operand(
    dtype_: DType,
    title: str = "index",
    hint: str = "cast it to i64, if the operands are in order: embedding(weight, index)",
) -> DType:
    """The dtype an index operand is cast to; DTypeError unless it holds integers."""
    if not dtype_.is_integer:
        raise DTypeError(f"{title} must hold integers, not {dtype_}", hint=hint)
    return i64


def seed_operand(dtype_: DType) -> DType:
    """The dtype that the seed of random numbers is cast to."""
    hint = "it comes before the options of the function: nova.dropout(x, seed, 0.5)"
    return index_operand(dtype_, "the seed", hint)
