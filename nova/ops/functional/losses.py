"""Losses with torch's names, defaults and reductions that the op table does not have as rows."""

from __future__ import annotations

from functools import partial
from math import log, pi
from typing import Any

from nova.core.sizes import same_shape
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.algebra import vector_norm
from nova.ops.functional.common import (
    as_floats,
    as_inexact,
    as_integers,
    function,
    number,
    reduce_terms,
    require_rank,
)
from nova.ops.rules import broadcast_shapes, broadcast_warning
from nova.ops.table import Op, register


def _huber_loss(F: Any, x: Any, target: Any, delta: float = 1.0, reduction: str = "mean") -> Any:
    x, target = as_floats(F, x, target)
    limit = number("huber_loss", "delta", delta)
    if limit <= 0:
        raise AttributeValueError(f"huber_loss: delta must be positive, not {limit}")
    error = F.abs(x - target)
    terms = F.where(error < limit, error * error * 0.5, (error - 0.5 * limit) * limit)
    return reduce_terms(F, "huber_loss", terms, reduction)


def _soft_margin_loss(F: Any, x: Any, target: Any, reduction: str = "mean") -> Any:
    x, target = as_floats(F, x, target)
    return reduce_terms(F, "soft_margin_loss", F.softplus(-(target * x)), reduction)


def _hinge_embedding_loss(
    F: Any, x: Any, target: Any, margin: float = 1.0, reduction: str = "mean"
) -> Any:
    x, target = as_floats(F, x, target)
    negatives = F.relu(number("hinge_embedding_loss", "margin", margin) - x)
    # A target that is neither counts as both, as in torch.
    terms = F.where(F.ne(target, -1.0), x, 0.0) + F.where(F.ne(target, 1.0), negatives, 0.0)
    return reduce_terms(F, "hinge_embedding_loss", terms, reduction)


