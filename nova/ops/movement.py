"""Rows that move elements without computing on them: reshape, permute, slice, join, pad, ...

`nova.ops` registers them. Affine accesses (permute, flip, slice, expand) are lowered as
indexing maps, which fusion folds into the consumer; the others read at computed, clamped positions.
`getitem` and the other sugar written with these rows is in `views.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, bool_, constant
from nova.core.sizes import (
    evaluate,
    grows,
    is_static,
    is_static_shape,
    known_equal,
    known_less,
    same_shape,
    symbols_of,
)
from nova.core.sizes.slices import slice_count, slice_indices
from nova.errors import AttributeValueError, AxisError, DTypeError, ShapeError
from nova.ops import views
from nova.ops.rules import (
    Types,
    broadcast_shapes,
    clamp_position,
    int_tuple,
    int_value,
    is_unit,
    is_zero,
    resolve_axes,
    resolve_axis,
    size_tuple,
)
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]


# --- reshape, permute, expand, flip ---------------------------------------------------------------


def _reshape_canon(ins: Types, attrs: Attrs) -> Attrs:
    shape, size = size_tuple(attrs["shape"], "shape"), ins[0].size
    free = [i for i, n in enumerate(shape) if known_equal(n, -1)]
    if any(known_less(n, -1) for n in shape) or len(free) > 1:
        raise AttributeValueError(f"shape {shape}: sizes are non-negative, and at most one is -1")
    fixed = prod(n for i, n in enumerate(shape) if i not in free)
    if free:
        if is_zero(fixed) or not is_zero(size % fixed):
            raise ShapeError(f"{ins[0].shape} cannot become {shape}: no size for -1 fits")
        shape = tuple(size // fixed if i in free else n for i, n in enumerate(shape))
    if not known_equal(prod(shape), size):
        raise ShapeError(f"{ins[0].shape} has {size} elements, {shape} has {prod(shape)}")
    return {"shape": shape}


def _permute_canon(ins: Types, attrs: Attrs) -> Attrs:
    rank = ins[0].rank
    axes = tuple(resolve_axis(a, rank) for a in int_tuple(attrs["axes"], "axes"))
    if sorted(axes) != list(range(rank)):
        raise AxisError(f"axes {attrs['axes']} do not name each of {rank} axes once")
    return {"axes": axes}


def _permute_lower(b: Any, out: TensorType, x: Any, *, axes: tuple[int, ...]) -> Any:
    return b.remap(out, x, lambda d: [d[axes.index(i)] for i in range(len(axes))])


def _permute_vjp(F: Any, g: Any, out: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    return F.permute(g, tuple(int(i) for i in np.argsort(axes)))


def _expand_canon(ins: Types, attrs: Attrs) -> Attrs:
    shape_in, shape = ins[0].shape, size_tuple(attrs["shape"], "shape")
    lead = len(shape) - len(shape_in)
    if lead < 0 or any(
        known_less(n, -1) or (known_equal(n, -1) and i < lead) for i, n in enumerate(shape)
    ):
        raise ShapeError(
            f"{shape_in} cannot be expanded to {shape}", hint="-1 keeps an existing axis"
        )
    shape = tuple(shape_in[i - lead] if known_equal(n, -1) else n for i, n in enumerate(shape))
    if not same_shape(broadcast_shapes(shape_in, shape), shape):
        raise ShapeError(f"{shape_in} cannot be expanded to {shape}: only size 1 expands")
    return {"shape": shape}


def _flip_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {"axes": resolve_axes(attrs["axes"], ins[0].rank)}


def _flip_lower(b: Any, out: TensorType, x: Any, *, axes: tuple[int, ...]) -> Any:
    if not is_static_shape(x.shape[i] for i in axes):

        def body(s: Any) -> Any:
            at = [x.shape[i] - 1 - s.index(i) if i in axes else s.index(i) for i in range(out.rank)]
            return s.load(x.value, at, x.dtype)

        return b.generic(out, [], body)
    return b.remap(
        out,
        x,
        lambda d: [d[i] * -1 + (n - 1) if i in axes else d[i] for i, n in enumerate(x.shape)],
    )


def _given_shape(ins: Types, attrs: Attrs) -> TensorType:
    return ins[0].with_shape(attrs["shape"])


# --- slice, unslice, pad --------------------------------------------------------------------------


def _slice_canon(ins: Types, attrs: Attrs) -> Attrs:
    shape = ins[0].shape
    starts, stops = size_tuple(attrs["starts"], "starts"), size_tuple(attrs["stops"], "stops")
    steps = (1,) * len(shape) if attrs["steps"] is None else int_tuple(attrs["steps"], "steps")
    if not len(starts) == len(stops) == len(steps) == len(shape):
        raise ShapeError(f"a slice of {shape} wants {len(shape)} starts, stops and steps")
    if 0 in steps:
        raise AttributeValueError("a step of 0")
    bounds = [
        _whole_numbers(start, stop, step, n)
        for start, stop, step, n in zip(starts, stops, steps, shape, strict=True)
    ]
    return {
        "starts": tuple(w[0] for w in bounds),
        "stops": tuple(w[1] for w in bounds),
        "steps": tuple(w[2] for w in bounds),
    }


def _whole_numbers(start: Any, stop: Any, step: int, n: Any) -> tuple[Any, Any, int]:
    """start, stop and step clipped to an axis of size n; idempotent."""
    start, stop, step = slice_indices(slice(start, stop, step), n)
    count = slice_count(start, stop, step)
    if is_zero(count):
        return 0, 0, 1
    if is_unit(count):
        return start, start + 1, 1
    # "One before element 0" has no number in Python's slices: -n - 1 is clipped to it.
    return start, -n - 1 if known_equal(stop, -1) else stop, step


def slice_sizes(shape: tuple[Any, ...], attrs: Attrs) -> tuple[Any, ...]:
    """The number of elements of each axis in a canonical slice."""
    bounds = zip(shape, attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
    return tuple(slice_count(*slice_indices(slice(b, e, s), n)) for n, b, e, s in bounds)


def _slice_type(ins: Types, attrs: Attrs) -> TensorType:
    return ins[0].with_shape(slice_sizes(ins[0].shape, attrs))


def _slice_numpy(x: np.ndarray, *, starts: Any, stops: Any, steps: Any) -> np.ndarray:
    return x[tuple(slice(*bounds) for bounds in zip(starts, stops, steps, strict=True))]


def _slice_lower(b: Any, out: TensorType, x: Any, *, starts: Any, stops: Any, steps: Any) -> Any:
    axes = list(zip(x.shape, out.shape, starts, steps, strict=True))
    # linalg takes the loop bounds from any axis with an identity access, so a shortened axis must
    # not have one. The first of several equal parts (a split) is part 0 of the axis after
    # a reshape; other prefixes of an axis are read at computed positions.
    shortened = [
        is_zero(start) and step == 1 and not known_equal(n, m) for n, m, start, step in axes
    ]
    if any(
        not is_static(start) or (cut and (not is_static_shape((n, m)) or m == 0 or n % m))
        for cut, (n, m, start, _) in zip(shortened, axes, strict=True)
    ):

        def body(s: Any) -> Any:
            at = [s.index(i) * step + start for i, (_, _, start, step) in enumerate(axes)]
            return s.load(x.value, at, x.dtype)

        return b.generic(out, [], body)

    parts: list[int] = []
    for cut, (n, m, _, _) in zip(shortened, axes, strict=True):
        parts += [n // m, m] if cut else [n]

    def access(d: Any) -> list[Any]:
        at: list[Any] = []
        for i, cut, (_, _, start, step) in zip(d, shortened, axes, strict=True):
            at += [0, i] if cut else [i * step + start]
        return at

    return b.remap(out, b.reshaped(x, parts), access)


def _slice_vjp(F: Any, g: Any, out: Any, x: Any, *, starts: Any, stops: Any, steps: Any) -> Any:
    high = [n - b - m for n, b, m in zip(x.shape, starts, g.shape, strict=True)]
    # No number of the IR stands for a remainder such as `n - (n // 4)*4`.
    if all(step == 1 for step in steps) and all(map(grows, high)):
        return F.pad(g, starts, high)
    return F.unslice(g, x.shape, starts, steps)


def _unslice_canon(ins: Types, attrs: Attrs) -> Attrs:
    names = ("shape", "starts", "steps")
    canonical = {name: size_tuple(attrs[name], name) for name in names}
    shape = canonical["shape"]
    if any(len(v) != ins[0].rank for v in canonical.values()) or 0 in canonical["steps"]:
        raise ShapeError(f"unslice of {ins[0].shape} wants as many sizes, starts and steps")
    for n, m, start, step in zip(shape, ins[0].shape, *list(canonical.values())[1:], strict=True):
        last = start + (m - 1) * step
        if is_zero(m):
            continue
        if not is_static_shape((n, m, start)):
            _check_written(n, m, start, step)
        elif not (0 <= start < n and 0 <= last < n):
            raise ShapeError(f"unslice writes {start}..{last} of an axis of size {n}")
    return canonical


def _check_written(n: Any, m: Any, start: Any, step: int) -> None:
    """ShapeError if a symbolic unslice writes outside of the axis for small or large sizes."""
    dims = symbols_of((n, m, start))
    for values in ({d.name: d.min for d in dims}, {d.name: d.max for d in dims}):
        size, count, low = (evaluate(v, values) for v in (n, m, start))
        if count > 0 and not (0 <= low < size and 0 <= low + (count - 1) * step < size):
            raise ShapeError(
                f"unslice writes {low}..{low + (count - 1) * step} of an axis of size {size}, for "
                + ", ".join(f"{name}={value}" for name, value in values.items())
            )


def _unslice_numpy(x: np.ndarray, *, shape: Any, starts: Any, steps: Any) -> np.ndarray:
    result = np.zeros(shape, x.dtype)
    indices = [b + np.arange(m) * s for b, s, m in zip(starts, steps, x.shape, strict=True)]
    result[np.ix_(*indices)] = x
    return result


def _unslice_lower(b: Any, out: TensorType, x: Any, *, shape: Any, starts: Any, steps: Any) -> Any:
    return _scatter_strided(b, out, x, starts, steps, 0)


def _unslice_vjp(F: Any, g: Any, out: Any, x: Any, *, shape: Any, starts: Any, steps: Any) -> Any:
    bounds = zip(starts, steps, x.shape, strict=True)
    ends = [b + m * s for b, s, m in bounds]
    stops = [-n - 1 if known_less(e, 0) else e for e, n in zip(ends, shape, strict=True)]
    return F.slice(g, starts, stops, steps)


def _scatter_strided(b: Any, out: TensorType, x: Any, starts: Any, steps: Any, value: Any) -> Any:
    """x written at starts + i * steps of a tensor that holds `value` elsewhere."""
    if x.type.is_empty:
        return b.fill(out, value)

    def body(s: Any) -> Any:
        inside, at = s.const(True, bool_), []
        for axis, (start, step, m) in enumerate(zip(starts, steps, x.shape, strict=True)):
            offset = s.index(axis) - start if step > 0 else start - s.index(axis)
            source = offset
            if abs(step) > 1:
                source = offset / abs(step)
                inside = inside & s.compare("eq", s.rem(offset, abs(step)), 0)
            if not known_equal(m, out.shape[axis]):
                inside = inside & (offset >= 0) & (source < m)
                source = clamp_position(s, source, m)
            at.append(source)
        return s.select(inside, s.load(x.value, at, x.dtype), value)

    return b.generic(out, [], body)


def _pad_canon(ins: Types, attrs: Attrs) -> Attrs:
    rank = ins[0].rank
    low, high = attrs["low"], attrs["high"]
    if high is None:
        low, high = _numpy_pads(low, rank)
    ends = [size_tuple(e, "pad widths") for e in (low, high)]
    # A plain int is the width at every axis.
    ends = [
        e * rank if not isinstance(widths, tuple | list) else e
        for e, widths in zip(ends, (low, high), strict=True)
    ]
    if any(len(e) != rank for e in ends) or any(known_less(w, 0) for e in ends for w in e):
        raise AttributeValueError(
            f"pad widths {ends[0]} and {ends[1]} for rank {rank}",
            hint="one non-negative width per axis; to remove elements, slice",
        )
    return {"low": ends[0], "high": ends[1], "value": number_of(attrs["value"], ins[0].dtype)}


def _numpy_pads(pads: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """numpy's pad_width: n, (low, high) for all axes, or ((low, high), ...)."""
    if not isinstance(pads, tuple | list):
        pads = (pads, pads)
    if len(pads) == 2 and not any(isinstance(p, tuple | list) for p in pads):
        pads = (tuple(pads),) * rank
    pairs = [size_tuple(p, "pad widths") for p in pads]
    if len(pairs) != rank or any(len(p) != 2 for p in pairs):
        raise AttributeValueError(f"pad widths {pads!r}: not a (low, high) pair for each axis")
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def number_of(value: Any, dtype: DType) -> bool | int | float:
    """A Python number that is representable in `dtype`."""
    if not isinstance(value, bool | int | float | np.generic):
        raise AttributeValueError(f"the value must be a number, not {value!r}")
    if isinstance(value, np.generic):
        value = float(value) if value.dtype.kind == "V" else value.item()
    if not dtype.is_float and not isinstance(value, int) and not float(value).is_integer():
        raise DTypeError(f"{value!r} does not fit {dtype}", hint="give a whole number")
    if dtype.kind == "b":
        return bool(value)
    number = value if dtype.is_float else int(value)
    constant(number, dtype)  # rejects a value out of range
    return float(number) if dtype.is_float else number


