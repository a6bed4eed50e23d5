"""`fold-integer-operands`: integer contractions read narrow and transposed operands in place."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.common.match_contraction import is_integer_contraction
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass
from nova.passes.tensor.fold_transposes import fold_permutation

_WIDER = ("arith.extsi", "arith.extui")


@record
class FoldIntegerOperands(Pass):
    """Fold the widening of operands to i32, and their permutations, into integer contractions.

    Dot products of bytes then multiply the operands as they are in memory, and no wide copy is
    written. `linalg.contract` has no form for one signed and one unsigned operand, so integer
    contractions stay `linalg.generic`.
    """

    name: ClassVar[str] = "fold-integer-operands"

    def concerns(self, text: str) -> bool:
        return "arith.muli" in text

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            if len(op.operands) != 3 or not is_integer_contraction(GenericOp(op)):
                continue
            for operand in (0, 1):
                fold_permutation(op, operand)
                while _fold_widening(op, operand):
                    fold_permutation(op, operand)


def _fold_widening(contraction: Any, operand: int) -> bool:
    """Read the source of an operand that is only widened to i32, and widen it in the body."""
    value = contraction.operands[operand]
    widening = _widening(value)
    if widening is None:
        return False
    source = value.owner.operation.operands[0]
    block = GenericOp(contraction).block
    argument = block.arguments[operand]
    wide = argument.type
    argument.set_type(source.type.element_type)
    with ir.InsertionPoint.at_block_begin(block), contraction.location:
        widened = ir.Operation.create(widening, [wide], [argument])
    argument.replace_all_uses_except(widened.results[0], widened)
    contraction.operands[operand] = source
    return True


def _widening(value: Any) -> str | None:
    """The op that widens each element of another tensor to `value`, if it is only that."""
    if not isinstance(value, ir.OpResult) or not is_generic_op(value.owner.operation):
        return None
    generic = GenericOp(value.owner.operation)
    if generic.num_inputs != 1 or generic.num_outputs != 1:
        return None
    source = generic.inputs[0].type
    if not isinstance(source, ir.RankedTensorType) or source.element_type.width not in (8, 16):
        return None
    body = [op.operation.name for op in generic.block.operations]
    identity = ir.AffineMap.get_identity(len(generic.iterators))
    maps = [m.value for m in generic.op.attributes["indexing_maps"]]
    is_plain = maps == [identity, identity] and str(value.type.element_type) == "i32"
    return body[0] if is_plain and len(body) == 2 and body[0] in _WIDER else None
