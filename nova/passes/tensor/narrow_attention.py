"""`narrow-attention`: attention returns its results in the type that they are rounded to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nova.ir.attention_ops import find_point
from nova.ir.attributes import DEVICE
from nova.ir.bindings import arith, ir, tensor
from nova.ir.clone import clone_into
from nova.ir.linalg.ops import yield_op
from nova.ir.walk import functions
from nova.passes.base import Pass


@dataclass(frozen=True)
class NarrowAttention(Pass):
    """Round results of attention where they are computed, if rounding is their only use.

    A `linalg.generic` that is an attention computes in the accumulator's type. Where a result has
    one use, and that only rounds it to a narrower float type, the generic returns the narrow
    result, and the other one is erased. A reshape in between, which drops unit dimensions, comes
    after the rounding then. For devices, on which attention is a kernel by itself: the
    wide result would go through memory. Host-pinned ops stay as they are.
    """

    name: ClassVar[str] = "narrow-attention"

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if function.is_external or DEVICE.has(function):
                continue
            body = [op.operation for op in function.entry_block.operations]
            generics = [op for op in body if op.name == "linalg.generic"]
            for op in [op for op in generics if find_point(op) is not None]:
                with ir.InsertionPoint(op), op.location:
                    _narrow(op)


def _narrow(op: Any) -> None:
    roundings = [_rounding(result) for result in op.results]
    if not any(roundings):
        return
    types = [
        ir.RankedTensorType.get(result.type.shape, rounding.results[0].type.element_type)
        if rounding
        else result.type
        for rounding, result in zip(roundings, op.results, strict=True)
    ]
    count = len(op.operands) - len(types)
    inputs = list(op.operands)[:count]
    generic = ir.Operation.create(
        op.name,
        types,
        [*inputs, *(tensor.empty(list(type_.shape), type_.element_type) for type_ in types)],
        attributes={name: op.attributes[name] for name in op.attributes},
        regions=1,
    )
    elements = [value.type.element_type for value in (*inputs, *generic.results)]
    block = generic.regions[0].blocks.append(*elements)
    with ir.InsertionPoint(block):
        old = op.regions[0].blocks[0]
        mapping = dict(zip(list(old.arguments)[:count], block.arguments, strict=False))
        point = clone_into(find_point(op), mapping).results[0]
        yield_op(
            [
                arith.truncf(type_.element_type, point) if rounding else point
                for rounding, type_ in zip(roundings, types, strict=True)
            ]
        )
    for rounding, result, new in zip(roundings, op.results, generic.results, strict=True):
        if rounding is None:
            result.replace_all_uses_with(new)
            continue
        (use,) = [use.owner.operation for use in result.uses]
        if use == rounding:
            rounding.results[0].replace_all_uses_with(new)
            rounding.erase()
            continue
        type_ = rounding.results[0].type
        attributes = {name: use.attributes[name] for name in use.attributes}
        reshaped = ir.Operation.create(use.name, [type_], [new], attributes=attributes)
        rounding.results[0].replace_all_uses_with(reshaped.result)
        rounding.erase()
        use.erase()
    op.erase()


def _rounding(result: Any) -> Any | None:
    """The single user of a result, or of its reshape, if it is elementwise and only rounds it."""
    uses = [use.owner.operation for use in result.uses]
    if len(uses) == 1 and uses[0].name == "tensor.collapse_shape":
        result = uses[0].results[0]
        uses = [use.owner.operation for use in result.uses]
    if len(uses) != 1 or uses[0].name != "linalg.generic" or len(uses[0].operands) != 2:
        return None
    (op,) = uses
    read, write = (attribute.value for attribute in op.attributes["indexing_maps"])
    if op.operands[0] != result or read != write or not read.is_permutation:
        return None
    body = op.regions[0].blocks[0]
    names = [inner.operation.name for inner in body.operations]
    if names != ["arith.truncf", "linalg.yield"]:
        return None
    rounded, end = (inner.operation for inner in body.operations)
    is_plain = rounded.operands[0] == body.arguments[0] and end.operands[0] == rounded.results[0]
    return op if is_plain else None
