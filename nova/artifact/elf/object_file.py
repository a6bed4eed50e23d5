"""One relocatable object in the linker: the records that `reader.py` creates.

Used by `linker.py` and the modules that it calls. All data that does not depend on other objects is
computed when the object is read, because the runtime's object is read once and linked many times.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from nova.artifact.elf import defs as elf
from nova.artifact.elf.machine import Machine
from nova.core.records import record

Array = NDArray[Any]


@record
class InputSection:
    """A section of the output; `relocations` are arrays of `elf.RELA` by type."""

    name: str
    flags: int
    align: int
    data: bytes | bytearray
    relocations: dict[int, Array]


@record
class ObjectFile:
    """The linker's view of one object.

    `symbols` is an array of `elf.SYM`; `names` are those of the global symbols by index, `defined`
    maps the names of those that are defined here to indices. `direct` are the global symbols that
    relocations refer to, `by_slot` all symbols that are reached through the GOT; `pointers` counts
    addresses in data. `listed` are the symbols that a disassembly shows: their indices, with the
    records `rows`, whose names are offsets in `strings`.
    """

    label: str
    machine: Machine
    sections: dict[int, InputSection]
    symbols: Array
    names: dict[int, str]
    defined: dict[str, int]
    direct: tuple[int, ...]
    by_slot: tuple[int, ...]
    pointers: int
    listed: Array
    rows: Array
    strings: bytes

    @cached_property
    def visible_functions(self) -> list[str]:
        """The exported functions of the object, by name."""
        rows = self.symbols
        return sorted(
            name
            for name, index in self.defined.items()
            if rows[index]["info"] & 15 == elf.STT_FUNC
            and rows[index]["other"] & 3 == elf.STV_DEFAULT
        )
