"""The memory and the work of a control function, from the planned `main`s of its regions.

A control function has one buffer for itself, after its results. `native/src/exec/control.c` divides
it the same way: a header, one pointer for each argument and result of a region, a second buffer for
each carry (an iteration reads one and writes the other) that the region does not update in place,
and the workspace of the regions. On a device, loops over slices also have a buffer for one slice of
each operand and result: kernels need their addresses fixed and aligned.
"""

from __future__ import annotations

from typing import Any

from nova.ir.attributes import WORK
from nova.ir.buffers import nbytes
from nova.ir.control_flow.functions import Control
from nova.ir.kernel import Kernel, Main
from nova.ir.walk import functions_by_name

ALIGN = 64
_HEADER = 64
"""Bytes for the position and the condition of a loop."""
_POINTER = 8
WHILE_ITERATIONS = 16
"""Estimated iterations of a loop that ends by its condition."""


def control_memory(function: Any, regions: list[Any], on_device: bool = False) -> int:
    """The bytes of the buffer of a control function."""
    control = Control.of(function)
    if control.construct == "call":
        return control.memory
    size = _HEADER
    if control.construct != "switch":
        # With the buffer itself, as the file has it, and a position or condition.
        size += _aligned((len(function.type.inputs) + 2) * _POINTER)
        first = len(function.type.inputs) - Kernel(function).outs
        in_place = Main(regions[0]).in_place
        size += sum(
            _aligned(nbytes(t))
            for i, t in enumerate(_carries(function, control, first))
            if i not in in_place
        )
        if on_device and control.construct == "for" and control.length:
            slices = _slices(function, control, first)
            size += sum(_aligned(nbytes(t) // control.length) for t in slices)
    return size + max((_aligned(Main(r).workspace) for r in regions), default=0)


def control_work(function: Any, regions: list[Any]) -> int:
    """The estimated scalar operations of a call of a control function."""
    control = Control.of(function)
    if control.construct == "call":
        return sum(nbytes(t) for t in list(function.type.inputs)[1:])
    work = max(map(_work, regions))
    if control.construct == "switch":
        return work
    return work * (control.length if control.construct == "for" else WHILE_ITERATIONS)


def _carries(function: Any, control: Control, first: int) -> list[Any]:
    return list(function.type.inputs)[first : first + control.carries]


def _slices(function: Any, control: Control, first: int) -> list[Any]:
    """The operands and results of which an iteration has one slice."""
    types = list(function.type.inputs)
    return types[control.consts + control.carries : first] + types[first + control.carries :]


def _work(region: Any) -> int:
    named = functions_by_name(region.operation.parent.opview)
    calls = [op for op in region.entry_block.operations if op.operation.name == "func.call"]
    return sum(WORK.get(named[op.callee.value]) for op in calls)


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
