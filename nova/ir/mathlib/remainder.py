"""Exact fmod: the remainder of two floats is always representable.

Both numbers are integers times powers of two. The larger mantissa is shifted by the difference of
the exponents; integer divisions reduce it, a few bits of that shift at a time. This is the only
loop in the library, and its trip count depends on the operands. Scalars only.
"""

from __future__ import annotations

from typing import Any

from nova.errors import LoweringError
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import index
from nova.ir.mathlib.builder import Builder, Float, where

_PREDICATE = arith.CmpIPredicate


def remf(b: Builder, x: Float, y: Float) -> Float:
    """x - n*y with n = x/y rounded toward zero; the sign of x, NaN for y = 0 or infinite x."""
    if b.shape is not None:
        raise LoweringError("remf of vectors has no expansion", hint="expand before vectorizing")
    ax, ay = abs(x), abs(y)
    remainder = _positive_remainder(b, ax, ay)
    small = where(ax < ay, ax, remainder)
    undefined = (ay <= 0.0) | (ax >= float("inf")) | x.unordered(y)
    return where(undefined, b.const(float("nan")), small.copysign(x))


def _positive_remainder(b: Builder, x: Float, y: Float) -> Float:
    """The remainder of finite x >= y > 0; defined bits for other operands."""
    layout = b.layout
    i64 = ir.IntegerType.get_signless(64)

    def const(value: int) -> Any:
        return arith.ConstantOp(i64, ir.IntegerAttr.get(i64, value)).result

    def parts(value: Float) -> tuple[Any, Any]:
        bits = arith.bitcast(b.int_element, value.v)
        if layout.width < 64:
            bits = arith.extui(i64, bits)
        exponent = arith.shrui(bits, const(layout.mantissa))
        fraction = arith.andi(bits, const((1 << layout.mantissa) - 1))
        subnormal = arith.cmpi(_PREDICATE.eq, exponent, const(0))
        implicit = arith.select(subnormal, const(0), const(1 << layout.mantissa))
        return arith.maxui(exponent, const(1)), arith.ori(fraction, implicit)

    ex, mx = parts(x)
    ey, my = parts(y)
    divisor = arith.maxui(my, const(1))
    shift = arith.maxsi(arith.subi(ex, ey), const(0))
    # A remainder is below 2**(mantissa + 1), so this many more bits fit into 64.
    step = 63 - (layout.mantissa + 1)
    start = arith.remui(mx, divisor)
    rounds = arith.divui(arith.addi(shift, const(step - 1)), const(step))
    zero, unit = index(0), index(1)
    loop = scf.ForOp(zero, arith.index_cast(ir.IndexType.get(), rounds), unit, [start, shift])
    with ir.InsertionPoint(loop.body):
        residue, remaining = loop.inner_iter_args
        now = arith.minui(remaining, const(step))
        shifted = arith.shli(residue, now)
        scf.YieldOp([arith.remui(shifted, divisor), arith.subi(remaining, now)])
    return _scaled(b, loop.results[0], ey, const)


def _scaled(b: Builder, mantissa: Any, exponent: Any, const: Any) -> Float:
    """mantissa * 2**(exponent - bias - mantissa bits), in two exact factors."""
    layout = b.layout
    number = Float(b, arith.sitofp(b.element, mantissa))
    # The biased exponent of the power of two; below 1 it needs a second factor.
    power = arith.subi(exponent, const(layout.mantissa))
    first = arith.maxsi(power, const(1))
    second = arith.addi(arith.subi(power, first), const(layout.bias))

    def pow2(biased: Any) -> Float:
        bits = arith.shli(biased, const(layout.mantissa))
        if layout.width < 64:
            bits = arith.trunci(b.int_element, bits)
        return Float(b, arith.bitcast(b.element, bits))

    return number * pow2(first) * pow2(second)
