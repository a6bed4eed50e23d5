"""`widen-conversions`: integers and 16-bit floats convert through f32."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.mlir.bindings import arith, ir
from nova.mlir.walk import every_op
from nova.passes.base import Pass
from nova.records import record

_FROM_INTEGER = {"arith.sitofp": arith.sitofp, "arith.uitofp": arith.uitofp}
_TO_INTEGER = {"arith.fptosi": arith.fptosi, "arith.fptoui": arith.fptoui}


@record
class WidenConversions(Pass):
    """Split conversions between integers and f16 or bf16 in two, with f32 between.

    Upstream's canonicalization merges `integer -> f32 -> f16` to one conversion, for which LLVM
    calls a library on most targets. Runs after the last canonicalization.
    """

    name: ClassVar[str] = "widen-conversions"

    def concerns(self, text: str) -> bool:
        return "f16" in text

    def run(self, module: ir.Module) -> None:
        found = [
            op
            for op in every_op(module)
            if (op.name in _FROM_INTEGER and _is_short(op.results[0].type))
            or (op.name in _TO_INTEGER and _is_short(op.operands[0].type))
        ]
        for op in found:
            source, target = op.operands[0], op.results[0].type
            single = _like(target, ir.F32Type.get())
            with ir.InsertionPoint(op), op.location:
                if op.name in _FROM_INTEGER:
                    value = arith.truncf(target, _FROM_INTEGER[op.name](single, source))
                else:
                    value = _TO_INTEGER[op.name](target, arith.extf(single, source))
            op.results[0].replace_all_uses_with(value)
            op.erase()


def _is_short(type_: Any) -> bool:
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    return isinstance(element, ir.F16Type | ir.BF16Type)


def _like(type_: Any, element: Any) -> Any:
    """`element`, or a vector of it where `type_` is a vector."""
    return ir.VectorType.get(type_.shape, element) if isinstance(type_, ir.VectorType) else element
