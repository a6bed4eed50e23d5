"""`apply-fast-math`: lets LLVM reassociate float arithmetic, under the option `fast_math`."""

from __future__ import annotations

from typing import ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.walk import find_ops
from nova.passes.base import Pass

_FLAGS = "#arith.fastmath<reassoc,nsz,arcp,contract,afn>"
_OPS = frozenset(f"arith.{name}" for name in ("addf", "subf", "mulf", "divf", "negf"))


@record
class ApplyFastMath(Pass):
    """Put fast-math flags on the float additions, multiplications and divisions of every kernel.

    Runs before `expand-math`, whose functions depend on exact rounding. The flags allow LLVM to
    reassociate, to contract, to divide by reciprocals, and to ignore the sign of zero. They do not
    assume that NaN and infinity never occur: a mask of -inf stays a mask.
    """

    name: ClassVar[str] = "apply-fast-math"

    def run(self, module: ir.Module) -> None:
        flags = ir.Attribute.parse(_FLAGS)
        for op in find_ops(module, *_OPS):
            op.attributes["fastmath"] = flags