def _pad_type(ins: Types, attrs: Attrs) -> TensorType:
    sizes = zip(ins[0].shape, attrs["low"], attrs["high"], strict=True)
    return ins[0].with_shape([n + low + high for n, low, high in sizes])


def _pad_numpy(x: np.ndarray, *, low: Any, high: Any, value: Any) -> np.ndarray:
    sizes = [n + a + b for n, a, b in zip(x.shape, low, high, strict=True)]
    result = np.full(sizes, value).astype(x.dtype)
    result[tuple(slice(a, a + n) for a, n in zip(low, x.shape, strict=True))] = x
    return result


def _pad_lower(b: Any, out: TensorType, x: Any, *, low: Any, high: Any, value: Any) -> Any:
    return _scatter_strided(b, out, x, low, (1,) * len(low), value)


def _pad_vjp(F: Any, g: Any, out: Any, x: Any, *, low: Any, high: Any, value: Any) -> Any:
    return F.slice(g, low, [a + n for a, n in zip(low, x.shape, strict=True)])


# --- join -----------------------------------------------------------------------------------------


def _join_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {"axis": resolve_axis(attrs["axis"], ins[0].rank)}


def _join_type(ins: Types, attrs: Attrs) -> TensorType:
    axis, first = attrs["axis"], ins[0].shape
    for t in ins[1:]:
        if t.rank != len(first) or not same_shape(
            (*t.shape[:axis], *t.shape[axis + 1 :]), (*first[:axis], *first[axis + 1 :])
        ):
            raise ShapeError(f"shapes {first} and {t.shape} differ in axes other than {axis}")
    total = sum(t.shape[axis] for t in ins)
    return ins[0].with_shape((*first[:axis], total, *first[axis + 1 :]))


