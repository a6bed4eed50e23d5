"""The prologue of a launch: a row that every block computes again, such as the norm of a vector.

Input: the ops of a kernel that `form-kernels` marked with `nova.prologue`. Output: code that leaves
their results in the shared memory of the block. A row program keeps the row in the registers of
the block's threads (`code.py`), with one barrier for each reduction; other ops run one after the
other (`generic.py`). Operands that no launch of the program writes are loaded before
the wait for earlier launches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nova.codegen.gpu.block_ops import ThreadPosition, barrier
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.generic import emit_prologue
from nova.codegen.gpu.rowwise.code import RowwiseCode
from nova.codegen.gpu.rowwise.plan import (
    RowwisePlan,
    accesses_match,
    along_row,
    goes_along,
    last_writes,
    row_vector_width,
)
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root
from nova.ir.index import index

_MOST_ELEMENTS = 64
"""Elements of the row that a thread has in registers."""


def plan_prologue(kernel: DeviceKernel, threads: int) -> RowwisePlan | None:
    """The row program of a prologue for one block; None where it is not one."""
    nests = list(kernel.prologue.values())
    lengths = {loop.size for nest in nests for loop in along_row(nest, 0)}
    if len(lengths) != 1 or not all(goes_along(nest, 0) for nest in nests):
        return None
    (length,) = lengths
    if not isinstance(length, int) or not accesses_match(nests, [], 0, nests):
        return None
    width = widest = row_vector_width(nests, 0, length)
    while width > 1 and length % (threads * width):
        width //= 2
    if length % (threads * width):
        width = widest
    per_thread = -(-length // (threads * width))
    if per_thread * width > _MOST_ELEMENTS:
        return None
    read = {buffer_root(v) for op in kernel.ops for v in op.operands if _is_buffer(v)}
    return RowwisePlan(1, length, width, threads, per_thread, 1, last_writes(nests, 0, read))


class PrologueCode:
    """Emits the prologue of a block, in two parts: before and after the wait."""

    def __init__(self, kernel: DeviceKernel, position: ThreadPosition, flat: Any):
        self.kernel = kernel
        self.position = position
        self.flat = flat
        self.buffers = {op: [flat(value) for value in op.operands] for op in kernel.prologue}
        self.row: RowwiseCode | None = None
        plan = plan_prologue(kernel, position.threads) if kernel.prologue else None
        if plan is not None:
            alone = replace(position, block=index(0))
            self.row = RowwiseCode(plan, alone, (), kernel.shared)
            self.row.reserve(list(kernel.prologue.values()))

    def load_early(self) -> None:
        """Load the operands that no launch writes."""
        self._load(self.kernel.is_unwritten)

    def emit(self) -> None:
        """Emit all ops; then every thread of the block sees their results."""
        if not self.kernel.prologue:
            return
        if self.row is None:
            emit_prologue(self.kernel, self.position, self.flat)
            return
        self._load(lambda value: True)
        for op, nest in self.kernel.prologue.items():
            with op.location:
                self.row.emit(nest, self.buffers[op], {})
        barrier()

    def _load(self, is_wanted: Callable[[Any], bool]) -> None:
        """Load the rows that the ops read, and none of them computes."""
        if self.row is None:
            return
        nests = self.kernel.prologue
        written = {buffer_root(v) for nest in nests.values() for v in nest.generic.outputs}
        for op, nest in nests.items():
            for number, value in enumerate(nest.generic.inputs):
                if _is_buffer(value) and buffer_root(value) not in written and is_wanted(value):
                    self.row.preload(nest, self.buffers[op], number)


def _is_buffer(value: Any) -> bool:
    return isinstance(value.type, ir.MemRefType)
