"""`fuse-elementwise`: elementwise ops become one op where one alone needs the other's result."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.mlir.bindings import ir
from nova.mlir.structured import is_structured
from nova.mlir.walk import find_ops
from nova.passes.base import Pass, UpstreamPass
from nova.passes.group_ops import root
from nova.records import record

_GUARD = "nova.guard"


@record
class FuseElementwise(Pass):
    """Upstream's elementwise fusion, kept away from what contractions read.

    Work that became part of a contraction would be done again for every element of its result, and
    no schedule would know the product. `linalg.contract` alone does not prevent that: upstream
    moves the reshape behind one into it, as a `linalg.generic` that it then fuses. So the operands
    of contractions hide behind barriers meanwhile.
    """

    name: ClassVar[str] = "fuse-elementwise"

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, "linalg.contract"):
            for operand in (0, 1):
                if _is_computed(op.operands[operand]):
                    _guard(op, operand)
        UpstreamPass("linalg-fuse-elementwise-ops", verify=False).run(module)
        for op in find_ops(module, "nova.barrier"):
            if _GUARD in op.attributes:
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()


def _is_computed(value: Any) -> bool:
    made = root(value)
    return isinstance(made, ir.OpResult) and is_structured(made.owner)


def _guard(op: Any, operand: int) -> None:
    value = op.operands[operand]
    with ir.InsertionPoint(op), op.location:
        op.operands[operand] = ir.Operation.create(
            "nova.barrier",
            results=[value.type],
            operands=[value, value],
            attributes={
                "region": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0),
                _GUARD: ir.UnitAttr.get(),
            },
        ).result
