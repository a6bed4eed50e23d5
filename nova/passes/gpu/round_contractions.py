"""`round-contractions`: results of contractions that are only read rounded are stored rounded."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir, tensor
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.ops import generic_op, yield_op
from nova.ir.mathlib.f8_formats import NARROW_TYPES
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass

_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")


@record
class RoundContractions(Pass):
    """Round the f32 result of a contraction next to it, where its only reader rounds it first.

    `fuse-elementwise` fuses a rounding into its reader. Where that is not the epilogue of the
    contraction, the result would be stored in f32: it is the epilogue of another contraction, or
    reads at computed positions. As an op of its own, the rounding is part of the epilogue.
    """

    name: ClassVar[str] = "round-contractions"

    def concerns(self, text: str) -> bool:
        return "arith.truncf" in text

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            path = _find_reader(op) if _contracts(op) else None
            if path is not None:
                _round(op, *path)


def _contracts(op: Any) -> bool:
    generic = GenericOp(op)
    return (
        len(op.results) == 1
        and isinstance(op.results[0].type.element_type, ir.F32Type)
        and "reduction" in generic.iterators
        and any(inner.operation.name == "arith.mulf" for inner in generic.block.operations)
        and op.results[0].type.has_static_shape
    )


def _find_reader(op: Any) -> tuple[list[Any], Any, int, ir.Type] | None:
    """The reshapes after `op`, its only reader, the operand, and the type that this rounds to."""
    reshapes: list[Any] = []
    value = op.results[0]
    while True:
        uses = list(value.uses)
        if len(uses) != 1:
            return None
        reader, number = uses[0].owner.operation, uses[0].operand_number
        if reader.name not in _RESHAPES:
            break
        reshapes.append(reader)
        value = reader.results[0]
    if not is_generic_op(reader) or number >= GenericOp(reader).num_inputs:
        return None
    users = [use.owner.operation for use in GenericOp(reader).block.arguments[number].uses]
    types = {user.results[0].type for user in users if user.name == "arith.truncf"}
    if len(types) != 1 or any(user.name != "arith.truncf" for user in users):
        return None
    (narrow,) = types
    return (reshapes, reader, number, narrow) if isinstance(narrow, NARROW_TYPES) else None


def _round(op: Any, reshapes: list[Any], reader: Any, number: int, narrow: ir.Type) -> None:
    result = op.results[0]
    shape = list(result.type.shape)
    with ir.InsertionPoint.after(op), op.location:
        identity = ir.AffineMap.get_identity(len(shape))
        rounded_type = ir.RankedTensorType.get(shape, narrow)
        rounded = generic_op(
            [rounded_type],
            [result],
            [tensor.empty(shape, narrow)],
            [identity, identity],
            ["parallel"] * len(shape),
        )
        block = rounded.regions[0].blocks.append(result.type.element_type, narrow)
        with ir.InsertionPoint(block):
            yield_op([arith.truncf(narrow, block.arguments[0])])
    value = rounded.results[0]
    for reshape in reshapes:
        reshape.operands[0] = value
        old = reshape.results[0].type
        reshape.results[0].set_type(ir.RankedTensorType.get(list(old.shape), narrow))
        value = reshape.results[0]
    reader.operands[number] = value
    argument = GenericOp(reader).block.arguments[number]
    argument.set_type(narrow)
    for rounding in {use.owner.operation for use in argument.uses}:
        rounding.results[0].replace_all_uses_with(argument)
        rounding.erase()
