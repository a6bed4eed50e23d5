"""`share-reciprocals`: divisions by the same divisor share its reciprocal."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir, math
from nova.ir.walk import find_ops
from nova.passes.base import Pass


@record
class ShareReciprocals(Pass):
    """Divide f32 values of one block by the same value with one division, if there are `least`.

    A device has no division instruction: each division takes about ten instructions. With r = 1 /
    d, q = x * r has a small error, and the correction q + (x - q * d) * r (one Newton step with
    FMA, as in Markstein's division) is the quotient: correctly rounded in all but one of a thousand
    cases, and off by one ulp in those (subnormals aside). Where the remainder is NaN, as with a
    divisor of zero or infinity, q is the quotient.
    """

    name: ClassVar[str] = "share-reciprocals"
    least: int = 4

    def run(self, module: ir.Module) -> None:
        groups: dict[tuple[Any, Any], list[Any]] = {}
        for op in find_ops(module, "arith.divf"):
            if isinstance(op.results[0].type, ir.F32Type) and not _is_constant(op.operands[1]):
                groups.setdefault((op.block, op.operands[1]), []).append(op)
        with module.context:
            for (_, divisor), quotients in groups.items():
                if len(quotients) >= self.least:
                    _rewrite(divisor, quotients)


def _is_constant(value: Any) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.operation.name == "arith.constant"


def _rewrite(divisor: Any, quotients: list[Any]) -> None:
    type_ = divisor.type
    with ir.InsertionPoint(quotients[0]), quotients[0].location:
        unit = arith.ConstantOp(type_, ir.FloatAttr.get(type_, 1.0)).result
        largest = arith.ConstantOp(type_, ir.FloatAttr.get(type_, float("inf"))).result
        reciprocal = arith.divf(unit, divisor)
        minus = arith.negf(divisor)
    for op in quotients:
        with ir.InsertionPoint(op), op.location:
            value = op.operands[0]
            near = arith.mulf(value, reciprocal)
            residual = math.fma(near, minus, value)
            # The sum of two zeros loses the sign of the quotient.
            exact = math.copysign(math.fma(residual, reciprocal, near), near)
            is_number = arith.cmpf(arith.CmpFPredicate.OLT, math.absf(residual), largest)
            quotient = arith.select(is_number, exact, near)
        op.results[0].replace_all_uses_with(quotient)
        op.erase()
