"""Data hazards between the ops of a block: where barriers go.

Input: the ops of a kernel in order. Output: whether an op accesses buffers that ops since the last
barrier wrote (RAW, WAW), or writes buffers that they read (WAR). Arguments of a kernel do not
overlap: a parameter that is updated in place is one argument (see `plan-workspace`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from nova.codegen.common.loop_nest import LoopNest
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS, buffer_root
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.walk import every_op

Threads = Mapping[Any, Hashable]
"""Buffer -> which thread accesses which element; buffers that are missing have no such order."""
_UNKNOWN: Threads = MappingProxyType({})


class Hazards:
    """The buffers accessed since the last barrier.

    Two ops need no barrier for a buffer of which each thread accesses the same elements in both.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Record a barrier."""
        self._read: dict[Any, set[Hashable]] = {}
        self._written: dict[Any, set[Hashable]] = {}

    def add(self, op: Any, threads: Threads = _UNKNOWN) -> None:
        """Record that `op` runs next, with these threads for each buffer."""
        for accessed, values in zip((self._read, self._written), touched(op), strict=True):
            for value in values:
                accessed.setdefault(value, set()).add(threads.get(value))

    def conflicts(self, op: Any, threads: Threads = _UNKNOWN) -> bool:
        """Whether `op` needs a barrier before it."""
        reads, writes = touched(op)
        others = [(value, self._written) for value in reads | writes]
        others += [(value, self._read) for value in writes]
        for value, accessed in others:
            order = threads.get(value)
            if value in accessed and (order is None or accessed[value] != {order}):
                return True
        return False


def threads_of_elements(nest: LoopNest, first_loop: int, first_thread: int) -> Threads:
    """Which thread accesses which element, where the threads share the points of a loop nest.

    The points are those of the parallel loops from `first_loop` on; `first_thread` has the first.
    """
    orders: dict[Any, Hashable] = {}
    for number, value in enumerate(nest.generic.op.operands):
        if isinstance(value.type, ir.MemRefType):
            order = _element_order(nest, number, first_loop)
            key = None if order is None else (first_thread, order)
            root = buffer_root(value)
            orders[root] = key if orders.get(root, key) == key else None
    for inner in every_op(nest.generic.op):
        if inner != nest.generic.op:  # the body reads elements at any position
            orders.update({buffer_root(v): None for v in inner.operands if _is_buffer(v)})
    return orders


def _element_order(nest: LoopNest, operand: int, first_loop: int) -> Hashable | None:
    """The elements of an operand in the order of the points: an offset, sizes and strides.

    None if several points may access the same element, or a point several ones.
    """
    loops: list[tuple[int, int]] = []
    for loop in nest.loops[first_loop:]:
        size, stride = loop.size, loop.strides[operand]
        if not isinstance(size, int) or not isinstance(stride, int):
            return None
        if size == 1 or not (loop.parallel or stride):
            continue
        if not loop.parallel:
            return None
        if loops and loops[-1][1] == size * stride:
            loops[-1] = (loops[-1][0] * size, stride)
        else:
            loops.append((size, stride))
    by_stride = sorted(loops, key=lambda loop: loop[1], reverse=True)
    is_injective = all(a[1] >= b[0] * b[1] for a, b in pairwise([*by_stride, (1, 1)]))
    return (nest.offsets[operand], tuple(loops)) if is_injective else None


def _is_buffer(value: Any) -> bool:
    return isinstance(value.type, ir.MemRefType)


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
