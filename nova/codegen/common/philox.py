"""Random words in the code of a schedule: those of the row `uniform` (Philox-4x32-10).

Input: the number of a draw and the seed as words. Output: code. Attention with dropout uses it, on
CPUs with vectors and on GPUs with scalars, so both drop the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from nova.codegen.common.builder import splat
from nova.ir.bindings import arith, ir
from nova.ops.randomness import philox

_LOW = 0xFFFFFFFF


def random_word(low: ir.Value, high: ir.Value, key: tuple[ir.Value, ir.Value]) -> ir.Value:
    """Word 0 of stream 0 for a draw: i32, or i64 below 2**32; scalars or vectors."""
    zero = _Word(splat(low.type, 0))
    counter = [_Word(low), _Word(high), zero, zero]
    word: _Word = philox(counter, [_Word(k) for k in key], _multiply)[0]
    return word.value


def is_kept(word: ir.Value, p: float) -> ir.Value:
    """Whether dropout with probability p (below 1 in f32) keeps the element with this word."""
    # `uniform` is the upper 24 bits, exact in f32, and `dropout` compares it with p in f32.
    least = ceil(float(np.float32(p)) * 2**24) << 8
    is_narrow = _bits(word.type) == 32
    predicate = arith.CmpIPredicate.uge if is_narrow else arith.CmpIPredicate.sge
    return arith.cmpi(predicate, word, _constant(word.type, least))


def kept_scale(p: float) -> float:
    """The factor of the elements that dropout keeps."""
    return 1.0 / (1.0 - p)


def split_words(number: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The low and the high word of an i64, as i32."""
    word_type = ir.IntegerType.get_signless(32)
    high = arith.shrui(number, splat(number.type, 32))
    return arith.trunci(word_type, number), arith.trunci(word_type, high)


@dataclass(frozen=True)
class _Word:
    """A word with the operators that `philox` uses."""

    value: ir.Value

    def __xor__(self, other: _Word) -> _Word:
        return _Word(arith.xori(self.value, other.value))

    def __add__(self, number: int) -> _Word:
        return _Word(arith.addi(self.value, _constant(self.value.type, number)))

    def __and__(self, number: int) -> _Word:
        if number == _LOW and _bits(self.value.type) == 32:
            return self
        return _Word(arith.andi(self.value, _constant(self.value.type, number)))


def _multiply(word: _Word, number: int) -> tuple[_Word, _Word]:
    type_ = word.value.type
    factor = _constant(type_, number)
    if _bits(type_) == 32:
        low, high = arith.mului_extended(word.value, factor)
        return _Word(high), _Word(low)
    product = _Word(arith.muli(word.value, factor))
    return _Word(arith.shrui(product.value, splat(type_, 32))), product & _LOW


def _bits(type_: ir.Type) -> int:
    return int((type_.element_type if isinstance(type_, ir.VectorType) else type_).width)


def _constant(type_: ir.Type, number: int) -> ir.Value:
    bits = _bits(type_)
    return splat(type_, number - (1 << bits) if number >> (bits - 1) else number)
