"""Random words in the code of a schedule: those of the row `kept_weights` (Philox-4x32).

Input: the counter of a call and the seed as words. Output: code. Attention with dropout uses it, on
CPUs with vectors and on GPUs with scalars, so both drop the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from nova.codegen.common.builder import splat
from nova.ir.bindings import arith, ir
from nova.ops.attention.kept_weights import ROUNDS, STREAM
from nova.ops.randomness import philox

_LOW = 0xFFFFFFFF


def weight_words(
    column: ir.Value, row: ir.Value, point: ir.Value, key: tuple[ir.Value, ir.Value]
) -> list[ir.Value]:
    """The four words of a call: i32, or i64 below 2**32; scalars or vectors.

    `column`, `row` and `point` are the counter that `kept_weights` gives to eight weights.
    """
    last = _Word(_constant(column.type, STREAM))
    counter = [_Word(column), _Word(row), _Word(point), last]
    words = philox(counter, [_Word(k) for k in key], _multiply, ROUNDS)
    return [word.value for word in words]


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
