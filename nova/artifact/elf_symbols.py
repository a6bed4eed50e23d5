"""Finds the definition behind every symbol reference: parsed objects in, `Target`s out.

Used by `elf_link` and `elf_relocate`. Locals belong to their object; a global name has one strong
definition in the whole program, or else its first weak one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from nova.artifact import elf_defs as elf
from nova.artifact.elf_object import InputSection, InputSymbol, ObjectFile, Relocation
from nova.errors import CodegenError

GOT_KINDS = (elf.R_GOTPCREL, elf.R_GOTPCRELX, elf.R_REX_GOTPCRELX, elf.R_CODE_4_GOTPCRELX)
_KINDS = (elf.R_NONE, elf.R_64, elf.R_PC32, elf.R_PLT32, elf.R_PC64, *GOT_KINDS)

Target = tuple[int, int, int]  # object, section, offset in it


class SymbolTable:
    """Finds the definition behind every symbol reference of every object."""

    def __init__(self, files: list[ObjectFile]):
        self.files = files
        self.globals: dict[str, tuple[int, InputSymbol]] = {}
        for file in files:
            for symbol in file.symbols:
                if symbol.bind != elf.STB_LOCAL and symbol.section != elf.SHN_UNDEF:
                    self._define(file.number, symbol)

    def _define(self, number: int, symbol: InputSymbol) -> None:
        before = self.globals.get(symbol.name)
        if before is None or before[1].bind == elf.STB_WEAK != symbol.bind:
            self.globals[symbol.name] = (number, symbol)
        elif elf.STB_WEAK not in (symbol.bind, before[1].bind):
            raise CodegenError(
                f"symbol '{symbol.name}' is defined in object {before[0]} and in object {number}"
            )

    def check_references(self) -> None:
        """Every referenced symbol must be defined, and every relocation of a known kind."""
        undefined = set()
        for number, section, relocation in relocations_of(self.files):
            symbol = self.files[number].symbols[relocation.symbol]
            if relocation.kind not in _KINDS:
                _refuse_kind(section, relocation, symbol)
            width = 8 if relocation.kind in (elf.R_64, elf.R_PC64) else 4
            if relocation.offset + width > len(section.data):
                name = elf.RELOCATION_NAMES[relocation.kind]
                raise CodegenError(
                    f"relocation {name} at {section.name}+{relocation.offset:#x} lies past its end"
                )
            if symbol.section == elf.SHN_UNDEF and symbol.name not in self.globals:
                undefined.add(symbol.name or "(no name)")
        if undefined:
            raise CodegenError(
                f"undefined symbols: {', '.join(sorted(undefined))}",
                hint="a kernel may call no library: lower the operation to code that is inside "
                "the module (vector math, memory copies as loops)",
            )

    def exported(self, name: str) -> tuple[Target, InputSymbol]:
        """The target of an exported name."""
        if name not in self.globals:
            raise CodegenError(f"exported symbol '{name}' is defined in no object")
        number, symbol = self.globals[name]
        return self._target(number, symbol), symbol

    def resolve(self, number: int, index: int) -> Target:
        """The place that symbol `index` of object `number` stands for."""
        symbol = self.files[number].symbols[index]
        if symbol.bind != elf.STB_LOCAL:
            number, symbol = self.globals[symbol.name]
        return self._target(number, symbol)

    def _target(self, number: int, symbol: InputSymbol) -> Target:
        if symbol.section not in self.files[number].sections:
            raise CodegenError(
                f"symbol '{symbol.name}' of object {number} is absolute or in a section "
                "that is empty or not loaded"
            )
        return number, symbol.section, symbol.value


def relocations_of(files: list[ObjectFile]) -> Iterator[tuple[int, InputSection, Relocation]]:
    for file in files:
        for section in file.sections.values():
            for relocation in section.relocations:
                if relocation.kind != elf.R_NONE:
                    yield file.number, section, relocation


def _refuse_kind(section: InputSection, relocation: Relocation, symbol: InputSymbol) -> NoReturn:
    kind = relocation.kind
    name = elf.RELOCATION_NAMES.get(kind, f"number {kind}")
    hint = None
    if kind in (elf.R_32, elf.R_32S):
        hint = "32-bit absolute addresses fit no shared object: emit with reloc='pic'"
    raise CodegenError(
        f"relocation {name} of '{symbol.name}' at {section.name}+{relocation.offset:#x} "
        "is not supported",
        hint=hint,
    )