def _margin_ranking_loss(
    F: Any, x: Any, y: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    x, y, target = as_floats(F, x, y, target)
    terms = F.relu(-(target * (x - y)) + number("margin_ranking_loss", "margin", margin))
    return reduce_terms(F, "margin_ranking_loss", terms, reduction)


def _cosine_embedding_loss(
    F: Any, x: Any, y: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    x, y, target = as_floats(F, x, y, target)
    require_rank("cosine_embedding_loss", x, 1, 2)
    dot = F.sum(x * y, axis=-1)
    squares = [F.sum(t * t, axis=-1) + 1e-12 for t in (x, y)]
    cosine = dot / F.sqrt(squares[0] * squares[1])
    if broadcast_shapes(cosine.shape, target.shape) != cosine.shape:
        raise ShapeError(f"cosine_embedding_loss: target {target.shape} for x {x.shape}")
    negatives = F.relu(cosine - number("cosine_embedding_loss", "margin", margin))
    terms = F.where(F.eq(target, 1.0), 1.0 - cosine, F.where(F.eq(target, -1.0), negatives, 0.0))
    return reduce_terms(F, "cosine_embedding_loss", terms, reduction)


def _triplet_margin_loss(
    F: Any,
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    anchor, positive, negative = as_inexact(F, anchor, positive, negative)
    small = number("triplet_margin_loss", "eps", eps)
    near = vector_norm(F, anchor - positive + small, p, -1)
    far = vector_norm(F, anchor - negative + small, p, -1)
    if swap:
        far = F.minimum(far, vector_norm(F, positive - negative + small, p, -1))
    terms = F.relu(near - far + number("triplet_margin_loss", "margin", margin))
    return reduce_terms(F, "triplet_margin_loss", terms, reduction)


def _triplet_margin_with_distance_loss(
    F: Any,
    anchor: Any,
    positive: Any,
    negative: Any,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    name = "triplet_margin_with_distance_loss"
    anchor, positive, negative = as_inexact(F, anchor, positive, negative)
    distance = F.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = F.minimum(far, distance(positive, negative))
    terms = F.relu(near - far + number(name, "margin", margin))
    return reduce_terms(F, name, terms, reduction)


def _require_spread(name: str, option: str, value: Any, target: str, shape: Any) -> None:
    """ShapeError unless a weight broadcasts to the shape of the terms."""
    try:
        fits = broadcast_shapes(value.shape, shape) == tuple(shape)
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(f"{name}: {option} {value.shape} for {target} {tuple(shape)}")


def _weighted_bce(F: Any, name: str, terms: Any, weight: Any, reduction: str) -> Any:
    if weight is not None:
        (weight,) = as_floats(F, weight)
        _require_spread(name, "weight", weight, "x", terms.shape)
        terms = terms * weight
    return reduce_terms(F, name, terms, reduction)


def _binary_cross_entropy(
    F: Any, x: Any, target: Any, reduction: str = "mean", weight: Any = None
) -> Any:
    if weight is None:
        return F.bce_loss(x, target, reduction=reduction)
    terms = F.bce_loss(x, target, reduction="none")
    return _weighted_bce(F, "binary_cross_entropy", terms, weight, reduction)


def _binary_cross_entropy_with_logits(
    F: Any,
    x: Any,
    target: Any,
    reduction: str = "mean",
    weight: Any = None,
    pos_weight: Any = None,
) -> Any:
    name = "binary_cross_entropy_with_logits"
    if weight is None and pos_weight is None:
        return F.bce_with_logits_loss(x, target, reduction=reduction)
    if pos_weight is None:
        terms = F.bce_with_logits_loss(x, target, reduction="none")
    else:
        x, target, pos_weight = as_floats(F, x, target, pos_weight)
        _require_spread(name, "pos_weight", pos_weight, "a target", target.shape)
        factor = 1.0 + (pos_weight - 1.0) * target
        terms = (1.0 - target) * x + factor * F.softplus(-x)
    return _weighted_bce(F, name, terms, weight, reduction)


def _multi_margin_loss(
    F: Any,
    x: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    name = "multi_margin_loss"
    (x,) = as_floats(F, x)
    if p not in (1, 2):
        raise AttributeValueError(f"{name}: p must be 1 or 2, not {p!r}")
    target = as_integers(F, name, target, "target")
    if len(x.shape) == 1 and same_shape(target.shape, (1,)):
        target = F.reshape(target, ())
    if len(x.shape) not in (1, 2) or not same_shape(target.shape, x.shape[:-1]):
        raise ShapeError(f"{name}: scores {x.shape} and classes {target.shape}")
    index = F.unsqueeze(target, -1)
    chosen = F.gather(x, index, axis=-1)
    terms = F.relu(x - chosen + number(name, "margin", margin))
    # gather counts a negative class from the end, and clamps one out of range; so does this.
    wrapped = F.where(index < 0, index + x.shape[-1], index)
    clamped = F.minimum(F.maximum(wrapped, 0), x.shape[-1] - 1)
    terms = F.where(F.arange(x.shape[-1]) == clamped, 0.0, terms if p == 1 else terms * terms)
    if weight is not None:
        (weight,) = as_floats(F, weight)
        if not same_shape(weight.shape, x.shape[-1:]):
            raise ShapeError(f"{name}: weight {weight.shape} for {x.shape[-1]} classes")
        terms = terms * F.unsqueeze(F.take(weight, target, axis=0), -1)
    return reduce_terms(F, name, F.sum(terms, axis=-1) / x.shape[-1], reduction)


def _multilabel_margin_loss(F: Any, x: Any, target: Any, reduction: str = "mean") -> Any:
    name = "multilabel_margin_loss"
    (x,) = as_floats(F, x)
    target = as_integers(F, name, target, "target")
    if len(x.shape) not in (1, 2) or not same_shape(target.shape, x.shape):
        raise ShapeError(f"{name}: scores {x.shape} and classes {target.shape}")
    count = x.shape[-1]
    # The classes of an example end before the first negative number.
    ended = F.cumsum(F.cast(target < 0, target.dtype), axis=-1)
    is_listed = F.unsqueeze(F.eq(ended, 0), -1)
    index = F.minimum(F.maximum(target, 0), count - 1)
    is_class = is_listed & F.eq(F.unsqueeze(index, -1), F.arange(count))
    others = F.logical_not(F.any(is_class, axis=-2, keepdims=True))
    chosen = F.unsqueeze(F.gather(x, index, axis=-1), -1)
    margins = F.relu(1.0 - chosen + F.unsqueeze(x, -2))
    terms = F.where(is_listed & others, margins, 0.0)
    return reduce_terms(F, name, F.sum(terms, axis=(-2, -1)) / count, reduction)


def _poisson_nll_loss(
    F: Any,
    x: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    x, target = as_floats(F, x, target)
    if log_input:
        terms = F.exp(x) - target * x
    else:
        terms = x - target * F.log(x + number("poisson_nll_loss", "eps", eps))
    if full:
        # Stirling's approximation of log(target!), for targets above 1 as in torch.
        safe = F.where(target > 1, target, 1.0)
        stirling = safe * F.log(safe) - safe + F.log(safe * (2 * pi)) * 0.5
        terms = terms + F.where(target > 1, stirling, 0.0)
    return reduce_terms(F, "poisson_nll_loss", terms, reduction)


def _gaussian_nll_loss(
    F: Any,
    x: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    x, target, var = as_floats(F, x, target, var)
    if not same_shape(var.shape, x.shape) and same_shape(var.shape, x.shape[:-1]):
        var = F.unsqueeze(var, -1)
    floor = number("gaussian_nll_loss", "eps", eps)
    # The gradient passes a variance below eps, as in torch.
    limited = var + F.detach(F.maximum(var, floor) - var)
    terms = (F.log(limited) + F.square(x - target) / limited) * 0.5
    terms = terms + 0.5 * log(2 * pi) if full else terms
    return reduce_terms(F, "gaussian_nll_loss", terms, reduction)


def _multilabel_soft_margin_loss(
    F: Any, x: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Any:
    x, target = as_floats(F, x, target)
    require_rank("multilabel_soft_margin_loss", x, 1)
    terms = target * F.softplus(-x) + (1.0 - target) * F.softplus(x)
    terms = terms if weight is None else terms * weight
    return reduce_terms(F, "multilabel_soft_margin_loss", F.mean(terms, axis=-1), reduction)


PAIR = ("x", "target")
ROWS: tuple[Op, ...] = (
    function(
        "binary_cross_entropy",
        "`bce_loss` with a weight for each term, which broadcasts.",
        _binary_cross_entropy,
        operands=PAIR,
    ),
    function(
        "binary_cross_entropy_with_logits",
        "`bce_with_logits_loss` with a weight for each term, and one for terms of positive "
        "targets.",
        _binary_cross_entropy_with_logits,
        operands=PAIR,
    ),
    function(
        "huber_loss",
        "Half the squared error below delta, delta * (error - delta / 2) above.",
        _huber_loss,
        operands=PAIR,
        advise=partial(broadcast_warning, "huber_loss"),
    ),
    function(
        "soft_margin_loss",
        "log(1 + exp(-target * x)).",
        _soft_margin_loss,
        operands=PAIR,
        advise=partial(broadcast_warning, "soft_margin_loss"),
    ),
    function(
        "hinge_embedding_loss",
        "x where the target is 1, max(0, margin - x) where it is -1.",
        _hinge_embedding_loss,
        operands=PAIR,
        advise=partial(broadcast_warning, "hinge_embedding_loss"),
    ),
    function(
        "margin_ranking_loss",
        "max(0, -target * (x - y) + margin).",
        _margin_ranking_loss,
        operands=("x", "y", "target"),
    ),
    function(
        "cosine_embedding_loss",
        "1 - cos(x, y) where the target is 1, max(0, cos(x, y) - margin) where it is -1.",
        _cosine_embedding_loss,
        operands=("x", "y", "target"),
    ),
    function(
        "triplet_margin_loss",
        "max(0, |anchor - positive| - |anchor - negative| + margin), of p-norms.",
        _triplet_margin_loss,
        operands=("anchor", "positive", "negative"),
    ),
    function(
        "triplet_margin_with_distance_loss",
        "max(0, distance(anchor, positive) - distance(anchor, negative) + margin) of a distance "
        "function.",
        _triplet_margin_with_distance_loss,
        operands=("anchor", "positive", "negative"),
    ),
    function(
        "multi_margin_loss",
        "The mean over other classes of max(0, margin - x[target] + x[class]) ** p, times the "
        "weight of the target class.",
        _multi_margin_loss,
        operands=PAIR,
    ),
    function(
        "multilabel_margin_loss",
        "The sum over classes of the target (up to its first negative number) and other classes "
        "of max(0, 1 - x[class] + x[other]), divided by the number of classes.",
        _multilabel_margin_loss,
        operands=PAIR,
    ),
    function(
        "poisson_nll_loss",
        "The negative log likelihood of counts under Poisson rates (or their logarithms).",
        _poisson_nll_loss,
        operands=PAIR,
    ),
    function(
        "gaussian_nll_loss",
        "The negative log likelihood of the target under normal distributions.",
        _gaussian_nll_loss,
        operands=("x", "target", "var"),
    ),
    function(
        "multilabel_soft_margin_loss",
        "The mean over classes of the binary cross entropy with logits.",
        _multilabel_soft_margin_loss,
        operands=PAIR,
    ),
)


def register_rows() -> None:
    register(*ROWS)
