"""Attention and its gradient: composites with torch's semantics.

Scores, sums and statistics are f32 for f16 and bf16 operands, and the result is rounded once. If
the `has_kernel` column allows it, a row stays one op for codegen, which uses FlashAttention and
never stores the scores (`form-attention`, nova/codegen/cpu/attention/flash_forward.py); elsewhere,
and for every second derivative, it is expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, accumulator, bool_, float_of, promote, promote_all
from nova.core.sizes import is_static, known_equal, same_shape
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.nn import as_type, widened
from nova.ops.rules import Types, broadcast_shapes, is_real, static_axis
from nova.ops.table import Op

Attrs = dict[str, Any]

MOST_FEATURES = 256
"""Wider heads are decomposed: their blocks would not fit into a core's private cache."""


# --- types ----------------------------------------------------------------------------------------


def _mask_type(mask: DType, common: DType) -> DType:
    if mask is not bool_ and not mask.is_float:
        raise DTypeError(f"a mask of {mask}", hint="bool: True takes part; float: added")
    # A float mask is added to the scores, which are f32 for f16 and bf16: it keeps its precision.
    return bool_ if mask is bool_ else promote(mask, common)


def cast_operands(
    dtypes: tuple[DType, ...], tensors: int, statistics: int = 0
) -> tuple[DType, ...]:
    """`tensors` operands of one float dtype, then statistics in its accumulator, then a mask."""
    common = float_of(promote_all(dtypes[:tensors]))
    masks = dtypes[tensors + statistics :]
    return (
        *(common,) * tensors,
        *(accumulator(common),) * statistics,
        *(_mask_type(mask, common) for mask in masks),
    )


def canonical(ins: Types, attrs: Attrs, q: int = 0) -> Attrs:
    scale = attrs["scale"]
    if scale is None:
        features = static_axis(ins[q], -1, "attention scales by the size of") if ins[q].rank else 0
        scale = 1.0 / sqrt(features) if features else 1.0
    if not is_real(scale):
        raise AttributeValueError(f"scale must be a number, not {scale!r}")
    return {**attrs, "causal": bool(attrs["causal"]), "scale": float(scale)}


def _scores_shape(q: TensorType, k: TensorType, mask: Types) -> tuple[int, ...]:
    if min(q.rank, k.rank) < 2 or not known_equal(q.shape[-1], k.shape[-1]):
        raise ShapeError(f"q {q.shape}, k {k.shape}", hint="q is (..., L, E), k (..., S, E)")
    scores = (*broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2])
    if mask and not same_shape(broadcast_shapes(scores, mask[0].shape), scores):
        raise ShapeError(f"mask {mask[0].shape} does not broadcast to scores {scores}")
    return scores


def result_type(ins: Types, attrs: Attrs) -> TensorType:
    q, k, v = (t.shape for t in ins[:3])
    if min(len(q), len(k), len(v)) < 2 or not same_shape((q[-1], k[-2]), (k[-1], v[-2])):
        raise ShapeError(
            f"q {q}, k {k}, v {v}",
            hint="q is (..., L, E), k (..., S, E), v (..., S, V)",
        )
    _scores_shape(ins[0], ins[1], ins[3:])
    return ins[0].with_shape((*broadcast_shapes(q[:-2], k[:-2], v[:-2]), q[-2], v[-1]))


def logsumexp_type(ins: Types, attrs: Attrs) -> TensorType:
    return TensorType(_scores_shape(ins[0], ins[1], ins[2:])[:-1], accumulator(ins[0].dtype))


def gradient_canonical(ins: Types, attrs: Attrs) -> Attrs:
    if attrs["of"] not in ("q", "k", "v"):
        raise AttributeValueError(f"of is 'q', 'k' or 'v', not {attrs['of']!r}")
    return canonical(ins, attrs, q=1)


def gradient_type(ins: Types, attrs: Attrs) -> TensorType:
    g, q, k, v, logsumexp, delta = ins[:6]
    out = result_type((q, k, v, *ins[6:]), attrs)
    if not same_shape(g.shape, out.shape):
        raise ShapeError(f"g {g.shape} is not a gradient of a result {out.shape}")
    if not same_shape(logsumexp.shape, _scores_shape(q, k, ())[:-1]) or not same_shape(
        delta.shape, g.shape[:-1]
    ):
        raise ShapeError(
            f"logsumexp {logsumexp.shape}, delta {delta.shape}",
            hint="logsumexp has a number for each row of scores, delta for each row of g",
        )
    return {"q": q, "k": k, "v": v}[attrs["of"]]


# --- expansions -----------------------------------------------------------------------------------


