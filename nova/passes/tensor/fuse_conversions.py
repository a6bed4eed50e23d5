"""`fuse-conversions`: lets an elementwise op read what a conversion reads, and convert it."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass


@record
class FuseConversions(Pass):
    """Fuse a widening of floats into the elementwise op that has all of its uses, several of them.

    `fuse-elementwise` fuses ops with one use only. A rotation reads each half of a row twice: as an
    op of its own, the widened half is a buffer and a barrier between the two.
    """

    name: ClassVar[str] = "fuse-conversions"

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            users = {use.owner.operation for use in op.results[0].uses} if _widens(op) else set()
            user = next(iter(users)) if len(users) == 1 else None
            if user is None or not is_generic_op(user) or not _is_elementwise(user, op):
                continue
            for number, value in enumerate(user.operands):
                if value == op.results[0]:
                    _read_through(user, number, op)
            op.erase()


def _widens(op: Any) -> bool:
    """Whether an op widens the elements of one tensor, and writes a whole one in its own order."""
    generic = GenericOp(op)
    inner = [i.operation for i in generic.block.operations]
    maps = op.attributes["indexing_maps"]
    return (
        generic.num_inputs == generic.num_outputs == 1
        and [i.name for i in inner] == ["arith.extf", "linalg.yield"]
        and inner[0].operands[0] == generic.block.arguments[0]
        and inner[1].operands[0] == inner[0].results[0]
        and "reduction" not in generic.iterators
        and maps[1].value == ir.AffineMap.get_identity(len(generic.iterators))
    )


def _is_elementwise(user: Any, op: Any) -> bool:
    generic = GenericOp(user)
    return "reduction" not in generic.iterators and op.results[0] not in generic.outputs


def _read_through(user: Any, number: int, op: Any) -> None:
    """Let an operand of `user` be the operand of the widening `op`."""
    maps = [attribute.value for attribute in user.attributes["indexing_maps"]]
    source, place = op.attributes["indexing_maps"][0].value, maps[number]
    maps[number] = ir.AffineMap.get(
        place.n_dims, place.n_symbols, [result.compose(place) for result in source.results]
    )
    user.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    user.operands[number] = op.operands[0]
    block = user.regions[0].blocks[0]
    argument = block.arguments[number]
    wide = argument.type
    uses = [(use.owner.operation, use.operand_number) for use in argument.uses]
    argument.set_type(op.operands[0].type.element_type)
    with ir.InsertionPoint.at_block_begin(block), op.location:
        widened = arith.extf(wide, argument)
    for inner, position in uses:
        inner.operands[position] = widened
