"""The processor interface of the linker: one `Machine` per architecture, as table rows.

`x86_64.py` and `aarch64.py` each define one; all other modules of this folder use it and do not
depend on a processor. A relocation type is a row: the formula of its value, the range of the value,
and how it is encoded. The rows work on whole arrays, so that an object with thousands of
relocations is linked in a millisecond.
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
    """The target of a relocation."""

    SYMBOL = "the symbol itself"
    SLOT = "the entry of the offset table that holds the symbol's address"
    POINTER = "an address in data, which is only known when the file is loaded"


@record
class RelocationType:
    """One relocation type of the psABI.

    `number(goal + addend, address)` computes the value, a multiple of `step` in the range [`low`,
    `high`); `insert(word, number)` encodes it into the existing `width` bytes.
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

    `relax(data, relocations)` rewrites loads through the GOT to direct ones if the instruction
    allows it; the arrays are changed in place, and contain only the candidates. `stub(address,
    slot)` is code of `stub_size` bytes that jumps to the address in a slot (a PLT entry).
    """

    arch: str
    number: int
    page: int
    trap: bytes
    relocation_types: Mapping[int, RelocationType]
    names: Mapping[int, str]
    relative: int
    glob_dat: int
    relax: Callable[[NDArray[np.uint8], NDArray[Any]], None]
    stub: Callable[[int, int], bytes]
    stub_size: int

    def name_of(self, number: int) -> str:
        """The name of a relocation type."""
        if number in self.relocation_types:
            return self.relocation_types[number].name
        return self.names.get(number, f"number {number}")


def distance(goal: Ints, address: Ints) -> Ints:
    """PC-relative: the distance from the place to the target."""
    return goal - address


def replace(word: Ints, number: Ints) -> Ints:
    """Replaces the whole word by the number."""
    return number
