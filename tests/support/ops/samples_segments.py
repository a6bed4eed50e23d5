"""Samples of the attention of packed sequences, written out with torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from op_cases import Draw, Sample, case, constant, index, seed
from samples_nn import attention_gradient, attention_logsumexp, dropout_attention

from nova.core.dtypes import FLOATS


def _ids(batch: tuple[int, ...], rows: int, keys: int) -> tuple[Draw, ...]:
    """Ids of rows and keys in any order, and ranges of all keys."""
    begin, end = constant((*batch, rows), -1), constant((*batch, rows), keys)
    return index((*batch, rows), 1), index((*batch, keys), 1), begin, end


def _ranges(batch: tuple[int, ...], rows: int, keys: int) -> tuple[Draw, ...]:
    return constant((*batch, keys), -1), constant((*batch, keys), rows)


def _mask(rows: Any, keys: Any, mask: Any) -> Any:
    same = rows[..., :, None] == keys[..., None, :]
    if mask is None:
        return same
    return same & mask if mask.dtype == torch.bool else torch.where(same, mask, -torch.inf)


def _attention(
    q: Any,
    k: Any,
    v: Any,
    rows: Any,
    keys: Any,
    begin: Any,
    end: Any,
    key: Any,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: Any = None,
) -> Any:
    return dropout_attention(q, k, v, key, _mask(rows, keys, mask), dropout, causal, scale)


def _logsumexp(
    q: Any, k: Any, rows: Any, keys: Any, begin: Any, end: Any, mask: Any = None, **attrs: Any
) -> Any:
    return attention_logsumexp(q, k, _mask(rows, keys, mask), **attrs)


def _gradient(*operands: Any, dropout: float = 0.0, **attrs: Any) -> Any:
    rows, keys = operands[6:8]
    mask = _mask(rows, keys, operands[13] if len(operands) > 13 else None)
    assert dropout == 0
    return attention_gradient(*operands[:6], mask, **attrs)


def _segment_ids(ends: Any, length: int) -> Any:
    lengths = np.diff(ends.numpy())
    ids = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    last = np.full(max(0, length - len(ids)), len(ends))
    return torch.from_numpy(np.concatenate([ids, last])[:length].astype("i4"))


_GRADIENT = ((2, 5, 3), (2, 5, 4), (2, 7, 4), (2, 7, 3), (2, 5), (2, 5))
_SEGMENTS = (*_ids((2,), 5, 7), *_ranges((2,), 5, 7))
_EMPTY = (*((0, *shape[1:]) for shape in _GRADIENT), *_ids((), 5, 7), *_ranges((), 5, 7))

SAMPLES = {
    "segment_attention": Sample(
        (
            case((2, 5, 4), (2, 7, 4), (2, 7, 3), *_ids((2,), 5, 7), seed()),
            case(
                (2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 4), *_ids((2, 1), 6, 6), seed(), causal=True
            ),
            case((5, 4), (7, 4), (7, 3), *_ids((), 5, 7), seed(), Draw((5, 7), "bool"), scale=0.3),
            case(
                (2, 3, 5, 4), (2, 1, 5, 4), (2, 1, 5, 4), *_ids((2, 1), 5, 5), seed(), dropout=0.2
            ),
            case((0, 5, 4), (0, 7, 4), (0, 7, 3), *_ids((), 5, 7), seed()),
        ),
        _attention,
        large=(
            case((4, 33, 16), (4, 33, 16), (4, 33, 16), *_ids((4,), 33, 33), seed(), causal=True),
        ),
        dtypes=FLOATS,
        rounds=4,
    ),
    "segment_attention_logsumexp": Sample(
        (
            case((2, 5, 4), (2, 7, 4), *_ids((2,), 5, 7)),
            case((2, 3, 6, 4), (2, 3, 6, 4), *_ids((2, 1), 6, 6), causal=True),
            case((5, 4), (7, 4), *_ids((), 5, 7), Draw((5, 7), "bool")),
            case((0, 5, 4), (0, 7, 4), *_ids((), 5, 7)),
        ),
        _logsumexp,
        dtypes=FLOATS,
        rounds=4,
    ),
    "segment_attention_gradient": Sample(
        (
            case(*_GRADIENT, *_SEGMENTS, seed(), of="q"),
            case(*_GRADIENT, *_SEGMENTS, seed(), of="k", causal=True),
            case(*_GRADIENT, *_SEGMENTS, seed(), Draw((5, 7), "bool"), of="v"),
            case(*_EMPTY, seed(), of="k"),
        ),
        _gradient,
        dtypes=FLOATS,
        rounds=6,
    ),
    "segment_ids": Sample(
        (
            case(Draw((5,), "steps"), length=20),
            case(Draw((1,), "steps"), length=3),
            case(Draw((4,), "steps"), length=0),
            case(Draw((0,), "steps"), length=2),
        ),
        _segment_ids,
        grad=False,
    ),
}
