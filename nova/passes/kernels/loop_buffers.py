"""Loops on tensors that carry their values in the buffers of their initial values.

Upstream's bufferization accepts a loop only when each yielded value is in the buffer of the
corresponding iteration argument. `bufferize-kernels` calls this first, so that every loop is.
"""

from __future__ import annotations

from typing import Any

from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.clone import clone_into


def yield_in_place(loop: Any) -> None:
    """Make a `scf.for` or `scf.while` write its yielded values into its iteration arguments."""
    if loop.name == "scf.while":
        loop = forward_all(loop)
    block = loop.regions[-1].blocks[0]
    carried = list(block.arguments)[1:] if loop.name == "scf.for" else list(block.arguments)
    operations = block.operations
    ending = operations[len(operations) - 1].operation
    with ir.InsertionPoint(ending), loop.location:
        # First all values that are arguments of other iterations: the writes below change those.
        for i, value in enumerate(ending.operands):
            if _is_tensor(value) and value in carried and value != carried[i]:
                ending.operands[i] = _materialize(value, _empty_like(value))
        for i, value in enumerate(ending.operands):
            if _is_tensor(value) and _destination(value) != carried[i]:
                ending.operands[i] = _materialize(value, carried[i])


def forward_all(loop: Any) -> Any:
    """A `scf.while` whose condition forwards exactly its arguments, in order.

    Where the regions of `loop` have different arguments, the new loop carries both: the first
    region computes the arguments of the second, and its results are theirs.
    """
    before, after = (region.blocks[0] for region in loop.regions)
    ending = before.operations[len(before.operations) - 1].operation
    if list(ending.operands)[1:] == list(before.arguments):
        return loop
    before_types = [a.type for a in before.arguments]
    handed = [a.type for a in after.arguments]
    types = [*before_types, *handed]
    with ir.InsertionPoint(loop), loop.location:
        initial = [*loop.operands, *map(_any_value, handed)]
        new = ir.Operation.create("scf.while", types, initial, regions=2)
        locations = [loop.location] * len(types)
        tops = [region.blocks.append(*types, arg_locs=locations) for region in new.regions]
        with ir.InsertionPoint(tops[0]):
            arguments = list(tops[0].arguments)
            again, *values = _clone_block(before, arguments[: len(before_types)])
            pairs = zip(values, arguments[len(before_types) :], strict=True)
            values = [_materialize(v, into) if _is_tensor(v) else v for v, into in pairs]
            scf.ConditionOp(again, [*arguments[: len(before_types)], *values])
        with ir.InsertionPoint(tops[1]):
            arguments = list(tops[1].arguments)
            values = _clone_block(after, arguments[len(before_types) :])
            scf.YieldOp([*values, *arguments[len(before_types) :]])
    for old, result in zip(loop.results, list(new.results)[len(before_types) :], strict=True):
        old.replace_all_uses_with(result)
    loop.erase()
    return new


def _clone_block(block: Any, arguments: list[Any]) -> list[Any]:
    """Clone the ops of a block at the insertion point; return the operands of its last op."""
    mapping = dict(zip(block.arguments, arguments, strict=True))
    *operations, ending = [op.operation for op in block.operations]
    for op in operations:
        clone_into(op, mapping)
    return [mapping.get(v, v) for v in ending.operands]


def _any_value(type_: Any) -> Any:
    """A placeholder of a type that is overwritten before it is read."""
    if isinstance(type_, ir.RankedTensorType):
        return tensor.empty(list(type_.shape), type_.element_type)
    zero = ir.FloatAttr.get(type_, 0.0) if _is_float(type_) else ir.IntegerAttr.get(type_, 0)
    return arith.ConstantOp(type_, zero).result


def _is_float(type_: Any) -> bool:
    return not isinstance(type_, (ir.IntegerType, ir.IndexType))


def _is_tensor(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def _empty_like(value: Any) -> Any:
    return tensor.empty(list(value.type.shape), value.type.element_type)


def _materialize(value: Any, into: Any) -> Any:
    return ir.Operation.create(
        "bufferization.materialize_in_destination", [value.type], [value, into]
    ).results[0]


def _destination(value: Any) -> Any:
    """The value in whose buffer `value` is computed, by following destination operands."""
    while isinstance(value, ir.OpResult):
        op = value.owner.operation
        if op.name == "tensor.insert":
            value = op.operands[1]
        elif op.name == "scf.for":
            value = op.operands[3 + value.result_number]
        elif op.name == "scf.while":
            value = op.operands[value.result_number]
        else:
            break
    return value
