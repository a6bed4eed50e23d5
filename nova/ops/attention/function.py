"""`attention`, which selects a row of attention by its arguments, and `segment_ids` for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.sizes import is_static, known_equal
from nova.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    NovaError,
    ShapeError,
)
from nova.ops.attention.kept_weights import probability
from nova.ops.attention.segments import narrow_ids, segment_ranges
from nova.ops.functional.common import as_tensor, is_tensor
from nova.ops.rules import broadcast_shapes, int_value
from nova.ops.table import Op


def _attention(
    F: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: Any = None,
    segment_ids: Any = None,
) -> Any:
    attrs = {"causal": causal, "scale": scale}
    has_dropout = probability({"dropout": dropout}) != 0
    if has_dropout and seed is None:
        raise AttributeValueError(
            f"attention: dropout={dropout} needs a seed",
            hint="pass seed=, an integer or a tensor; nova.nn.next_seed() gives a new one",
        )
    if segment_ids is not None:
        q, k, v = (as_tensor(F, x) for x in (q, k, v))
        if min(len(x.shape) for x in (q, k, v)) < 2:
            raise ShapeError(
                f"attention: q {q.shape}, k {k.shape}, v {v.shape}",
                hint="q is (..., L, E), k (..., S, E), v (..., S, V)",
            )
        segments = _segments(F, q, k, segment_ids)
        seed = seed if has_dropout else 0
        return F.segment_attention(q, k, v, *segments, seed, mask, dropout=dropout, **attrs)
    if has_dropout:
        return F.dropout_attention(q, k, v, seed, mask, dropout=dropout, **attrs)
    return F.scaled_dot_product_attention(q, k, v, mask, **attrs)


_PAIR = "where they differ, a tuple (ids of the queries, ids of the keys)"
_IDS = f"pass an array of integers, an id for each position: (S,) or (B, S); {_PAIR}"


def _segments(F: Any, q: Any, k: Any, segment_ids: Any) -> tuple[Any, Any, Any, Any]:
    """The ids of rows and keys, broadcast against each other, and the range of keys of a row."""
    is_pair = isinstance(segment_ids, tuple) and len(segment_ids) == 2
    pair = segment_ids if is_pair else (segment_ids, segment_ids)
    rank = max(len(q.shape), len(k.shape)) - 1
    rows, keys = (
        _ids(F, ids, x, name, rank)
        for ids, x, name in zip(pair, (q, k), ("queries", "keys"), strict=True)
    )
    batch = broadcast_shapes(rows.shape[:-1], keys.shape[:-1])
    rows, keys = (F.broadcast_to(ids, (*batch, ids.shape[-1])) for ids in (rows, keys))
    rows, keys = narrow_ids(F, rows, keys)
    return rows, keys, *segment_ranges(F, rows, keys)


def _ids(F: Any, segment_ids: Any, x: Any, name: str, rank: int) -> Any:
    """Ids with `rank` axes: one of 1 for each batch axis of the result that they do not have."""
    ids = _integers(F, segment_ids, f"attention: segment_ids of the {name}", _IDS)
    if not ids.dtype.is_integer:
        raise DTypeError(
            f"attention: segment ids of {ids.dtype}", hint="the ids of sequences are integers"
        )
    length = x.shape[-2]
    if not 1 <= len(ids.shape) <= rank or not known_equal(ids.shape[-1], length):
        raise ShapeError(
            f"attention: segment ids {ids.shape} of the {name}, which are {x.shape}",
            hint="the first batch axes, then an id for each position: (B, S) for (B, H, S, E); "
            + _PAIR,
        )
    missing = rank - len(ids.shape)
    return F.reshape(ids, (*ids.shape[:-1], *(1,) * missing, length))


def _integers(F: Any, value: Any, title: str, hint: str) -> Any:
    """`value` as a tensor; integers of 64 bits in an array that fit i32 become i32."""
    if is_tensor(value):
        return value
    try:
        constant = as_tensor(F, value)
    except NovaError as error:
        raise ArgumentTypeError(
            f"{title}, of type {type(value).__name__}, is not an array of integers", hint=hint
        ) from error
    if not constant.dtype.is_integer or constant.dtype.bits < 64:
        return constant
    limits, array = np.iinfo(np.int32), np.asarray(value)
    fits = ((array >= limits.min) & (array <= limits.max)).all()
    return as_tensor(F, array.astype(np.int32)) if fits else constant


def _segment_ids(F: Any, cu_seqlens: Any, length: Any) -> Any:
    _check_length(length)
    hint = "pass cumulative lengths, a vector of integers: 0, then the end of each sequence"
    ends = _integers(F, cu_seqlens, "segment_ids: cu_seqlens", hint)
    if not ends.dtype.is_integer or len(ends.shape) != 1:
        raise ShapeError(
            f"segment_ids: cu_seqlens is {ends.dtype} of shape {ends.shape}", hint=hint
        )
    if not is_tensor(cu_seqlens):
        _check_ends(np.asarray(cu_seqlens), length)
    return F.cast(F.searchsorted(F.cast(ends, "i64"), F.arange(length), right=True), "i32")


def _check_length(length: Any) -> None:
    """AttributeValueError unless `length` is a size."""
    if is_static(length) and int_value(length, "segment_ids: length") < 0:
        raise AttributeValueError(
            f"segment_ids: length is {length}",
            hint="length is the number of positions, with those of padding",
        )


def _check_ends(ends: np.ndarray, length: Any) -> None:
    """AttributeValueError unless the numbers can be cumulative lengths."""
    if not ends.size or ends[0] != 0:
        fault = f"starts with {ends[0]}, not 0" if ends.size else "is empty"
    elif (ends[1:] < ends[:-1]).any():
        at = int(np.argmax(ends[1:] < ends[:-1])) + 1
        fault = f"decreases from {ends[at - 1]} to {ends[at]} at index {at}"
    elif is_static(length) and ends[-1] > length:
        fault = f"ends at {ends[-1]}, after the {length} positions"
    else:
        return
    raise AttributeValueError(
        f"segment_ids: cu_seqlens {fault}",
        hint="pass cumulative lengths 0, n1, n1 + n2, ...; from the lengths of sequences they are "
        "np.cumsum([0, *lengths])",
    )


ROWS: tuple[Op, ...] = (
    Op(
        "attention",
        "softmax(q @ k.T * scale + mask) @ v, with dropout of the weights where `dropout` is not "
        "0, and of packed sequences with `segment_ids`: `scaled_dot_product_attention`, "
        "`dropout_attention` or `segment_attention`. A position attends to those of the same id; "
        "fully masked rows give zeros. `segment_ids` is an array (S,) or (B, S), or a tuple (ids "
        "of the queries, ids of the keys).",
        operands=("q", "k", "v"),
        build=_attention,
        tags=frozenset({"random"}),
    ),
    Op(
        "segment_ids",
        "The segment ids (i32) of `length` positions with packed sequences, from cumulative "
        "lengths 0, n1, n1 + n2, ...: 1 in the first sequence, 2 in the second; positions after "
        "the last one are a segment of their own. For a batch, stack the ids of its rows.",
        operands=("cu_seqlens",),
        build=_segment_ids,
    ),
)
