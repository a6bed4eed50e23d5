"""`expand-math`: math functions as inlined arithmetic.

In: a module whose kernels are loops over scalars (or vectors) of f32 and f64. Out: the same module,
with no `math` op left that LLVM would turn into a call. Runs after f16 and bf16 were widened and
before the lowering to LLVM.
"""

from __future__ import annotations

from typing import Any, ClassVar

from nova.errors import LoweringError
from nova.mlir.bindings import ir
from nova.mlir.diagnostics import place_of
from nova.mlir.mathlib import BY_EXP2, EXPANSIONS, ROUNDING, Builder, Expansion, exponential
from nova.mlir.walk import find_ops
from nova.passes.base import Pass
from nova.records import record


@record
class ExpandMath(Pass):
    """Replace every `math` function that LLVM has no instruction for by straight-line `arith` ops.

    The result vectorizes like any other arithmetic and needs no math library. It has no branches
    (but for `arith.remf`, which is a loop), no calls, no tables and no `math.fma`; each op keeps
    the location of the op it came from. A sigmoid, which has no `math` op, is recognized by its
    form 1 / (exp(x) + 1). sqrt, absf, copysign, fma and the integer functions stay. So do floor,
    ceil, trunc, round and roundeven with `native-rounding=true`, which is for targets that have
    them (SSE4.1 and later, AArch64). With `large-angles=false`, sin, cos and tan of an f64 beyond
    2**30 are NaN, and cost half. With `native-exp2=true`, exp and exp2 of an f32 become `math.exp2`
    of a number near zero, which the target has an instruction for, as it has for `math.fma`. Types
    are f32, f64 and vectors of them; any other float type is a `LoweringError`. Edge cases are
    those of C99; docs/math-accuracy.md has the error bounds.
    """

    name: ClassVar[str] = "expand-math"
    native_rounding: bool = True
    large_angles: bool = True
    native_exp2: bool = False

    def concerns(self, text: str) -> bool:
        return any(sign in text for sign in ("math.", "arith.remf", "arith.divf"))

    def run(self, module: ir.Module) -> None:
        table = EXPANSIONS if self.native_rounding else EXPANSIONS | ROUNDING
        if self.native_exp2:
            table = table | BY_EXP2
        builders: dict[ir.Type, Builder] = {}
        with module.context:
            for division in find_ops(module, "arith.divf"):
                chain = _logistic_chain(division)
                if chain is not None:
                    total, exp = chain
                    operands = list(exp.operands)
                    self._expand(division, operands, exponential.logistic, builders)
                    for op in (total, exp):
                        if not any(True for _ in op.results[0].uses):
                            op.erase()
            for op in find_ops(module, *table):
                self._expand(op, list(op.operands), table[op.name], builders)

    def _expand(
        self,
        op: ir.Operation,
        operands: list[ir.Value],
        expansion: Expansion,
        builders: dict[ir.Type, Builder],
    ) -> None:
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
            results = expansion(b, *wrapped)
        if not isinstance(results, tuple):
            results = (results,)
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new.v)
        op.erase()


def _logistic_chain(division: Any) -> tuple[ir.Operation, ir.Operation] | None:
    """The addition and the exp of a division that is 1 / (exp(x) + 1)."""
    one, total = division.operands
    if not _is_one(one) or (add := _maker(total, "arith.addf")) is None:
        return None
    power, other = add.operands
    exp = _maker(power, "math.exp")
    return (add, exp) if exp is not None and _is_one(other) else None


def _maker(value: ir.Value, name: str) -> ir.Operation | None:
    """The op called `name` that makes `value`, if that is what makes it."""
    op = value.owner
    return op.operation if not isinstance(op, ir.Block) and op.operation.name == name else None


def _is_one(value: ir.Value) -> bool:
    """Whether every lane of `value` is the constant 1."""
    if (broadcast := _maker(value, "vector.broadcast")) is not None:
        return _is_one(broadcast.operands[0])
    if (constant := _maker(value, "arith.constant")) is None:
        return False
    attr = constant.attributes["value"]
    if isinstance(attr, ir.DenseElementsAttr):
        return attr.is_splat and float(attr.get_splat_value().value) == 1.0
    return float(attr.value) == 1.0
