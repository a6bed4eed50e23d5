"""Reduction rows: sum, prod, min and max, any and all, argmin and argmax; see also `moments.py`.

`axis` is None (all axes), an int or several, negative ones counted from the end; `keepdims` keeps
the reduced axes with size 1. f16 and bf16 accumulate in f32. Reducing no elements gives the neutral
element, NaN for a mean, and is an error for reductions without a neutral element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, bool_, i64
from nova.core.sizes import Size, known_equal, same_shape
from nova.errors import ShapeError
from nova.ops.pointwise import in_f32, narrowed
from nova.ops.rules import (
    Types,
    is_unit,
    is_zero,
    reduced_shape,
    resolve_axes,
    resolve_axis,
    static_axis,
)
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]

# --- type rules ---------------------------------------------------------------------------------


def axes_attrs(ins: Types, attrs: Attrs) -> Attrs:
    """A `canon` column: `axis` as a sorted tuple, `keepdims` as a bool."""
    return {
        **attrs,
        "axis": resolve_axes(attrs["axis"], ins[0].rank),
        "keepdims": bool(attrs["keepdims"]),
    }


def _one_axis(ins: Types, attrs: Attrs) -> Attrs:
    axis = attrs["axis"]
    resolved = None if axis is None else resolve_axis(axis, ins[0].rank)
    return {"axis": resolved, "keepdims": bool(attrs["keepdims"])}


def reduced(result: Callable[[DType], DType]) -> Callable[[Types, Attrs], TensorType]:
    """An `infer` column: the reduced shape, with the element type `result(type of x)`."""

    def infer(ins: Types, attrs: Attrs) -> TensorType:
        shape = reduced_shape(ins[0].shape, attrs["axis"], attrs["keepdims"])
        return TensorType(shape, result(ins[0].dtype))

    return infer


def _total_dtype(x: DType) -> DType:
    return x if x.is_float else i64


def _extreme_type(ins: Types, attrs: Attrs) -> TensorType:
    _refuse_nothing(ins[0].shape, attrs["axis"])
    return reduced(lambda x: x)(ins, attrs)


def _position_type(ins: Types, attrs: Attrs) -> TensorType:
    axis = attrs["axis"]
    axes = tuple(range(ins[0].rank)) if axis is None else (axis,)
    _refuse_nothing(ins[0].shape, axes)
    return TensorType(reduced_shape(ins[0].shape, axes, attrs["keepdims"]), i64)


def _refuse_nothing(shape: Sequence[Size], axes: tuple[int, ...]) -> None:
    if any(is_zero(shape[a]) for a in axes):
        raise ShapeError(
            f"no elements to choose from: shape {shape} over axes {axes}",
            hint="min/max of an empty axis is undefined; the reduced axes must be non-empty",
        )


# --- helpers of the vjp columns -----------------------------------------------------------------


def _spread(F: Any, g: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """A reduced value broadcast to the shape of `x`."""
    return F.expand(keep_axes(F, g, x, axis), shape=x.shape)


def keep_axes(F: Any, g: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """A reduced value with the reduced axes restored at size 1, so that it broadcasts."""
    shape = reduced_shape(x.shape, axis, True)
    return g if same_shape(g.shape, shape) else F.reshape(g, shape=shape)


def count(x: Any, axis: tuple[int, ...]) -> Any:
    """The number of elements reduced to one."""
    return prod(x.shape[a] for a in axis)


def _vjp_prod(F: Any, g: Any, out: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    if x.shape == () or x.type.is_empty or not axis:
        return _spread(F, g, x, axis)
    for a in axis:
        static_axis(x.type, a, "the gradient of prod halves")
    outer = tuple(i for i in range(len(x.shape)) if i not in axis)
    order = outer + axis
    moved = F.permute(x, order)
    rows = tuple(x.shape[i] for i in outer)
    flat = F.reshape(moved, shape=(*rows, count(x, axis)))
    gradient = _times_others(F, flat, F.reshape(g, shape=(*rows, 1)))
    back = tuple(order.index(i) for i in range(len(order)))
    return F.permute(F.reshape(gradient, shape=moved.shape), back)


def _times_others(F: Any, x: Any, g: Any) -> Any:
    """g times the product of all other elements of each row, without dividing.

    Elements are paired, (a, b): the other elements of a are b and the other pairs. The products of
    the pairs are a row of half the length, so the work is that of two products, zeros need no
    special case and the result differentiates again.
    """
    n = x.shape[-1]
    if n == 1:
        return g
    pairs = n // 2
    a, b, unpaired = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    halves = a * b if n % 2 == 0 else F.concat([a * b, unpaired], axis=-1)
    others = _times_others(F, halves, g)
    if n % 2 == 0:
        return F.concat([others * b, others * a], axis=-1)
    shared = others[..., :pairs]
    return F.concat([shared * b, shared * a, others[..., pairs:]], axis=-1)


def _vjp_extreme(F: Any, g: Any, out: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    chosen = x == keep_axes(F, out, x, axis)
    ties = F.sum(narrowed(F, chosen, x.dtype), axis=axis, keepdims=True)
    # Nothing equals a NaN: then 0 / 0 makes the gradient NaN, too.
    return F.where(chosen, keep_axes(F, g, x, axis) / ties, 0.0 / ties)


# --- sugar --------------------------------------------------------------------------------------


def _build_sum_to(F: Any, x: Any, shape: tuple[int, ...]) -> Any:
    if same_shape(x.shape, shape):
        return x
    lead = len(x.shape) - len(shape)
    stretched = tuple(
        lead + i for i, n in enumerate(shape) if is_unit(n) and not is_unit(x.shape[lead + i])
    )
    axes = tuple(range(lead)) + stretched
    if lead < 0 or not all(
        is_unit(n) or known_equal(x.shape[lead + i], n) for i, n in enumerate(shape)
    ):
        raise ShapeError(f"{tuple(shape)} does not broadcast to {x.shape}, so sum_to has no axes")
    total = F.sum(x, axis=axes)
    return total if same_shape(total.shape, shape) else F.reshape(total, shape=tuple(shape))


# --- rows ---------------------------------------------------------------------------------------


def reduction(name: str, doc: str, **columns: Any) -> Op:
    """A row with `axis` and `keepdims`, also a method."""
    columns.setdefault("attrs", {"axis": None, "keepdims": False})
    columns.setdefault("canon", axes_attrs)
    return Op(name, doc, methods=(name,), **columns)


def _fold(
    name: str,
    doc: str,
    numpy: Any,
    combine: Any,
    init: Callable[[DType], Any],
    *,
    tags: tuple[str, ...] = (),
    **columns: Any,
) -> Op:
    """A primitive that combines elements pairwise, starting from `init(type of x)`."""

    def lower(b: Any, out: TensorType, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        return b.reduce(out, x, axis, keepdims, init(x.dtype), combine)

    tags = ("reduce", *tags, *(() if "vjp" in columns else ("nograd",)))
    return reduction(name, doc, numpy=in_f32(numpy), lower=lower, tags=frozenset(tags), **columns)


def _position(name: str, doc: str, numpy: Any, largest: bool) -> Op:
    def lower(b: Any, out: TensorType, x: Any, axis: int | None, keepdims: bool) -> Any:
        if axis is None:
            flat = x.type.with_shape((x.type.size,))
            x, axis = replace(x, value=b.reshape(flat, x), type=flat), 0
        return b.arg_reduce(out, x, axis, largest)

    return reduction(
        name,
        doc,
        canon=_one_axis,
        infer=_position_type,
        numpy=in_f32(lambda x, axis, keepdims: numpy(x, axis=axis, keepdims=keepdims)),
        lower=lower,
        tags=frozenset(("reduce", "nograd")),
    )


def lowest(x: DType) -> Any:
    """The identity of max: -inf, or the smallest integer."""
    return 0 if x is bool_ else -inf if x.is_float else int(np.iinfo(x.numpy).min)


def highest(x: DType) -> Any:
    """The identity of min: inf, or the largest integer."""
    return 1 if x is bool_ else inf if x.is_float else int(np.iinfo(x.numpy).max)


def _numpy_total(function: Any) -> Any:
    def reference(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
        result = x.dtype if x.dtype.kind == "f" else np.int64
        return function(x, axis=axis, keepdims=keepdims, dtype=result)

    return reference


FOLDS = (
    _fold(
        "sum",
        "The sum over the axes; integers and bools sum as i64; of nothing, 0.",
        _numpy_total(np.sum),
        lambda s, total, v: total + v,
        lambda x: 0,
        infer=reduced(_total_dtype),
        vjp=lambda F, g, out, x, axis, keepdims: _spread(F, g, x, axis),
        tags=("smooth",),
    ),
    _fold(
        "prod",
        "The product over the axes; integers and bools multiply as i64; of nothing, 1.",
        _numpy_total(np.prod),
        lambda s, total, v: total * v,
        lambda x: 1,
        infer=reduced(_total_dtype),
        vjp=_vjp_prod,
        tags=("smooth",),
    ),
    _fold(
        "max",
        "The largest element over the axes, NaN if there is one (and then the gradient is); ties "
        "share the gradient evenly.",
        np.max,
        lambda s, top, v: s.maximum(top, v),
        lowest,
        infer=_extreme_type,
        vjp=_vjp_extreme,
    ),
    _fold(
        "min",
        "The smallest element over the axes, NaN if there is one (and then the gradient is); ties "
        "share the gradient evenly.",
        np.min,
        lambda s, low, v: s.minimum(low, v),
        highest,
        infer=_extreme_type,
        vjp=_vjp_extreme,
    ),
    _fold(
        "any",
        "Whether an element over the axes is true (non-zero); of nothing, False.",
        np.any,
        lambda s, any_so_far, v: any_so_far | v,
        lambda x: 0,
        infer=reduced(lambda x: bool_),
    ),
    _fold(
        "all",
        "Whether all elements over the axes are true (non-zero); of nothing, True.",
        np.all,
        lambda s, all_so_far, v: all_so_far & v,
        lambda x: 1,
        infer=reduced(lambda x: bool_),
    ),
    _position(
        "argmax",
        "The i64 index of the first largest element along one axis (None: of the flattened "
        "tensor); a NaN counts as largest.",
        np.argmax,
        True,
    ),
    _position(
        "argmin",
        "The i64 index of the first smallest element along one axis (None: of the flattened "
        "tensor); a NaN counts as smallest.",
        np.argmin,
        False,
    ),
)

SUGAR = (
    Op(
        "sum_to",
        "x summed over the axes along which a tensor of `shape` broadcasts to it; undoes expand.",
        attrs={"shape": REQUIRED},
        build=_build_sum_to,
        methods=("sum_to",),
    ),
)


def register_rows() -> None:
    register(*FOLDS, *SUGAR)