def _join_lower(b: Any, out: TensorType, *parts: Any, axis: int) -> Any:
    filled = [p for p in parts if not is_zero(p.shape[axis])]
    if out.is_empty:
        return b.empty(out)
    if len(filled) == 1:
        return filled[0].value
    if out.is_static and len({p.shape for p in filled}) == 1:
        return _join_equal(b, out, filled, axis)

    def body(s: Any) -> Any:
        at = [s.index(i) for i in range(out.rank)]
        offset, result = 0, None
        for part in filled:
            n = part.shape[axis]
            source = clamp_position(s, at[axis] - offset, n)
            element = s.load(part.value, [*at[:axis], source, *at[axis + 1 :]], part.dtype)
            result = element if result is None else s.select(at[axis] >= offset, element, result)
            offset += n
        return result

    return b.generic(out, [], body)


_FEW_JOINED = 2048
"""Elements of a part whose producer is computed once per part."""


def _join_equal(b: Any, out: TensorType, parts: Sequence[Any], axis: int) -> Any:
    """Parts of one shape, written with a separate axis for the index of the part.

    The index of the part is then constant along a row, and every part is read where it is written.
    The parts are loaded, not operands: otherwise their producers would be fused in once per part.
    A few elements, such as those of a row with rotary positions, are better computed twice.
    """
    shape = parts[0].shape
    split = out.with_shape((*shape[:axis], len(parts), *shape[axis:]))
    if prod(shape) <= _FEW_JOINED and len(parts) == 2:
        single = parts[0].type.with_shape((*shape[:axis], 1, *shape[axis:]))
        operands = [replace(p, value=b.reshape(single, p), type=single) for p in parts]
        chosen = b.pointwise(
            split, operands, lambda s, first, second: s.select(s.index(axis) >= 1, second, first)
        )
        return b.reshape(out, replace(parts[0], value=chosen, type=split))

    def body(s: Any) -> Any:
        at = [s.index(i) for i in range(split.rank)]
        number = at.pop(axis)
        result = s.load(parts[0].value, at, parts[0].dtype)
        for i, part in enumerate(parts[1:], 1):
            result = s.select(number >= i, s.load(part.value, at, part.dtype), result)
        return result

    joined = replace(parts[0], value=b.generic(split, [], body), type=split)
    return b.reshape(out, joined)


