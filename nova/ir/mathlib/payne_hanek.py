"""Payne-Hanek reduction of large f64 angles: x / (2 pi) modulo 1, in integer arithmetic.

In: an f64 `Float` of at least 2**30 in magnitude; below, the result is defined but meaningless.
Out: the quadrant, and the remainder as hi + lo. Called by the trigonometric reduction for arguments
beyond the range of Cody-Waite reduction.

x is m * 2**e with 53-bit m. In 1/(2 pi), the bits above weight 2**-e contribute whole periods when
multiplied by m, and the bits 180 places below contribute nothing. A window of 192 bits is
extracted, by selects on the bits of the position instead of a table in memory, and multiplied by m
in limbs of 32 bits.
"""

from __future__ import annotations

from itertools import pairwise

from nova.ir.mathlib.builder import Builder, Float, Int, where
from nova.ir.mathlib.double_double import fast_two_sum, two_product, two_sum

_PAD = 22
# 1/(2 pi) after 22 zero bits, from the top.
_WORDS = (
    0x000000A2F9836E4E,
    0x441529FC2757D1F5,
    0x34DDC0DB6295993C,
    0x439041FE5163ABDE,
    0xBBC561B7246E3A42,
    0x4DD2E006492EEA09,
    0xD1921CFE1DEB1CB1,
    0x29A73EE88235F52E,
    0xBB4484E99C7026B4,
    0x5F7E413991D63983,
    0x5339F49C845F8BBD,
    0xF9283B1FF897FFDE,
    0x05980FEF2F118B5A,
    0x0A6D1F6D367ECF27,
    0xCB09B74F463F669E,
    0x5FEA2D7527BAC7EB,
    0xE5F17B3D0739F78A,
    0x5292EA6BFB5FB11F,
    0x8D5D0856033046FC,
)
_TWO_PI_HI, _TWO_PI_LO = (
    float.fromhex("0x1.921fb54442d18p+2"),
    float.fromhex("0x1.1a62633145c07p-52"),
)
_LIMB = 0xFFFFFFFF


def _window(b: Builder, position: Int) -> list[Int]:
    """The 192 bits of `_WORDS` from bit `position` on, as six limbs, the highest first."""
    words = [b.int_const(word) for word in _WORDS]
    # A barrel shifter: each level keeps the words that later levels can still reach.
    for step, remaining in ((8, 11), (4, 7), (2, 5), (1, 4)):
        move = (position & (64 * step)).differs(0)
        words = [move.choose(words[i + step], words[i]) for i in range(remaining)]
    shift = position & 63
    back = 63 - shift
    limbs = []
    for word, following in pairwise(words):
        aligned = (word << shift) | ((following >> 1) >> back)
        limbs += [aligned >> 32, aligned & _LIMB]
    return limbs


def _fraction(b: Builder, magnitude: Float) -> list[Int]:
    """magnitude / (2 pi) modulo 1, as four limbs of 32 bits, the highest first."""
    bits = magnitude.bits()
    # The exponent of the last bit of m is biased - 1075. The mask handles values out of range.
    position = (bits >> 52) - (1075 - _PAD)
    w = _window(b, position & 1023)
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    m_low, m_high = m & _LIMB, m >> 32
    low = [m_low * limb for limb in w[:5]]
    high = [m_high * limb for limb in w[1:]]
    limbs: list[Int] = []
    carry: Int | None = None
    for k in (3, 2, 1, 0):
        # Partial terms of weight 2**-32(k+1); low[j] starts there, high[j] one limb below.
        column = (low[k] & _LIMB) + (low[k + 1] >> 32) + (high[k] & _LIMB) + (high[k + 1] >> 32)
        if carry is not None:
            column = column + carry
        limbs.insert(0, column & _LIMB)
        carry = column >> 32
    return limbs


def reduce_large(b: Builder, x: Float) -> tuple[Int, Float, Float]:
    """Quadrant n and y + low with x = n * pi/2 + y + low modulo 2 pi, |y| <= pi/4."""
    top, *low_words = _fraction(b, abs(x))
    quarter = (top + (1 << 29)) >> 30
    top = top - (quarter << 30)
    signed_unit, unit = 1.5 * 2.0**52, 2.0**52
    first = ((top + b.const(signed_unit).bits()).float() - signed_unit) * 2.0**-32
    second, third, fourth = (
        ((limb | b.const(unit).bits()).float() - unit) * 2.0**-scale
        for limb, scale in zip(low_words, (64, 96, 128), strict=True)
    )
    turns, error = fast_two_sum(first, second)
    turns, error_2 = two_sum(turns, third + fourth)
    low = error + error_2
    y, y_low = two_product(turns, b.const(_TWO_PI_HI))
    y_low = y_low + (turns * _TWO_PI_LO + low * _TWO_PI_HI)
    y, y_low = fast_two_sum(y, y_low)
    sign = b.const(1.0).copysign(x)
    n = x.sign_bit().choose(0 - quarter, quarter)
    y = where(abs(x) < float("inf"), y * sign, float("nan"))
    return n, y, y_low * sign
