"""Philox-4x32-10 again, over Python's integers: what the random rows are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

WORD = 2**32


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Four random words of a counter of four words under a key of two."""
    a, b, c, d = counter
    first, second = key
    for _ in range(10):
        remaining, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (
            (right // WORD) ^ b ^ first,
            right % WORD,
            (remaining // WORD) ^ d ^ second,
            remaining % WORD,
        )
        first, second = (first + 0x9E3779B9) % WORD, (second + 0xBB67AE85) % WORD
    return [a, b, c, d]


def uniforms(seed: int, shape: Sequence[int], stream: int) -> np.ndarray:
    """What `uniform` should give: the upper 24 bits of word 0, below 1."""
    key = seed % 2**64
    words = [
        philox((i % WORD, i // WORD, stream, 0), (key % WORD, key // WORD))[0]
        for i in range(prod(shape))
    ]
    return (np.array(words, np.uint64) // 256 / 2.0**24).reshape(tuple(shape))


def kept_weights(seed: int, shape: Sequence[int], p: float) -> np.ndarray:
    """What `kept_weights` should give: two weights in each of the four words of a counter."""
    key, bits = seed % 2**64, []
    calls: dict[tuple[int, int, int], list[int]] = {}
    for b, i, j in np.ndindex(prod(shape[:-2]), *shape[-2:]):
        counter = (j // 16 * 4 + j % 8 // 2, i // 16 * 8 + i % 8, b)
        if counter not in calls:
            calls[counter] = philox((*counter, 1), (key % WORD, key // WORD))
        word = calls[counter][j % 16 // 8 * 2 + i % 16 // 8]
        bits.append(word // 2 ** (16 * (j % 2)) % 2**15)
    return (np.array(bits, np.int64) >= round(p * 2**15)).reshape(tuple(shape))


def weight_factors(seed: int, shape: Sequence[int], p: float) -> np.ndarray:
    """The factors of the weights of an attention with dropout."""
    dropped = round(p * 2**15) / 2**15
    return kept_weights(seed, shape, p) * (0.0 if dropped == 1 else 1 / (1 - dropped))


def box_muller(seed: int, shape: Sequence[int]) -> np.ndarray:
    """What `normal` should give, in f64."""
    radius = np.sqrt(-2 * np.log(1 - uniforms(seed, shape, 0)))
    return radius * np.cos(2 * np.pi * uniforms(seed, shape, 1))
