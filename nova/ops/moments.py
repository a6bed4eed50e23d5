"""Reductions composed of other rows: mean, variance, standard deviation, logsumexp.

`axis` and `keepdims` are as in `reductions.py`. f16 and bf16 are computed in f32 throughout and
rounded once, in the gradients too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import accumulator
from nova.core.sizes import is_static, known_less
from nova.errors import AttributeValueError
from nova.ops.pointwise import in_f32, narrowed, widened
from nova.ops.reductions import Attrs, axes_attrs, count, keep_axes, reduced, reduction
from nova.ops.rules import Types, is_real, is_zero, reduced_shape, size_number
from nova.ops.table import register

# --- moments ------------------------------------------------------------------------------------


def _compose_mean(F: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    total = F.sum(widened(F, x), axis=axis, keepdims=keepdims)
    return narrowed(F, total / size_number(F, count(x, axis), total.dtype), x.dtype)


def _numpy_mean(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return np.sum(x, axis=axis, keepdims=keepdims) / x.dtype.type(count(x, axis))


def _freedom(F: Any, x: Any, axis: tuple[int, ...], correction: float) -> Any:
    """The degrees of freedom: a number, or a 0-d tensor if a reduced axis is symbolic."""
    elements = count(x, axis)
    if is_static(elements):
        return max(float(elements - correction), 0.0)
    return F.maximum(size_number(F, elements, accumulator(x.dtype)) - correction, 0.0)


def _centered(F: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """x minus its mean, relative to the first element.

    If elements are large compared with their spread, the rounding error of their mean is large
    too; the mean of the differences is as exact as the differences.
    """
    wide = widened(F, x)
    if not known_less(0, count(x, axis)):
        return wide - F.mean(wide, axis=axis, keepdims=True)
    first = wide[tuple(slice(0, 1) if i in axis else slice(None) for i in range(len(x.shape)))]
    # In the mean the sign is reversed: no difference is kept in memory for both.
    return wide - first + F.mean(first - wide, axis=axis, keepdims=True)


def _compose_var(F: Any, x: Any, axis: tuple[int, ...], keepdims: bool, correction: float) -> Any:
    total = F.sum(F.square(_centered(F, x, axis)), axis=axis, keepdims=keepdims)
    return narrowed(F, total / _freedom(F, x, axis, correction), x.dtype)


def _numpy_var(
    x: np.ndarray, axis: tuple[int, ...], keepdims: bool, correction: float
) -> np.ndarray:
    centered = x - _numpy_mean(x, axis, True)
    total = np.sum(centered * centered, axis=axis, keepdims=keepdims)
    return total / x.dtype.type(_freedom(None, x, axis, correction))


def _vjp_var(
    F: Any, g: Any, out: Any, x: Any, axis: tuple[int, ...], keepdims: bool, correction: float
) -> Any:
    # The path through the mean adds a sum of centered values, which is zero: omitted.
    scale = widened(F, keep_axes(F, g, x, axis)) * (2.0 / _freedom_or_nan(F, x, axis, correction))
    return narrowed(F, scale * _centered(F, x, axis), x.dtype)


def _freedom_or_nan(F: Any, x: Any, axis: tuple[int, ...], correction: float) -> Any:
    freedom = _freedom(F, x, axis, correction)
    if isinstance(freedom, float):
        return freedom or float("nan")
    return F.where(F.eq(freedom, 0.0), float("nan"), freedom)


def _compose_std(F: Any, x: Any, axis: tuple[int, ...], keepdims: bool, correction: float) -> Any:
    wide = F.var(widened(F, x), axis=axis, keepdims=keepdims, correction=correction)
    return narrowed(F, F.sqrt(wide), x.dtype)


def _vjp_std(
    F: Any, g: Any, out: Any, x: Any, axis: tuple[int, ...], keepdims: bool, correction: float
) -> Any:
    out, g = (widened(F, keep_axes(F, t, x, axis)) for t in (out, g))
    # Equal elements have no gradient direction: zero as in torch, rather than 0 / 0.
    flat = out == 0
    scale = F.where(flat, 0.0, g / F.where(flat, 1.0, out))
    scale = scale * (1.0 / _freedom_or_nan(F, x, axis, correction))
    return narrowed(F, scale * _centered(F, x, axis), x.dtype)


# --- logsumexp ----------------------------------------------------------------------------------


def _compose_logsumexp(F: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    wide = widened(F, x)
    if is_zero(count(x, axis)):
        return narrowed(F, F.log(F.sum(F.exp(wide), axis=axis, keepdims=keepdims)), x.dtype)
    top = F.detach(F.max(wide, axis=axis, keepdims=True))
    # An infinite maximum would give inf - inf; unshifted, exp and log have the right limits.
    shift = F.where(F.isfinite(top), top, 0.0)
    total = F.log(F.sum(F.exp(wide - shift), axis=axis, keepdims=True)) + shift
    shape = reduced_shape(x.shape, axis, keepdims)
    return narrowed(F, total if keepdims else F.reshape(total, shape=shape), x.dtype)


def _numpy_logsumexp(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0).astype(x.dtype)
    total = np.log(np.sum(np.exp(x - shift), axis=axis, keepdims=True)) + shift
    return total.reshape(reduced_shape(x.shape, axis, keepdims))


def _vjp_logsumexp(F: Any, g: Any, out: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    wide = widened(F, x)
    if wide is not x:
        # Recomputed: an out rounded to 16 bits would put its rounding error into the exponent.
        out = F.logsumexp(wide, axis=axis, keepdims=True)
    out = keep_axes(F, out, x, axis)
    # If all elements are -inf the gradient is 0; NaN and +inf are kept.
    shift = F.where(F.eq(out, float("-inf")), 0.0, out)
    gradient = widened(F, keep_axes(F, g, x, axis)) * F.exp(wide - shift)
    return narrowed(F, gradient, x.dtype)


# --- rows ---------------------------------------------------------------------------------------


def _moment_axes(ins: Types, attrs: Attrs) -> Attrs:
    correction = attrs["correction"]
    if not is_real(correction):
        raise AttributeValueError(f"correction must be a number, not {correction!r}")
    return axes_attrs(ins, attrs)


_MOMENT: dict[str, Any] = {
    "attrs": {"axis": None, "keepdims": False, "correction": 1},
    "canon": _moment_axes,
    "infer": reduced(lambda x: x),
    "cast": "float",
    "tags": frozenset(("reduce", "smooth")),
}

ROWS = (
    reduction(
        "mean",
        "The mean over the axes; integers and bools average as f32; of nothing, NaN.",
        infer=reduced(lambda x: x),
        cast="float",
        numpy=in_f32(_numpy_mean),
        compose=_compose_mean,
        tags=frozenset(("reduce", "smooth")),
    ),
    reduction(
        "var",
        "The variance over the axes, divided by the count less `correction` (1 as in torch; "
        "0 is numpy's ddof=0).",
        numpy=in_f32(_numpy_var),
        compose=_compose_var,
        vjp=_vjp_var,
        **_MOMENT,
    ),
    reduction(
        "std",
        "The standard deviation over the axes: the root of `var`; its gradient is 0 where all "
        "elements are equal.",
        numpy=in_f32(lambda x, **attrs: np.sqrt(_numpy_var(x, **attrs))),
        compose=_compose_std,
        vjp=_vjp_std,
        **_MOMENT,
    ),
    reduction(
        "logsumexp",
        "log(sum(exp(x))) over the axes without overflow; of nothing, -inf.",
        infer=reduced(lambda x: x),
        cast="float",
        numpy=in_f32(_numpy_logsumexp),
        compose=_compose_logsumexp,
        vjp=_vjp_logsumexp,
        tags=frozenset(("reduce", "smooth")),
    ),
)


def register_rows() -> None:
    register(*ROWS)
