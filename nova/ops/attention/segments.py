"""Attention of packed sequences: composites; a row sees the keys of its own segment.

Sequences of several lengths lie one after the other along one axis, and `q_segment` and `k_segment`
number them. Kernels skip blocks of keys without a visible one: `key_begin` and `key_end` (for a
gradient also `row_begin` and `row_end`) are ranges that contain all keys of a row's segment, from
`segment_ranges`. The expansions do not read them. Dropout is the attribute `dropout`; without it,
nothing reads the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, bool_, i32, promote_all
from nova.core.sizes import is_static, same_shape
from nova.errors import DTypeError, ShapeError
from nova.ops.attention.dropout import (
    dropped_gradient_has_kernel,
    dropped_has_kernel,
    dropping,
    without_seed,
)
from nova.ops.attention.kept_weights import probability
from nova.ops.attention.rows import (
    SMOOTH,
    attend,
    canonical,
    cast_operands,
    gradient,
    gradient_canonical,
    gradient_type,
    logsumexp_has_kernel,
    logsumexp_of,
    logsumexp_type,
    result_type,
    score_gradient,
    shares_keys,
    sum_gradients,
)
from nova.ops.nn import as_type, widened
from nova.ops.rules import Types, broadcast_shapes, seed_operand
from nova.ops.table import Op

Attrs = dict[str, Any]

_FORWARD = ("q_segment", "k_segment", "key_begin", "key_end")
SEGMENT_OPERANDS = (*_FORWARD, "row_begin", "row_end")
"""The operands of a gradient; the others have the first four."""
_WORD = 2**32
_LAST = 2**31 - 1


# --- ids ------------------------------------------------------------------------------------------


def narrow_ids(F: Any, rows: Any, keys: Any) -> tuple[Any, Any]:
    """The ids as i32, with equal ones where they were equal; both have the same batch axes.

    Ids that need 64 bits become the first position of that id among the keys, or 2**31 - 1 where
    no key has it. The order of positions is that of the ids where these are sorted.
    """
    count = keys.shape[-1]
    if promote_all([rows.dtype, keys.dtype]).bits < 64 or count == 0:
        return F.cast(rows, "i32"), F.cast(keys, "i32")
    rows, keys = F.cast(rows, "i64"), F.cast(keys, "i64")
    find = _find_sorted if is_static(count) else _find_each
    return find(F, rows, keys), find(F, keys, keys)


def _find_sorted(F: Any, ids: Any, keys: Any) -> Any:
    """The first position of each id among the keys, by a stable sort and a binary search."""
    order = F.argsort(keys, axis=-1)
    ordered = F.gather(keys, order, axis=-1)
    at = F.minimum(F.searchsorted(ordered, ids), keys.shape[-1] - 1)
    is_equal = F.eq(F.gather(ordered, at, axis=-1), ids)
    return F.cast(F.where(is_equal, F.gather(order, at, axis=-1), _LAST), "i32")


def _find_each(F: Any, ids: Any, keys: Any) -> Any:
    """As `_find_sorted`, by comparing all pairs: a sort needs a static axis."""
    is_equal = F.eq(F.unsqueeze(ids, -1), F.unsqueeze(keys, -2))
    positions = F.where(is_equal, F.arange(keys.shape[-1]), _LAST)
    return F.cast(F.min(positions, axis=-1), "i32")


# --- ranges ---------------------------------------------------------------------------------------


def segment_ranges(F: Any, ids: Any, others: Any) -> tuple[Any, Any]:
    """For each id, the begin and the end (i32) of the range of `others` that may equal it.

    Both hold i32 and have the same batch axes. If neither decreases along its last axis, or none
    does once the ids below 1, of padding, are counted after the positive ones, the range has the
    equal ids exactly. Else the begin is -1 and the end is 2**31 - 1: the range has all others.
    """
    tensors = [F.cast(x, "i64") for x in (ids, others)]
    is_sorted = F.logical_and(*(_is_sorted(F, x) for x in tensors))
    padded_last = [F.where(x < 1, x + (_WORD - 1), x - 1) for x in tensors]
    is_padded = F.logical_and(*(_is_sorted(F, x) for x in padded_last))
    ids, others = (F.where(is_sorted, *pair) for pair in zip(tensors, padded_last, strict=True))
    is_exact = F.logical_or(is_sorted, is_padded)
    begin = F.where(is_exact, F.searchsorted(others, ids), -1)
    end = F.where(is_exact, F.searchsorted(others, ids, right=True), _LAST)
    return F.cast(begin, "i32"), F.cast(end, "i32")


def _is_sorted(F: Any, x: Any) -> Any:
    """Whether no number is below the one before it; of shape (..., 1)."""
    before = F.take(x, F.maximum(F.arange(x.shape[-1]) - 1, 0), axis=-1)
    return F.all(x >= before, axis=-1, keepdims=True)


# --- types ----------------------------------------------------------------------------------------


def _split(items: Sequence[Any], first: int, count: int) -> tuple[Any, Any]:
    """The items without `count` of them from `first` on, and those."""
    return (*items[:first], *items[first + count :]), tuple(items[first : first + count])


def _casts(
    dtypes: tuple[DType, ...], tensors: int, statistics: int, segments: int, *, has_seed: bool
) -> tuple[DType, ...]:
    """Those of attention, with segments, and a seed, before the mask."""
    first = tensors + statistics
    others, inserted = _split(dtypes, first, segments + has_seed)
    for dtype_ in inserted[:segments]:
        if not dtype_.is_integer:
            raise DTypeError(f"segments of {dtype_}", hint="ids and ranges are integers: i32")
    cast = cast_operands(others, tensors, statistics)
    seeds = [seed_operand(dtype_) for dtype_ in inserted[segments:]]
    return (*cast[:first], *(i32,) * segments, *seeds, *cast[first:])


def _check_segments(names: Sequence[str], types: Types, scores: tuple[Any, ...]) -> None:
    """`scores` is the shape of the scores: batch, rows of q, rows of k."""
    for name, type_ in zip(names, types, strict=True):
        size = scores[-1] if name in ("k_segment", "row_begin", "row_end") else scores[-2]
        whole = (*scores[:-2], size)
        fits = type_.rank and same_shape(type_.shape[-1:], (size,))
        if not fits or not same_shape(broadcast_shapes(type_.shape, whole), whole):
            raise ShapeError(
                f"{name} {type_.shape} does not broadcast to {whole}",
                hint="a number for each row of q, or of k",
            )


def _type(ins: Types, attrs: Attrs) -> TensorType:
    others, segments = _split(without_seed(ins, 7), 3, 4)
    out = result_type(others, attrs)
    _check_segments(_FORWARD, segments, (*out.shape[:-1], ins[1].shape[-2]))
    return out


def _logsumexp_type(ins: Types, attrs: Attrs) -> TensorType:
    others, segments = _split(ins, 2, 4)
    out = logsumexp_type(others, attrs)
    _check_segments(_FORWARD, segments, (*out.shape, ins[1].shape[-2]))
    return out


def _gradient_type(ins: Types, attrs: Attrs) -> TensorType:
    others, segments = _split(without_seed(ins, 12), 6, 6)
    out = gradient_type(others, attrs)
    _check_segments(SEGMENT_OPERANDS, segments, (*ins[0].shape[:-1], ins[2].shape[-2]))
    return out


def _with_dropout(canon: Any) -> Any:
    def complete(ins: Types, attrs: Attrs) -> Attrs:
        return {**canon(ins, attrs), "dropout": probability(attrs)}

    return complete


# --- expansions -----------------------------------------------------------------------------------


def _segment_mask(F: Any, q_segment: Any, k_segment: Any, mask: Any) -> Any:
    """The mask that hides the keys of other segments, too."""
    same = F.eq(F.unsqueeze(q_segment, -1), F.unsqueeze(k_segment, -2))
    if mask is None:
        return same
    return F.logical_and(same, mask) if mask.dtype is bool_ else F.where(same, mask, -np.inf)


def _drop(F: Any, seed: Any, batch: tuple[Any, ...], dropout: float) -> dict[str, Any]:
    return {"drop": dropping(F, seed, batch, dropout)} if dropout else {}


def _attention(F: Any, *operands: Any, dropout: float, **attrs: Any) -> Any:
    q, k, v, q_segment, k_segment, _, _, seed, *masks = operands
    mask = _segment_mask(F, q_segment, k_segment, *(masks or [None]))
    batch = result_type((q.type, k.type, v.type), attrs).shape[:-2]
    return attend(F, q, k, v, mask, **(_drop(F, seed, batch, dropout) | attrs))


def _logsumexp(F: Any, *operands: Any, **attrs: Any) -> Any:
    q, k, q_segment, k_segment, _, _, *masks = operands
    return logsumexp_of(
        F, q, k, _segment_mask(F, q_segment, k_segment, *(masks or [None])), **attrs
    )


def _gradient(F: Any, *operands: Any, of: str, dropout: float, **attrs: Any) -> Any:
    if shares_keys(operands):
        row = F.segment_attention_gradient
        return sum_gradients(F, row, operands, of=of, dropout=dropout, **attrs)
    g, q, k, v, logsumexp, delta, q_segment, k_segment, *_ = operands
    seed, *masks = operands[12:]
    mask = _segment_mask(F, q_segment, k_segment, *(masks or [None]))
    options = _drop(F, seed, g.shape[:-2], dropout) | attrs
    return gradient(F, g, q, k, v, logsumexp, delta, mask, of=of, **options)


def _vjp(F: Any, g: Any, out: Any, *operands: Any, dropout: float, **attrs: Any) -> list[Any]:
    q, k, v, q_segment, k_segment, begin, end, seed, *masks = operands
    segments = (q_segment, k_segment, begin, end)
    logsumexp = F.segment_attention_logsumexp(q, k, *segments, *masks, **attrs)
    wide_g, wide_out = widened(F, g, out)
    delta = F.sum(wide_g * wide_out, axis=-1)
    statistics = (g, q, k, v, logsumexp, delta)
    batch = broadcast_shapes(q_segment.shape[:-1], k_segment.shape[:-1])
    ids = [F.broadcast_to(x, (*batch, x.shape[-1])) for x in (k_segment, q_segment)]
    extras = (*segments, *segment_ranges(F, *ids), seed, *masks)
    pieces = [
        F.segment_attention_gradient(*statistics, *extras, of=of, dropout=dropout, **attrs)
        for of in ("q", "k", "v")
    ]
    others = [None] * (len(segments) + 1)
    if not masks or masks[0].dtype is bool_:
        return [*pieces, *others, *(None for _ in masks)]
    hidden = _segment_mask(F, q_segment, k_segment, masks[0])
    options = _drop(F, seed, g.shape[:-2], dropout) | attrs
    _, by_score = score_gradient(F, *statistics, hidden, **options)
    by_mask = as_type(F, F.sum_to(by_score, masks[0].shape), masks[0].dtype)
    return [*pieces, *others, by_mask]


# --- rows -----------------------------------------------------------------------------------------


ROWS: tuple[Op, ...] = (
    Op(
        "segment_attention",
        "`scaled_dot_product_attention` of packed sequences: a row of q sees the keys whose "
        "`k_segment` is its `q_segment`, all of them in the range `key_begin` to `key_end` of the "
        "row; with dropout of the weights as in `dropout_attention`. `attention` computes the "
        "ranges.",
        operands=("q", "k", "v", *_FORWARD, "seed", "mask?"),
        attrs={"dropout": 0.0, "causal": False, "scale": None},
        cast=lambda dtypes: _casts(dtypes, 3, 0, 4, has_seed=True),
        canon=_with_dropout(canonical),
        infer=_type,
        vjp=_vjp,
        compose=_attention,
        has_kernel=dropped_has_kernel,
        tags=SMOOTH | {"random"},
    ),
    Op(
        "segment_attention_logsumexp",
        "`attention_logsumexp` of packed sequences, as in `segment_attention`.",
        operands=("q", "k", *_FORWARD, "mask?"),
        attrs={"causal": False, "scale": None},
        cast=lambda dtypes: _casts(dtypes, 2, 0, 4, has_seed=False),
        canon=canonical,
        infer=_logsumexp_type,
        compose=_logsumexp,
        has_kernel=logsumexp_has_kernel,
        tags=SMOOTH,
    ),
    Op(
        "segment_attention_gradient",
        "The gradient of `segment_attention` with respect to one of q, k and v, as "
        "`attention_gradient`; `row_begin` to `row_end` is the range of rows that may see a key.",
        operands=("g", "q", "k", "v", "logsumexp", "delta", *SEGMENT_OPERANDS, "seed", "mask?"),
        attrs={"dropout": 0.0, "of": "q", "causal": False, "scale": None},
        cast=lambda dtypes: _casts(dtypes, 4, 2, 6, has_seed=True),
        canon=_with_dropout(gradient_canonical),
        infer=_gradient_type,
        compose=_gradient,
        has_kernel=dropped_gradient_has_kernel,
        tags=SMOOTH | {"random"},
    ),
)
