"""Converts regions on rank-0 tensors to plain scalar code.

In: the region of a StableHLO op (a comparator, a combiner) whose ops were lowered by
`stablehlo-legalize-to-linalg` to linalg.generic ops without loops. Out: the same code on scalars,
at the insertion point. Called by `lower-scatter` and `lower-sort`, which evaluate such a region for
each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.errors import LoweringError
from nova.ir.bindings import arith, ir, tensor
from nova.ir.clone import clone_into
from nova.ir.diagnostics import place_of
from nova.ir.linalg.generic import GenericOp, is_generic_op


def emit_scalars(block: Any, arguments: Sequence[Any]) -> list[Any]:
    """The scalars that `block` returns if its arguments are rank-0 tensors of these scalars."""
    scalars: dict[Any, Any] = dict(zip(block.arguments, arguments, strict=True))
    for op in block.operations:
        op = op.operation
        if op.name in ("stablehlo.return", "func.return"):
            return [_scalar(v, scalars, op) for v in op.operands]
        if op.name in ("tensor.empty", "arith.constant"):
            continue  # an empty tensor has no value; a constant is emitted at its use
        if op.name == "builtin.unrealized_conversion_cast":
            scalars[op.results[0]] = _recast(op, scalars)
            continue
        if not is_generic_op(op) or GenericOp(op).iterators:
            raise LoweringError(
                f"{op.name} in a function of single elements", where=place_of(op.location)
            )
        _emit_generic(GenericOp(op), scalars)
    raise AssertionError("the region of a StableHLO op ends with a return")


def _recast(op: Any, scalars: dict[Any, Any]) -> Any:
    """A cast between an unsigned and a signless integer, which `make-signless` drops."""
    value = _scalar(op.operands[0], scalars, op)
    element = op.results[0].type.element_type
    return ir.Operation.create(op.name, [element], [value]).results[0]


def _emit_generic(generic: GenericOp, scalars: dict[Any, Any]) -> None:
    inputs = list(generic.block.arguments)[: generic.num_inputs]
    mapping = {
        argument: _scalar(value, scalars, generic.op)
        for argument, value in zip(inputs, generic.inputs, strict=True)
    }
    for op in generic.block.operations:
        op = op.operation
        if op.name == "linalg.yield":
            for result, value in zip(generic.op.results, op.operands, strict=True):
                scalars[result] = mapping.get(value, value)
        else:
            clone_into(op, mapping)


def _scalar(value: Any, scalars: dict[Any, Any], user: Any) -> Any:
    if value in scalars:
        return scalars[value]
    if not isinstance(value.type, ir.RankedTensorType):
        return value
    if isinstance(value, ir.OpResult) and value.owner.operation.name == "arith.constant":
        attr = value.owner.operation.attributes["value"]
        scalars[value] = arith.ConstantOp(attr.type.element_type, attr.get_splat_value()).result
        return scalars[value]
    if not list(value.type.shape):
        return tensor.extract(value, [])
    raise LoweringError(
        f"{user.name} uses {value.type} as one number", where=place_of(user.location)
    )
