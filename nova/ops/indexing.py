"""Rows that gather or scatter at positions held in a tensor, and rows that create tensors.

`nova.ops` registers them. In all of them a negative index counts from the end and one out of range
is clamped to the nearest valid one, in compiled code as in the numpy reference: shapes are static,
so a wrong index can neither raise nor access other memory. Sums at equal positions are
added in row-major order of the updates, so results do not depend on timing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import (
    DType,
    TensorType,
    accumulator,
    bool_,
    constant,
    converted,
    dtype,
    f32,
    f64,
    i64,
    promote,
)
from nova.core.sizes import SizeExpr, at_most, is_static, known_less, same_shape
from nova.core.sizes.slices import slice_count
from nova.errors import AttributeValueError, ShapeError
from nova.ops.movement import number_of
from nova.ops.rules import (
    Types,
    clamp_index,
    clamp_index_scalar,
    clamped_index,
    index_operand,
    int_value,
    is_zero,
    resolve_axis,
    size_tuple,
    widen,
)
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]


def _axis_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {"axis": resolve_axis(attrs["axis"], ins[0].rank)}


def _require_elements(x: TensorType, index: TensorType, axis: int) -> None:
    if is_zero(x.shape[axis]) and not index.is_empty:
        raise ShapeError(f"axis {axis} of {x.shape} has no element that an index could name")


def _read_types(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    return dtypes[0], index_operand(dtypes[1])


def _write_types(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    common = promote(dtypes[0], dtypes[2])
    return common, index_operand(dtypes[1]), common


# --- gather ---------------------------------------------------------------------------------------


def _gather_type(ins: Types, attrs: Attrs) -> TensorType:
    x, index = ins[0], ins[1]
    axis = attrs["axis"]
    if index.rank != x.rank or any(
        not at_most(m, n)
        for i, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))
        if i != axis
    ):
        raise ShapeError(
            f"index {index.shape} for x {x.shape} along axis {axis}",
            hint="the index has x's rank, and is not larger along the other axes",
        )
    _require_elements(x, index, axis)
    return x.with_shape(index.shape)


def _grid(index: np.ndarray, axis: int, size: int) -> tuple[np.ndarray, ...]:
    """The full positions that a torch-style index selects."""
    indices: list[Any] = list(np.indices(index.shape, sparse=True))
    indices[axis] = clamp_index(index, size)
    return tuple(indices)


def _gather_numpy(x: np.ndarray, index: np.ndarray, *, axis: int) -> np.ndarray:
    return x[_grid(index, axis, x.shape[axis])]


def _gather_lower(b: Any, out: TensorType, x: Any, index: Any, *, axis: int) -> Any:
    if out.is_empty:
        return b.empty(out)

    def body(s: Any, i: Any) -> Any:
        at = [s.index(d) for d in range(out.rank)]
        at[axis] = clamp_index_scalar(s, i, x.shape[axis])
        return s.load(x.value, at, x.dtype)

    return b.pointwise(out, [index], body)


def _gather_vjp(F: Any, g: Any, out: Any, x: Any, index: Any, *, axis: int) -> tuple[Any, None]:
    return F.scatter_add(F.zeros_like(x), index, g, axis=axis), None


def _take_type(ins: Types, attrs: Attrs) -> TensorType:
    x, index = ins[0], ins[1]
    axis = attrs["axis"]
    _require_elements(x, index, axis)
    return x.with_shape(x.shape[:axis] + index.shape + x.shape[axis + 1 :])


def _take_numpy(x: np.ndarray, index: np.ndarray, *, axis: int) -> np.ndarray:
    if not x.shape[axis]:
        return np.empty(x.shape[:axis] + index.shape + x.shape[axis + 1 :], x.dtype)
    return np.take(x, clamp_index(index, x.shape[axis]), axis)


def _take_lower(b: Any, out: TensorType, x: Any, index: Any, *, axis: int) -> Any:
    if out.is_empty:
        return b.empty(out)
    width = index.type.rank

    def body(s: Any, i: Any) -> Any:
        at = [s.index(d) for d in range(out.rank)]
        at[axis : axis + width] = [clamp_index_scalar(s, i, x.shape[axis])]
        return s.load(x.value, at, x.dtype)

    return b.generic(out, [(index, lambda d: d[axis : axis + width])], body)


def _take_vjp(F: Any, g: Any, out: Any, x: Any, index: Any, *, axis: int) -> tuple[Any, None]:
    flat = F.reshape(index, (index.size,))
    rows = F.reshape(g, (*x.shape[:axis], index.size, *x.shape[axis + 1 :]))
    return F.index_add(F.zeros_like(x), flat, rows, axis=axis), None


def _embedding_type(ins: Types, attrs: Attrs) -> TensorType:
    if ins[0].rank != 2:
        raise ShapeError(f"the weight is (rows, features), not {ins[0].shape}")
    return _take_type(ins, {"axis": 0})


# --- scatter --------------------------------------------------------------------------------------


def _scatter_type(ins: Types, attrs: Attrs) -> TensorType:
    x, index, updates = ins
    _gather_type((x, index), attrs)
    if not same_shape(updates.shape, index.shape):
        raise ShapeError(f"updates {updates.shape} for an index of shape {index.shape}")
    return x


def _scatter_numpy(
    x: np.ndarray, index: np.ndarray, updates: np.ndarray, *, axis: int
) -> np.ndarray:
    total = widen(x).copy()
    if index.size:
        np.add.at(total, _grid(index, axis, x.shape[axis]), widen(updates))
    return total.astype(x.dtype, copy=False)


def _scatter_lower(b: Any, out: TensorType, x: Any, index: Any, updates: Any, *, axis: int) -> Any:
    return b.scatter_add(out, x, index, updates, axis, clamp_index_scalar)


def _scatter_vjp(
    F: Any, g: Any, out: Any, x: Any, index: Any, updates: Any, *, axis: int
) -> tuple[Any, None, Any]:
    return g, None, F.gather(g, index, axis=axis)


def _index_add_type(ins: Types, attrs: Attrs) -> TensorType:
    x, index, updates = ins
    axis = attrs["axis"]
    if index.rank != 1:
        raise ShapeError(f"the index is 1-D, not of shape {index.shape}")
    _require_elements(x, index, axis)
    expected = (*x.shape[:axis], index.size, *x.shape[axis + 1 :])
    if not same_shape(updates.shape, expected):
        raise ShapeError(f"updates {updates.shape}: {index.size} indices want {expected}")
    return x


def _index_add_numpy(
    x: np.ndarray, index: np.ndarray, updates: np.ndarray, *, axis: int
) -> np.ndarray:
    total = widen(x).copy()
    if updates.size:
        indices: Any = (slice(None),) * axis + (clamp_index(index, x.shape[axis]),)
        np.add.at(total, indices, widen(updates))
    return total.astype(x.dtype, copy=False)


def _index_add_vjp(
    F: Any, g: Any, out: Any, x: Any, index: Any, updates: Any, *, axis: int
) -> tuple[Any, None, Any]:
    return g, None, F.take(g, index, axis=axis)


# --- creation -------------------------------------------------------------------------------------


def _sizes(shape: Any) -> tuple[Any, ...]:
    sizes = size_tuple(shape, "shape")
    if any(known_less(n, 0) for n in sizes):
        raise AttributeValueError(f"shape {sizes} has a negative size")
    return sizes


def _default_type(*values: Any) -> DType:
    if all(isinstance(v, bool | np.bool_) for v in values):
        return bool_
    return i64 if all(isinstance(v, int | np.integer | SizeExpr) for v in values) else f32


def _full_canon(ins: Types, attrs: Attrs) -> Attrs:
    requested = attrs["dtype"]
    type_ = _default_type(attrs["value"]) if requested is None else dtype(requested)
    return {
        "shape": _sizes(attrs["shape"]),
        "value": number_of(attrs["value"], type_),
        "dtype": type_,
    }


def _shape_and_type(ins: Types, attrs: Attrs) -> TensorType:
    return TensorType(attrs["shape"], attrs["dtype"])


def _full_numpy(*, shape: Any, value: Any, dtype: DType) -> np.ndarray:
    return converted(np.full(shape, value), dtype)


def _like(value: Any) -> Any:
    return lambda F, x, dtype=None: F.full(
        shape=x.shape, value=value, dtype=x.dtype if dtype is None else dtype
    )


def _full_like(F: Any, x: Any, value: Any, dtype: Any = None) -> Any:
    return F.full(shape=x.shape, value=value, dtype=x.dtype if dtype is None else dtype)


def _clamp_canon(ins: Types, attrs: Attrs) -> Attrs:
    size = int_value(attrs["axis_size"], "axis_size")
    if size < 1:
        raise AttributeValueError(f"axis_size must be at least 1, not {size}")
    return {"axis_size": size}


def _filled(value: Any) -> Any:
    return lambda F, shape, dtype=f32: F.full(shape=shape, value=value, dtype=dtype)


def _arange_canon(ins: Types, attrs: Attrs) -> Attrs:
    start, stop, step, requested = (attrs[n] for n in ("start", "stop", "step", "dtype"))
    if stop is None:
        start, stop = 0, start
    type_ = _default_type(start, stop, step) if requested is None else dtype(requested)
    bounds = [v.item() if isinstance(v, np.generic) else v for v in (start, stop, step)]
    if any(isinstance(v, SizeExpr) for v in bounds):
        first, last, stride = bounds
        return _symbolic_range(first, last, stride, type_)
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in bounds):
        raise AttributeValueError(f"start, stop and step are numbers, not {bounds}")
    for value in bounds:
        constant(value, i64 if isinstance(value, int) else f64)  # rejects a value out of range
    if not np.isfinite(bounds).all() or bounds[2] == 0:
        raise AttributeValueError(f"no finite range: start, stop, step = {bounds}")
    return {"start": bounds[0], "stop": bounds[1], "step": bounds[2], "dtype": type_}


def _symbolic_range(start: Any, stop: Any, step: Any, type_: DType) -> Attrs:
    if not all(isinstance(v, int | SizeExpr) for v in (start, stop)) or type(step) is not int:
        raise AttributeValueError(
            f"a range of symbolic size from {start!r} to {stop!r} by {step!r}: start and stop are "
            "sizes, and step is an int"
        )
    if step == 0:
        raise AttributeValueError("a step of 0")
    return {"start": start, "stop": stop, "step": step, "dtype": type_}


def _arange_type(ins: Types, attrs: Attrs) -> TensorType:
    start, stop, step = attrs["start"], attrs["stop"], attrs["step"]
    if not is_static(start) or not is_static(stop):
        return TensorType((slice_count(start, stop, step),), attrs["dtype"])
    if all(isinstance(v, int) for v in (start, stop, step)):
        return TensorType((len(range(start, stop, step)),), attrs["dtype"])
    return TensorType((max(0, int(np.ceil((stop - start) / step))),), attrs["dtype"])


def _arange_numpy(*, start: Any, stop: Any, step: Any, dtype: DType) -> np.ndarray:
    count = _arange_type((), {"start": start, "stop": stop, "step": step, "dtype": dtype}).size
    is_integral = isinstance(start, int) and isinstance(step, int)
    at = np.arange(count, dtype=np.int64 if is_integral else np.float64)
    return converted(at * step + start, dtype)


def _arange_lower(b: Any, out: TensorType, *, start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    # In i64 or f64 first, then rounded once: no error accumulates along the range.
    wide = i64 if isinstance(start, int | SizeExpr) and isinstance(step, int) else f64

    def body(s: Any) -> Any:
        at = s.cast(s.index(0), wide)
        return at * step + start

    return b.generic(out, [], body)


def _one_hot_canon(ins: Types, attrs: Attrs) -> Attrs:
    classes = int_value(attrs["num_classes"], "num_classes")
    if classes < 1:
        raise AttributeValueError(f"num_classes must be positive, not {classes}")
    return {"num_classes": classes, "dtype": dtype(attrs["dtype"])}


def _one_hot_numpy(index: np.ndarray, *, num_classes: int, dtype: DType) -> np.ndarray:
    hot = clamp_index(index, num_classes)[..., None] == np.arange(num_classes)
    return hot.astype(dtype.numpy)


def _one_hot_lower(b: Any, out: TensorType, index: Any, *, num_classes: int, dtype: Any) -> Any:
    def body(s: Any, i: Any) -> Any:
        is_hot = s.compare("eq", clamp_index_scalar(s, i, num_classes), s.index(out.rank - 1))
        return s.cast(is_hot, f32 if dtype.is_float else dtype)

    return b.generic(out, [(index, lambda d: d[:-1])], body)


def _eye(F: Any, n: int, m: Any = None, k: int = 0, dtype: Any = f32) -> Any:
    rows, columns = F.arange(n), F.arange(n if m is None else m)
    return F.cast(F.eq(F.unsqueeze(rows, 1) + k, columns), dtype=dtype)


def _extent_canon(ins: Types, attrs: Attrs) -> Attrs:
    value, type_ = attrs["value"], dtype(attrs["dtype"])
    if is_static(value):
        value = int_value(value, "value")
        constant(value, type_)  # rejects a value out of range
    return {"value": value, "dtype": type_}


def _extent_lower(b: Any, out: TensorType, *, value: Any, dtype: DType) -> Any:
    return b.generic(out, [], lambda s: s.const(value, accumulator(dtype)))


NOGRAD = frozenset({"nograd"})

ROWS: tuple[Op, ...] = (
    Op(
        "gather",
        "Elements of x at index along an axis, the other positions being the index's own (torch).",
        operands=("x", "index"),
        attrs={"axis": REQUIRED},
        cast=_read_types,
        canon=_axis_canon,
        infer=_gather_type,
        numpy=_gather_numpy,
        vjp=_gather_vjp,
        lower=_gather_lower,
        methods=("gather",),
        domain=("real", "index"),
    ),
    Op(
        "take",
        "Whole slices of x at the positions of an index of any shape along one axis (numpy).",
        operands=("x", "index"),
        attrs={"axis": 0},
        cast=_read_types,
        canon=_axis_canon,
        infer=_take_type,
        numpy=_take_numpy,
        vjp=_take_vjp,
        lower=_take_lower,
        methods=("take",),
        domain=("real", "index"),
    ),
    Op(
        "embedding",
        "The rows of a weight that an index of any shape names.",
        operands=("weight", "index"),
        cast=_read_types,
        infer=_embedding_type,
        compose=lambda F, weight, index: F.take(weight, index, axis=0),
        domain=("real", "index"),
    ),
    Op(
        "scatter_add",
        "A copy of x with each update added at its index along an axis, in row-major order; equal "
        "positions add up.",
        operands=("x", "index", "updates"),
        attrs={"axis": REQUIRED},
        cast=_write_types,
        canon=_axis_canon,
        infer=_scatter_type,
        numpy=_scatter_numpy,
        vjp=_scatter_vjp,
        lower=_scatter_lower,
        methods=("scatter_add",),
        domain=("real", "index", "real"),
    ),
    Op(
        "index_add",
        "A copy of x with slice i of the updates added at position index[i] of an axis.",
        operands=("x", "index", "updates"),
        attrs={"axis": 0},
        cast=_write_types,
        canon=_axis_canon,
        infer=_index_add_type,
        numpy=_index_add_numpy,
        vjp=_index_add_vjp,
        lower=_scatter_lower,
        methods=("index_add",),
        domain=("real", "index", "real"),
    ),
    Op(
        "one_hot",
        "1 at the position that each index names on a new last axis of num_classes, 0 elsewhere.",
        operands=("index",),
        attrs={"num_classes": REQUIRED, "dtype": i64},
        cast=lambda dtypes: (index_operand(dtypes[0]),),
        canon=_one_hot_canon,
        infer=lambda ins, attrs: TensorType((*ins[0].shape, attrs["num_classes"]), attrs["dtype"]),
        numpy=_one_hot_numpy,
        lower=_one_hot_lower,
        methods=("one_hot",),
        tags=NOGRAD,
        domain="index",
    ),
    Op(
        "clamp_index",
        "Indices of an axis of `axis_size` elements: negative ones count from its end, others are "
        "clamped to its ends.",
        operands=("index",),
        attrs={"axis_size": REQUIRED},
        cast=lambda dtypes: (index_operand(dtypes[0]),),
        canon=_clamp_canon,
        infer=lambda ins, attrs: ins[0],
        compose=lambda F, index, *, axis_size: clamped_index(F, index, axis_size),
        tags=NOGRAD,
        domain="index",
    ),
    Op(
        "arange",
        "start, start + step, ... before stop; arange(n) counts from 0; i64 for ints, f32 for "
        "floats unless a dtype is given.",
        operands=(),
        attrs={"start": REQUIRED, "stop": None, "step": 1, "dtype": None},
        canon=_arange_canon,
        infer=_arange_type,
        numpy=_arange_numpy,
        lower=_arange_lower,
        tags=NOGRAD,
    ),
    Op(
        "full",
        "A tensor of one value; a float is f32, an int i64, unless a dtype is given.",
        operands=(),
        attrs={"shape": REQUIRED, "value": REQUIRED, "dtype": None},
        canon=_full_canon,
        infer=_shape_and_type,
        numpy=_full_numpy,
        lower=lambda b, out, *, shape, value, dtype: b.fill(out, value),
        tags=NOGRAD,
    ),
    Op(
        "extent",
        "A size as a 0-d tensor: the value of a symbolic size at run time.",
        operands=(),
        attrs={"value": REQUIRED, "dtype": i64},
        canon=_extent_canon,
        infer=lambda ins, attrs: TensorType((), attrs["dtype"]),
        numpy=lambda *, value, dtype: converted(np.asarray(value), dtype),
        lower=_extent_lower,
        tags=NOGRAD,
    ),
    Op("zeros", "Zeros of a shape, f32 by default.", operands=(), build=_filled(0)),
    Op("ones", "Ones of a shape, f32 by default.", operands=(), build=_filled(1)),
    Op("zeros_like", "Zeros of the shape and type of x.", build=_like(0)),
    Op("ones_like", "Ones of the shape and type of x.", build=_like(1)),
    Op("full_like", "One value in the shape and type of x.", build=_full_like),
    Op(
        "eye",
        "Ones on the k-th diagonal of an n by m matrix (square by default), zeros elsewhere.",
        operands=(),
        build=_eye,
    ),
)


def register_rows() -> None:
    register(*ROWS)