def _scores(F: Any, q: Any, k: Any, mask: Any, causal: bool, scale: float) -> Any:
    """The scores in the accumulator dtype; -inf for masked keys."""
    wide_q, wide_k = widened(F, q, k)
    scores = F.matmul(wide_q, F.swapaxes(wide_k, -1, -2)) * scale
    if mask is not None and mask.dtype is not bool_:
        scores = scores + as_type(F, mask, scores.dtype)
    allowed = None if mask is None or mask.dtype is not bool_ else mask
    if causal:
        rows, columns = F.arange(q.shape[-2]), F.arange(k.shape[-2])
        past = F.unsqueeze(rows, 1) >= columns
        allowed = past if allowed is None else F.logical_and(allowed, past)
    return scores if allowed is None else F.where(allowed, scores, -np.inf)


Drop = Callable[[Any], Any]
"""What dropout does to the weights, or to their gradients; an identity without it."""


def attend(
    F: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    causal: bool,
    scale: float,
    drop: Drop = lambda weights: weights,
) -> Any:
    """The expansion of attention."""
    scores = _scores(F, q, k, mask, causal, scale)
    weights = scores if scores.type.is_empty else drop(_weights(F, scores))
    (wide_v,) = widened(F, v)
    if not causal or scores.type.is_empty or v.type.is_empty:
        return as_type(F, F.matmul(weights, wide_v), q.dtype)
    # A weight of 0 does not mask non-finite values: they are added to the rows that see them.
    finite = F.where(F.isfinite(wide_v), wide_v, 0.0)
    return as_type(F, F.matmul(weights, finite) + _not_finite(F, wide_v, q.shape[-2]), q.dtype)


def _not_finite(F: Any, v: Any, rows: int) -> Any:
    """The contribution of non-finite values to the sums of the rows that see them; else 0."""
    keys = F.unsqueeze(F.arange(v.shape[-2]), 1)
    row_numbers = F.unsqueeze(F.arange(rows), 1)
    total: Any = 0.0
    categories = ((F.ne(v, v), np.nan), (F.eq(v, np.inf), np.inf), (F.eq(v, -np.inf), -np.inf))
    for flags, value in categories:
        first = F.min(F.where(flags, keys, v.shape[-2]), axis=-2, keepdims=True)
        total = F.where(row_numbers >= first, value, 0.0) + total
    return as_type(F, total, v.dtype)


def _top(F: Any, scores: Any) -> Any:
    top = F.detach(F.max(scores, axis=-1, keepdims=True))
    return F.where(F.eq(top, -np.inf), 0.0, top)


def _weights(F: Any, scores: Any) -> Any:
    """Softmax over the last axis that gives zeros for a fully masked row, as torch does."""
    e = F.exp(scores - _top(F, scores))
    total = F.sum(e, axis=-1, keepdims=True)
    return e / F.where(F.eq(total, 0.0), 1.0, total)


def logsumexp_of(F: Any, q: Any, k: Any, mask: Any = None, *, causal: bool, scale: float) -> Any:
    scores = _scores(F, q, k, mask, causal, scale)
    if scores.type.is_empty:
        return F.sum(scores, axis=-1) + np.inf
    top = _top(F, scores)
    total = F.sum(F.exp(scores - top), axis=-1)
    empty = F.eq(total, 0.0)
    return F.where(empty, np.inf, F.log(F.where(empty, 1.0, total)) + F.squeeze(top, -1))


def score_gradient(
    F: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    logsumexp: Any,
    delta: Any,
    mask: Any,
    *,
    causal: bool,
    scale: float,
    drop: Drop = lambda weights: weights,
) -> tuple[Any, Any]:
    """The weights, and the gradient of the scores before the scale."""
    scores = _scores(F, q, k, mask, causal, scale)
    weights = F.exp(scores - F.unsqueeze(logsumexp, -1))
    wide_g, wide_v = widened(F, g, v)
    towards = drop(F.matmul(wide_g, F.swapaxes(wide_v, -1, -2)))
    # For a masked value, it may be NaN.
    hidden = F.eq(scores, -np.inf)
    return weights, F.where(hidden, 0.0, weights * (towards - F.unsqueeze(delta, -1)))


def _gradient(F: Any, *operands: Any, of: str, **attrs: Any) -> Any:
    if shares_keys(operands):
        return sum_gradients(F, F.attention_gradient, operands, of=of, **attrs)
    return gradient(F, *operands, of=of, **attrs)


def shares_keys(operands: Sequence[Any]) -> bool:
    """Whether heads share keys, and a kernel could compute the gradients of each."""
    batches = {x.shape[:-2] for x in operands[:4]}
    return len(batches) > 1 and fits(*(x.type for x in operands[:4]))


