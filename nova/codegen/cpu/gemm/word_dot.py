"""The multiply-add of packed words: which instruction multiplies the words of a layout.

Input: vectors of words of A and B and a vector of sums. Output: the sums plus the dot products of
all steps of k of the words. `microkernel.py` calls `WordDot.multiply_add`.

VNNI multiplies unsigned by signed bytes. Where both operands of a matmul have the same type, A is
packed with its sign bits inverted, that is plus or minus 128. Its dot products with B then exceed
those of the operands by a sum of columns of B, which `WordDot.excess` adds up and the microkernel
subtracts.
"""

from __future__ import annotations

from nova.codegen.common.builder import splat, vector_type
from nova.codegen.cpu.gemm.packed_layout import ELEMENTS, I16_PAIRS, PAIRS, QUADS, PackedLayout
from nova.codegen.cpu.gemm.vnni_packing import WordFormat
from nova.codegen.cpu.multiply_add import multiply_add
from nova.codegen.cpu.x86_intrinsics import dot_bytes, dot_i16_pairs, dot_vnni_pairs
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, vector


@record
class WordDot:
    """How words of a layout are packed from operands of these types, and multiplied."""

    layout: PackedLayout
    a_type: str
    b_type: str

    @property
    def has_excess(self) -> bool:
        """Whether the dot products of words exceed those of the operands."""
        return self.layout is QUADS and self.a_type == self.b_type

    @property
    def name(self) -> str:
        """The part of a function's name."""
        if self.layout is ELEMENTS:
            return ""
        types = "" if self.layout is PAIRS else f"_{self.a_type}_{self.b_type}"
        return f"_{self.layout.name}{types}"

    def format_of(self, *, rows_of_a: bool) -> WordFormat:
        """The words of an operand."""
        type_ = self.a_type if rows_of_a else self.b_type
        return WordFormat(type_, self.layout.per_word, rows_of_a and self.has_excess)

    def multiply_add(
        self, target: Target, lhs: ir.Value, rhs: ir.Value, total: ir.Value
    ) -> ir.Value:
        """`total` plus the dot products of words of A and words of B."""
        if self.layout is ELEMENTS:
            return multiply_add(target, lhs, rhs, total)
        lanes = total.type.shape[0]
        if self.layout is PAIRS:
            halves = vector_type("bf16", 2 * lanes)
            return dot_vnni_pairs(total, vector.bitcast(halves, lhs), vector.bitcast(halves, rhs))
        if self.layout is I16_PAIRS:
            halves = vector_type("i16", 2 * lanes)
            pairs = vector.bitcast(halves, lhs), vector.bitcast(halves, rhs)
            return arith.addi(total, dot_i16_pairs(total.type, *pairs))
        unsigned, signed = (rhs, lhs) if self.b_type == "u8" else (lhs, rhs)
        return dot_bytes(total, unsigned, signed)

    def excess(self, target: Target, rhs: ir.Value, total: ir.Value) -> ir.Value:
        """`total` plus what the words of B add too much to each row."""
        # As u8 128 times the column of B, as i8 -128 times.
        return self.multiply_add(target, splat(rhs.type, -0x7F7F7F80), rhs, total)
