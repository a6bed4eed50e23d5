"""The block formats of GGUF files: how packed bytes encode the weights of a row.

A row of weights is a sequence of blocks: a number of elements with common scales. A format says,
for the element at inner indices `at` of a block, which bytes encode it and its value. The
offsets are affine in the indices, so that a kernel reads the bytes as operands of its loops.
`nova/ops/loops/quantized.py` has the rows that use them, `nova/frontends/gguf.py` the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import f16, f32, i8, i32, u16
from nova.core.records import record

Indices = Sequence[Any]


@record
class BlockFormat:
    """One format.

    size      elements in a block.
    nbytes    bytes of a block.
    axes      extents of the inner indices; the last one is the vectorized loop.
    element   (inner indices) -> position in the block.
    offsets   (inner indices) -> offsets of the bytes that encode the element.
    value     (s, bytes as i32, inner indices as i32) -> the element in f32.
    decode    (blocks, nbytes) u8 -> (blocks, size) f32, in numpy: the reference.
    """

    name: str
    size: int
    nbytes: int
    axes: tuple[int, ...]
    element: Callable[[Indices], Any]
    offsets: Callable[[Indices], list[Any]]
    value: Callable[[Any, Indices, Indices], Any]
    decode: Callable[[np.ndarray], np.ndarray]


# --- scalars --------------------------------------------------------------------------------------


def _half(s: Any, low: Any, high: Any) -> Any:
    """The f16 number of two bytes, as f32."""
    bits = s.cast(low | s.binary("shl", high, s.const(8, i32)), u16)
    return s.cast(s.bitcast(bits, f16), f32)


def _shifted(s: Any, value: Any, count: Any) -> Any:
    count = s.const(count, i32) if isinstance(count, int) else count
    return s.binary("shr_u", value, count)


def _masked(s: Any, value: Any, mask: int) -> Any:
    return value & s.const(mask, i32)


def _signed(s: Any, value: Any) -> Any:
    """The signed number of a byte, as f32."""
    return s.cast(s.cast(value, i8), f32)


def _q8_0(s: Any, bytes_: Indices, at: Indices) -> Any:
    low, high, number = bytes_
    return _half(s, low, high) * _signed(s, number)


def _q4_0(s: Any, bytes_: Indices, at: Indices) -> Any:
    low, high, pair = bytes_
    number = _masked(s, _shifted(s, pair, at[0] * 4), 15)
    return _half(s, low, high) * s.cast(number - 8, f32)


def _q4_k(s: Any, bytes_: Indices, at: Indices) -> Any:
    """d * scale * number - dmin * minimum, with scales and minima of 6 bits (K-quants)."""
    *halves, first, second, third, pair = bytes_
    d, dmin = _half(s, *halves[:2]), _half(s, *halves[2:])
    # Sub-blocks 0..3 have 6 bits each; the upper 2 bits of 4..7 lie above those.
    is_first = at[0] < 2
    scale = s.select(
        is_first,
        _masked(s, second, 63),
        _masked(s, third, 15) | s.binary("shl", _shifted(s, first, 6), s.const(4, i32)),
    )
    minimum = s.select(
        is_first,
        _masked(s, third, 63),
        _shifted(s, third, 4) | s.binary("shl", _shifted(s, second, 6), s.const(4, i32)),
    )
    number = _masked(s, _shifted(s, pair, at[1] * 4), 15)
    return d * s.cast(scale, f32) * s.cast(number, f32) - dmin * s.cast(minimum, f32)


def _q6_k(s: Any, bytes_: Indices, at: Indices) -> Any:
    low, high, scale, lower, upper = bytes_
    _, second, first, _, _ = at
    four = _masked(s, _shifted(s, lower, second * 4), 15)
    two = _masked(s, _shifted(s, upper, second * 4 + first * 2), 3)
    number = (four | s.binary("shl", two, s.const(4, i32))) - 32
    return _half(s, low, high) * _signed(s, scale) * s.cast(number, f32)


# --- numpy ----------------------------------------------------------------------------------------


def _halves(blocks: np.ndarray, offset: int) -> np.ndarray:
    return blocks[:, offset : offset + 2].copy().view(np.float16).astype(np.float32)


def _decode_q8_0(blocks: np.ndarray) -> np.ndarray:
    return _halves(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _decode_q4_0(blocks: np.ndarray) -> np.ndarray:
    numbers = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    return _halves(blocks, 0) * (numbers.astype(np.float32) - 8)


def _decode_q4_k(blocks: np.ndarray) -> np.ndarray:
    a, b, c = (blocks[:, 4 + i : 8 + i].astype(np.int32) for i in (0, 4, 8))
    scales = np.concatenate([a & 63, (c & 15) | (a >> 6) << 4], axis=1)
    minima = np.concatenate([b & 63, (c >> 4) | (b >> 6) << 4], axis=1)
    pairs = blocks[:, 16:].reshape(-1, 4, 1, 32)
    numbers = np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)
    d, dmin = _halves(blocks, 0), _halves(blocks, 2)
    values = (d * scales)[:, :, None] * numbers - (dmin * minima)[:, :, None]
    return values.reshape(len(blocks), 256).astype(np.float32)


def _decode_q6_k(blocks: np.ndarray) -> np.ndarray:
    lower = blocks[:, :128].reshape(-1, 2, 1, 2, 32)
    fours = np.concatenate([lower & 15, lower >> 4], axis=2).reshape(-1, 2, 4, 32)
    upper = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    twos = np.concatenate([(upper >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2)
    numbers = (fours | twos << 4).astype(np.float32) - 32
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32) * _halves(blocks, 208)
    return (scales.reshape(-1, 16, 1) * numbers.reshape(-1, 16, 16)).reshape(-1, 256)


# --- the table ------------------------------------------------------------------------------------

FORMATS: dict[str, BlockFormat] = {
    each.name: each
    for each in (
        BlockFormat(
            "q8_0",
            32,
            34,
            (32,),
            lambda at: at[0],
            lambda at: [0, 1, at[0] + 2],
            _q8_0,
            _decode_q8_0,
        ),
        BlockFormat(
            "q4_0",
            32,
            18,
            (2, 16),
            lambda at: at[0] * 16 + at[1],
            lambda at: [0, 1, at[1] + 2],
            _q4_0,
            _decode_q4_0,
        ),
        BlockFormat(
            "q4_k",
            256,
            144,
            (4, 2, 32),
            lambda at: at[0] * 64 + at[1] * 32 + at[2],
            lambda at: [
                *(0, 1, 2, 3),
                *(at[0] * 2 + at[1] + offset for offset in (0, 4, 8)),
                at[0] * 32 + at[2] + 16,
            ],
            _q4_k,
            _decode_q4_k,
        ),
        BlockFormat(
            "q6_k",
            256,
            210,
            (2, 2, 2, 2, 16),
            lambda at: at[0] * 128 + at[1] * 64 + at[2] * 32 + at[3] * 16 + at[4],
            lambda at: [
                *(208, 209),
                at[0] * 8 + at[1] * 4 + at[2] * 2 + at[3] + 192,
                at[0] * 64 + at[2] * 32 + at[3] * 16 + at[4],
                at[0] * 32 + at[3] * 16 + at[4] + 128,
            ],
            _q6_k,
            _decode_q6_k,
        ),
    )
}
