"""`approximate-exp`: exponentials for 16-bit results or arguments are one instruction."""

from __future__ import annotations

from math import e, log2
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir
from nova.ir.mathlib.intrinsics import call_intrinsic
from nova.ir.walk import defining_op, find_ops
from nova.passes.base import Pass
from nova.passes.gpu.rounded_results import is_one, is_rounded_later

_MAX_DEPTH = 4
"""Ops between an exponential and the 16-bit float that its argument is computed from."""
_ARITHMETIC = frozenset(("arith.addf", "arith.subf", "arith.mulf", "arith.negf"))


@record
class ApproximateExp(Pass):
    """Compute exp(x) of an f32 by 2 ** (x log2 e), where its error is far below that of 16 bits.

    That is 1 + exp(x) if only results of 16 bits depend on it: the divisors of sigmoid, SiLU, tanh
    and GELU; and the exp of a 16-bit float plus or minus other values, as in a softmax of such a
    row, if only such results or the sum of a reduction depend on it. The product and `ex2.approx`
    have a relative error of at most 2**-16, in the range of an f32, where f16 has one of 2**-11 and
    bf16 of 2**-9; in a sum that has the exponential of 0 it is that of f32. Subnormal numbers are
    zero. An accurate exponential takes a dozen instructions, for which the epilogue of a GEMM with
    an activation, or a row of a vocabulary, has no time. A constant factor of the argument is
    multiplied by log2 e. Runs before `expand-math`, which would match a sigmoid.
    """

    name: ClassVar[str] = "approximate-exp"

    def concerns(self, text: str) -> bool:
        return "math.exp" in text and "f16" in text

    def run(self, module: ir.Module) -> None:
        with module.context:
            for op in find_ops(module, "math.exp"):
                if not isinstance(op.results[0].type, ir.F32Type):
                    continue
                if _is_divisor(op) or _is_of_narrow_row(op):
                    with op.location, ir.InsertionPoint(op):
                        power = _scaled(op.operands[0], log2(e))
                        result = call_intrinsic(
                            "llvm.nvvm.ex2.approx.ftz.f", [power.type], [power]
                        )[0]
                    op.results[0].replace_all_uses_with(result)
                    _erase_unused(op)


def _erase_unused(op: Any) -> None:
    """Erase an op without uses, and the arithmetic that only it used."""
    operands = list(op.operands)
    op.erase()
    for value in operands:
        definition = _arithmetic(value)
        if definition is not None and not any(True for _ in value.uses):
            _erase_unused(definition)


def _arithmetic(value: Any) -> Any | None:
    """The sum, difference, product or negation that a value is."""
    if not isinstance(value, ir.OpResult):
        return None
    op = value.owner.operation
    return op if op.name in _ARITHMETIC else None


def _is_divisor(op: Any) -> bool:
    """Whether an exponential is only used in sums with 1, for results of 16 bits."""
    return is_rounded_later(op) and all(
        user.name == "arith.addf" and any(map(is_one, user.operands)) for user in _users(op)
    )


def _is_of_narrow_row(op: Any) -> bool:
    """Whether an exponential is that of a 16-bit float, shifted, for a sum or 16-bit results."""
    argument = op.operands[0]
    if _arithmetic(argument) is None or not _is_narrow(argument, _MAX_DEPTH):
        return False
    return all(map(_is_reduction, _users(op))) or is_rounded_later(op)


def _users(op: Any) -> list[Any]:
    return [use.owner.operation for use in op.results[0].uses]


def _is_reduction(op: Any) -> bool:
    """Whether an op adds to the sum of a reduction, whose order is free."""
    return op.name == "arith.addf" and "reassoc" in str(op.attributes["fastmath"])


def _is_narrow(value: Any, depth: int) -> bool:
    """Whether a value is a 16-bit float, or a sum or difference with one."""
    widened = defining_op(value, "arith.extf")
    if widened is not None:
        return isinstance(widened.operands[0].type, ir.F16Type | ir.BF16Type)
    op = _arithmetic(value)
    if op is None or op.name == "arith.mulf" or depth == 0:
        return False
    return any(_is_narrow(operand, depth - 1) for operand in op.operands)


def _scaled(value: Any, factor: float) -> Any:
    """A value times a number: where constants alone change, there is no multiplication."""
    negation = defining_op(value, "arith.negf")
    if negation is not None and not _has_other_uses(value):
        return _scaled(negation.operands[0], -factor)
    if _has_constant_factor(value):
        return _fold(value, factor)
    return arith.mulf(value, _constant(value.type, factor))


def _has_other_uses(value: Any) -> bool:
    return len(list(value.uses)) > 1


def _has_constant_factor(value: Any) -> bool:
    """Whether a multiple of a value only has other constants than the value itself."""
    if defining_op(value, "arith.constant") is not None:
        return True
    op = _arithmetic(value)
    if op is None or op.name == "arith.negf" or _has_other_uses(value):
        return False
    factors = [_has_constant_factor(operand) for operand in op.operands]
    return any(factors) if op.name == "arith.mulf" else all(factors)


def _fold(value: Any, factor: float) -> Any:
    """The multiple of a value with a constant factor."""
    constant = defining_op(value, "arith.constant")
    if constant is not None:
        return _constant(value.type, ir.FloatAttr(constant.attributes["value"]).value * factor)
    op = _arithmetic(value)
    assert op is not None, "a value with a constant factor is arithmetic"
    first, second = op.operands
    if op.name == "arith.mulf":
        if _has_constant_factor(second):
            return arith.mulf(first, _fold(second, factor))
        return arith.mulf(_fold(first, factor), second)
    combine = arith.addf if op.name == "arith.addf" else arith.subf
    return combine(_fold(first, factor), _fold(second, factor))


def _constant(type_: Any, number: float) -> Any:
    return arith.ConstantOp(type_, ir.FloatAttr.get(type_, number)).result
