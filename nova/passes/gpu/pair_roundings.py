"""`pair-roundings`: two elements are rounded to bf16 by one instruction."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.gpu.ptx_ops import narrow_pair
from nova.core.records import record
from nova.ir.bindings import arith, ir, vector
from nova.ir.gpu_bindings import llvm
from nova.ir.walk import find_ops
from nova.passes.base import Pass

_MAX_MOVED = 32
"""Ops that move before the first of two roundings."""
_MAX_TRIED = 6
"""Roundings that are tried as the second one: those between may depend on the first."""
_MOVABLE = frozenset(("vector.extract", "llvm.bitcast"))


@record
class PairRoundings(Pass):
    """Round pairs of f32 values of a block to bf16 by one instruction each.

    An f32 that is rounded in the middle of a computation, such as the sum of a GEMM to which a bias
    is added in bf16, would take an instruction that has a second element for nothing, at half of
    the rate of arithmetic. The second of a pair is the next one that does not depend on the first;
    the pure ops it needs move before the first. Where the results are widened again, halves of the
    word are shifted in place. Runs before `call-device-intrinsics`, which rounds the others.
    """

    name: ClassVar[str] = "pair-roundings"

    def concerns(self, text: str) -> bool:
        return "arith.truncf" in text and "bf16" in text

    def run(self, module: ir.Module) -> None:
        blocks: dict[Any, list[Any]] = {}
        for op in find_ops(module, "arith.truncf"):
            if isinstance(op.operands[0].type, ir.F32Type) and isinstance(
                op.results[0].type, ir.BF16Type
            ):
                blocks.setdefault(op.block, []).append(op)
        with module.context:
            for block, roundings in blocks.items():
                if len(roundings) > 1:
                    _BlockPairs(block, roundings).rewrite()


class _BlockPairs:
    """The roundings of one block that still have no partner."""

    def __init__(self, block: Any, roundings: list[Any]):
        self.waiting = roundings
        # By result: the hash of an op changes with its operands.
        self.position = {
            result: i for i, op in enumerate(block.operations) for result in op.operation.results
        }

    def rewrite(self) -> None:
        while len(self.waiting) > 1:
            first, *others = self.waiting
            self.waiting = others
            for number, second in enumerate(others[:_MAX_TRIED]):
                moved = self._needed_by(second, first)
                if moved is not None:
                    for op in moved:
                        op.move_before(first)
                        for result in op.results:
                            self.position[result] = self.position[first.results[0]]
                    del others[number]
                    for op in _round_both(first, second):
                        # A later op may be at its address.
                        self.position.pop(op.results[0], None)
                        op.erase()
                    break

    def _needed_by(self, second: Any, first: Any) -> list[Any] | None:
        """The ops after `first` that compute the operand of `second`, if they can move before it.

        In the order of their uses.
        """
        limit = self.position[first.results[0]]
        needed: dict[Any, Any] = {}

        def visit(value: Any) -> bool:
            if not isinstance(value, ir.OpResult):
                return True
            op = value.owner.operation
            if op == first:
                return False
            # Ops of enclosing blocks, and those already before the first one.
            if value in needed or self.position.get(value, -1) <= limit:
                return True
            if len(needed) >= _MAX_MOVED or not _is_movable(op):
                return False
            if not all(visit(operand) for operand in op.operands):
                return False
            needed[value] = op
            return True

        return list(needed.values()) if visit(second.operands[0]) else None


def _is_movable(op: Any) -> bool:
    """Whether an op only computes: it has neither effects nor regions."""
    if op.name == "llvm.inline_asm":
        return "has_side_effects" not in op.attributes
    if op.name == "llvm.call_intrinsic":
        return "ex2.approx" in str(op.attributes["intrin"])
    if op.name == "arith.truncf":
        return False  # a rounding that waits for a partner of its own
    is_pure = op.name.startswith(("arith.", "math.")) or op.name in _MOVABLE
    return is_pure and len(op.results) == 1


def _round_both(first: Any, second: Any) -> list[Any]:
    """One instruction for both, at the place of the first; the ops that it replaces."""
    bf16, f32, i32 = ir.BF16Type.get(), ir.F32Type.get(), ir.IntegerType.get_signless(32)
    replaced = []
    with first.location, ir.InsertionPoint(first):
        word = narrow_pair(first.operands[0], second.operands[0], "bf16")
        for number, op in enumerate((first, second)):
            users = [use.owner.operation for use in op.results[0].uses]
            widenings = [user for user in users if _widens_to_f32(user)]
            if widenings:
                bits = _constant(i32, 0xFFFF0000) if number else _constant(i32, 16)
                half = arith.andi(word, bits) if number else arith.shli(word, bits)
                for user in widenings:
                    user.results[0].replace_all_uses_with(arith.bitcast(f32, half))
            if len(widenings) < len(users):
                pair = llvm.bitcast(ir.VectorType.get([2], bf16), word)
                op.results[0].replace_all_uses_with(vector.extract(pair, [], [number]))
            replaced += widenings
    return [*replaced, first, second]


def _widens_to_f32(op: Any) -> bool:
    return op.name == "arith.extf" and isinstance(op.results[0].type, ir.F32Type)


def _constant(type_: Any, number: int) -> Any:
    return arith.ConstantOp(type_, ir.IntegerAttr.get(type_, number)).result
