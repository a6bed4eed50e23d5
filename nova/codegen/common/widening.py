"""Widens narrow numbers to the accumulator's type, portably; the packing functions call `widen`."""

from __future__ import annotations

from nova.codegen.common.builder import element_type, splat
from nova.core.targets import Target
from nova.ir.bindings import arith, ir
from nova.ir.mathlib.f8_formats import F8_TYPES


def _like(type_: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType.get(type_.shape, element) if isinstance(type_, ir.VectorType) else element


def widen(target: Target, value: ir.Value, to: str, *, unsigned: bool = False) -> ir.Value:
    """A scalar or vector float extended to f32 or f64, exactly and without a library call.

    An integer is extended to i32, by zeros if it is `unsigned`.
    """
    wide = _like(value.type, element_type(to))
    if value.type == wide:
        return value
    if to == "i32":
        return (arith.extui if unsigned else arith.extsi)(wide, value)
    source = value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
    if isinstance(source, ir.F32Type) or (isinstance(source, ir.F16Type) and target.has_f16c):
        return arith.extf(wide, value)
    if isinstance(source, F8_TYPES):
        return arith.extf(wide, value)  # `expand-f8` has its code
    single = _like(value.type, ir.F32Type.get())
    bits = _like(value.type, ir.IntegerType.get_signless(32))
    half = _like(value.type, ir.IntegerType.get_signless(16))
    raw = arith.extui(bits, arith.bitcast(half, value))
    if isinstance(source, ir.BF16Type):
        result = arith.bitcast(single, arith.shli(raw, splat(bits, 16)))
    else:
        result = _widen_f16(raw, bits, single)
    return result if single == wide else arith.extf(wide, result)


def _widen_f16(raw: ir.Value, bits: ir.Type, single: ir.Type) -> ir.Value:
    """Convert f16 bits to f32 on a target without the instruction.

    The exponent and fraction, shifted to their f32 positions, are scaled by 2**112: that re-biases
    the exponent and normalizes f16's subnormals in one multiplication. Infinity and NaN (all
    exponent bits set) get f32's full exponent instead.
    """
    sign = arith.shli(arith.andi(raw, splat(bits, 0x8000)), splat(bits, 16))
    magnitude_bits = arith.shli(arith.andi(raw, splat(bits, 0x7FFF)), splat(bits, 13))
    scaled = arith.mulf(arith.bitcast(single, magnitude_bits), splat(single, 2.0**112))
    special = arith.cmpi(arith.CmpIPredicate.uge, magnitude_bits, splat(bits, 0x7C00 << 13))
    infinite = arith.ori(magnitude_bits, splat(bits, 0x7F800000))
    magnitude = arith.select(special, infinite, arith.bitcast(bits, scaled))
    return arith.bitcast(single, arith.ori(magnitude, sign))
