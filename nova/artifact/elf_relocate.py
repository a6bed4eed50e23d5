"""Applies x86-64 relocations to the merged sections, once every address is known.

`elf_link` calls `plan_slots` before the layout (the global offset table must have a size) and
`Relocator.apply` after it. Loads through the offset table become direct address computations where
the instruction allows it, so that most files need no table at all.
"""

from __future__ import annotations

from nova.artifact import elf_defs as elf
from nova.artifact.elf_layout import OutputSection
from nova.artifact.elf_object import InputSection, ObjectFile, Relocation
from nova.artifact.elf_symbols import GOT_KINDS, SymbolTable, Target, relocations_of
from nova.errors import CodegenError

Homes = dict[tuple[int, int], tuple[str, int]]  # (object, section): (output name, offset in it)
Slots = dict[Target, int]  # a target: its place in the global offset table


def _relaxed(section: InputSection, relocation: Relocation) -> str:
    """What a load through the offset table becomes: 'lea', 'call', 'jmp', or '' (it stays)."""
    at = relocation.offset
    if relocation.kind not in (elf.R_GOTPCRELX, elf.R_REX_GOTPCRELX):
        return ""
    if relocation.addend != -4 or at < 2:
        return ""
    opcode, operand = section.data[at - 2], section.data[at - 1]
    if opcode == 0x8B:
        return "lea"
    if relocation.kind == elf.R_GOTPCRELX and opcode == 0xFF:
        return {0x15: "call", 0x25: "jmp"}.get(operand, "")
    return ""


def plan_slots(files: list[ObjectFile], symbols: SymbolTable) -> Slots:
    slots: Slots = {}
    for number, section, relocation in relocations_of(files):
        if relocation.kind in GOT_KINDS and not _relaxed(section, relocation):
            slots.setdefault(symbols.resolve(number, relocation.symbol), 8 * len(slots))
    return slots


class Relocator:
    """Patches the merged sections once every address is known."""

    def __init__(
        self,
        symbols: SymbolTable,
        sections: dict[str, OutputSection],
        homes: Homes,
        slots: Slots,
    ):
        self.symbols, self.sections, self.homes, self.slots = symbols, sections, homes, slots
        self._end = max(s.offset + len(s.data) for s in sections.values() if s.group)

    def apply(self, files: list[ObjectFile]) -> list[tuple[int, int]]:
        """Returns what the loader has to do: add its base to `addend`, and store it at `offset`."""
        relative = []
        for target, slot in self.slots.items():
            relative.append((self.sections[".got"].offset + slot, self._address(target)))
        for file in files:
            for index, section in file.sections.items():
                name, start = self.homes[file.number, index]
                for relocation in section.relocations:
                    if relocation.kind == elf.R_NONE:
                        continue
                    target = self.symbols.resolve(file.number, relocation.symbol)
                    if relocation.kind == elf.R_64:
                        relative.append(self._pointer(name, start, section, relocation, target))
                    else:
                        self._distance(name, start, section, relocation, target)
        return relative

    def _address(self, target: Target) -> int:
        name, start = self.homes[target[:2]]
        return self.sections[name].offset + start + target[2]

    def _pointer(
        self, name: str, start: int, section: InputSection, relocation: Relocation, target: Target
    ) -> tuple[int, int]:
        if not section.flags & elf.SHF_WRITE:
            raise CodegenError(
                f"an absolute address at {section.name}+{relocation.offset:#x} would have to be "
                "written into read-only memory at load time",
                hint="emit with reloc='pic', so that tables of addresses go to .data.rel.ro",
            )
        addend = self._address(target) + relocation.addend
        if not 0 <= addend <= self._end:
            raise CodegenError(
                f"the address at {section.name}+{relocation.offset:#x} is outside of the program"
            )
        return self.sections[name].offset + start + relocation.offset, addend

    def _distance(
        self, name: str, start: int, section: InputSection, relocation: Relocation, target: Target
    ) -> None:
        out = self.sections[name]
        width = 8 if relocation.kind == elf.R_PC64 else 4
        at = start + relocation.offset
        value = self._address(target) + relocation.addend - (out.offset + at)
        if relocation.kind in GOT_KINDS:
            relaxed = _relaxed(section, relocation)
            if relaxed == "lea":
                out.data[at - 2] = 0x8D
            elif relaxed == "call":
                out.data[at - 2 : at] = b"\x67\xe8"
            elif relaxed == "jmp":  # one byte shorter, so the distance moves and a nop follows
                out.data[at - 2], out.data[at + 3] = 0xE9, 0x90
                at, value = at - 1, value + 1
            else:
                slot = self.sections[".got"].offset + self.slots[target]
                value = slot + relocation.addend - (out.offset + at)
        if not -(1 << (8 * width - 1)) <= value < 1 << (8 * width - 1):
            raise CodegenError(
                f"the distance at {section.name}+{relocation.offset:#x} does not fit {width} "
                "bytes: code and read-only data together may take 2 GiB"
            )
        out.data[at : at + width] = value.to_bytes(width, "little", signed=True)
