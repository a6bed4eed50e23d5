"""`legalize-conversions`: narrow floats convert only from and to f32, and results round once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir
from nova.ir.mathlib.builder import Bool, Builder, Float
from nova.ir.mathlib.f8_formats import F8_TYPES
from nova.ir.walk import find_ops
from nova.passes.base import Pass

_FROM_INTEGER = {"arith.sitofp": arith.sitofp, "arith.uitofp": arith.uitofp}
_TO_INTEGER = {"arith.fptosi": arith.fptosi, "arith.fptoui": arith.fptoui}
_CONVERSIONS = (*_FROM_INTEGER, *_TO_INTEGER, "arith.truncf", "arith.extf")
# Significand bits of each float type.
_F32_DIGITS, _F64_DIGITS = 24, 53


@record
class LegalizeConversions(Pass):
    """Split conversions between narrow floats and f64, integers or each other, with f32 between.

    LLVM calls a library for most of them, and has no code for some. Two steps must not round twice:
    from f64 the f32 is rounded to odd (of the two neighbours of an inexact value, the odd one;
    Boldo & Melquiond), so that the second rounding gives the correctly rounded result; integers
    that do not fit an f32 go through f64. Upstream's canonicalization merges `integer -> f32 ->
    f16` to one conversion, so this runs after the last one.
    """

    name: ClassVar[str] = "legalize-conversions"

    def concerns(self, text: str) -> bool:
        return "f16" in text or "f8E" in text

    def run(self, module: ir.Module) -> None:
        conversions = [
            (op, convert)
            for op in find_ops(module, *_CONVERSIONS)
            if (convert := _conversion(op)) is not None
        ]
        for op, convert in conversions:
            with ir.InsertionPoint(op), op.location:
                value = convert(op)
            op.results[0].replace_all_uses_with(value)
            op.erase()


def _conversion(op: Any) -> Callable[[Any], Any] | None:
    """The conversion steps of an op; None for an op that stays."""
    name = op.name
    if name in _FROM_INTEGER and _is_short(op.results[0].type):
        return _from_integer
    if name in _TO_INTEGER and _is_short(op.operands[0].type):
        return _to_integer
    if name == "arith.truncf" and _is_short(op.results[0].type):
        return _from_f64 if _is_f64(op.operands[0].type) else _between_narrow(op)
    if name == "arith.extf" and _is_short(op.operands[0].type):
        return _to_f64 if _is_f64(op.results[0].type) else _between_narrow(op)
    return None


def _between_narrow(op: Any) -> Callable[[Any], Any] | None:
    """The steps of a conversion between 8 and 16 bits; None if one side is f32."""
    is_narrow = _is_short(op.operands[0].type) and _is_short(op.results[0].type)
    return _through_f32 if is_narrow else None


def _through_f32(op: Any) -> Any:
    source, target = op.operands[0], op.results[0].type
    return arith.truncf(target, arith.extf(_like(target, ir.F32Type.get()), source))


def _from_integer(op: Any) -> Any:
    source, target = op.operands[0], op.results[0].type
    convert = _FROM_INTEGER[op.name]
    bits = _element(source.type).width
    # Every integer beyond the significand of an f32 is infinite as an f16, or an f8.
    if bits <= _F32_DIGITS or not isinstance(_element(target), ir.BF16Type):
        return arith.truncf(target, convert(_like(target, ir.F32Type.get()), source))
    if bits > _F64_DIGITS:
        source = _shortened(source, signed=op.name == "arith.sitofp")
    return _narrowed(convert(_like(target, ir.F64Type.get()), source), target)


def _shortened(value: Any, *, signed: bool) -> Any:
    """An i64 that an f64 represents exactly, on the same side of every rounding boundary of a bf16.

    Larger values replace the last twelve bits by a sticky bit, set if any of them was.
    """
    type_ = value.type
    low = arith.andi(value, _constant(type_, 0xFFF))
    has_low_bits = arith.cmpi(arith.CmpIPredicate.ne, low, _constant(type_, 0))
    digit = arith.select(has_low_bits, _constant(type_, 0x800), _constant(type_, 0))
    short = arith.ori(arith.xori(value, low), digit)
    limit = 1 << _F64_DIGITS
    if signed:
        # Both bounds in one comparison: a negative value wraps around to a large one.
        moved, limit = arith.addi(value, _constant(type_, limit)), 2 * limit
    else:
        moved = value
    fits = arith.cmpi(arith.CmpIPredicate.ule, moved, _constant(type_, limit))
    return arith.select(fits, value, short)


def _to_integer(op: Any) -> Any:
    source, target = op.operands[0], op.results[0].type
    single = arith.extf(_like(source.type, ir.F32Type.get()), source)
    return _TO_INTEGER[op.name](target, single)


def _from_f64(op: Any) -> Any:
    return _narrowed(op.operands[0], op.results[0].type)


def _to_f64(op: Any) -> Any:
    source = op.operands[0]
    single = arith.extf(_like(source.type, ir.F32Type.get()), source)
    return arith.extf(op.results[0].type, single)


def _narrowed(value: Any, target: Any) -> Any:
    """An f64 as a narrow float, through an f32 that is rounded to odd."""
    single = Builder(_like(value.type, ir.F32Type.get()))
    exact = Float(single.double, value)
    near = exact.to_single(single)
    back = near.to_double()
    bits = near.bits()
    up, down, stay = (single.int_const(n) for n in (1, -1, 0))
    too_small, too_large = (
        Bool(single, c.v) for c in (abs(back) < abs(exact), abs(back) > abs(exact))
    )
    step = too_small.choose(up, too_large.choose(down, stay))
    odd = bits + (bits & 1).equals(0).choose(step, stay)
    return arith.truncf(target, odd.float().v)


def _constant(type_: Any, number: int) -> Any:
    attribute = ir.IntegerAttr.get(_element(type_), number)
    if isinstance(type_, ir.VectorType):
        attribute = ir.DenseElementsAttr.get_splat(type_, attribute)
    return arith.ConstantOp(type_, attribute).result


def _element(type_: Any) -> Any:
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def _is_short(type_: Any) -> bool:
    return isinstance(_element(type_), ir.F16Type | ir.BF16Type | F8_TYPES)


def _is_f64(type_: Any) -> bool:
    return isinstance(_element(type_), ir.F64Type)


def _like(type_: Any, element: Any) -> Any:
    """`element`, or a vector of it where `type_` is a vector."""
    return ir.VectorType.get(type_.shape, element) if isinstance(type_, ir.VectorType) else element
