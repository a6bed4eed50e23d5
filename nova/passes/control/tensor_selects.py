"""Selects of whole tensors as elementwise ops.

The canonicalizer makes `arith.select %condition, %a, %b : tensor<...>` of a branch whose results
are values from outside. No kernel has such an op: `outline-control-flow` calls this first.
"""

from __future__ import annotations

from typing import Any

from nova.ir.bindings import arith, ir, tensor
from nova.ir.linalg.ops import generic_op, yield_op
from nova.ir.walk import find_tensor_ops


def lower_tensor_selects(module: ir.Module) -> None:
    """Replace every select of static tensors by a scalar condition with a `linalg.generic`."""
    for op in filter(_selects_tensors, find_tensor_ops(module, "arith.select")):
        condition, first, second = op.operands
        type_ = op.results[0].type
        identity = ir.AffineMap.get_identity(type_.rank)
        with ir.InsertionPoint(op), op.location:
            empty = tensor.empty(type_.shape, type_.element_type)
            generic = generic_op(
                [type_], [first, second], [empty], [identity] * 3, ["parallel"] * type_.rank
            )
            element = type_.element_type
            block = ir.Block.create_at_start(generic.regions[0], [element] * 3, [op.location] * 3)
            with ir.InsertionPoint(block):
                x, y, _ = block.arguments
                yield_op([arith.select(condition, x, y)])
        op.results[0].replace_all_uses_with(generic.results[0])
        op.erase()


def _selects_tensors(op: Any) -> bool:
    return (
        isinstance(op.results[0].type, ir.RankedTensorType)
        and op.results[0].type.has_static_shape
        and not isinstance(op.operands[0].type, ir.RankedTensorType)
    )
