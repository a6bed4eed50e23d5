"""`make-signless`: unsigned element types become signless."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.resources import retyped
from nova.ir.walk import every_op, functions
from nova.passes.base import Pass


@record
class MakeSignless(Pass):
    """Retype `ui8`, `si32` and the like to signless types, and drop the casts between the two.

    For programs whose ops have been lowered: from there on the ops carry the signedness.
    """

    name: ClassVar[str] = "make-signless"
    only_with: ClassVar[tuple[str, ...]] = tuple(
        f"{sign}i{bits}" for sign in "us" for bits in (2, 4, 8, 16, 32, 64)
    )

    def run(self, module: ir.Module) -> None:
        casts: list[Any] = []
        for op in every_op(module):
            for result in op.results:
                _retype(result)
            for region in op.regions:
                for block in region.blocks:
                    for argument in block.arguments:
                        _retype(argument)
            if op.name == "builtin.unrealized_conversion_cast":
                casts.append(op)
            elif op.name == "arith.constant":
                _retype_constant(op)
        for op in casts:
            if len(op.operands) == len(op.results) == 1 and (
                op.operands[0].type == op.results[0].type
            ):
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()
        for function in functions(module):
            kind = function.type
            function.attributes["function_type"] = ir.TypeAttr.get(
                ir.FunctionType.get(
                    [_signless(t) for t in kind.inputs], [_signless(t) for t in kind.results]
                )
            )


def _signless(type_: Any) -> Any:
    if isinstance(type_, ir.RankedTensorType):
        element = _signless(type_.element_type)
        return ir.RankedTensorType.get(list(type_.shape), element)
    if isinstance(type_, ir.IntegerType) and not type_.is_signless:
        return ir.IntegerType.get_signless(type_.width)
    return type_


def _retype(value: Any) -> None:
    wanted = _signless(value.type)
    if wanted != value.type:
        value.set_type(wanted)


def _retype_constant(op: Any) -> None:
    attr = op.attributes["value"]
    wanted = _signless(attr.type)
    if wanted != attr.type:
        # Only the signedness differs: same bytes, another type.
        op.attributes["value"] = retyped(attr, wanted)
