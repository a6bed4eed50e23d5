"""When a kernel may write a parameter's new value over the old one.

The old value must not be needed afterwards: no later call reads it, and inside of the writing
kernel every read comes at or before the write, at the same tile (or there is one tile only).
"""

from __future__ import annotations

from typing import Any

from nova.mlir.bindings import ir
from nova.mlir.buffers import buffer_root
from nova.mlir.structured import Structured, is_structured
from nova.mlir.walk import find_function


def can_write_in_place(module: ir.Module, block: Any, argument: Any, target: Any) -> bool:
    """Whether the buffer `target` of main may be the memory of `argument`."""
    calls = [op.operation for op in block.operations if op.operation.name == "func.call"]
    writers = [i for i, call in enumerate(calls) if _touches(call, target)]
    readers = [i for i, call in enumerate(calls) if _touches(call, argument)]
    if not writers or any(r > writers[0] for r in readers):
        return False
    if any(i != writers[0] and i in readers for i in writers):
        return False
    if writers[0] not in readers:
        return True
    call = calls[writers[0]]
    kernel = find_function(module, call.attributes["callee"].value)
    return _safe_inside(kernel, call, argument, target)


def _touches(call: Any, buffer: Any) -> bool:
    return any(buffer_root(o) == buffer for o in call.operands)


def _safe_inside(kernel: Any, call: Any, argument: Any, target: Any) -> bool:
    operands = list(call.operands)
    formal = list(kernel.entry_block.arguments)
    source = {formal[i] for i, o in enumerate(operands) if buffer_root(o) == argument}
    written = {formal[i] for i, o in enumerate(operands) if buffer_root(o) == target}
    grid = len(list(kernel.attributes["nova.grid"]))
    write_seen = False
    for op in kernel.entry_block.operations:
        op = op.operation
        if not is_structured(op):
            if any(o in source or o in written for o in op.operands):
                return False
            continue
        generic = Structured(op)
        writes = any(o in written for o in generic.outputs)
        for value, access in zip(generic.inputs, generic.accesses, strict=False):
            if value not in source:
                continue
            if write_seen:
                return False
            if writes:
                if access != generic.accesses[generic.num_inputs]:
                    return False
            elif any(access.row_dim(i) != generic.out_dims[i] for i in range(grid)):
                return False
        if _captures(op, source):
            return False
        write_seen = write_seen or writes
    return True


def _captures(op: Any, values: set[Any]) -> bool:
    return any(
        operand in values
        for region in op.regions
        for block in region.blocks
        for inner in block.operations
        for operand in inner.operation.operands
    )
