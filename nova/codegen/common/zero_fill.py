"""Zero fills, which are redundant before a GEMM that overwrites its whole output."""

from __future__ import annotations

from typing import Any

from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root


def fills_with_zero(op: Any) -> bool:
    """Whether `op` only fills its output with zero."""
    operations = [o.operation for o in op.regions[0].blocks[0].operations]
    if len(operations) != 1:
        return False
    value = operations[0].operands[0]
    block = op.regions[0].blocks[0]
    arguments = list(block.arguments)
    if value in arguments:
        value = list(op.operands)[arguments.index(value)]
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != "arith.constant":
        return False
    attr = value.owner.operation.attributes["value"]
    return isinstance(attr, ir.FloatAttr | ir.IntegerAttr) and attr.value == 0


def same_output(a: Any, b: Any) -> bool:
    """Whether two ops write the same buffer."""
    return buffer_root(list(a.operands)[-1]) == buffer_root(list(b.operands)[-1])
