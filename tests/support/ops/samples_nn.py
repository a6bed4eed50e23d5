"""Samples of softmax, the norms, attention, the losses and the random rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as tf
from op_cases import Case, Draw, Sample, case, index, seed
from op_philox import box_muller, kept_weights, uniforms, weight_factors
from torch.nn.attention import SDPBackend, sdpa_kernel

from nova.core.dtypes import FLOATS

LARGE = (67, 331)

# --- softmax and norms ----------------------------------------------------------------------------

SOFTMAX_CASES = (
    case((5, 13)),
    case((2, 3, 65), axis=1),
    case((7,), axis=0),
    case(()),
    case((33, 5), axis=0),
    case((3, 0, 2)),
    case((0,)),
    case((4, 1)),
)


def _softmax(function: Any) -> Any:
    return lambda x, axis=-1: function(x, axis)


def _layer_norm(
    x: Any, weight: Any = None, bias: Any = None, ndim: int = 1, eps: Any = 1e-5
) -> Any:
    return tf.layer_norm(x, x.shape[x.ndim - ndim :], weight, bias, eps)


def _rms_norm(x: Any, weight: Any = None, ndim: int = 1, eps: Any = None) -> Any:
    return tf.rms_norm(x, x.shape[x.ndim - ndim :], weight, eps)


NORMS = {
    "softmax": Sample(SOFTMAX_CASES, _softmax(torch.softmax), large=(case(LARGE),)),
    "log_softmax": Sample(SOFTMAX_CASES, _softmax(torch.log_softmax), large=(case(LARGE),)),
    "layer_norm": Sample(
        (
            case((5, 13), (13,), (13,)),
            case((2, 3, 7), (3, 7), ndim=2),
            case((4, 65)),
            case((7,), eps=1e-3),
            case((0, 5), (5,), (5,)),
        ),
        _layer_norm,
        large=(case(LARGE, (331,), (331,)),),
    ),
    "rms_norm": Sample(
        (
            case((5, 13), (13,), eps=1e-6),
            case((2, 3, 7), (3, 7), ndim=2, eps=1e-5),
            case((4, 65), eps=0.0),
            case((0, 5), (5,), eps=1e-6),
        ),
        _rms_norm,
        large=(case(LARGE, (331,), eps=1e-6),),
    ),
}

# --- attention ------------------------------------------------------------------------------------


def _attention(
    q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: Any = None
) -> Any:
    # torch's plain path: the fused ones have no second derivative.
    if causal and mask is not None:
        past = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        mask = mask & past if mask.dtype == torch.bool else mask.masked_fill(~past, -torch.inf)
        causal = False
    batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (t.expand(*batch, *t.shape[-2:]) for t in (q, k, v))
    with sdpa_kernel(SDPBackend.MATH):
        return tf.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)


def _attention_scores(q: Any, k: Any, mask: Any, causal: bool, scale: Any) -> Any:
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if is_bool else scores + mask
    if causal:
        past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~past, -torch.inf)
    return scores


def attention_logsumexp(
    q: Any, k: Any, mask: Any = None, causal: bool = False, scale: Any = None
) -> Any:
    scores = _attention_scores(q, k, mask, causal, scale)
    observed = (scores > -torch.inf).any(-1)
    # The derivative of a logsumexp of nothing but -inf would be NaN, also where it is not used.
    filled = torch.where(observed[..., None], scores, 0.0)
    return torch.where(observed, filled.logsumexp(-1), torch.inf)


def attention_gradient(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    logsumexp: Any,
    delta: Any,
    mask: Any = None,
    of: str = "q",
    causal: bool = False,
    scale: Any = None,
) -> Any:
    weights = (_attention_scores(q, k, mask, causal, scale) - logsumexp[..., None]).exp()
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    by_score = weights * (g @ v.transpose(-1, -2) - delta[..., None])
    if of == "q":
        return (by_score @ k * scale).sum_to_size(q.shape)
    if of == "k":
        return (by_score.transpose(-1, -2) @ q * scale).sum_to_size(k.shape)
    return (weights.transpose(-1, -2) @ g).sum_to_size(v.shape)


_GRADIENT = ((2, 5, 3), (2, 5, 4), (2, 7, 4), (2, 7, 3), (2, 5), (2, 5))

ATTENTION = {
    "attention_logsumexp": Sample(
        (
            case((2, 5, 4), (2, 7, 4)),
            case((2, 3, 6, 4), (2, 3, 6, 4), causal=True),
            case((2, 5, 4), (2, 7, 4), Draw((5, 7), "bool")),
            case((5, 4), (7, 4), Draw((5, 7), "mask"), scale=0.3),
            case((2, 3, 5, 4), (2, 1, 5, 4), Draw((5, 5), "bool"), causal=True),
            case((0, 5, 4), (0, 7, 4)),
        ),
        attention_logsumexp,
        large=(case((4, 33, 16), (4, 33, 16), causal=True),),
    ),
    "attention_gradient": Sample(
        (
            case(*_GRADIENT, of="q"),
            case(*_GRADIENT, of="k", causal=True),
            case(*_GRADIENT, Draw((5, 7), "bool"), of="v"),
            case(*_GRADIENT, Draw((1, 7), "mask"), of="k", scale=0.3),
            case((3, 5, 3), (3, 5, 4), (1, 7, 4), (3, 7, 3), (3, 5), (3, 5), of="k"),
            case((0, 5, 3), (0, 5, 4), (0, 7, 4), (0, 7, 3), (0, 5), (0, 5), of="v"),
        ),
        attention_gradient,
        dtypes=FLOATS,
        large=tuple(case(*((4, 33, 16),) * 4, *((4, 33),) * 2, of=of) for of in "qkv"),
    ),
    "scaled_dot_product_attention": Sample(
        (
            case((2, 5, 4), (2, 7, 4), (2, 7, 3)),
            case((2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 4), causal=True),
            case((2, 5, 4), (2, 7, 4), (2, 7, 3), Draw((5, 7), "bool")),
            case((5, 4), (7, 4), (7, 3), scale=0.3),
            case((3, 5, 4), (1, 7, 4), (3, 7, 3), Draw((3, 1, 7), "mask")),
            case((2, 3, 5, 4), (2, 1, 5, 4), (2, 1, 5, 4), Draw((5, 5), "bool"), causal=True),
            case((1, 9, 8), (1, 9, 8), (1, 9, 8), causal=True),
            case((0, 5, 4), (0, 7, 4), (0, 7, 3)),
        ),
        _attention,
        large=(case((4, 33, 16), (4, 33, 16), (4, 33, 16), causal=True),),
    ),
}

# --- losses ---------------------------------------------------------------------------------------

PAIRS = (
    case((5, 13), (5, 13)),
    case((67,), (67,), reduction="none"),
    case((2, 3), (2, 3), reduction="sum"),
    case((), ()),
    case((0, 3), (0, 3), reduction="sum"),
)


def _paired(torch_function: Any, *more: Case, **columns: Any) -> Sample:
    large = (case(LARGE, LARGE), case(LARGE, LARGE, reduction="none"))
    return Sample((*PAIRS, *more), torch_function, large=large, **columns)


def _hinge(x: Any, target: Any, reduction: str = "mean") -> Any:
    terms = torch.relu(1 - target * x)
    return {"mean": terms.mean, "sum": terms.sum, "none": lambda: terms}[reduction]()


def _kl_div(x: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    terms = tf.kl_div(x, target, reduction="none", log_target=log_target)
    if reduction == "batchmean":
        return terms.sum() / terms.shape[0]
    # torch warns that 'mean' is not the mathematical definition: the same number without it.
    return {"mean": terms.mean, "sum": terms.sum, "none": lambda: terms}[reduction]()


def _classes(torch_function: Any) -> Any:
    def function(x: Any, target: Any, weight: Any = None, **attrs: Any) -> Any:
        if not target.is_floating_point():
            count = x.shape[0 if x.ndim == 1 else 1]
            ignored = target == attrs.pop("ignore_index", -100)
            target = torch.where(ignored, -100, target % count)
        return torch_function(x, target, weight, **attrs)

    return function


WEIGHT = Draw((4,), "weight")
CLASS_CASES = (
    case((5, 7), index((5,), 7)),
    case((5, 7), index((5,), 7), Draw((7,), "weight"), ignore_index=3),
    case((2, 4, 3), index((2, 3), 4), reduction="none"),
    case((7,), index((), 7), reduction="sum"),
    case((2, 4, 3, 2), index((2, 3, 2), 4), WEIGHT, reduction="none", ignore_index=-1),
    case((0, 4), index((0,), 4), reduction="sum"),
)
SMOOTH_CASES = (
    case((5, 7), index((5,), 7), label_smoothing=0.1),
    case((5, 7), index((5,), 7), Draw((7,), "weight"), label_smoothing=0.3, ignore_index=2),
    case((2, 4, 3), index((2, 3), 4), WEIGHT, label_smoothing=0.2, reduction="sum"),
    case((5, 7), Draw((5, 7), "probability")),
    case((2, 4, 3), Draw((2, 4, 3), "probability"), WEIGHT, label_smoothing=0.1),
    case((2, 4, 3), Draw((2, 4, 3), "probability"), reduction="none"),
    case((7,), Draw((7,), "probability"), reduction="sum"),
)

LOSSES = {
    "mse_loss": _paired(tf.mse_loss),
    "mae_loss": _paired(tf.l1_loss),
    "l1_loss": _paired(tf.l1_loss),
    "smooth_l1_loss": _paired(
        tf.smooth_l1_loss, case((7, 5), (7, 5), beta=0.3), case((7,), (7,), beta=0.0)
    ),
    "bce_loss": _paired(tf.binary_cross_entropy),
    "bce_with_logits_loss": _paired(tf.binary_cross_entropy_with_logits),
    "kl_div": _paired(
        _kl_div,
        case((4, 5), (4, 5), reduction="batchmean"),
        case((4, 5), Draw((4, 5), "real"), log_target=True),
    ),
    "hinge_loss": Sample(
        tuple(case(c.operands[0], Draw(c.operands[1].shape, "sign"), **c.attrs) for c in PAIRS),
        _hinge,
        large=(case(LARGE, Draw(LARGE, "sign")),),
    ),
    "cross_entropy": Sample(
        (*CLASS_CASES, *SMOOTH_CASES),
        _classes(tf.cross_entropy),
        large=(case(LARGE, index((67,), 331)),),
        dtypes=FLOATS,
        typed=4,
    ),
    "nll_loss": Sample(
        CLASS_CASES,
        _classes(tf.nll_loss),
        large=(case(LARGE, index((67,), 331)),),
        dtypes=FLOATS,
        typed=4,
    ),
}

# --- random rows ----------------------------------------------------------------------------------


def _dropout(x: Any, key: Any, p: float = 0.5, training: bool = True) -> Any:
    if not training or p == 0:
        return x
    retained = torch.from_numpy(np.asarray(uniforms(int(key), tuple(x.shape), 0) >= p))
    return torch.where(retained, x * (0.0 if p == 1 else 1 / (1 - p)), torch.zeros_like(x))


RANDOM = {
    "uniform": Sample(
        (
            case(seed(), shape=(67,)),
            case(seed(), shape=(2, 3, 5), stream=7),
            case(seed(), shape=()),
            case(seed(), shape=(0, 2)),
        ),
        numpy=lambda key, shape, stream=0: uniforms(int(key), shape, stream),
        large=(case(seed(), shape=LARGE),),
        grad=False,
    ),
    "normal": Sample(
        (case(seed(), shape=(67,)), case(seed(), shape=(2, 3, 5)), case(seed(), shape=(0,))),
        numpy=lambda key, shape: box_muller(int(key), shape),
        large=(case(seed(), shape=LARGE),),
        grad=False,
    ),
    "dropout": Sample(
        (
            case((67,), seed()),
            case((5, 13), seed(), p=0.25),
            case((), seed(), p=0.9),
            case((7,), seed(), p=1),
            case((7,), seed(), p=0.3, training=False),
            case((0, 2), seed()),
        ),
        _dropout,
        large=(case(LARGE, seed(), p=0.1),),
    ),
}

# --- attention with dropout -----------------------------------------------------------------------


def _kept(key: Any, shape: Any, dropout: float) -> Any:
    """The factors of all weights."""
    return torch.from_numpy(weight_factors(int(key), tuple(shape), dropout))


def dropout_attention(
    q: Any,
    k: Any,
    v: Any,
    key: Any,
    mask: Any = None,
    dropout: float = 0.5,
    causal: bool = False,
    scale: Any = None,
) -> Any:
    scores = _attention_scores(q, k, mask, causal, scale)
    observed = (scores > -torch.inf).any(-1, keepdim=True)
    weights = torch.where(observed, torch.where(observed, scores, 0.0).softmax(-1), 0.0)
    batch = torch.broadcast_shapes(weights.shape[:-2], v.shape[:-2])
    weights = weights.expand(*batch, *weights.shape[-2:])
    return (weights * _kept(key, weights.shape, dropout)) @ v


def _dropout_attention_gradient(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    logsumexp: Any,
    delta: Any,
    key: Any,
    mask: Any = None,
    dropout: float = 0.5,
    of: str = "q",
    causal: bool = False,
    scale: Any = None,
) -> Any:
    weights = (_attention_scores(q, k, mask, causal, scale) - logsumexp[..., None]).exp()
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    factors = _kept(key, weights.shape, dropout)
    by_score = weights * (g @ v.transpose(-1, -2) * factors - delta[..., None])
    if of == "q":
        return by_score @ k * scale
    if of == "k":
        return by_score.transpose(-1, -2) @ q * scale
    return (weights * factors).transpose(-1, -2) @ g


DROPPED = {
    "kept_weights": Sample(
        (
            case(seed(), shape=(18, 37)),
            case(seed(), shape=(2, 3, 5, 7), dropout=0.1),
            case(seed(), shape=(3, 4), dropout=1),
            case(seed(), shape=(0, 4, 2)),
        ),
        numpy=lambda key, shape, dropout=0.5: kept_weights(int(key), shape, dropout),
        large=(case(seed(), shape=LARGE),),
        grad=False,
    ),
    "dropout_attention": Sample(
        (
            case((2, 5, 4), (2, 7, 4), (2, 7, 3), seed(), dropout=0.3),
            case((2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 4), seed(), dropout=0.6, causal=True),
            case((5, 4), (7, 4), (7, 3), seed(), Draw((5, 7), "bool"), scale=0.3),
            case((2, 3, 5, 4), (2, 1, 5, 4), (2, 1, 5, 4), seed(), dropout=0.2),
            case((5, 4), (7, 4), (2, 7, 3), seed(), dropout=0.2),
            case((5, 4), (7, 4), (7, 3), seed(), dropout=0),
            case((5, 4), (7, 4), (7, 3), seed(), dropout=1),
            case((0, 5, 4), (0, 7, 4), (0, 7, 3), seed(), dropout=0.2),
        ),
        dropout_attention,
        large=(case((4, 33, 16), (4, 33, 16), (4, 33, 16), seed(), causal=True),),
        dtypes=FLOATS,
        rounds=4,
    ),
    "dropout_attention_gradient": Sample(
        (
            case(*_GRADIENT, seed(), of="q", dropout=0.3),
            case(*_GRADIENT, seed(), of="k", causal=True),
            case(*_GRADIENT, seed(), Draw((5, 7), "bool"), of="v", dropout=0.1),
            case(*((0, *shape[1:]) for shape in _GRADIENT), seed(), of="k", dropout=0.1),
        ),
        _dropout_attention_gradient,
        dtypes=FLOATS,
        rounds=6,
    ),
}


def _attend(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    causal: bool = False,
    scale: Any = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> Any:
    if not dropout:
        return _attention(q, k, v, mask, causal, scale)
    return dropout_attention(q, k, v, seed, mask, dropout, causal, scale)


DROPPED["attention"] = Sample(
    (
        case((2, 5, 4), (2, 7, 4), (2, 7, 3), causal=True),
        case((2, 5, 4), (2, 7, 4), (2, 7, 3), dropout=0.3, seed=9),
        case((5, 4), (7, 4), (2, 7, 3), scale=0.4),
        case((0, 5, 4), (0, 7, 4), (0, 7, 3)),
    ),
    _attend,
    large=(case((4, 33, 16), (4, 33, 16), (4, 33, 16), dropout=0.2, seed=3),),
    rounds=4,
)

SAMPLES = NORMS | ATTENTION | LOSSES | RANDOM | DROPPED
