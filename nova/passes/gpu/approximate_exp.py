"""`approximate-exp`: exponentials for results of 16 bits are one instruction of a device."""

from __future__ import annotations

from math import e, log2
from typing import Any, ClassVar

from nova.codegen.common.intrinsics import call_intrinsic
from nova.core.records import record
from nova.ir.bindings import arith, ir
from nova.ir.walk import find_ops
from nova.passes.base import Pass
from nova.passes.gpu.rounded_results import is_one, is_rounded_later


@record
class ApproximateExp(Pass):
    """Compute 1 + exp(x) of an f32 by 2 ** (x log2 e), if only results of 16 bits depend on it.

    Such sums are the divisors of sigmoid, SiLU, tanh and GELU. The product and `ex2.approx` have a
    relative error of at most 2**-17, in the range of an f32, where f16 has one of 2**-11 and bf16
    of 2**-9; subnormal numbers, which are zero, do not change the sum. An accurate exponential
    takes a dozen instructions, for which the epilogue of a GEMM with an activation has no time.
    Runs before `expand-math`, which would match a sigmoid.
    """

    name: ClassVar[str] = "approximate-exp"

    def concerns(self, text: str) -> bool:
        return "math.exp" in text and "f16" in text

    def run(self, module: ir.Module) -> None:
        with module.context:
            for op in find_ops(module, "math.exp"):
                if _is_added_to_one(op) and is_rounded_later(op):
                    with op.location, ir.InsertionPoint(op):
                        result = _emit(op.operands[0])
                    op.results[0].replace_all_uses_with(result)
                    op.erase()


def _is_added_to_one(op: Any) -> bool:
    """Whether an exponential of an f32 is only used in sums with 1."""
    users = [use.owner.operation for use in op.results[0].uses]
    return isinstance(op.results[0].type, ir.F32Type) and all(
        user.name == "arith.addf" and any(map(is_one, user.operands)) for user in users
    )


def _emit(x: Any) -> Any:
    factor = arith.ConstantOp(x.type, ir.FloatAttr.get(x.type, log2(e))).result
    return call_intrinsic("llvm.nvvm.ex2.approx.ftz.f", [x.type], [arith.mulf(x, factor)])[0]
