"""Packed blocks of GGUF decoded one element at a time, as the format's description has it."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np


def _half(block: bytes, offset: int) -> float:
    return float(struct.unpack_from("<e", block, offset)[0])


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _q8_0(block: bytes) -> list[float]:
    return [_half(block, 0) * _signed(byte) for byte in block[2:]]


def _q4_0(block: bytes) -> list[float]:
    numbers = [byte & 15 for byte in block[2:]] + [byte >> 4 for byte in block[2:]]
    return [_half(block, 0) * (number - 8) for number in numbers]


def _q4_k(block: bytes) -> list[float]:
    d, dmin, packed = _half(block, 0), _half(block, 2), block[4:16]
    values = []
    for j in range(8):
        if j < 4:
            scale, minimum = packed[j] & 63, packed[j + 4] & 63
        else:
            scale = packed[j + 4] & 15 | packed[j - 4] >> 6 << 4
            minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4
        for byte in block[16 + j // 2 * 32 :][:32]:
            number = byte >> 4 if j % 2 else byte & 15
            values.append(d * scale * number - dmin * minimum)
    return values


def _q6_k(block: bytes) -> list[float]:
    values = []
    for k in range(256):
        half, inner = divmod(k, 128)
        quarter, lane = divmod(inner, 32)
        lower = block[half * 64 + quarter % 2 * 32 + lane] >> 4 * (quarter // 2) & 15
        upper = block[128 + half * 32 + lane] >> 2 * quarter & 3
        scale = _signed(block[192 + k // 16])
        values.append(_half(block, 208) * scale * ((lower | upper << 4) - 32))
    return values


_DECODERS: dict[str, tuple[int, Any]] = {
    "q8_0": (34, _q8_0),
    "q4_0": (18, _q4_0),
    "q4_k": (144, _q4_k),
    "q6_k": (210, _q6_k),
}


def unpacked(blocks: Any, format: str) -> np.ndarray:
    """(rows, bytes) -> (rows, elements), in f64."""
    nbytes, decode = _DECODERS[format]
    rows = [
        [v for start in range(0, len(row), nbytes) for v in decode(row[start : start + nbytes])]
        for row in (np.asarray(blocks).astype(np.uint8)[i].tobytes() for i in range(len(blocks)))
    ]
    elements = len(decode(bytes(nbytes))) * (np.shape(blocks)[1] // nbytes)
    return np.array(rows, np.float64).reshape(len(blocks), elements)
