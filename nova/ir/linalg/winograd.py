"""Transforms of convolution weights as one op: the op that carries one, and its reader.

`pack-operands` makes kernels that transform the weights of a Winograd convolution, where they are
not constants. The transform is a `linalg.generic` over the loops

    b (blocks of output channels), o (output channels), k (inputs and taps), e (elements of a block)

with a `nova.winograd_point` in its body, which only `nova/codegen/cpu/winograd/weights.py` can
lower.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.linalg.ops import generic_op, yield_op

NAME = "winograd_point"
OP = f"nova.{NAME}"


@record
class WeightSpec:
    """The layout of transformed weights: see `WinogradPlan`, whose fields these are."""

    size: int
    channels: int
    block_outputs: int
    depth: int
    mr: int
    stride: int
    """Elements from one matrix of a block to the next."""


def emit_weight_transform(weights: Any, into: Any, spec: WeightSpec) -> None:
    """The transform of `weights` (blocks, outputs, inputs * 9) into a buffer (blocks, elements)."""
    b, o, k, e = (ir.AffineDimExpr.get(i) for i in range(4))
    maps = [ir.AffineMap.get(4, 0, list(dims)) for dims in ((b, o, k), (b, e))]
    generic = generic_op([], [weights], [into], maps, ["parallel"] + ["reduction"] * 3)
    element = into.type.element_type
    number = ir.IntegerType.get_signless(64)
    attributes = {
        field.name: ir.IntegerAttr.get(number, getattr(spec, field.name)) for field in fields(spec)
    }
    block = generic.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        point = ir.Operation.create(
            OP, results=[element], operands=[block.arguments[0]], attributes=attributes
        )
        yield_op([point.result])


def find_weight_transform(op: Any) -> WeightSpec | None:
    """The transform that the body of a linalg.generic stands for, or None."""
    for inner in op.regions[0].blocks[0].operations:
        if inner.operation.name == OP:
            attributes = inner.operation.attributes
            numbers = (int(attributes[field.name].value) for field in fields(WeightSpec))
            return WeightSpec(*numbers)
    return None
