"""`kept_weights`: which weights of an attention its dropout keeps, as a function of the seed.

Eight weights share one call of Philox-4x32, so that a thread of a tensor core, which has two rows
and pairs of columns of a block of scores, draws its bits with few calls. The call of the weight of
row i and key j at point b of the batch (all batch axes, the last one fastest) has the counter

    (4 (j // 16) + j % 8 // 2,  8 (i // 16) + i % 8,  b,  1)

and the seed as key. It has the weights of rows i and i + 8, and of keys j, j + 1, j + 8 and j + 9
with i % 16 < 8, j % 16 < 8 and j even. Of its four words, number 2 (j // 8 % 2) + i // 8 % 2 has
the two weights of adjacent keys: j % 2 selects its lower or its upper half. The lower 15 bits of
the half are compared with the probability, rounded to a multiple of 2**-15.

The row is the definition: the interpreter and attentions that are decomposed use it, and the
kernels of attention draw the same bits (nova/codegen/common/philox.py).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, bool_, i64
from nova.errors import AttributeValueError, ShapeError
from nova.ops.randomness import check_seed, drawn_shape, philox, philox_numpy, seed_type
from nova.ops.rules import Types, is_real
from nova.ops.table import REQUIRED, Op

Attrs = dict[str, Any]

ROUNDS = 10
STREAM = 1
"""The last word of the counter: `uniform`, whose counters end with 0, draws other numbers."""
UNIT = 1 << 15
"""Probabilities are multiples of its reciprocal."""
_LOW = 0xFFFFFFFF


def probability(attrs: Attrs) -> float:
    """The attribute `dropout`; an error unless it is a probability."""
    p = attrs["dropout"]
    if not is_real(p) or not 0 <= p <= 1:
        raise AttributeValueError(f"dropout must be in 0..1, not {p!r}")
    return float(p)


def least_kept(p: float) -> int:
    """The least 15 bits of a weight that is kept, and the number of those that are dropped."""
    return round(p * UNIT)


def kept_scale(p: float) -> float:
    """The factor of the weights that are kept: 1 / the probability to be kept; 0 if none is."""
    dropped = least_kept(p)
    return UNIT / (UNIT - dropped) if dropped < UNIT else 0.0


def code_constants(p: float) -> set[int]:
    """The integers in the code of a draw, but for those of Philox."""
    least = least_kept(p)
    return {least, least << 16, (UNIT - least) * 0x10001, UNIT - 1, 0x7FFF7FFF}


def _canon(ins: Types, attrs: Attrs) -> Attrs:
    shape = drawn_shape(attrs)
    if len(shape) < 2:
        raise ShapeError(f"shape {shape} is not (..., rows, keys)")
    return {"shape": shape, "dropout": probability(attrs)}


def _type(ins: Types, attrs: Attrs) -> TensorType:
    check_seed(ins[0])
    return TensorType(attrs["shape"], bool_)


def _numpy(seed: np.ndarray, *, shape: Any, dropout: float) -> np.ndarray:
    *batch, rows, keys = shape
    point = np.arange(prod(batch), dtype=np.uint64)[:, None, None]
    i = np.arange(rows, dtype=np.uint64)[:, None]
    j = np.arange(keys, dtype=np.uint64)
    bits = np.asarray(seed).astype(np.uint64)
    counter = [j // 16 * 4 + j % 8 // 2, i // 16 * 8 + i % 8, point & _LOW, np.uint64(STREAM)]
    counter = list(np.broadcast_arrays(*counter))
    words = np.stack(philox_numpy(counter, [bits & _LOW, bits >> 32], ROUNDS))
    number = np.broadcast_to(j // 8 % 2 * 2 + i // 8 % 2, words.shape[1:]).astype(np.int64)
    halves = np.take_along_axis(words, number[None], 0)[0] >> (j % 2 * 16)
    return ((halves % UNIT) >= least_kept(dropout)).reshape(shape)


def _lower(b: Any, out: TensorType, seed: Any, *, shape: Any, dropout: float) -> Any:
    def body(s: Any, key: Any) -> Any:
        def shift(x: Any, count: Any) -> Any:
            return s.binary("shr_u", x, s.like(count, x))

        def multiply(x: Any, constant: int) -> tuple[Any, Any]:
            product = x * constant
            return shift(product, 32), product & _LOW

        point = s.const(0, i64)
        for axis, n in enumerate(shape[:-2]):
            point = point * n + s.index(axis)
        i, j = (s.index(len(shape) - 2 + axis) for axis in range(2))
        column = shift(j, 4) * 4 + shift(j & 7, 1)
        row = shift(i, 4) * 8 + (i & 7)
        counter = [column, row, point & _LOW, s.const(STREAM, i64)]
        words = philox(counter, [key & _LOW, shift(key, 32)], multiply, ROUNDS)
        is_lower = s.compare("ne", i & 8, 0)
        first, second = (s.select(is_lower, words[n + 1], words[n]) for n in (0, 2))
        word = s.select(s.compare("ne", j & 8, 0), second, first)
        half = shift(word, (j & 1) * 16) & (UNIT - 1)
        return half >= least_kept(dropout)

    return b.pointwise(out, [seed], body)


ROWS: tuple[Op, ...] = (
    Op(
        "kept_weights",
        "Which weights (..., rows of q, rows of k) `dropout_attention` keeps, as bool: each is "
        "dropped with probability `dropout`, rounded to a multiple of 2**-15, by 15 bits of "
        "Philox-4x32-10, a function of the seed and its position only.",
        operands=("seed",),
        attrs={"shape": REQUIRED, "dropout": 0.5},
        cast=seed_type,
        canon=_canon,
        infer=_type,
        numpy=_numpy,
        lower=_lower,
        tags=frozenset({"nograd", "random"}),
        domain="index",
    ),
)
