"""AArch64 for the linker: its relocations and its stubs.

Used by `reader.py`. The relocation types are those of "ELF for the Arm 64-bit Architecture"
(AAELF64) that LLVM and gcc emit for position-independent code in the small code model. Segments
start at multiples of 64 KiB, because a kernel may have pages of that size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nova.artifact.elf.machine import Goal, Ints, Machine, RelocationType, distance, replace

_PAGE = ~0xFFF  # of `adrp`, independent of the page size of the system


def _pages(goal: Ints, address: Ints) -> Ints:
    return (goal & _PAGE) - (address & _PAGE)


def _low_bits(goal: Ints, address: Ints) -> Ints:
    return goal & 0xFFF


def _field(start: int, bits: int, shift: int) -> Callable[[Ints, Ints], Ints]:
    """Inserts number >> shift into `bits` bits of an instruction, the lowest at `start`."""
    mask = (1 << bits) - 1

    def insert(word: Ints, number: Ints) -> Ints:
        return (word & ~(mask << start)) | (((number >> shift) & mask) << start)

    return insert


def _insert_adr(shift: int) -> Callable[[Ints, Ints], Ints]:
    """The two low bits of an `adr` or `adrp` are separate from the other nineteen."""
    low, high = _field(29, 2, shift), _field(5, 19, shift + 2)
    return lambda word, number: high(low(word, number), number)


def _data(name: str, width: int, goal: Goal) -> RelocationType:
    reach = 1 << (8 * width - 1)
    return RelocationType(f"R_AARCH64_{name}", width, goal, distance, -reach, reach, 1, replace)


def _adr(name: str, goal: Goal, number: Callable[[Ints, Ints], Ints], shift: int) -> RelocationType:
    reach = 1 << (20 + shift)
    step = 1 << shift
    return RelocationType(
        f"R_AARCH64_{name}", 4, goal, number, -reach, reach, step, _insert_adr(shift)
    )


def _low(name: str, goal: Goal, shift: int) -> RelocationType:
    insert = _field(10, 12, shift)
    return RelocationType(f"R_AARCH64_{name}", 4, goal, _low_bits, 0, 1 << 12, 1 << shift, insert)


def _branch(name: str, start: int, bits: int) -> RelocationType:
    reach = 1 << (bits + 1)
    insert = _field(start, bits, 2)
    return RelocationType(f"R_AARCH64_{name}", 4, Goal.SYMBOL, distance, -reach, reach, 4, insert)


def _relax(data: NDArray[np.uint8], relocations: NDArray[Any]) -> None:
    """No relaxation: the two instructions of a load may be separated, so they stay unchanged."""


def _stub(address: int, slot: int) -> bytes:
    """`adrp x16, slot; ldr x17, [x16, slot]; br x17`, then a trap.

    x16 and x17 are the intra-procedure-call scratch registers (IP0, IP1) of the ABI.
    """
    at, goal = np.array([address]), np.array([slot])
    first = _insert_adr(12)(np.array([0x90000010]), _pages(goal, at))
    second = _field(10, 12, 3)(np.array([0xF9400211]), _low_bits(goal, at))
    return b"".join(int(w).to_bytes(4, "little") for w in (first[0], second[0], 0xD61F0220, 0))


AARCH64 = Machine(
    arch="aarch64",
    number=183,
    page=1 << 16,
    trap=b"\0",  # four of them are `udf`, the undefined instruction
    relocation_types={
        257: _data("ABS64", 8, Goal.POINTER),
        260: _data("PREL64", 8, Goal.SYMBOL),
        261: _data("PREL32", 4, Goal.SYMBOL),
        314: _data("PLT32", 4, Goal.SYMBOL),
        274: _adr("ADR_PREL_LO21", Goal.SYMBOL, distance, 0),
        275: _adr("ADR_PREL_PG_HI21", Goal.SYMBOL, _pages, 12),
        277: _low("ADD_ABS_LO12_NC", Goal.SYMBOL, 0),
        278: _low("LDST8_ABS_LO12_NC", Goal.SYMBOL, 0),
        284: _low("LDST16_ABS_LO12_NC", Goal.SYMBOL, 1),
        285: _low("LDST32_ABS_LO12_NC", Goal.SYMBOL, 2),
        286: _low("LDST64_ABS_LO12_NC", Goal.SYMBOL, 3),
        299: _low("LDST128_ABS_LO12_NC", Goal.SYMBOL, 4),
        279: _branch("TSTBR14", 5, 14),
        280: _branch("CONDBR19", 5, 19),
        282: _branch("JUMP26", 0, 26),
        283: _branch("CALL26", 0, 26),
        311: _adr("ADR_GOT_PAGE", Goal.SLOT, _pages, 12),
        312: _low("LD64_GOT_LO12_NC", Goal.SLOT, 3),
    },
    names={
        258: "R_AARCH64_ABS32, an absolute address of 32 bits",
        259: "R_AARCH64_ABS16, an absolute address of 16 bits",
        262: "R_AARCH64_PREL16",
        263: "R_AARCH64_MOVW_UABS_G0, of the large code model",
        273: "R_AARCH64_LD_PREL_LO19, of the tiny code model",
        313: "R_AARCH64_LD64_GOTPAGE_LO15, of -fpic; use -fPIC",
        513: "R_AARCH64_TLSGD_ADR_PAGE21",
        541: "R_AARCH64_TLSIE_ADR_GOTTPREL_PAGE21",
        549: "R_AARCH64_TLSLE_ADD_TPREL_HI12",
        562: "R_AARCH64_TLSDESC_ADR_PAGE21",
    },
    relative=1027,
    glob_dat=1025,
    relax=_relax,
    stub=_stub,
    stub_size=16,
)
