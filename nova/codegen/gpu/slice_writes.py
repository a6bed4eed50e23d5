"""Loops that write a slice of a buffer: all iterations are independent, and run in parallel.

Input: the `scf.for` nest of a `dynamic_update_slice` in place (`nova/ir/linalg/loops.py`), in a
kernel over buffers. Output: its iterations, distributed over the threads of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from nova.ir.bindings import arith, ir, memref
from nova.ir.buffers import buffer_root
from nova.ir.clone import clone_into
from nova.ir.index import index
from nova.ir.walk import every_op


@dataclass(frozen=True)
class SliceWrite:
    """A perfect loop nest from 0 in steps of 1, whose body copies one element."""

    loops: tuple[Any, ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        return prod(self.sizes)

    @property
    def load(self) -> Any:
        (load,) = (op for op in self._ops if op.name == "memref.load")
        return load

    @property
    def store(self) -> Any:
        (store,) = (op for op in self._ops if op.name == "memref.store")
        return store

    @property
    def counters(self) -> list[Any]:
        return [_counter(loop) for loop in self.loops]

    @property
    def _ops(self) -> list[Any]:
        return [op.operation for op in _body(self.loops[-1]).operations][:-1]

    def emit(self, counters: list[Any], mapping: dict[Any, Any], flat: Any) -> None:
        """Emit one iteration; `flat` gives the flat buffer of the element that is read."""
        local = dict(mapping)
        local.update(zip(self.counters, counters, strict=True))
        for op in self._ops:
            if op.name != "memref.load":
                clone_into(op, local)
                continue
            source, *indices = op.operands
            position = index(0)
            for counter, size in zip(indices, source.type.shape, strict=True):
                counter = local.get(counter, counter)
                position = arith.addi(arith.muli(position, index(size)), counter)
            local[op.results[0]] = memref.load(flat(source), [position])


@dataclass(frozen=True)
class NewRow:
    """A row for each matrix of `target`, (..., rows, columns), written at row `position`.

    `source` has these rows one after the other.
    """

    target: Any
    source: Any
    position: Any


def match_new_row(op: Any) -> NewRow | None:
    """Match a loop nest that writes the same row of every matrix of a buffer."""
    write = match_slice_write(op)
    if write is None or len(write.store.operands) < 4:
        return None
    _, target, *lead, position, column = write.store.operands
    source, *read = write.load.operands
    counters = write.counters
    if column != counters[-1] or [v for v in lead if _constant(v) != 0] != counters[:-1]:
        return None
    if position in counters or (isinstance(position, ir.OpResult) and _is_in(position, op)):
        return None
    *matrices, _, columns = target.type.shape
    is_whole = write.count == prod(matrices) * columns == prod(source.type.shape)
    if not is_whole or [v for v in read if _constant(v) != 0] != counters:
        return None
    return NewRow(target, source, position)


def _is_in(value: Any, loop: Any) -> bool:
    """Whether a value is computed inside of a loop nest."""
    return any(value.owner.operation == inner for inner in every_op(loop))


def match_slice_write(op: Any) -> SliceWrite | None:
    """Match a loop nest whose iterations write different elements of one buffer, and read others.

    Each counter is an index of the store, alone or plus a value from outside, so no two iterations
    store to the same element.
    """
    loops: list[Any] = []
    sizes: list[int] = []
    while op.name == "scf.for":
        bounds = [_constant(value) for value in list(op.operands)[:3]]
        if len(op.results) or bounds[0] != 0 or bounds[2] != 1 or not bounds[1]:
            return None
        loops.append(op)
        sizes.append(bounds[1])
        operations = [inner.operation for inner in _body(op).operations]
        if len(operations) != 2 or operations[0].name != "scf.for":
            break
        op = operations[0]
    if not loops or not _copies_element(operations[:-1], [_counter(loop) for loop in loops]):
        return None
    return SliceWrite(tuple(loops), tuple(sizes))


def _copies_element(ops: list[Any], counters: list[Any]) -> bool:
    names = [op.name for op in ops]
    if names.count("memref.load") != 1 or names.count("memref.store") != 1:
        return False
    if not set(names) <= {"memref.load", "memref.store", "arith.addi"}:
        return False
    load, store = ops[names.index("memref.load")], ops[names.index("memref.store")]
    value, target, *indices = store.operands
    if value != load.results[0] or buffer_root(load.operands[0]) == buffer_root(target):
        return False
    inside = {result for op in ops for result in op.results}
    used = [_moving(value, counters, inside) for value in indices]
    return all(used.count(number) == 1 for number in range(len(counters))) and None not in used


def _moving(value: Any, counters: list[Any], inside: set[Any]) -> int | None:
    """The counter that moves an index, or -1 for an index that stays; None for another one."""
    terms = list(value.owner.operands) if value in inside else [value]
    if any(term in inside for term in terms):
        return None
    moving = [counters.index(term) for term in terms if term in counters]
    return None if len(moving) > 1 else (moving[0] if moving else -1)


def _body(loop: Any) -> Any:
    return loop.regions[0].blocks[0]


def _counter(loop: Any) -> Any:
    return _body(loop).arguments[0]


def _constant(value: Any) -> int | None:
    if isinstance(value, ir.OpResult) and value.owner.operation.name == "arith.constant":
        return int(value.owner.operation.attributes["value"].value)
    return None
