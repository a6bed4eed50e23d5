"""Calls of LLVM's intrinsics, from the math library, passes and schedules."""

from __future__ import annotations

from collections.abc import Sequence

from nova.ir.bindings import ir


def call_intrinsic(
    name: str, results: Sequence[ir.Type], operands: Sequence[ir.Value]
) -> list[ir.Value]:
    """The results of the intrinsic `name`, called at the insertion point."""
    call = ir.Operation.create(
        "llvm.call_intrinsic",
        results=list(results),
        operands=list(operands),
        attributes={
            "intrin": ir.StringAttr.get(name),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    )
    return list(call.results)