def _join_numpy(*arrays: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate(arrays, axis)


def _join_vjp(F: Any, g: Any, out: Any, *parts: Any, axis: int) -> list[Any]:
    pieces, offset = [], 0
    for part in parts:
        starts, stops = [0] * len(g.shape), list(g.shape)
        starts[axis], stops[axis] = offset, offset + part.shape[axis]
        pieces.append(F.slice(g, starts, stops))
        offset = stops[axis]
    return pieces


# --- triangles ------------------------------------------------------------------------------------


def _triangle_canon(ins: Types, attrs: Attrs) -> Attrs:
    if ins[0].rank < 2:
        raise ShapeError(f"a triangle of shape {ins[0].shape}: it takes two axes or more")
    return {"k": int_value(attrs["k"], "k")}


def _triangle(name: str, doc: str, numpy: Any, predicate: str) -> Op:
    def lower(b: Any, out: TensorType, x: Any, *, k: int) -> Any:
        def body(s: Any, v: Any) -> Any:
            diagonal = s.index(out.rank - 2) + k
            return s.select(s.compare(predicate, s.index(out.rank - 1), diagonal), v, 0)

        return b.pointwise(out, [x], body)

    def vjp(F: Any, g: Any, out: Any, x: Any, *, k: int) -> Any:
        return getattr(F, name)(g, k=k)

    return Op(
        name,
        doc,
        attrs={"k": 0},
        canon=_triangle_canon,
        infer=lambda ins, attrs: ins[0],
        numpy=lambda x, *, k: numpy(x, k),
        vjp=vjp,
        lower=lower,
        methods=(name,),
    )


VIEW = frozenset({"view"})

ROWS: tuple[Op, ...] = (
    Op(
        "reshape",
        "The same elements in row-major order under another shape; one size may be -1.",
        attrs={"shape": REQUIRED},
        canon=_reshape_canon,
        infer=_given_shape,
        numpy=lambda x, *, shape: x.reshape(shape),
        vjp=lambda F, g, out, x, *, shape: F.reshape(g, x.shape),
        lower=lambda b, out, x, *, shape: b.reshape(out, x),
        methods=("reshape",),
        tags=VIEW,
    ),
    Op(
        "permute",
        "The axes in another order: axis i of the result is axis axes[i] of x.",
        attrs={"axes": REQUIRED},
        canon=_permute_canon,
        infer=lambda ins, attrs: ins[0].with_shape([ins[0].shape[a] for a in attrs["axes"]]),
        numpy=lambda x, *, axes: x.transpose(axes),
        vjp=_permute_vjp,
        lower=_permute_lower,
        methods=("permute",),
        tags=VIEW,
    ),
    Op(
        "expand",
        "x broadcast to a shape; -1 keeps the size of an axis.",
        attrs={"shape": REQUIRED},
        canon=_expand_canon,
        infer=_given_shape,
        numpy=lambda x, *, shape: np.broadcast_to(x, shape),
        vjp=lambda F, g, out, x, *, shape: F.sum_to(g, x.shape),
        lower=lambda b, out, x, *, shape: b.pointwise(out, [x], lambda s, v: v),
        methods=("expand", "broadcast_to"),
        tags=VIEW,
    ),
    Op(
        "flip",
        "The elements in reverse order along axes (all by default).",
        attrs={"axes": None},
        canon=_flip_canon,
        infer=lambda ins, attrs: ins[0],
        numpy=lambda x, *, axes: np.flip(x, axes),
        vjp=lambda F, g, out, x, *, axes: F.flip(g, axes=axes),
        lower=_flip_lower,
        methods=("flip",),
        tags=VIEW,
    ),
    Op(
        "slice",
        "x[starts:stops:steps] with one int per axis, by Python's rules; steps may be negative.",
        attrs={"starts": REQUIRED, "stops": REQUIRED, "steps": None},
        canon=_slice_canon,
        infer=_slice_type,
        numpy=_slice_numpy,
        vjp=_slice_vjp,
        lower=_slice_lower,
        methods=("slice",),
        tags=VIEW,
    ),
    Op(
        "unslice",
        "Zeros of a shape with x written at starts + i * steps: the adjoint of slice.",
        attrs={"shape": REQUIRED, "starts": REQUIRED, "steps": REQUIRED},
        canon=_unslice_canon,
        infer=_given_shape,
        numpy=_unslice_numpy,
        vjp=_unslice_vjp,
        lower=_unslice_lower,
    ),
    Op(
        "pad",
        "x with `low` and `high` elements of `value` put around each axis; "
        "pad(x, ((low, high), ...)) is numpy's form.",
        attrs={"low": REQUIRED, "high": None, "value": 0},
        canon=_pad_canon,
        infer=_pad_type,
        numpy=_pad_numpy,
        vjp=_pad_vjp,
        lower=_pad_lower,
        methods=("pad",),
    ),
    Op(
        "join",
        "Up to four tensors joined along an existing axis: what concat is made of.",
        operands=("x", "y?", "z?", "w?"),
        attrs={"axis": 0},
        cast="same",
        canon=_join_canon,
        infer=_join_type,
        numpy=_join_numpy,
        vjp=_join_vjp,
        lower=_join_lower,
    ),
    _triangle(
        "tril",
        "x with zeros above the k-th diagonal of its last two axes.",
        np.tril,
        "le",
    ),
    _triangle(
        "triu",
        "x with zeros below the k-th diagonal of its last two axes.",
        np.triu,
        "ge",
    ),
)


def register_rows() -> None:
    register(*ROWS, *views.ROWS)
