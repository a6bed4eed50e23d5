"""Loops on tensors that carry their values in the buffers they started with.

Upstream's bufferization takes a loop only when each value that it yields is in the buffer of the
value it was given. `bufferize-kernels` calls this before it, so that any loop is such a loop.
"""

from __future__ import annotations

from typing import Any

from nova.mlir.bindings import ir, tensor


def yield_in_place(loop: Any) -> None:
    """Let a `scf.for` or `scf.while` write what it yields into what it was given."""
    block = loop.regions[-1].blocks[0]
    carried = list(block.arguments)[1:] if loop.name == "scf.for" else list(block.arguments)
    operations = block.operations
    ending = operations[len(operations) - 1].operation
    with ir.InsertionPoint(ending), loop.location:
        # First all values that are other turns' arguments: writing below changes those.
        for i, value in enumerate(ending.operands):
            if _is_tensor(value) and value in carried and value != carried[i]:
                ending.operands[i] = _materialize(value, _empty_like(value))
        for i, value in enumerate(ending.operands):
            if _is_tensor(value) and _destination(value) != carried[i]:
                ending.operands[i] = _materialize(value, carried[i])


def _is_tensor(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def _empty_like(value: Any) -> Any:
    return tensor.empty(list(value.type.shape), value.type.element_type)


def _materialize(value: Any, into: Any) -> Any:
    return ir.Operation.create(
        "bufferization.materialize_in_destination", [value.type], [value, into]
    ).results[0]


def _destination(value: Any) -> Any:
    """The value in whose buffer `value` is made, as far as its ops say so."""
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
