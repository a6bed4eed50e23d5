"""x86-64 for the linker: its relocations, its stubs, and relaxation of GOT loads.

Used by `reader.py`. The relocation types are those of the System V x86-64 psABI that LLVM and gcc
emit for position-independent code in the small code model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nova.artifact.elf.machine import Goal, Machine, RelocationType, distance, replace

_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX, _CODE_4_GOTPCRELX = 9, 41, 42, 43
_PC32 = 2

_MOV, _LEA, _INDIRECT, _CALL, _JMP = 0x8B, 0x8D, 0xFF, 0x15, 0x25


def _relocation(name: str, width: int, goal: Goal) -> RelocationType:
    reach = 1 << (8 * width - 1)
    return RelocationType(f"R_X86_64_{name}", width, goal, distance, -reach, reach, 1, replace)


def _relax(data: NDArray[np.uint8], relocations: NDArray[Any]) -> None:
    """`mov` becomes `lea`; indirect calls and jumps become direct ones of the same length."""
    for row in relocations:
        number, at = int(row["kind"]), int(row["offset"])
        if number not in (_GOTPCRELX, _REX_GOTPCRELX) or row["addend"] != -4 or at < 2:
            continue
        opcode, operand = data[at - 2], data[at - 1]
        if opcode == _MOV:
            data[at - 2] = _LEA
        elif number == _GOTPCRELX and opcode == _INDIRECT and operand == _CALL:
            data[at - 2 : at] = 0x67, 0xE8  # a prefix without effect, then `call`
        elif number == _GOTPCRELX and opcode == _INDIRECT and operand == _JMP:
            data[at - 2], data[at + 3] = 0xE9, 0x90  # one byte shorter: a `nop` follows
            row["offset"] = at - 1
        else:
            continue
        row["kind"] = _PC32


def _stub(address: int, slot: int) -> bytes:
    """`jmp *slot(%rip)`, then two traps."""
    return b"\xff\x25" + (slot - address - 6).to_bytes(4, "little", signed=True) + b"\xcc\xcc"


X86_64 = Machine(
    arch="x86_64",
    number=62,
    page=4096,
    trap=b"\xcc",
    relocation_types={
        1: _relocation("64", 8, Goal.POINTER),
        _PC32: _relocation("PC32", 4, Goal.SYMBOL),
        4: _relocation("PLT32", 4, Goal.SYMBOL),
        24: _relocation("PC64", 8, Goal.SYMBOL),
        _GOTPCREL: _relocation("GOTPCREL", 4, Goal.SLOT),
        _GOTPCRELX: _relocation("GOTPCRELX", 4, Goal.SLOT),
        _REX_GOTPCRELX: _relocation("REX_GOTPCRELX", 4, Goal.SLOT),
        _CODE_4_GOTPCRELX: _relocation("CODE_4_GOTPCRELX", 4, Goal.SLOT),
    },
    names={
        3: "R_X86_64_GOT32",
        10: "R_X86_64_32, an absolute address of 32 bits",
        11: "R_X86_64_32S, an absolute address of 32 bits",
        19: "R_X86_64_TLSGD",
        20: "R_X86_64_TLSLD",
        22: "R_X86_64_GOTTPOFF",
        23: "R_X86_64_TPOFF32",
        25: "R_X86_64_GOTOFF64",
        26: "R_X86_64_GOTPC32",
    },
    relative=8,
    glob_dat=6,
    relax=_relax,
    stub=_stub,
    stub_size=8,
)
