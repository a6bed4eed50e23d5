"""`allocate-scratch`: buffers of a tile move from the stack to scratch memory of the runtime.

`scratch_size` says how much a kernel needs; the tables have it (`nova/compiler/tables.py`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.core.rounding import round_up
from nova.errors import LoweringError
from nova.ir.attributes import SCRATCH_OFFSETS
from nova.ir.bindings import ir
from nova.ir.buffers import nbytes
from nova.ir.diagnostics import place_of
from nova.ir.kernel import set_argument_types
from nova.ir.walk import kernels
from nova.passes.base import Pass

_LEAST_BYTES = 1024
_ALIGN = 64
_MOST_BYTES = 1 << 30


@record
class AllocateScratch(Pass):
    """Make an argument of every buffer that a kernel allocates in its first block.

    Schedules allocate the buffers of a tile, such as packed panels, as if the stack were large; the
    caller's stack may have 64 KiB. Each buffer of 1 KiB or more becomes an argument after the range
    of tiles, and `nova.scratch_offsets` has the offset of each in the scratch memory that
    `export-kernels` makes the kernel take. Runs after `drop-host-code`: no calls of kernels are
    left.
    """

    name: ClassVar[str] = "allocate-scratch"

    def run(self, module: ir.Module) -> None:
        for kernel in kernels(module):
            if SCRATCH_OFFSETS.has(kernel):
                raise LoweringError(
                    f"@{kernel.name.value} has its scratch placed already",
                    where=place_of(kernel.location),
                )
            _allocate(kernel)


def scratch_size(kernel: Any) -> int:
    """Bytes of scratch memory of a kernel's code; at the stage `loops` or after it."""
    return _layout(kernel)[1]


def _layout(kernel: Any) -> tuple[list[tuple[Any, int]], int]:
    """Allocations of the first block with their offsets, and the end of the last."""
    buffers, end = [], 0
    for op in kernel.entry_block.operations:
        if op.operation.name != "memref.alloca" or len(op.operation.operands) > 0:
            continue
        size = nbytes(op.result.type)
        if size >= _LEAST_BYTES:
            buffers.append((op, end))
            end += round_up(size, _ALIGN)
    if end > _MOST_BYTES:
        raise LoweringError(
            f"@{kernel.name.value} needs {end} bytes for a tile of its own",
            where=place_of(kernel.location),
        )
    return buffers, end


def _allocate(kernel: Any) -> None:
    buffers, _ = _layout(kernel)
    if not buffers:
        return
    block = kernel.entry_block
    for op, _ in buffers:
        argument = block.add_argument(op.result.type, op.location)
        op.result.replace_all_uses_with(argument)
        op.operation.erase()
    set_argument_types(kernel, [])
    SCRATCH_OFFSETS.set(kernel, tuple(offset for _, offset in buffers))
