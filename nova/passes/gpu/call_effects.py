"""The memory that calls of kernels in `main` read and write, as ranges of bytes.

In: `main` or a region at the stage `buffers` or later, and a call in it. Out: `CallEffects`; two
calls whose effects conflict keep their order. `fuse-launches` asks.
"""

from __future__ import annotations

from typing import Any

from nova.core.records import record
from nova.ir.attributes import SIGNATURE, WORKSPACE
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS, buffer_of_bytes, nbytes
from nova.ir.launches import find_constant


@record
class ByteRange:
    """Bytes of an argument of `main`, which the workspace is one of."""

    argument: int
    low: int
    high: int
    may_alias: bool
    """Whether its memory may be that of another argument: an output, or a donated input."""

    def overlaps(self, bytes_: ByteRange) -> bool:
        if self.argument == bytes_.argument:
            return self.low < bytes_.high and bytes_.low < self.high
        return self.may_alias and bytes_.may_alias


@record
class CallEffects:
    reads: tuple[ByteRange, ...]
    writes: tuple[ByteRange, ...]

    def conflicts(self, call: CallEffects) -> bool:
        """Whether one of two calls writes memory that the second one reads or writes."""
        return _overlap(self.writes, call.reads + call.writes) or _overlap(self.reads, call.writes)


def _overlap(first: tuple[ByteRange, ...], second: tuple[ByteRange, ...]) -> bool:
    return any(a.overlaps(b) for a in first for b in second)


class MainBuffers:
    """The buffers of `main`: its arguments, views of its workspace, and constants."""

    def __init__(self, main: Any):
        arguments = list(main.entry_block.arguments)
        self._numbers = {argument: i for i, argument in enumerate(arguments)}
        # Programs of Nova write updates to the argument itself; others may name aliases.
        may_alias = SIGNATURE.has(main)
        is_workspace = [False] * (len(arguments) - 1) + [WORKSPACE.has(main)]
        self._may_alias = [may_alias and not workspace for workspace in is_workspace]

    def effects(self, call: Any, ins: int) -> CallEffects | None:
        """The effects of a call whose operands after the first `ins` are written.

        None where an operand is neither an argument of `main`, nor a view of it, nor a constant.
        """
        reads: list[ByteRange] = []
        writes: list[ByteRange] = []
        for number, value in enumerate(call.operands):
            byte_range = self._range(value)
            if byte_range is None:
                if number < ins and _is_constant(value):
                    continue
                return None
            (reads if number < ins else writes).append(byte_range)
        return CallEffects(tuple(reads), tuple(writes))

    def _range(self, value: Any) -> ByteRange | None:
        if not isinstance(value.type, ir.MemRefType):
            return None
        size, low = nbytes(value.type), 0
        while value not in self._numbers and value.owner.operation.name in VIEWS:
            value = value.owner.operation.operands[0]
        if value not in self._numbers:
            owner = value.owner.operation
            memory = buffer_of_bytes(owner.operands[0]) if owner.name == "memref.view" else None
            if memory not in self._numbers:
                return None
            offset = find_constant(owner.operands[1])
            if offset is None:
                return None
            value, low = memory, offset
        number = self._numbers[value]
        return ByteRange(number, low, low + size, self._may_alias[number])


def _is_constant(value: Any) -> bool:
    owner = getattr(value.owner, "operation", None)
    while owner is not None and owner.name in VIEWS:
        owner = getattr(owner.operands[0].owner, "operation", None)
    return owner is not None and owner.name == "memref.get_global"
