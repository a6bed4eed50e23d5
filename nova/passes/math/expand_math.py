"""`expand-math`: math functions as inlined arithmetic.

Input: a module whose kernels are loops over scalars (or vectors) of f32 and f64. Output: the same
module, without any `math` op that LLVM would turn into a call. Runs after f16 and bf16 were widened
and before the lowering to LLVM.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.attributes import MATH
from nova.ir.bindings import func, ir
from nova.ir.diagnostics import place_of
from nova.ir.mathlib import BY_EXP2, EXPANSIONS, ROUNDING, Builder, Expansion, exponential
from nova.ir.walk import defining_op, find_ops
from nova.passes.base import Pass

_SCALARS = 4
"""Scalars are inlined this many times as often: LLVM vectorizes the loops that contain them."""


@record
class ExpandMath(Pass):
    """Replace every `math` function that LLVM has no instruction for by straight-line `arith` ops.

    The result vectorizes like any other arithmetic and needs no math library. It has no branches
    (except for `arith.remf`, which is a loop), no calls, no tables and no `math.fma`; each op keeps
    the location of the op it came from. A sigmoid, which has no `math` op, is matched as 1 /
    (exp(x) + 1). sqrt, absf, copysign, fma and the integer functions stay. So do floor, ceil,
    trunc, round and roundeven with `native-rounding=true`, for targets that have them (SSE4.1 and
    later, AArch64). With `large-angles=false`, sin, cos and tan of an f64 beyond 2**30 are NaN, and
    cost half. With `native-exp2=true`, exp and exp2 of an f32 become `math.exp2` of a number near
    zero, for targets with instructions for that and for `math.fma`. With `native-scale=true`,
    vectors of 512 bits are multiplied by powers of two by AVX-512's instruction, with the same
    results. Types are f32, f64 and vectors
    of them; any other float type is a `LoweringError`. A function that occurs in the module more
    than `max-inlined` times with vectors of one type, or four times as often with scalars, is
    written once, as a private function, and called. Edge cases are those of C99;
    docs/math-accuracy.md has the error bounds.
    """

    name: ClassVar[str] = "expand-math"
    native_rounding: bool = True
    large_angles: bool = True
    native_exp2: bool = False
    native_scale: bool = False
    max_inlined: int | None = None

    def concerns(self, text: str) -> bool:
        return any(sign in text for sign in ("math.", "arith.remf", "arith.divf"))

    def run(self, module: ir.Module) -> None:
        with module.context:
            table = self._table()
            ops = find_ops(module, "arith.divf", *table)
            logistics = _find_logistics(ops)
            if logistics:
                self._expand_all(module, logistics)
                ops = find_ops(module, *table)
            calls = [
                _Call(op, op, op.name.rpartition(".")[2], table[op.name])
                for op in ops
                if op.name in table
            ]
            self._expand_all(module, calls)

    def _table(self) -> dict[str, Expansion]:
        table = EXPANSIONS if self.native_rounding else EXPANSIONS | ROUNDING
        return table | BY_EXP2 if self.native_exp2 else table

    def _expand_all(self, module: ir.Module, calls: list[_Call]) -> None:
        counts = Counter(call.symbol for call in calls)
        builders: dict[ir.Type, Builder] = {}
        written: set[str] = set()
        for call in calls:
            if not self._is_frequent(call, counts[call.symbol]):
                self._inline(call, builders)
                continue
            if call.symbol not in written:
                written.add(call.symbol)
                self._write_function(module, call, builders)
            with call.op.location, ir.InsertionPoint(call.op):
                types = [r.type for r in call.op.results]
                result = func.CallOp(types, ir.FlatSymbolRefAttr.get(call.symbol), call.operands)
            call.replace(list(result.results))

    def _is_frequent(self, call: _Call, count: int) -> bool:
        """Whether a function occurs so often in a module that it is called instead of inlined."""
        if self.max_inlined is None:
            return False
        vectors = isinstance(call.operands[0].type, ir.VectorType)
        return count > self.max_inlined * (1 if vectors else _SCALARS)

    def _inline(self, call: _Call, builders: dict[ir.Type, Builder]) -> None:
        with call.op.location, ir.InsertionPoint(call.op):
            results = self._expansion(call, call.operands, builders)
        call.replace(results)

    def _write_function(
        self, module: ir.Module, call: _Call, builders: dict[ir.Type, Builder]
    ) -> None:
        types = ([v.type for v in call.operands], [r.type for r in call.op.results])
        with ir.InsertionPoint.at_block_begin(module.body), ir.Location.name(call.symbol):
            function = func.FuncOp(call.symbol, types, visibility="private")
            MATH.set(function)
            with ir.InsertionPoint(function.add_entry_block()):
                func.ReturnOp(self._expansion(call, list(function.arguments), builders))

    def _expansion(
        self, call: _Call, operands: Sequence[ir.Value], builders: dict[ir.Type, Builder]
    ) -> list[ir.Value]:
        """Emit a function at the insertion point; return its results."""
        type_ = operands[0].type
        b = builders.get(type_)
        if b is None:
            try:
                b = Builder(
                    type_,
                    native_rounding=self.native_rounding,
                    large_angles=self.large_angles,
                    native_scale=self.native_scale,
                )
            except LoweringError as error:
                raise LoweringError(
                    f"{call.op.name}: {error.what}",
                    where=place_of(call.op.location),
                    hint=error.hint,
                ) from None
            builders[type_] = b
        b.begin()
        # fpowi is the only one with an operand of another type: its integer exponent.
        wrapped = [b.value(x) if x.type == type_ else x for x in operands]
        results = call.expansion(b, *wrapped)
        return [r.v for r in (results if isinstance(results, tuple) else (results,))]


@record
class _Call:
    """An op that is a math function of the operands of `reader`: itself or one of `inside`.

    The ops of `inside` are erased with it if they have no other use.
    """

    op: ir.Operation
    reader: ir.Operation
    label: str
    expansion: Expansion
    inside: tuple[ir.Operation, ...] = ()

    @property
    def operands(self) -> list[ir.Value]:
        """The current operands: they change when the function that defines them is expanded."""
        return list(self.reader.operands)

    @cached_property
    def symbol(self) -> str:
        """The name of the private function."""
        types = "_".join(str(v.type) for v in self.operands)
        return "math_" + re.sub(r"\W+", "_", f"{self.label}_{types}").strip("_")

    def replace(self, results: Sequence[ir.Value]) -> None:
        for old, new in zip(self.op.results, results, strict=True):
            old.replace_all_uses_with(new)
        for op in (self.op, *self.inside):
            if not any(True for r in op.results for _ in r.uses):
                op.erase()


def _find_logistics(ops: Sequence[Any]) -> list[_Call]:
    """The divisions that are 1 / (exp(x) + 1), that is sigmoids."""
    calls = []
    for division in [op for op in ops if op.name == "arith.divf"]:
        chain = _logistic_chain(division)
        if chain is not None:
            calls.append(_Call(division, chain[1], "logistic", exponential.logistic, chain))
    return calls


def _logistic_chain(division: Any) -> tuple[ir.Operation, ir.Operation] | None:
    """The addition and the exp of a division that is 1 / (exp(x) + 1)."""
    numerator, total = division.operands
    if not _is_one(numerator) or (add := defining_op(total, "arith.addf")) is None:
        return None
    power, addend = add.operands
    exp = defining_op(power, "math.exp")
    return (add, exp) if exp is not None and _is_one(addend) else None


def _is_one(value: ir.Value) -> bool:
    """Whether every lane of `value` is the constant 1."""
    if (broadcast := defining_op(value, "vector.broadcast")) is not None:
        return _is_one(broadcast.operands[0])
    if (constant := defining_op(value, "arith.constant")) is None:
        return False
    attr = constant.attributes["value"]
    if isinstance(attr, ir.DenseElementsAttr):
        return attr.is_splat and float(attr.get_splat_value().value) == 1.0
    return float(attr.value) == 1.0
