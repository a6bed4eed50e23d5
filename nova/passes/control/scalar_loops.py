"""Loops over single numbers as scalar code: a few instructions of one kernel for an iteration.

A loop whose operands, carries and results are tensors of rank 0, such as a counter or Newton's
method for one number, would cost a device a graph node and two kernels for an iteration. As
`scf.while` over scalars it is code of one thread. `inline-control-flow` calls this for devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.clone import clone_into
from nova.ir.control_flow.functions import Control
from nova.ir.walk import main_function

_SCALAR_DIALECTS = ("arith.", "math.")


def is_scalar_loop(control: Control, call: Any, regions: Sequence[Any]) -> bool:
    """Whether a call of a control function is a loop over numbers, without loops inside."""
    if control.construct not in ("while", "for") or not len(call.results):
        return False
    block = main_function(regions[0]).entry_block
    if control.construct == "for" and len(call.operands) != control.consts + control.carries:
        return False  # it reads slices
    if len(call.results) != control.carries:
        return False  # it writes slices
    values = [*call.operands, *call.results, *block.arguments]
    return all(map(_is_number, values)) and all(
        _is_scalar_op(op.operation) for op in block.operations
    )


def emit_scalar_loop(control: Control, call: Any, regions: Sequence[Any]) -> list[Any]:
    """Write the loop as `scf.while` over scalars at the insertion point; return its results."""
    block = main_function(regions[0]).entry_block
    operands = [tensor.extract(value, []) for value in call.operands]
    if control.construct == "while":
        again, *others = operands
    else:
        others = operands
        again = _constant(ir.IntegerType.get_signless(64), 0)
    consts, carries = others[: control.consts], others[control.consts :]
    types = [again.type, *(c.type for c in carries)]
    loop = ir.Operation.create("scf.while", types, [again, *carries], regions=2)
    locations = [call.location] * len(types)
    before, after = (r.blocks.append(*types, arg_locs=locations) for r in loop.regions)
    with ir.InsertionPoint(before):
        first = before.arguments[0]
        if control.construct == "for":
            length = _constant(first.type, control.length)
            first = arith.cmpi(arith.CmpIPredicate.slt, first, length)
        scf.ConditionOp(first, before.arguments)
    with ir.InsertionPoint(after):
        state, *values = list(after.arguments)
        if control.construct == "while":
            *new, state = _inline(block, [*consts, *values])
        else:
            new = _inline(block, [_position(control, state), *consts, *values])
            state = arith.addi(state, _constant(state.type, 1))
        scf.YieldOp([state, *new])
    results = list(loop.results)[1:]
    pairs = zip(call.results, results, strict=True)
    return [tensor.from_elements(old.type, [new]) for old, new in pairs]


def _position(control: Control, iteration: Any) -> Any:
    if not control.reverse:
        return iteration
    return arith.subi(_constant(iteration.type, control.length - 1), iteration)


def _is_number(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and not value.type.rank


def _is_scalar_op(op: Any) -> bool:
    """Whether an op of a region computes numbers, or one tensor of rank 0 from others."""
    if op.name == "func.return":
        return all(map(_is_number, op.operands))
    if op.name == "linalg.generic":
        inside = [inner.operation for inner in op.regions[0].blocks[0].operations]
        return all(map(_is_number, op.results)) and all(
            _is_arithmetic(inner) or inner.name == "linalg.yield" for inner in inside
        )
    if op.name in ("tensor.empty", "tensor.extract", "tensor.from_elements"):
        return all(map(_is_number, op.operands if op.name == "tensor.extract" else op.results))
    if op.name == "arith.constant":
        return not isinstance(op.results[0].type, ir.ShapedType) or _is_number(op.results[0])
    return _is_arithmetic(op)


def _is_arithmetic(op: Any) -> bool:
    return op.name.startswith(_SCALAR_DIALECTS) and not any(
        isinstance(value.type, ir.ShapedType) for value in (*op.operands, *op.results)
    )


def _inline(block: Any, arguments: Sequence[Any]) -> list[Any]:
    """Emit the ops of a region over scalars; return its results."""
    scalars = dict(zip(block.arguments, arguments, strict=True))
    *operations, ending = [op.operation for op in block.operations]
    for op in operations:
        if op.name == "linalg.generic":
            _inline_generic(op, scalars)
        elif op.name in ("tensor.extract", "tensor.from_elements"):
            scalars[op.results[0]] = scalars[op.operands[0]]
        elif op.name == "arith.constant" and _is_number(op.results[0]):
            value = op.attributes["value"].get_splat_value()
            scalars[op.results[0]] = arith.ConstantOp(value.type, value).result
        elif op.name != "tensor.empty":
            clone_into(op, scalars)
    return [scalars[value] for value in ending.operands]


def _inline_generic(op: Any, scalars: dict[Any, Any]) -> None:
    block = op.regions[0].blocks[0]
    inner: dict[Any, Any] = {}
    for argument, operand in zip(block.arguments, op.operands, strict=True):
        if operand in scalars:  # not an empty tensor, which is not read
            inner[argument] = scalars[operand]
    *operations, ending = [o.operation for o in block.operations]
    for operation in operations:
        for operand in operation.operands:
            if operand in scalars:
                inner[operand] = scalars[operand]
        clone_into(operation, inner)
    for result, value in zip(op.results, ending.operands, strict=True):
        scalars[result] = inner.get(value, scalars.get(value, value))


def _constant(type_: Any, value: int) -> Any:
    return arith.ConstantOp(type_, value).result
