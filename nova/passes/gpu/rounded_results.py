"""Whether all that depends on an f32 is rounded to 16 bits, so that a small error does not matter.

`approximate-exp`, `fuse-multiply-adds` and `call-device-intrinsics` ask before they use an
instruction with an error of some ulp of an f32.
"""

from __future__ import annotations

from typing import Any

from nova.ir.bindings import ir
from nova.ir.walk import defining_op

_FOLLOWED = {
    "math.fma",
    *(
        f"arith.{name}"
        for name in ("addf", "subf", "mulf", "divf", "negf", "select", "maximumf", "minimumf")
    ),
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


class RoundedResults:
    """The ops of a module whose results are only used for 16-bit floats, each looked at once.

    It asks the users of an op what they are, where `is_rounded_later` follows all paths. An
    exponential or a quotient may be on the way: those have an error of their own. The arithmetic
    must not change between two questions.
    """

    def __init__(self) -> None:
        self.known: dict[Any, bool] = {}

    def contains(self, op: Any) -> bool:
        path = [op]
        while path:
            op = path[-1]
            if op in self.known:
                path.pop()
                continue
            users = [use.owner.operation for use in op.results[0].uses]
            followed = [user for user in users if _is_followed(user)]
            unknown = [user for user in followed if user not in self.known]
            others = [user for user in users if not _is_followed(user)]
            if not users or not all(map(_rounds_to_16_bits, others)):
                self.known[op] = False
            elif unknown:
                path += unknown
                continue
            else:
                self.known[op] = all(self.known[user] for user in followed)
            path.pop()
        return self.known[op]


def _is_followed(op: Any) -> bool:
    if op.name == "llvm.call_intrinsic":
        return "ex2.approx" in str(op.attributes["intrin"])
    return op.name in _FOLLOWED and isinstance(op.results[0].type, ir.F32Type)


def _rounds_to_16_bits(op: Any) -> bool:
    if op.name == "llvm.inline_asm":
        return bool(op.attributes["asm_string"].value.startswith("cvt.rn.bf16x2.f32"))
    return op.name == "arith.truncf" and isinstance(op.results[0].type, ir.F16Type | ir.BF16Type)


def is_one(value: Any) -> bool:
    """Whether a value is the constant 1."""
    constant = defining_op(value, "arith.constant")
    return constant is not None and ir.FloatAttr(constant.attributes["value"]).value == 1.0
