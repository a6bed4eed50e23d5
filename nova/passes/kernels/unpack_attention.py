"""`unpack-attention`: gradients of q, k and v that share a tensor, as three destinations."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attention_ops import PACKED, find_point
from nova.ir.bindings import ir
from nova.ir.clone import clone_into
from nova.ir.linalg.ops import yield_op
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass


@record
class UnpackAttention(Pass):
    """Write packed gradients of an attention through the map of each.

    On tensors they are one result of a `linalg.generic`, whose map is that of the first gradient;
    on buffers the generic has the same destination three times, each with its map.
    """

    name: ClassVar[str] = "unpack-attention"

    def concerns(self, text: str) -> bool:
        return f"{PACKED} = [" in text

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            point = find_point(op)
            if point is not None and PACKED in point.attributes:
                with ir.InsertionPoint(op), op.location:
                    _unpack(op, point)


def _unpack(op: Any, point: Any) -> None:
    *inputs, destination = op.operands
    packed = list(point.attributes[PACKED])
    attributes = {name: op.attributes[name] for name in op.attributes}
    maps = list(op.attributes["indexing_maps"])[: len(inputs)]
    attributes["indexing_maps"] = ir.ArrayAttr.get([*maps, *packed])
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([len(inputs), len(packed)])
    operands = [*inputs, *([destination] * len(packed))]
    generic = ir.Operation.create(op.name, [], operands, attributes=attributes, regions=1)
    block = generic.regions[0].blocks.append(*(value.type.element_type for value in operands))
    old = op.regions[0].blocks[0]
    mapping = dict(zip(old.arguments, block.arguments, strict=False))
    with ir.InsertionPoint(block):
        *body, end = (inner.operation for inner in old.operations)
        for inner in body:
            clone_into(inner, mapping)
        (value,) = end.operands
        yield_op([mapping[value]] * len(packed))
    del mapping[point.results[0]].owner.operation.attributes[PACKED]
    op.erase()
