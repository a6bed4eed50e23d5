"""`fuse-multiply-adds`: a multiplication and an addition for 16-bit results are one instruction."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir, math
from nova.ir.walk import defining_op, find_ops
from nova.passes.base import Pass
from nova.passes.gpu.rounded_results import RoundedResults


@record
class FuseMultiplyAdds(Pass):
    """Compute a * b + c of f32 by one FMA, if only results of 16 bits depend on it.

    The product is not rounded, so the sum differs by an ulp of an f32 at most from that of two
    instructions, on the side of the exact value. Sums of f32 that someone sees keep the bits that
    two instructions give, as on the CPU. The epilogue of a GEMM with an activation has as many
    cycles as instructions. Runs after `approximate-exp`, which looks for sums with 1.
    """

    name: ClassVar[str] = "fuse-multiply-adds"

    def concerns(self, text: str) -> bool:
        return "arith.mulf" in text and "f16" in text

    def run(self, module: ir.Module) -> None:
        rounded = RoundedResults()
        sums = [
            op
            for op in find_ops(module, "arith.addf", "arith.subf")
            if isinstance(op.results[0].type, ir.F32Type) and _product_of(op) is not None
        ]
        with module.context:
            for op in [op for op in sums if rounded.contains(op)]:
                # Its product may have become part of another sum.
                if (number := _product_of(op)) is not None:
                    _contract(op, number)


def _product_of(op: Any) -> int | None:
    """The number of the operand of a sum that is a product without other uses."""
    for number, value in enumerate(op.operands):
        if defining_op(value, "arith.mulf") is not None and len(list(value.uses)) == 1:
            return number
    return None


def _contract(op: Any, number: int) -> None:
    product = defining_op(op.operands[number], "arith.mulf")
    assert product is not None, "the caller has found it"
    (first, second), addend = product.operands, op.operands[1 - number]
    with op.location, ir.InsertionPoint(op):
        if op.name == "arith.subf":
            if number == 0:
                addend = _negated(addend)
            else:
                first = _negated(first)
        result = math.fma(first, second, addend)
    op.results[0].replace_all_uses_with(result)
    op.erase()
    product.erase()


def _negated(value: Any) -> Any:
    constant = defining_op(value, "arith.constant")
    if constant is None:
        return arith.negf(value)
    number = ir.FloatAttr(constant.attributes["value"]).value
    return arith.ConstantOp(value.type, ir.FloatAttr.get(value.type, -number)).result
