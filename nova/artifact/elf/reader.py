"""Reads one ELF relocatable object: bytes from LLVM or gcc to an `ObjectFile`.

Called by `linker.py` only. Every offset is checked before it is followed. Unsupported contents
(constructors, thread-local data, common symbols, relocations of unknown types) are refused here
with their names.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from nova.artifact.elf import defs as elf
from nova.artifact.elf.aarch64 import AARCH64
from nova.artifact.elf.imports import IMPORTS, MARKERS
from nova.artifact.elf.machine import Goal, Machine
from nova.artifact.elf.object_file import Array, InputSection, ObjectFile
from nova.artifact.elf.x86_64 import X86_64
from nova.errors import CodegenError

MACHINES = {machine.arch: machine for machine in (X86_64, AARCH64)}

_MOST_ALIGN = 4096
_MOST_ZEROS = 1 << 24  # .bss is stored in the file, so an error must not create a giant file
_MOST_ADDEND = 1 << 62  # sums of addresses and addends must not wrap


def read_object(data: bytes, label: str) -> ObjectFile:
    """Parse and check one ET_REL object; `label` names it in messages."""
    return _Reader(data, label).read()


class _Reader:
    def __init__(self, data: bytes, label: str):
        self.data, self.label = data, label

    def read(self) -> ObjectFile:
        machine, headers, names = self._headers()
        symbols, strings = self._symbols(headers, names)
        globals_ = np.flatnonzero(symbols["info"] >> 4 != elf.STB_LOCAL)
        global_names = {int(i): self._text(strings, int(symbols["name"][i])) for i in globals_}
        relocations = self._relocations(headers, names)
        sections = {}
        for index, header in enumerate(headers):
            # Notes (stack, features) apply to whole files: the linker writes its own.
            if header[2] & elf.SHF_ALLOC and header[1] != elf.SHT_NOTE and header[5]:
                self._check_section(header, names[index])
                sections[index] = self._section(
                    machine, header, names[index], relocations.get(index, []), symbols, global_names
                )
        self._check_symbols(symbols, strings, sections)
        return ObjectFile(
            self.label,
            machine,
            sections,
            symbols,
            global_names,
            {
                name: index
                for index, name in global_names.items()
                if symbols["section"][index] != elf.SHN_UNDEF
            },
            *self._references(machine, sections, symbols, global_names),
            *self._listed(symbols, strings, sections),
        )

    def refuse(self, message: str, hint: str | None = None) -> NoReturn:
        raise CodegenError(f"{self.label} cannot be linked: {message}", hint=hint)

    def _headers(self) -> tuple[Machine, list[tuple[int, ...]], list[str]]:
        data = self.data
        if len(data) < elf.EHDR.size or data[:4] != elf.MAGIC:
            self.refuse("it is not an ELF file")
        ident, file_type, number, _, _, _, start, _, _, _, _, entry, count, strings = (
            elf.EHDR.unpack_from(data)
        )
        if ident[4:6] != b"\x02\x01":
            self.refuse("it is not 64-bit little-endian ELF")
        machine = next((m for m in MACHINES.values() if m.number == number), None)
        if machine is None:
            machines = ", ".join(f"{m.arch} ({m.number})" for m in MACHINES.values())
            self.refuse(f"its machine number is {number}; known are {machines}")
        if file_type != elf.ET_REL:
            self.refuse(f"its ELF type is {file_type}, not a relocatable object (1)")
        if entry != elf.SHDR.size or count == 0 or start + count * entry > len(data):
            self.refuse("its section header table lies outside of the file")
        if strings >= count:
            self.refuse("its section name table is out of range")
        headers = list(elf.SHDR.iter_unpack(data[start : start + count * entry]))
        table = self._body(headers[strings], "the section names")
        return machine, headers, [self._text(table, header[0]) for header in headers]

    def _text(self, table: bytes, offset: int) -> str:
        name = elf.cut_string(table, offset) if offset else b""
        if name is None:
            self.refuse("a name lies outside of its string table")
        return name.decode("utf-8", "replace")

    def _body(self, header: tuple[int, ...], name: str) -> bytes:
        _, section_type, _, _, offset, size, _, _, _, _ = header
        if section_type == elf.SHT_NULL:
            return b""
        if section_type == elf.SHT_NOBITS:
            if size > _MOST_ZEROS:
                self.refuse(f"section {name} asks for {size} zeroed bytes")
            return bytes(size)
        if offset + size > len(self.data):
            self.refuse(f"section {name} ends at byte {offset + size} of {len(self.data)}")
        return self.data[offset : offset + size]

    def _records(self, header: tuple[int, ...], name: str, record: np.dtype[Any]) -> Array:
        body = self._body(header, name)
        if len(body) % record.itemsize:
            self.refuse(f"section {name} holds a partial record")
        return np.frombuffer(body, record)

    def _symbols(self, headers: list[tuple[int, ...]], names: list[str]) -> tuple[Array, bytes]:
        for header, name in zip(headers, names, strict=True):
            if header[1] == elf.SHT_SYMTAB:
                if header[6] >= len(headers):
                    self.refuse("the symbol table names a string table that does not exist")
                strings = self._body(headers[header[6]], names[header[6]])
                return self._records(header, name, elf.SYM), strings
        return np.empty(0, elf.SYM), b""

    def _relocations(
        self, headers: list[tuple[int, ...]], names: list[str]
    ) -> dict[int, list[Array]]:
        rows_of: dict[int, list[Array]] = {}
        for header, name in zip(headers, names, strict=True):
            if header[1] == elf.SHT_REL:
                self.refuse(f"section {name} holds REL records; only RELA are known")
            if header[1] == elf.SHT_RELA:
                rows_of.setdefault(header[7], []).append(self._records(header, name, elf.RELA))
        return rows_of

    def _check_section(self, header: tuple[int, ...], name: str) -> None:
        _, section_type, flags, _, _, _, _, _, align, _ = header
        if flags & elf.SHF_TLS:
            self.refuse(f"section {name} is thread-local data")
        if section_type in (elf.SHT_INIT_ARRAY, elf.SHT_FINI_ARRAY, elf.SHT_PREINIT_ARRAY) or (
            name.startswith((".ctors", ".dtors", ".init", ".fini"))
        ):
            self.refuse(f"section {name} holds constructors, which the loader never runs")
        if flags & elf.SHF_WRITE and flags & elf.SHF_EXECINSTR:
            self.refuse(f"section {name} is both writable and executable")
        if align & (align - 1) or align > _MOST_ALIGN:
            self.refuse(f"section {name} asks for alignment {align} (at most {_MOST_ALIGN})")

    def _section(
        self,
        machine: Machine,
        header: tuple[int, ...],
        name: str,
        tables: list[Array],
        symbols: Array,
        global_names: dict[int, str],
    ) -> InputSection:
        data: bytes | bytearray = self._body(header, name)
        groups = _by_type(tables)
        for number, rows in groups.items():
            self._check_relocations(machine, number, name, len(data), rows, symbols, global_names)
        # Addresses that are known only at load time, or far away, stay in the GOT.
        outside = {i for i, n in global_names.items() if n in IMPORTS or n in MARKERS}
        for number in [n for n in groups if machine.relocation_types[n].goal is Goal.SLOT]:
            rows = groups.pop(number)
            mask = np.array([symbol not in outside for symbol in rows["symbol"].tolist()])
            near = rows[mask]
            data = bytearray(data)
            machine.relax(np.frombuffer(data, np.uint8), near)
            groups = _by_type([*groups.values(), rows[~mask], near])
        return InputSection(name, header[2], max(1, header[8]), data, groups)

    def _check_relocations(
        self,
        machine: Machine,
        number: int,
        name: str,
        size: int,
        rows: Array,
        symbols: Array,
        global_names: dict[int, str],
    ) -> None:
        width = machine.relocation_types[number].width if number in machine.relocation_types else 0
        past = rows["offset"] > size - width if size >= width else np.ones(len(rows), bool)
        wrong = (
            (rows["symbol"] >= len(symbols), "names a symbol out of range"),
            (np.full(len(rows), width == 0), "is not supported"),
            (past, "lies past its end"),
            (np.abs(rows["addend"] // 2) >= _MOST_ADDEND // 2, "has an addend out of range"),
        )
        for mask, text in wrong:
            if mask.any():
                row = rows[mask][0]
                symbol = global_names.get(int(row["symbol"]), "")
                owner = f" of '{symbol}'" if symbol else ""
                self.refuse(
                    f"relocation {machine.name_of(number)}{owner} at {name}+"
                    f"{int(row['offset']):#x} {text}",
                    "emit position-independent code of the small code model" if not width else None,
                )

    def _check_symbols(
        self, symbols: Array, strings: bytes, sections: dict[int, InputSection]
    ) -> None:
        symbol_types, homes = symbols["info"] & 15, symbols["section"]
        past = np.zeros(len(symbols), bool)
        for index, section in sections.items():
            past |= (homes == index) & (symbols["value"] > len(section.data))
        reserved = (homes >= elf.SHN_LORESERVE) & (homes != elf.SHN_ABS)
        wrong = (
            (symbol_types == elf.STT_TLS, "is thread-local"),
            (symbol_types == elf.STT_GNU_IFUNC, "is chosen at load time (ifunc)"),
            (homes == elf.SHN_COMMON, "is a common block; compile with -fno-common"),
            (reserved, "sits in a reserved section"),
            (past, "lies past the end of its section"),
        )
        for mask, text in wrong:
            if mask.any():
                name = self._text(strings, int(symbols[mask][0]["name"]))
                self.refuse(f"symbol {name} {text}")

    def _references(
        self,
        machine: Machine,
        sections: dict[int, InputSection],
        symbols: Array,
        global_names: dict[int, str],
    ) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """`direct`, `by_slot` and `pointers` of the object."""
        direct: set[int] = set()
        by_slot: set[int] = set()
        pointers = 0
        for section in sections.values():
            for number, rows in section.relocations.items():
                goal = machine.relocation_types[number].goal
                (by_slot if goal is Goal.SLOT else direct).update(rows["symbol"].tolist())
                pointers += len(rows) if goal is Goal.POINTER else 0
        homes = symbols["section"].tolist()
        for index in direct | by_slot:
            if index not in global_names and homes[index] not in sections:
                self.refuse(f"a relocation refers to section {homes[index]}, which is not loaded")
        return tuple(sorted(direct & set(global_names))), tuple(sorted(by_slot)), pointers

    def _listed(
        self, symbols: Array, strings: bytes, sections: dict[int, InputSection]
    ) -> tuple[Array, Array, bytes]:
        is_listed = np.zeros(1 << 16, bool)
        is_listed[list(sections)] = True
        symbol_types = symbols["info"] & 15
        mask = (symbol_types == elf.STT_FUNC) | (symbol_types == elf.STT_OBJECT)
        mask &= (symbols["name"] != 0) & is_listed[symbols["section"]]
        rows = symbols[mask].copy()
        table = bytearray()
        for row in rows:
            text = self._text(strings, int(row["name"]))
            row["name"] = len(table)
            table += text.encode("utf-8", "replace") + b"\0"
        return np.flatnonzero(mask), rows, bytes(table)


def _by_type(tables: list[Array]) -> dict[int, Array]:
    """Relocations by type, in the order of the types; type 0 has no effect."""
    rows = np.concatenate(tables) if tables else np.empty(0, elf.RELA)
    numbers = rows["kind"]
    return {number: rows[numbers == number] for number in sorted(set(numbers.tolist())) if number}
