"""`emulate-f16`: conversions between f16 and f32 by integer arithmetic."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.mathlib.builder import Builder, Float, Int
from nova.ir.walk import every_op
from nova.passes.base import Pass


@record
class EmulateF16(Pass):
    """Rewrite `arith.extf` from f16 and `arith.truncf` to f16 for targets without the instruction.

    LLVM would call a library for them. Results are those of the instructions, bit for bit:
    round to nearest even, subnormals and infinities kept, NaN stays NaN (quiet). The other side
    of the conversion is f32, scalars or vectors.
    """

    name: ClassVar[str] = "emulate-f16"

    def concerns(self, text: str) -> bool:
        return "f16" in text

    def run(self, module: ir.Module) -> None:
        conversions: list[tuple[Any, Any]] = []
        for op in every_op(module):
            if op.name == "arith.extf" and _is_half(op.operands[0].type):
                conversions.append((op, _widened))
            elif op.name == "arith.truncf" and _is_half(op.results[0].type):
                conversions.append((op, _narrowed))
        for op, expand in conversions:
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(expand(op))
            op.erase()


def _is_half(type_: Any) -> bool:
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    return isinstance(element, ir.F16Type)


def _widened(op: Any) -> Any:
    b = Builder(op.results[0].type)
    bits16 = b.like(ir.IntegerType.get_signless(16))
    raw = ir.Operation.create("arith.bitcast", [bits16], [op.operands[0]]).results[0]
    half = Int(b, ir.Operation.create("arith.extui", b.int_results, [raw]).results[0])
    magnitude = (half & 0x7FFF) << 13
    # The exponent is off by the difference of the biases; a multiplication fixes it, subnormals
    # too.
    finite = (magnitude.float() * 2.0**112).bits()
    special = magnitude | 0x7F800000
    value = (magnitude < (0x7C00 << 13)).choose(finite, special)
    return (value | ((half & 0x8000) << 16)).float().v


def _narrowed(op: Any) -> Any:
    b = Builder(op.operands[0].type)
    bits = Float(b, op.operands[0]).bits()
    magnitude = bits & 0x7FFFFFFF
    # Adding 0.5 leaves the ten bits of a subnormal f16 in the low bits, rounded to even.
    half = b.const(0.5)
    subnormal = (magnitude.float() + half).bits() - half.bits()
    odd = (magnitude >> 13) & 1
    normal = (magnitude + 0xFFF + odd - 0x38000000) >> 13
    finite = (magnitude < 0x38800000).choose(subnormal, normal)
    limited = (magnitude < 0x477FF000).choose(finite, b.int_const(0x7C00))
    value = (magnitude < 0x7F800001).choose(limited, b.int_const(0x7E00))
    result = value | ((bits >> 16) & 0x8000)
    i16 = b.like(ir.IntegerType.get_signless(16))
    short = ir.Operation.create("arith.trunci", [i16], [result.v]).results[0]
    return ir.Operation.create("arith.bitcast", [op.results[0].type], [short]).results[0]
