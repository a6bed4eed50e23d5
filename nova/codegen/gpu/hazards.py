"""Data hazards between the ops of a block: where barriers go.

Input: the ops of a kernel in order. Output: whether an op accesses buffers that ops since the last
barrier wrote (RAW, WAW), or writes buffers that they read (WAR). Arguments of a kernel do not
overlap: a parameter that is updated in place is one argument (see `plan-workspace`).
"""

from __future__ import annotations

from typing import Any

from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS, buffer_root
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.walk import every_op


class Hazards:
    """The buffers accessed since the last barrier."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Record a barrier."""
        self._read: set[Any] = set()
        self._written: set[Any] = set()

    def add(self, op: Any) -> None:
        """Record that `op` runs next."""
        reads, writes = touched(op)
        self._read |= reads
        self._written |= writes

    def conflicts(self, op: Any) -> bool:
        """Whether `op` needs a barrier before it."""
        reads, writes = touched(op)
        return bool(reads & self._written or writes & (self._read | self._written))


def touched(op: Any) -> tuple[set[Any], set[Any]]:
    """The buffers that an op reads and writes, at any depth."""
    reads: set[Any] = set()
    writes: set[Any] = set()
    for inner in every_op(op):
        values = [buffer_root(v) for v in inner.operands if isinstance(v.type, ir.MemRefType)]
        if is_generic_op(inner):
            generic = GenericOp(inner)
            outputs = {buffer_root(v) for v in generic.outputs}
            writes |= outputs
            reads |= {v for v in values if v not in outputs or generic.uses_output}
            reads |= {buffer_root(v) for v in generic.inputs if isinstance(v.type, ir.MemRefType)}
        elif inner.name == "memref.store":
            writes |= set(values)
        elif inner.name in VIEWS:
            continue
        elif inner.name == "memref.load":
            reads |= set(values)
        else:
            reads |= set(values)
            writes |= set(values)
    return reads, writes