def sum_gradients(
    F: Any, row: Callable[..., Any], operands: Sequence[Any], *, of: str, **attrs: Any
) -> Any:
    """Heads that share keys: the gradients of each are one op, and their sum another."""
    g, q, k, v, logsumexp, *others = operands
    batch = broadcast_shapes(*(x.shape[:-2] for x in (g, q, k, v)))
    spread = [F.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (g, q, k, v)]
    if logsumexp.shape[:-1] != batch:
        # Only values have all axes of the batch.
        logsumexp = F.broadcast_to(logsumexp, (*batch, logsumexp.shape[-1]))
    each = row(*spread, logsumexp, *others, of=of, **attrs)
    return F.sum_to(each, {"q": q, "k": k, "v": v}[of].shape)


def gradient(
    F: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    logsumexp: Any,
    delta: Any,
    mask: Any = None,
    *,
    of: str,
    causal: bool,
    scale: float,
    drop: Drop = lambda weights: weights,
) -> Any:
    """The expansion of a gradient."""
    weights, by_score = score_gradient(
        F, g, q, k, v, logsumexp, delta, mask, causal=causal, scale=scale, drop=drop
    )
    wide_g, wide_q, wide_k = widened(F, g, q, k)
    if of == "q":
        operand, result = q, F.matmul(by_score, wide_k) * scale
    elif of == "k":
        operand, result = k, F.matmul(F.swapaxes(by_score, -1, -2), wide_q) * scale
    else:
        operand, result = v, F.matmul(F.swapaxes(drop(weights), -1, -2), wide_g)
    return as_type(F, F.sum_to(result, operand.shape), operand.dtype)


def _attention_vjp(
    F: Any, g: Any, out: Any, q: Any, k: Any, v: Any, mask: Any = None, **attrs: Any
) -> list[Any]:
    logsumexp = F.attention_logsumexp(q, k, mask, **attrs)
    wide_g, wide_out = widened(F, g, out)
    delta = F.sum(wide_g * wide_out, axis=-1)
    operands = (g, q, k, v, logsumexp, delta, mask)
    pieces = [F.attention_gradient(*operands, of=of, **attrs) for of in ("q", "k", "v")]
    if mask is None:
        return pieces
    if mask.dtype is bool_:
        return [*pieces, None]
    _, by_score = score_gradient(F, *operands, **attrs)
    return [*pieces, as_type(F, F.sum_to(by_score, mask.shape), mask.dtype)]


# --- ops that are not expanded --------------------------------------------------------------------


def fits(*types: TensorType) -> bool:
    """Whether the schedules support operands (..., rows, features): no empty or very wide ones."""
    return all(
        is_static(t.shape[-1]) and not t.is_empty and t.shape[-1] <= MOST_FEATURES for t in types
    )


def attention_has_kernel(ins: Types, attrs: Attrs) -> bool:
    return fits(*ins[:3])


def logsumexp_has_kernel(ins: Types, attrs: Attrs) -> bool:
    return fits(*ins[:2])


def gradient_has_kernel(ins: Types, attrs: Attrs) -> bool:
    # Keys that several heads share need a sum of gradients: `_gradient` adds it.
    return fits(*ins[:4]) and len({t.shape[:-2] for t in ins[:4]}) == 1


SMOOTH = frozenset({"smooth"})

ROWS: tuple[Op, ...] = (
    Op(
        "scaled_dot_product_attention",
        "softmax(q @ k.T * scale + mask) @ v; a bool mask says what takes part, `causal` hides the "
        "future (aligned at the top left), and fully masked rows give zeros.",
        operands=("q", "k", "v", "mask?"),
        attrs={"causal": False, "scale": None},
        cast=lambda dtypes: cast_operands(dtypes, 3),
        canon=canonical,
        infer=result_type,
        vjp=_attention_vjp,
        compose=attend,
        has_kernel=attention_has_kernel,
        tags=SMOOTH,
    ),
    Op(
        "attention_logsumexp",
        "log(sum(exp(q @ k.T * scale + mask))) of each row of scores, as in "
        "`scaled_dot_product_attention`; inf for a fully masked row, whose weights "
        "exp(score - inf) are then 0.",
        operands=("q", "k", "mask?"),
        attrs={"causal": False, "scale": None},
        cast=lambda dtypes: cast_operands(dtypes, 2),
        canon=canonical,
        infer=logsumexp_type,
        compose=logsumexp_of,
        has_kernel=logsumexp_has_kernel,
        tags=SMOOTH,
    ),
    Op(
        "attention_gradient",
        "The gradient of `scaled_dot_product_attention` with respect to one of q, k and v (`of`), "
        "from the gradient g of its result, `attention_logsumexp`, and delta, the sum of g times "
        "the result along the features.",
        operands=("g", "q", "k", "v", "logsumexp", "delta", "mask?"),
        attrs={"of": "q", "causal": False, "scale": None},
        cast=lambda dtypes: cast_operands(dtypes, 4, 2),
        canon=gradient_canonical,
        infer=gradient_type,
        compose=_gradient,
        has_kernel=gradient_has_kernel,
        tags=SMOOTH,
    ),
)
