"""Attention with dropout of the weights: composites, with the random bits of `kept_weights`.

The bits of a weight are a function of the seed and of its position (Philox), so the gradients draw
the same bits again, and no mask is stored: FlashAttention-2 computes them where it computes the
weights.
"""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import DType, TensorType, bool_
from nova.ops.attention.kept_weights import UNIT, kept_scale, least_kept, probability
from nova.ops.attention.rows import (
    SMOOTH,
    Drop,
    attend,
    attention_has_kernel,
    canonical,
    cast_operands,
    gradient,
    gradient_canonical,
    gradient_has_kernel,
    gradient_type,
    result_type,
    score_gradient,
    shares_keys,
    sum_gradients,
)
from nova.ops.nn import as_type, widened
from nova.ops.randomness import check_seed
from nova.ops.rules import Types, seed_operand
from nova.ops.table import Op

Attrs = dict[str, Any]


def _without(position: int, items: tuple[Any, ...]) -> tuple[Any, ...]:
    return items[:position] + items[position + 1 :]


def _casts(dtypes: tuple[DType, ...], tensors: int, statistics: int = 0) -> tuple[DType, ...]:
    """Those of attention, with a seed before the mask."""
    position = tensors + statistics
    seed = seed_operand(dtypes[position])
    others = cast_operands(_without(position, dtypes), tensors, statistics)
    return (*others[:position], seed, *others[position:])


def _canon(ins: Types, attrs: Attrs) -> Attrs:
    return {**canonical(ins, attrs), "dropout": probability(attrs)}


def _gradient_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {**gradient_canonical(ins, attrs), "dropout": probability(attrs)}


def without_seed(ins: Types, position: int) -> Types:
    """The types without that of the seed, at `position`; an error unless it is one number."""
    check_seed(ins[position])
    return _without(position, ins)


def _type(ins: Types, attrs: Attrs) -> TensorType:
    return result_type(without_seed(ins, 3), attrs)


def _gradient_type(ins: Types, attrs: Attrs) -> TensorType:
    return gradient_type(without_seed(ins, 6), attrs)


def dropping(F: Any, seed: Any, batch: tuple[Any, ...], p: float) -> Drop:
    """Dropout of weights at all points of the batch of the result."""

    def drop(weights: Any) -> Any:
        shape = (*batch, *weights.shape[-2:])
        is_kept = F.kept_weights(seed, shape=shape, dropout=p)
        return F.where(is_kept, F.broadcast_to(weights, shape) * kept_scale(p), 0.0)

    return drop


def _attention(
    F: Any, q: Any, k: Any, v: Any, seed: Any, mask: Any = None, *, dropout: float, **attrs: Any
) -> Any:
    types = (q.type, k.type, v.type)
    batch = result_type(types, attrs).shape[:-2]
    return attend(F, q, k, v, mask, drop=dropping(F, seed, batch, dropout), **attrs)


def _gradient(F: Any, *operands: Any, of: str, dropout: float, **attrs: Any) -> Any:
    if shares_keys(operands):
        row = F.dropout_attention_gradient
        return sum_gradients(F, row, operands, of=of, dropout=dropout, **attrs)
    g, seed = operands[0], operands[6]
    drop = dropping(F, seed, g.shape[:-2], dropout)
    return gradient(F, *_without(6, operands), of=of, drop=drop, **attrs)


def _vjp(
    F: Any,
    g: Any,
    out: Any,
    q: Any,
    k: Any,
    v: Any,
    seed: Any,
    mask: Any = None,
    *,
    dropout: float,
    **attrs: Any,
) -> list[Any]:
    logsumexp = F.attention_logsumexp(q, k, mask, **attrs)
    wide_g, wide_out = widened(F, g, out)
    # The sum of each row's weights times their gradients, dropped ones included.
    delta = F.sum(wide_g * wide_out, axis=-1)
    operands = (g, q, k, v, logsumexp, delta)
    pieces = [
        F.dropout_attention_gradient(*operands, seed, mask, of=of, dropout=dropout, **attrs)
        for of in ("q", "k", "v")
    ]
    if mask is None:
        return [*pieces, None]
    if mask.dtype is bool_:
        return [*pieces, None, None]
    drop = dropping(F, seed, g.shape[:-2], dropout)
    _, by_score = score_gradient(F, *operands, mask, drop=drop, **attrs)
    return [*pieces, None, as_type(F, F.sum_to(by_score, mask.shape), mask.dtype)]


def keeps_some(attrs: Attrs) -> bool:
    """Whether some weights are kept."""
    return least_kept(attrs["dropout"]) < UNIT


def dropped_has_kernel(ins: Types, attrs: Attrs) -> bool:
    return attention_has_kernel(ins, attrs) and keeps_some(attrs)


def dropped_gradient_has_kernel(ins: Types, attrs: Attrs) -> bool:
    return gradient_has_kernel(ins, attrs) and keeps_some(attrs)


ROWS: tuple[Op, ...] = (
    Op(
        "dropout_attention",
        "`scaled_dot_product_attention` with dropout of the weights: those that `kept_weights` "
        "keeps (the batch axes of the result, rows of q, rows of k) are divided by their "
        "probability, and neither weights nor bits are stored.",
        operands=("q", "k", "v", "seed", "mask?"),
        attrs={"dropout": 0.5, "causal": False, "scale": None},
        cast=lambda dtypes: _casts(dtypes, 3),
        canon=_canon,
        infer=_type,
        vjp=_vjp,
        compose=_attention,
        has_kernel=dropped_has_kernel,
        tags=SMOOTH | {"random"},
    ),
    Op(
        "dropout_attention_gradient",
        "The gradient of `dropout_attention` with respect to one of q, k and v, as "
        "`attention_gradient`; it draws the same random bits again.",
        operands=("g", "q", "k", "v", "logsumexp", "delta", "seed", "mask?"),
        attrs={"dropout": 0.5, "of": "q", "causal": False, "scale": None},
        cast=lambda dtypes: _casts(dtypes, 4, 2),
        canon=_gradient_canon,
        infer=_gradient_type,
        compose=_gradient,
        has_kernel=dropped_gradient_has_kernel,
        tags=SMOOTH | {"random"},
    ),
)
