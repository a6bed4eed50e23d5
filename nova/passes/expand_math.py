"""`expand-math`: math functions as inlined arithmetic.

In: a module whose kernels are loops over scalars (or vectors) of f32 and f64. Out: the same module,
with no `math` op left that LLVM would turn into a call. Runs after f16 and bf16 were widened and
before the lowering to LLVM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nova.errors import LoweringError
from nova.mlir.bindings import ir
from nova.mlir.diagnostics import place_of
from nova.mlir.mathlib import EXPANSIONS, ROUNDING, Builder
from nova.mlir.walk import find_ops
from nova.passes.base import Pass


@dataclass(frozen=True)
class ExpandMath(Pass):
    """Replace every `math` function that LLVM has no instruction for by straight-line `arith` ops.

    The result vectorizes like any other arithmetic and needs no math library. It has no branches
    (but for `arith.remf`, which is a loop), no calls, no tables and no `math.fma`; each op keeps
    the location of the op it came from. sqrt,
    absf, copysign, fma and the integer functions stay. So do floor, ceil, trunc, round and
    roundeven with `native-rounding=true`, which is for targets that have them (SSE4.1 and later,
    AArch64). With `large-angles=false`, sin, cos and tan of an f64 beyond 2**30 are NaN, and cost
    half. Types are f32, f64 and vectors of them; any other float type is a `LoweringError`. Edge
    cases are those of C99; docs/math-accuracy.md has the error bounds.
    """

    name: ClassVar[str] = "expand-math"
    native_rounding: bool = True
    large_angles: bool = True

    def run(self, module: ir.Module) -> None:
        table = EXPANSIONS if self.native_rounding else EXPANSIONS | ROUNDING
        found = find_ops(module, *table)
        builders: dict[ir.Type, Builder] = {}
        with module.context:
            for op in found:
                self._expand(op, table, builders)

    def _expand(self, op: ir.Operation, table: dict, builders: dict[ir.Type, Builder]) -> None:
        operands = list(op.operands)
        kind = operands[0].type
        with op.location, ir.InsertionPoint(op):
            b = builders.get(kind)
            if b is None:
                try:
                    b = Builder(
                        kind,
                        native_rounding=self.native_rounding,
                        large_angles=self.large_angles,
                    )
                except LoweringError as error:
                    raise LoweringError(
                        f"{op.name}: {error.what}", where=place_of(op.location), hint=error.hint
                    ) from None
                builders[kind] = b
            b.begin()
            # fpowi is the only one with an operand of another type: its integer exponent.
            wrapped = [b.value(x) if x.type == kind else x for x in operands]
            results = table[op.name](b, *wrapped)
        if not isinstance(results, tuple):
            results = (results,)
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new.v)
        op.erase()
