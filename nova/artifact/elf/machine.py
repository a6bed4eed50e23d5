"""What the linker has to know of a processor: one `Machine`, made of rows.

`elf_x86_64` and `elf_aarch64` each make one; all other `elf_*` modules ask it and know no processor
by name. A relocation kind is a row: which number it needs, how far that may reach, and how it goes
into the bytes. The rows work on whole arrays, so that an object with thousands of relocations is
linked in a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nova.core.records import record

Ints = NDArray[np.int64]


class Goal(Enum):
    """What a relocation refers to."""

    SYMBOL = "the symbol itself"
    SLOT = "the entry of the offset table that holds the symbol's address"
    POINTER = "an address in data, which is only known when the file is loaded"


@record
class Kind:
    """One relocation kind.

    `number(goal + addend, place)` gives what is to be stored, a multiple of `step` in the range
    [`low`, `high`); `insert(word, number)` puts it into the `width` bytes that are there.
    """

    name: str
    width: int
    goal: Goal
    number: Callable[[Ints, Ints], Ints]
    low: int
    high: int
    step: int
    insert: Callable[[Ints, Ints], Ints]


@record
class Machine:
    """One processor architecture.

    `relax(data, relocations)` turns loads through the offset table into direct ones where the
    instruction allows it; the arrays are changed in place, and hold the candidates only.
    `stub(place, slot)` is code of `stub_size` bytes that jumps to the address in a slot.
    """

    arch: str
    number: int
    page: int
    trap: bytes
    kinds: Mapping[int, Kind]
    names: Mapping[int, str]
    relative: int
    glob_dat: int
    relax: Callable[[NDArray[np.uint8], NDArray[Any]], None]
    stub: Callable[[int, int], bytes]
    stub_size: int

    def name_of(self, kind: int) -> str:
        """A relocation kind in words."""
        if kind in self.kinds:
            return self.kinds[kind].name
        return self.names.get(kind, f"number {kind}")


def distance(goal: Ints, place: Ints) -> Ints:
    """How far it is from the place to the goal."""
    return goal - place


def replace(word: Ints, number: Ints) -> Ints:
    """The number alone."""
    return number
