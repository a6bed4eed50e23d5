"""Losses: composites with torch's semantics and a `reduction` of 'mean', 'sum' or 'none'.

`nova.ops` registers them. They compute in f32 for f16 and bf16; the mean over no counted element is
NaN, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from nova.core.dtypes import DType, TensorType, float_of, i64, promote_all
from nova.core.sizes import same_shape
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.nn import as_type, widened
from nova.ops.rules import (
    Types,
    broadcast_shapes,
    broadcast_warning,
    int_value,
    is_real,
    static_axis,
)
from nova.ops.table import Op, register

Attrs = dict[str, Any]
REDUCTIONS = ("mean", "sum", "none")


def _reduction(attrs: Attrs, accepted: tuple[str, ...] = REDUCTIONS) -> str:
    reduction = attrs["reduction"]
    if hasattr(reduction, "shape"):
        raise AttributeValueError(
            f"reduction is a tensor of shape {tuple(reduction.shape)}",
            hint=f"it is one of {', '.join(accepted)}; write weight= for a tensor of weights",
        )
    if reduction not in accepted:
        raise AttributeValueError(
            f"reduction {reduction!r} is unknown", hint=f"it is one of {', '.join(accepted)}"
        )
    return reduction


def _number(attrs: Attrs, name: str, low: float, high: float = float("inf")) -> float:
    value = attrs[name]
    if not is_real(value) or not low <= value <= high:
        raise AttributeValueError(f"{name} must be in {low}..{high}, not {value!r}")
    return float(value)


def _reduce(F: Any, terms: Any, reduction: str, dtype: DType) -> Any:
    if reduction == "mean":
        terms = F.mean(terms)
    elif reduction == "sum":
        terms = F.sum(terms)
    elif reduction == "batchmean":
        terms = F.sum(terms) / (terms.shape[0] if terms.shape else 1)
    return as_type(F, terms, dtype)


def _spread(F: Any, g: Any, shape: tuple[int, ...], reduction: str) -> Any:
    """The gradient of each term, given that of the reduced loss."""
    if reduction == "none":
        return g
    each = F.expand(g, shape)
    return each / prod(shape) if reduction == "mean" else each


# --- losses of an input and a target of one shape -------------------------------------------------


def _paired(
    name: str,
    doc: str,
    terms: Callable[..., Any],
    *,
    gradient: Callable[..., tuple[Any, Any]] | None = None,
    attrs: Attrs | None = None,
    check: Callable[[Attrs], Attrs] | None = None,
    reductions: tuple[str, ...] = REDUCTIONS,
    domain: str | tuple[str, ...] = "real",
    smooth: bool = True,
) -> Op:
    """A loss of broadcastable input and target: `terms(F, x, t, **attrs)`, then the reduction.

    `gradient(F, x, t, **attrs)` gives the derivatives of a term where those of its expansion
    would be less accurate.
    """

    def canon(ins: Types, values: Attrs) -> Attrs:
        _reduction(values, reductions)
        return {**values, **(check(values) if check else {})}

    def infer(ins: Types, values: Attrs) -> TensorType:
        shape = broadcast_shapes(ins[0].shape, ins[1].shape)
        return ins[0].with_shape(shape if values["reduction"] == "none" else ())

    def compose(F: Any, x: Any, target: Any, *, reduction: str, **more: Any) -> Any:
        wide_x, wide_t = widened(F, x, target)
        return _reduce(F, terms(F, wide_x, wide_t, **more), reduction, x.dtype)

    def vjp(F: Any, g: Any, out: Any, x: Any, target: Any, *, reduction: str, **more: Any) -> Any:
        assert gradient is not None
        wide_g, wide_x, wide_t = widened(F, g, x, target)
        each = _spread(F, wide_g, broadcast_shapes(x.shape, target.shape), reduction)
        return tuple(
            as_type(F, F.sum_to(each * piece, operand.shape), operand.dtype)
            for piece, operand in zip(gradient(F, wide_x, wide_t, **more), (x, target), strict=True)
        )

    return Op(
        name,
        doc,
        operands=("x", "target"),
        attrs={**(attrs or {}), "reduction": "mean"},
        advise=partial(broadcast_warning, name),
        cast="float",
        canon=canon,
        infer=infer,
        compose=compose,
        vjp=vjp if gradient else None,
        tags=frozenset({"smooth"}) if smooth else frozenset(),
        domain=domain,
    )


def _mse(F: Any, x: Any, target: Any) -> Any:
    difference = x - target
    return difference * difference


def _mae(F: Any, x: Any, target: Any) -> Any:
    return F.abs(x - target)


def _smooth_l1(F: Any, x: Any, target: Any, *, beta: float) -> Any:
    difference = x - target
    size = F.abs(difference)
    if beta == 0:
        return size
    near = size < beta
    # The square gets 0 where it is not used, so an infinite difference has a gradient.
    small = F.where(near, difference, 0.0)
    return F.where(near, small * small * (0.5 / beta), size - 0.5 * beta)


def _bce(F: Any, x: Any, target: Any) -> Any:
    # torch's lower bound of the logarithms: a confident wrong answer costs 100, not infinity.
    yes, no = _bce_logs(F, x)
    return -(target * yes + (1.0 - target) * no)


def _bce_logs(F: Any, x: Any) -> tuple[Any, Any]:
    return F.maximum(F.log(x), -100.0), F.maximum(F.log1p(-x), -100.0)


def _bce_gradient(F: Any, x: Any, target: Any) -> tuple[Any, Any]:
    yes, no = _bce_logs(F, x)
    return (x - target) / F.maximum(x * (1.0 - x), 1e-12), no - yes


def _bce_with_logits(F: Any, x: Any, target: Any) -> Any:
    return F.maximum(x, 0.0) - x * target + F.log1p(F.exp(-F.abs(x)))


def _bce_with_logits_gradient(F: Any, x: Any, target: Any) -> tuple[Any, Any]:
    return F.sigmoid(x) - target, -x


def _kl_div(F: Any, x: Any, target: Any, *, log_target: bool) -> Any:
    if log_target:
        return F.exp(target) * (target - x)
    # 0 log 0 is 0, and its derivative must not be 0 * inf.
    log = F.log(F.where(F.eq(target, 0.0), 1.0, target))
    return target * log - target * x


def _hinge(F: Any, x: Any, target: Any) -> Any:
    return F.relu(1.0 - target * x)


# --- losses of class scores -----------------------------------------------------------------------


def _class_types(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    x, target, weight = dtypes[0], dtypes[1], dtypes[2:]
    if target.is_integer:
        common = float_of(promote_all((x, *weight)))
        return (common, i64, *(common for _ in weight))
    if not target.is_float:
        raise DTypeError(f"a target of {target}", hint="class indices or class probabilities")
    return (float_of(promote_all(dtypes)),) * len(dtypes)


def _index_types(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    if not dtypes[1].is_integer:
        raise DTypeError(f"a target of {dtypes[1]}", hint="the target holds class indices")
    return _class_types(dtypes)


def _class_axis(shape: tuple[int, ...]) -> int:
    return 0 if len(shape) == 1 else 1


def _class_canon(ins: Types, attrs: Attrs) -> Attrs:
    canonical: Attrs = {"reduction": _reduction(attrs)}
    canonical["ignore_index"] = int_value(attrs["ignore_index"], "ignore_index")
    if "label_smoothing" in attrs:
        canonical["label_smoothing"] = _number(attrs, "label_smoothing", 0.0, 1.0)
    return canonical


def _class_type(ins: Types, attrs: Attrs) -> TensorType:
    x, target = ins[0], ins[1]
    if not x.rank:
        raise ShapeError("0-d scores have no axis of classes")
    axis = _class_axis(x.shape)
    terms = x.shape[:axis] + x.shape[axis + 1 :]
    expected = terms if target.dtype is i64 else x.shape
    if not same_shape(target.shape, expected):
        is_cast = target.dtype.is_float and same_shape(target.shape, terms)
        raise ShapeError(
            f"target {target.shape} for scores {x.shape}: it should be {expected}",
            hint="class indices are integers: pass target.astype('i64'); a target of floats holds "
            "a probability for each class"
            if is_cast
            else None,
        )
    static_axis(x, axis, "the loss compares classes along")
    if len(ins) > 2 and not same_shape(ins[2].shape, (x.shape[axis],)):
        raise ShapeError(f"weight {ins[2].shape} for {x.shape[axis]} classes")
    if not x.shape[axis]:
        raise ShapeError(f"scores {x.shape} have no classes")
    return x.with_shape(terms if attrs["reduction"] == "none" else ())


def _along_classes(F: Any, weight: Any, rank: int, axis: int) -> Any:
    return F.reshape(weight, tuple(-1 if i == axis else 1 for i in range(rank)))


def _cross_entropy(
    F: Any,
    x: Any,
    target: Any,
    weight: Any = None,
    *,
    label_smoothing: float,
    ignore_index: int,
    reduction: str,
) -> Any:
    wide, wide_weight = widened(F, x, weight)
    axis = _class_axis(x.shape)
    if target.dtype is i64 and weight is None:
        terms, counted = _score_terms(F, x, wide, target, label_smoothing, ignore_index)
        return _reduce_counted(F, terms, counted, reduction, x.dtype)
    log_p = F.log_softmax(wide, axis=axis)
    if target.dtype is i64:
        terms, counted = _index_terms(F, log_p, target, wide_weight, label_smoothing, ignore_index)
        return _reduce_counted(F, terms, counted, reduction, x.dtype)
    (probabilities,) = widened(F, target)
    if label_smoothing:
        probabilities = probabilities * (1.0 - label_smoothing) + label_smoothing / x.shape[axis]
    weighted = log_p * probabilities
    if wide_weight is not None:
        weighted = weighted * _along_classes(F, wide_weight, len(x.shape), axis)
    return _reduce(F, -F.sum(weighted, axis=axis), reduction, x.dtype)


def _cross_entropy_vjp(
    F: Any,
    g: Any,
    out: Any,
    x: Any,
    target: Any,
    weight: Any = None,
    *,
    label_smoothing: float,
    ignore_index: int,
    reduction: str,
) -> Any:
    """softmax(x) minus the target distribution, from the scores and two numbers a row.

    The expansion's own gradient would keep a mask and the probabilities of all classes.
    """
    if target.dtype is not i64 or weight is not None:
        return NotImplemented
    wide_g, wide = widened(F, g, x)
    axis = _class_axis(x.shape)
    index, valid = _class_index(F, target, x.shape[axis], ignore_index)
    counted = as_type(F, valid, wide.dtype)
    if reduction == "mean":
        wide_g = wide_g / F.sum(counted)
    each = F.unsqueeze(F.where(valid, F.expand(wide_g, target.shape), 0.0), axis)
    shift, log_sum = _log_sum(F, wide, axis)
    expected = as_type(F, _is_chosen(F, index, x.shape, axis), wide.dtype)
    if label_smoothing:
        expected = expected * (1.0 - label_smoothing) + label_smoothing / x.shape[axis]
    # Not `wide - shift`, which the forward pass has: it would be stored for both.
    probabilities = F.exp(-(shift - wide) - log_sum)
    return as_type(F, (probabilities - expected) * each, x.dtype), None


def _nll(
    F: Any, x: Any, target: Any, weight: Any = None, *, ignore_index: int, reduction: str
) -> Any:
    log_p, wide_weight = widened(F, x, weight)
    terms, counted = _index_terms(F, log_p, target, wide_weight, 0.0, ignore_index)
    return _reduce_counted(F, terms, counted, reduction, x.dtype)


def _reduce_counted(F: Any, terms: Any, counted: Any, reduction: str, dtype: DType) -> Any:
    if reduction == "mean":
        return as_type(F, F.sum(terms) / F.sum(counted), dtype)
    return _reduce(F, terms, reduction, dtype)


def _class_index(F: Any, target: Any, classes: int, ignore_index: int) -> tuple[Any, Any]:
    """The class of each target, from 0; and whether it counts."""
    valid = F.ne(target, ignore_index)
    index = F.where(F.lt(target, 0), target + classes, target)
    return F.clamp(index, min=0, max=classes - 1), valid


def _is_chosen(F: Any, index: Any, shape: tuple[int, ...], axis: int) -> Any:
    """For every score, whether its class is that of the target."""
    classes = _along_classes(F, F.arange(shape[axis]), len(shape), axis)
    return F.eq(F.unsqueeze(index, axis), classes)


def _log_sum(F: Any, wide: Any, axis: int) -> tuple[Any, Any]:
    """The largest score of each row, and the logarithm of the sum of exp(score - largest).

    Their sum is the logsumexp. Two numbers keep the digits that a large offset of all scores takes.
    """
    top = F.detach(F.max(wide, axis=axis, keepdims=True))
    # An infinite maximum would give inf - inf; unshifted, exp and log have the right limits.
    shift = F.where(F.isfinite(top), top, 0.0)
    return shift, F.log(F.sum(F.exp(wide - shift), axis=axis, keepdims=True))


def _score_terms(
    F: Any, x: Any, wide: Any, target: Any, smoothing: float, ignore_index: int
) -> tuple[Any, Any]:
    """The loss of each target, from the logsumexp of the scores; and how much it counts."""
    axis = _class_axis(x.shape)
    index, valid = _class_index(F, target, x.shape[axis], ignore_index)
    score = F.squeeze(F.gather(x, F.unsqueeze(index, axis), axis=axis), axis)
    (score,) = widened(F, score)
    shift, log_sum = _log_sum(F, wide, axis)
    score = score - F.squeeze(shift, axis)
    if smoothing:
        score = score * (1.0 - smoothing) + F.mean(wide - shift, axis=axis) * smoothing
    loss = F.squeeze(log_sum, axis) - score
    return F.where(valid, loss, 0.0), as_type(F, valid, wide.dtype)


def _index_terms(
    F: Any, log_p: Any, target: Any, weight: Any, smoothing: float, ignore_index: int
) -> tuple[Any, Any]:
    """The loss of each target and how much it counts in the mean: its weight, 0 where ignored."""
    rank, axis = len(log_p.shape), _class_axis(log_p.shape)
    classes = log_p.shape[axis]
    index, valid = _class_index(F, target, classes, ignore_index)
    # Selected by comparison, not by gather: the gradient is then elementwise, without a scatter.
    chosen = _is_chosen(F, index, log_p.shape, axis)
    each = 1.0 if weight is None else _along_classes(F, weight, rank, axis)
    weighted = log_p if weight is None else log_p * each
    loss = -F.sum(F.where(chosen, weighted, 0.0), axis=axis)
    if smoothing:
        even = -F.sum(weighted, axis=axis) * (smoothing / classes)
        loss = loss * (1.0 - smoothing) + even
    if weight is None:
        counted = as_type(F, valid, log_p.dtype)
    else:
        counted = F.where(valid, F.sum(F.where(chosen, each, 0.0), axis=axis), 0.0)
    return F.where(valid, loss, 0.0), counted


ROWS: tuple[Op, ...] = (
    _paired("mse_loss", "(x - target) squared.", _mse),
    _paired("mae_loss", "The absolute difference |x - target|.", _mae, smooth=False),
    Op(
        "l1_loss",
        "mae_loss under torch's name.",
        operands=("x", "target"),
        build=lambda F, x, target, reduction="mean": F.mae_loss(x, target, reduction=reduction),
    ),
    _paired(
        "smooth_l1_loss",
        "(x - target)^2 / (2 beta) where that is below beta in size, |x - target| - beta / 2 "
        "beyond.",
        _smooth_l1,
        attrs={"beta": 1.0},
        check=lambda attrs: {"beta": _number(attrs, "beta", 0.0)},
        smooth=False,
    ),
    _paired(
        "bce_loss",
        "Binary cross entropy of probabilities x, each logarithm at least -100.",
        _bce,
        gradient=_bce_gradient,
        domain="probability",
    ),
    _paired(
        "bce_with_logits_loss",
        "Binary cross entropy of sigmoid(x), computed without overflow.",
        _bce_with_logits,
        gradient=_bce_with_logits_gradient,
        domain=("real", "probability"),
    ),
    _paired(
        "kl_div",
        "target * (log(target) - x) for log-probabilities x; the target too is a logarithm with "
        "log_target; 'batchmean' divides by the first size.",
        _kl_div,
        attrs={"log_target": False},
        check=lambda attrs: {"log_target": bool(attrs["log_target"])},
        reductions=(*REDUCTIONS, "batchmean"),
        domain=("real", "probability"),
    ),
    _paired("hinge_loss", "max(0, 1 - target * x) for targets of -1 and 1.", _hinge, smooth=False),
    Op(
        "cross_entropy",
        "-log softmax(x) at the target class (indices), or summed with target probabilities; "
        "classes on axis 1, or the only axis of 1-D scores.",
        operands=("x", "target", "weight?"),
        attrs={"label_smoothing": 0.0, "ignore_index": -100, "reduction": "mean"},
        cast=_class_types,
        canon=_class_canon,
        infer=_class_type,
        compose=_cross_entropy,
        vjp=_cross_entropy_vjp,
        tags=frozenset({"smooth"}),
        domain=("real", "index", "positive"),
    ),
    Op(
        "nll_loss",
        "-x at the target class, for log-probabilities x with classes on axis 1.",
        operands=("x", "target", "weight?"),
        attrs={"ignore_index": -100, "reduction": "mean"},
        cast=_index_types,
        canon=_class_canon,
        infer=_class_type,
        compose=_nll,
        tags=frozenset({"smooth"}),
        domain=("real", "index", "positive"),
    ),
)


def register_rows() -> None:
    register(*ROWS)
