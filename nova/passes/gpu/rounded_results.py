"""Whether all that depends on an f32 is rounded to 16 bits, so that a small error does not matter.

`approximate-exp` and `call-device-intrinsics` ask before they use an instruction with an error of
some ulp of an f32.
"""

from __future__ import annotations

from typing import Any

from nova.ir.bindings import ir
from nova.ir.walk import defining_op

_FOLLOWED = {
    f"arith.{name}"
    for name in ("addf", "subf", "mulf", "divf", "negf", "select", "maximumf", "minimumf")
}
_MAX_FOLLOWED = 32
"""Ops on f32 between a value and the roundings that it is used for."""


def is_rounded_later(op: Any) -> bool:
    """Whether everything that depends on a result, in f32, is rounded to a 16-bit float."""
    waiting, visited = [op], set()
    while waiting:
        op = waiting.pop()
        if op in visited:
            continue
        visited.add(op)
        users = [use.owner.operation for use in op.results[0].uses]
        if not users or len(visited) > _MAX_FOLLOWED:
            return False
        for user in users:
            if user.name in _FOLLOWED and isinstance(user.results[0].type, ir.F32Type):
                waiting.append(user)
            elif not _rounds_to_16_bits(user):
                return False
    return True


def _rounds_to_16_bits(op: Any) -> bool:
    if op.name == "llvm.inline_asm":
        return bool(op.attributes["asm_string"].value.startswith("cvt.rn.bf16x2.f32"))
    return op.name == "arith.truncf" and isinstance(op.results[0].type, ir.F16Type | ir.BF16Type)


def is_one(value: Any) -> bool:
    """Whether a value is the constant 1."""
    constant = defining_op(value, "arith.constant")
    return constant is not None and ir.FloatAttr(constant.attributes["value"]).value == 1.0
