"""`call-device-intrinsics`: math ops with a device instruction become LLVM intrinsics."""

from __future__ import annotations

from typing import ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.walk import find_ops
from nova.passes.base import Pass

_INTRINSICS = {
    "math.absf": "llvm.fabs",
    "math.ceil": "llvm.ceil",
    "math.copysign": "llvm.copysign",
    "math.ctpop": "llvm.ctpop",
    "math.exp2": "llvm.nvvm.ex2.approx.ftz.f",  # of an f32; no result of expand-math's is subnormal
    "math.floor": "llvm.floor",
    "math.fma": "llvm.fma",
    "math.round": "llvm.round",
    "math.roundeven": "llvm.roundeven",
    "math.sqrt": "llvm.sqrt",
    "math.trunc": "llvm.trunc",
}


@record
class CallDeviceIntrinsics(Pass):
    """Replace the `math` ops that `expand-math` leaves by calls of LLVM intrinsics.

    Upstream's conversion to NVVM would turn all of them into math library calls, even a copysign.
    LLVM has instructions for each of these on every device.
    """

    name: ClassVar[str] = "call-device-intrinsics"

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, *_INTRINSICS):
            with op.location, ir.InsertionPoint(op):
                call = ir.Operation.create(
                    "llvm.call_intrinsic",
                    results=[op.results[0].type],
                    operands=list(op.operands),
                    attributes={
                        "intrin": ir.StringAttr.get(_INTRINSICS[op.name]),
                        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(op.operands), 0]),
                        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
                    },
                )
            op.results[0].replace_all_uses_with(call.results[0])
            op.erase()
