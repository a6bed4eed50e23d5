"""Math functions as straight-line `arith` ops, one short module per family.

In: the operands of a `math` op, wrapped by `builder.Builder`. Out: values computed by `arith` ops
(and the `math` ops that are single instructions: absf, copysign, sqrt, roundeven). Called by the
pass `expand-math`, which looks up a function in `EXPANSIONS` by op name. docs/math-accuracy.md
lists the measured error of each function.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.ir.mathlib import (
    error_function,
    exponential,
    hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    remainder,
    rounding,
    trigonometric,
)
from nova.ir.mathlib.builder import Builder, Float

Expansion = Callable[..., Float | tuple[Float, ...]]

EXPANSIONS: dict[str, Expansion] = {
    "arith.remf": remainder.remf,
    "math.acos": inverse_trigonometric.acos,
    "math.acosh": hyperbolic.acosh,
    "math.asin": inverse_trigonometric.asin,
    "math.asinh": hyperbolic.asinh,
    "math.atan": inverse_trigonometric.atan,
    "math.atan2": inverse_trigonometric.atan2,
    "math.atanh": hyperbolic.atanh,
    "math.cbrt": power.cbrt,
    "math.cos": trigonometric.cos,
    "math.cosh": hyperbolic.cosh,
    "math.erf": error_function.erf,
    "math.erfc": error_function.erfc,
    "math.exp": exponential.exp,
    "math.exp2": exponential.exp2,
    "math.expm1": exponential.expm1,
    "math.fpowi": power.fpowi,
    "math.log": logarithm.log,
    "math.log10": logarithm.log10,
    "math.log1p": logarithm.log1p,
    "math.log2": logarithm.log2,
    "math.powf": power.powf,
    "math.rsqrt": power.rsqrt,
    "math.sin": trigonometric.sin,
    "math.sincos": trigonometric.sincos,
    "math.sinh": hyperbolic.sinh,
    "math.tan": trigonometric.tan,
    "math.tanh": hyperbolic.tanh,
}

# Single instructions on most targets: expanded only if the target has none.
ROUNDING: dict[str, Expansion] = {
    "math.ceil": rounding.ceil,
    "math.floor": rounding.floor,
    "math.round": rounding.round_half_away,
    "math.roundeven": rounding.roundeven,
    "math.trunc": rounding.trunc,
}

# For targets with an instruction for 2**x of an f32 near zero.
BY_EXP2: dict[str, Expansion] = {
    "math.exp": exponential.exp_by_instruction,
    "math.exp2": exponential.exp2_by_instruction,
}

__all__ = ["BY_EXP2", "EXPANSIONS", "ROUNDING", "Builder", "Expansion", "Float"]
