"""`expand-f8`: conversions between 8-bit floats and f32 by integer code or device instructions."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir, vector
from nova.ir.gpu_bindings import llvm
from nova.ir.mathlib.builder import Builder, Float, Int
from nova.ir.mathlib.f8_formats import F8Format, f8_format
from nova.ir.walk import every_op
from nova.passes.base import Pass

_FIRST_WITH_INSTRUCTIONS = 89


@record
class ExpandF8(Pass):
    """Rewrite `arith.extf` from f8 and `arith.truncf` to f8; the other side is f32.

    LLVM has no 8-bit floats: they are bytes in memory and registers. Code rounds to nearest even
    and keeps subnormals. A value beyond the largest becomes NaN in E4M3FN, which has no infinity,
    and infinite in E5M2, as in ml_dtypes. Scalars and vectors, without a branch. With `target`
    sm_89 or newer, the device's instructions convert two elements; they saturate, so that values
    beyond the largest are replaced after them.
    """

    name: ClassVar[str] = "expand-f8"
    target: str = "cpu"

    def concerns(self, text: str) -> bool:
        return "f8E" in text

    def run(self, module: ir.Module) -> None:
        has_instructions = _capability(self.target) >= _FIRST_WITH_INSTRUCTIONS
        conversions: list[tuple[Any, Any]] = []
        for op in every_op(module):
            if op.name == "arith.extf" and f8_format(op.operands[0].type) is not None:
                conversions.append((op, _widen_by_device if has_instructions else _widen))
            elif op.name == "arith.truncf" and f8_format(op.results[0].type) is not None:
                conversions.append((op, _narrow_by_device if has_instructions else _narrow))
        for op, expand in conversions:
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(expand(op))
            op.erase()


def _capability(target: str) -> int:
    """90 for "cuda:sm_90a"; 0 for a CPU."""
    _, _, arch = target.partition("cuda:sm_")
    return int("".join(c for c in arch if c.isdigit()) or 0)


def _format(type_: Any) -> F8Format:
    format_ = f8_format(type_)
    assert format_ is not None
    return format_


# --- integer code -------------------------------------------------------------------------------


def _widen(op: Any) -> Any:
    """The exponent is re-biased by an integer sum; a subnormal is a difference of two floats."""
    b = Builder(op.results[0].type)
    format_ = _format(op.operands[0].type)
    byte_type = b.like(ir.IntegerType.get_signless(8))
    code = Int(b, arith.extui(b.int_results[0], arith.bitcast(byte_type, op.operands[0])))
    magnitude = code & 0x7F
    shift = 23 - format_.fraction
    shifted = magnitude << shift
    rebias = 127 - format_.bias
    normal = shifted + (rebias << 23)
    # 2**(1 - bias) * (1 + fraction) without its leading 1.
    subnormal = ((shifted + ((rebias + 1) << 23)).float() - 2.0 ** (1 - format_.bias)).bits()
    finite = (magnitude < (1 << format_.fraction)).choose(subnormal, normal)
    special = b.int_const(0x7FC00000)
    if format_.infinity is not None:
        special = (magnitude < format_.infinity + 1).choose(b.int_const(0x7F800000), special)
    value = (magnitude < format_.first_special).choose(finite, special)
    return (value | ((code & 0x80) << 24)).float().v


def _narrow(op: Any) -> Any:
    b = Builder(op.operands[0].type)
    format_ = _format(op.results[0].type)
    bits = Float(b, op.operands[0]).bits()
    magnitude = bits & 0x7FFFFFFF
    shift = 23 - format_.fraction
    rebias = 127 - format_.bias
    # A sum with this power of two has the bits of a subnormal last, rounded to even.
    aligned = b.const(2.0 ** (1 - format_.bias + shift))
    subnormal = (magnitude.float() + aligned).bits() - aligned.bits()
    odd = (magnitude >> shift) & 1
    normal = (magnitude + ((1 << (shift - 1)) - 1) + odd - (rebias << 23)) >> shift
    finite = (magnitude < ((rebias + 1) << 23)).choose(subnormal, normal)
    overflow = format_.nan if format_.infinity is None else format_.infinity
    limited = (magnitude < format_.overflow_bits).choose(finite, b.int_const(overflow))
    value = (magnitude < 0x7F800001).choose(limited, b.int_const(format_.nan))
    return _from_byte(op, b, (value | ((bits >> 24) & 0x80)).v)


def _from_byte(op: Any, b: Builder, value: Any) -> Any:
    byte = arith.trunci(b.like(ir.IntegerType.get_signless(8)), value)
    return arith.bitcast(op.results[0].type, byte)


# --- device instructions ------------------------------------------------------------------------


def _widen_by_device(op: Any) -> Any:
    """Two elements to two f16, which represent every value, and these to f32."""
    element = _format(op.operands[0].type).ptx
    i8, i16, i32 = (ir.IntegerType.get_signless(bits) for bits in (8, 16, 32))
    pair_type = ir.VectorType.get([2], ir.F16Type.get())
    f32 = ir.F32Type.get()
    source = op.operands[0]
    if not isinstance(source.type, ir.VectorType):
        word = arith.extui(i16, arith.bitcast(i8, source))
        return arith.extf(f32, _elements(_widened_pair(word, element, i32, pair_type))[0])
    if source.type.rank != 1 or source.type.shape[0] % 2:
        return _widen(op)
    (size,) = source.type.shape
    byte_type, words_type = ir.VectorType.get([size], i8), ir.VectorType.get([size // 2], i16)
    words = vector.bitcast(words_type, arith.bitcast(byte_type, source))
    halves = []
    for i in range(size // 2):
        word = vector.extract(words, [], [i])
        halves += _elements(_widened_pair(word, element, i32, pair_type))
    narrow = vector.from_elements(ir.VectorType.get([size], ir.F16Type.get()), halves)
    return arith.extf(op.results[0].type, narrow)


def _widened_pair(word: Any, element: str, i32: Any, pair_type: Any) -> Any:
    text = f"cvt.rn.f16x2.{element}x2 $0, $1;"
    return llvm.bitcast(pair_type, llvm.inline_asm(i32, [word], text, "=r,h"))


def _elements(value: Any) -> list[Any]:
    return [vector.extract(value, [], [i]) for i in range(value.type.shape[0])]


def _narrow_by_device(op: Any) -> Any:
    source = op.operands[0]
    is_vector = isinstance(source.type, ir.VectorType)
    if is_vector and (source.type.rank != 1 or source.type.shape[0] % 2):
        return _narrow(op)
    format_ = _format(op.results[0].type)
    i8, i16 = (ir.IntegerType.get_signless(bits) for bits in (8, 16))
    text = f"cvt.rn.satfinite.{format_.ptx}x2.f32 $0, $2, $1;"
    if not is_vector:
        zero = Builder(source.type).const(0.0).v
        saturated: Any = arith.trunci(i8, llvm.inline_asm(i16, [source, zero], text, "=h,f,f"))
    else:
        values = _elements(source)
        words = [
            llvm.inline_asm(i16, [values[i], values[i + 1]], text, "=h,f,f")
            for i in range(0, len(values), 2)
        ]
        words_type = ir.VectorType.get([len(words)], i16)
        bytes_type = ir.VectorType.get([len(values)], i8)
        saturated = vector.bitcast(bytes_type, vector.from_elements(words_type, words))
    b = Builder(source.type)
    bits = Float(b, source).bits()
    magnitude = bits & 0x7FFFFFFF
    overflow = format_.nan if format_.infinity is None else format_.infinity
    # NaN stays the NaN of the instruction.
    beyond = b.int_const(overflow) | ((bits >> 24) & 0x80)
    code = Int(b, arith.extui(b.int_results[0], saturated))
    is_number = magnitude < 0x7F800001
    limited = is_number.choose(beyond, code)
    return _from_byte(op, b, (magnitude < format_.overflow_bits).choose(code, limited).v)
