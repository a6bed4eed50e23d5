"""Scans along an axis: running sums, linear recurrences, running extremes.

Each is linear in its elements. f16 and bf16 accumulate in f32. `cumprod`, `cummax` and others are
written with these rows in `nova/ops/functional/ordering.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, accumulator, bool_, dtype, i64
from nova.core.sizes import is_static, known_equal, same_shape
from nova.errors import ShapeError
from nova.ops.pointwise import in_f32
from nova.ops.rules import Types, is_zero, resolve_axis, widen
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]


def _axis_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {"axis": resolve_axis(attrs["axis"], ins[0].rank)}


def _flipped(F: Any, x: Any, axis: int) -> Any:
    return F.flip(x, (axis,))


# --- cumsum ---------------------------------------------------------------------------------------


def _total(x: DType) -> DType:
    return x if x.is_float else i64


def _cumsum_lower(b: Any, out: TensorType, x: Any, *, axis: int) -> Any:
    acc = accumulator(out.dtype)
    [total] = b.scan(
        [x],
        axis,
        [acc],
        lambda s, xs: [s.cast(xs[0], acc)],
        lambda s, state, xs, i: [state[0] + s.cast(xs[0], acc)],
    )
    return b.narrowed(total, out, acc)


def _cumsum_numpy(x: np.ndarray, *, axis: int) -> np.ndarray:
    wide = widen(x) if dtype(x.dtype).is_float else x.astype(np.int64)
    total = np.cumsum(wide, axis)
    return total.astype(x.dtype if dtype(x.dtype).is_float else np.int64)


# --- linear recurrence ----------------------------------------------------------------------------


def _recurrence_type(ins: Types, attrs: Attrs) -> TensorType:
    if not same_shape(ins[0].shape, ins[1].shape):
        raise ShapeError(f"factors {ins[0].shape} and terms {ins[1].shape} differ")
    return ins[1]


def _recurrence_lower(b: Any, out: TensorType, factor: Any, term: Any, *, axis: int) -> Any:
    acc = accumulator(out.dtype)
    [state] = b.scan(
        [factor, term],
        axis,
        [acc],
        lambda s, xs: [xs[1]],
        lambda s, state, xs, i: [xs[0] * state[0] + xs[1]],
    )
    return b.narrowed(state, out, acc)


def _recurrence_numpy(factor: np.ndarray, term: np.ndarray, *, axis: int) -> np.ndarray:
    a, result = (np.moveaxis(widen(v).copy(), axis, 0) for v in (factor, term))
    with np.errstate(all="ignore"):
        for i in range(1, len(result)):
            result[i] += a[i] * result[i - 1]
    return np.moveaxis(result, 0, axis).astype(term.dtype)


def _shift(F: Any, x: Any, axis: int, by: int) -> Any:
    """x moved by one position along an axis, with a 0 coming in; by is 1 or -1."""
    n = x.shape[axis]
    starts, stops = [0] * len(x.shape), list(x.shape)
    low, high = [0] * len(x.shape), [0] * len(x.shape)
    if by > 0:
        stops[axis], low[axis] = n - 1, 1
    else:
        starts[axis], high[axis] = 1, 1
    return F.pad(F.slice(x, starts, stops), low, high)


def _recurrence_vjp(
    F: Any, g: Any, out: Any, factor: Any, term: Any, *, axis: int
) -> tuple[Any, Any]:
    if is_zero(out.shape[axis]):
        return F.zeros_like(factor), g
    # The adjoint runs backward: s[i] = g[i] + factor[i + 1] * s[i + 1].
    ahead = _flipped(F, _shift(F, factor, axis, -1), axis)
    adjoint = _flipped(F, F.linear_recurrence(ahead, _flipped(F, g, axis), axis=axis), axis)
    return adjoint * _shift(F, out, axis, 1), adjoint


# --- running extremes -----------------------------------------------------------------------------


def _extreme(largest: bool) -> tuple[Any, Any]:
    """The lowering and the reference of the position of the running extreme; NaN is extreme."""

    def lower(b: Any, out: TensorType, x: Any, *, axis: int) -> Any:
        acc = accumulator(x.dtype)

        def step(s: Any, state: list[Any], xs: list[Any], i: Any) -> list[Any]:
            best, at = state
            element = xs[0]
            better = element >= best if largest else element <= best
            if acc.is_float:
                better = better | s.is_nan(element)
                better = s.select(
                    s.is_nan(best) & s.logical_not(s.is_nan(element)), s.const(0, bool_), better
                )
            return [s.select(better, element, best), s.select(better, i, at)]

        return b.scan([x], axis, [acc, i64], lambda s, xs: [xs[0], s.const(0, i64)], step)[1]

    def reference(x: np.ndarray, *, axis: int) -> np.ndarray:
        rows = np.moveaxis(widen(x), axis, 0)
        result = np.zeros(rows.shape, np.int64)
        for i in range(1, len(rows)):
            before = np.take_along_axis(rows[:i], result[i - 1 : i], 0)[0]
            with np.errstate(invalid="ignore"):
                better = rows[i] >= before if largest else rows[i] <= before
            if rows.dtype.kind == "f":
                better = (better & ~np.isnan(before)) | np.isnan(rows[i])
            result[i] = np.where(better, i, result[i - 1])
        return np.moveaxis(result, 0, axis)

    return lower, reference


# --- logcumsumexp ---------------------------------------------------------------------------------


def _log_lower(b: Any, out: TensorType, x: Any, *, axis: int) -> Any:
    acc = accumulator(out.dtype)

    def step(s: Any, state: list[Any], xs: list[Any], i: Any) -> list[Any]:
        # log(exp(a) + exp(b)) = max + log1p(exp(-|a - b|)); equal infinities differ by NaN.
        a, element = state[0], xs[0]
        top = s.maximum(a, element)
        gap = s.select(s.compare("eq", a, element), 0.0, -s.call("absf", a - element))
        return [top + s.call("log1p", s.call("exp", gap))]

    [state] = b.scan([x], axis, [acc], lambda s, xs: [xs[0]], step)
    return b.narrowed(state, out, acc)


def _log_vjp(F: Any, g: Any, out: Any, x: Any, *, axis: int) -> Any:
    if known_equal(x.shape[axis], 0):
        return g
    # d out[j] / d x[i] = exp(x[i] - out[j]): a recurrence whose factors are at most 1.
    ahead = _shift(F, F.exp(out - _next(F, out, axis)), axis, 1)
    adjoint = F.linear_recurrence(
        _flipped(F, _shift(F, ahead, axis, -1), axis), _flipped(F, g, axis), axis=axis
    )
    return _flipped(F, adjoint, axis) * F.exp(x - out)


def _next(F: Any, x: Any, axis: int) -> Any:
    n = x.shape[axis]
    if is_static(n):
        return F.take(x, np.minimum(np.arange(n) + 1, n - 1), axis=axis)
    return F.take(x, F.arange(1, n + 1), axis=axis)  # the last position is clamped


_MAX, _MIN = _extreme(True), _extreme(False)
NOGRAD = frozenset({"nograd"})

ROWS: tuple[Op, ...] = (
    Op(
        "cumsum",
        "The running sum along an axis; integers and bools sum as i64.",
        attrs={"axis": REQUIRED},
        canon=_axis_canon,
        infer=lambda ins, attrs: ins[0].with_dtype(_total(ins[0].dtype)),
        numpy=_cumsum_numpy,
        vjp=lambda F, g, out, x, axis: _flipped(F, F.cumsum(_flipped(F, g, axis), axis=axis), axis),
        lower=_cumsum_lower,
        methods=("cumsum",),
        tags=frozenset({"smooth"}),
    ),
    Op(
        "linear_recurrence",
        "h[i] = factor[i] * h[i - 1] + term[i] along an axis, from h[0] = term[0].",
        operands=("factor", "term"),
        attrs={"axis": REQUIRED},
        cast="float",
        canon=_axis_canon,
        infer=_recurrence_type,
        numpy=_recurrence_numpy,
        vjp=_recurrence_vjp,
        lower=_recurrence_lower,
        tags=frozenset({"smooth"}),
        domain="unit",
    ),
    Op(
        "logcumsumexp",
        "The logarithm of the running sum of exp(x) along an axis, without overflow.",
        attrs={"axis": REQUIRED},
        cast="float",
        canon=_axis_canon,
        infer=lambda ins, attrs: ins[0],
        numpy=in_f32(lambda x, axis: np.logaddexp.accumulate(x, axis)),
        vjp=_log_vjp,
        lower=_log_lower,
        methods=("logcumsumexp",),
        tags=frozenset({"smooth"}),
    ),
    Op(
        "argcummax",
        "The position of the largest element so far along an axis, the last of equal ones; NaN is "
        "the largest.",
        attrs={"axis": REQUIRED},
        canon=_axis_canon,
        infer=lambda ins, attrs: ins[0].with_dtype(i64),
        numpy=_MAX[1],
        lower=_MAX[0],
        tags=NOGRAD,
    ),
    Op(
        "argcummin",
        "The position of the smallest element so far along an axis, the last of equal ones; NaN "
        "is the smallest.",
        attrs={"axis": REQUIRED},
        canon=_axis_canon,
        infer=lambda ins, attrs: ins[0].with_dtype(i64),
        numpy=_MIN[1],
        lower=_MIN[0],
        tags=NOGRAD,
    ),
)


def register_rows() -> None:
    register(*ROWS)
