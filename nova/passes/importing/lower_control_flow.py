"""`lower-control-flow`: StableHLO's loops and branches become scf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.clone import clone_into
from nova.ir.walk import functions
from nova.passes.base import Pass


@record
class LowerControlFlow(Pass):
    """Rewrite `stablehlo.while`, `if` and `case` as `scf.while` and `scf.if` on tensors.

    `outline-control-flow` makes programs of their regions later. An index out of range of a case
    selects the last branch, as StableHLO specifies.
    """

    name: ClassVar[str] = "lower-control-flow"
    only_with: ClassVar[tuple[str, ...]] = ("stablehlo.while", "stablehlo.if", "stablehlo.case")

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if not function.is_external:
                for block in function.body.blocks:
                    _rewrite_block(block)


_OPS = ("stablehlo.while", "stablehlo.if", "stablehlo.case")


def _rewrite_block(block: Any) -> None:
    for op in list(block.operations):
        op = op.operation
        # Nested ops first: a clone of them must not need another pass.
        for region in op.regions:
            for nested in region.blocks:
                _rewrite_block(nested)
        if op.name not in _OPS:
            continue
        with ir.InsertionPoint(op), op.location:
            new = _while(op) if op.name == "stablehlo.while" else _branches(op)
        for old, value in zip(op.results, new, strict=True):
            old.replace_all_uses_with(value)
        op.erase()


def _while(op: Any) -> Sequence[Any]:
    types = [r.type for r in op.results]
    loop = ir.Operation.create("scf.while", types, list(op.operands), regions=2)
    locations = [op.location] * len(types)
    before = loop.regions[0].blocks.append(*types, arg_locs=locations)
    with ir.InsertionPoint(before):
        [again] = _inline(op.regions[0].blocks[0], before.arguments)
        scf.ConditionOp(tensor.extract(again, []), before.arguments)
    after = loop.regions[1].blocks.append(*types, arg_locs=locations)
    with ir.InsertionPoint(after):
        scf.YieldOp(_inline(op.regions[1].blocks[0], after.arguments))
    return list(loop.results)


def _branches(op: Any) -> Sequence[Any]:
    chosen = tensor.extract(op.operands[0], [])
    blocks = [region.blocks[0] for region in op.regions]
    types = [r.type for r in op.results]

    def branch(number: int) -> Sequence[Any]:
        if number == len(blocks) - 1:
            return _inline(blocks[number], [])
        if op.name == "stablehlo.if":
            is_this = chosen
        else:
            constant = ir.IntegerAttr.get(chosen.type, number)
            this = arith.ConstantOp(chosen.type, constant).result
            is_this = arith.cmpi(arith.CmpIPredicate.eq, chosen, this)
        choice = scf.IfOp(is_this, types, has_else=True)
        with ir.InsertionPoint(choice.then_block):
            scf.YieldOp(_inline(blocks[number], []))
        with ir.InsertionPoint(choice.else_block):
            scf.YieldOp(branch(number + 1))
        return list(choice.results)

    return branch(0)


def _inline(block: Any, arguments: Sequence[Any]) -> list[Any]:
    """Clone the ops of a block at the insertion point; return its results."""
    mapping = dict(zip(block.arguments, arguments, strict=True))
    for op in block.operations:
        op = op.operation
        if op.name == "stablehlo.return":
            return [mapping.get(v, v) for v in op.operands]
        clone_into(op, mapping)
    raise AssertionError("the region of a StableHLO op ends with a return")
