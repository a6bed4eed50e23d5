"""A program as one relocatable object, to be linked into another library.

In: the bytes of a linked file without a runtime, the objects of its entry point and of the C
runtime. Out: an object that `gcc -shared program.o` links into a library, with the same exports as
the file: `_mlir_ciface_main`, the C API and the kernels. Called by `nova.api.translate`.

The file is one section of the object, unchanged: the runtime adopts it in place, like one that the
dynamic linker has mapped (native/src/api/enclosing_file.c), because its code needs no
relocation. The symbols that Nova's linker defines in a file are defined here, at offsets of that
section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nova.artifact.elf import defs as elf
from nova.artifact.elf.imports import IMAGE_START, MARKED_SECTIONS
from nova.artifact.elf.reader import MACHINES
from nova.artifact.format import read_artifact
from nova.artifact.tables import kernel_addresses
from nova.core.rounding import round_up
from nova.errors import CodegenError

_IMAGE = ".text.nova"
_PAGE = 4096
_STV_HIDDEN, _STV_PROTECTED = 2, 3
_SHF_INFO_LINK = 0x40

_Key = int | str | None
"""A symbol of an object: the index of a local one, the name of a global one, or none."""


def write_relocatable(image: bytes, objects: Sequence[bytes], arch: str) -> bytes:
    """The object of a file `image` and of the `objects` that run it."""
    writer = _Writer()
    for number, data in enumerate(objects):
        writer.add(data, f"object {number}")
    writer.add_image(image)
    return writer.write(MACHINES[arch].number)


def merge_objects(objects: Sequence[bytes], arch: str) -> bytes:
    """One object with the sections of several, as `ld -r` makes it."""
    writer = _Writer()
    for number, data in enumerate(objects):
        writer.add(data, f"object {number}")
    return writer.write(MACHINES[arch].number)


@dataclass
class _Section:
    name: str
    section_type: int
    flags: int
    align: int
    data: bytes
    size: int
    entry: int = 0
    info: int = 0  # of relocations: the section that they patch


@dataclass
class _Writer:
    """Sections in sequence; symbols with the same name are merged."""

    sections: list[_Section] = field(default_factory=list)  # without the null section
    relocations: list[tuple[int, Any]] = field(default_factory=list)
    locals: list[tuple[str, Any]] = field(default_factory=list)
    globals: dict[str, Any] = field(default_factory=dict)

    def add(self, data: bytes, label: str) -> None:
        """Copy the loaded parts of an object, with its symbols and relocations."""
        start, count, names_at = _header(data, label)
        headers = list(elf.SHDR.iter_unpack(data[start : start + count * elf.SHDR.size]))
        names = _body(data, headers[names_at])
        new_index: dict[int, int] = {}
        for index, header in enumerate(headers):
            name, section_type, flags, _, _, size, _, _, align, entry = header
            if flags & elf.SHF_ALLOC and section_type != elf.SHT_NOTE:
                text = (elf.cut_string(names, name) or b"").decode()
                self.sections.append(
                    _Section(text, section_type, flags, align, _body(data, header), size, entry)
                )
                new_index[index] = len(self.sections)
        numbers = self._add_symbols(data, headers, new_index)
        for header in headers:
            if header[1] == elf.SHT_RELA and header[7] in new_index:
                rows = np.frombuffer(_body(data, header), elf.RELA).copy()
                self.relocations.append((new_index[header[7]], (rows, numbers)))

    def add_image(self, image: bytes) -> None:
        """Add the file, and the symbols of its sections and kernels."""
        artifact = read_artifact(image)
        self.sections.append(
            _Section(
                _IMAGE,
                elf.SHT_PROGBITS,
                elf.SHF_ALLOC | elf.SHF_EXECINSTR,
                _PAGE,
                image,
                len(image),
            )
        )
        markers = {IMAGE_START: 0}
        sections = artifact.file.sections
        for name in MARKED_SECTIONS:
            _, offset, size = sections.get(f".nova.{name}", (0, 0, 0))
            markers[f"nova_section_{name}_begin"] = offset
            markers[f"nova_section_{name}_end"] = offset + size
        for name, value in markers.items():
            self._define(name, value, elf.STT_NOTYPE, _STV_HIDDEN)
        for name, value in _kernels(artifact).items():
            self._define(name, value, elf.STT_FUNC, elf.STV_DEFAULT)

    def write(self, machine: int) -> bytes:
        """The bytes of the object."""
        symbols, numbers, strings = self._symbol_table()
        sections = [*self.sections]
        sections.append(_Section(".note.GNU-stack", elf.SHT_PROGBITS, 0, 1, b"", 0))
        table = len(sections) + len(self.relocations) + 1
        for target, (rows, find) in self.relocations:
            rows["symbol"] = [numbers[find[number]] for number in rows["symbol"].tolist()]
            name = f".rela{self.sections[target - 1].name}"
            data = rows.tobytes()
            sections.append(
                _Section(
                    name,
                    elf.SHT_RELA,
                    _SHF_INFO_LINK,
                    8,
                    data,
                    len(data),
                    elf.RELA.itemsize,
                    target,
                )
            )
        sections.append(
            _Section(
                ".symtab", elf.SHT_SYMTAB, 0, 8, symbols, len(symbols), elf.SYM.itemsize,
                len(self.locals) + 1,
            )
        )  # fmt: skip
        sections.append(_Section(".strtab", elf.SHT_STRTAB, 0, 1, strings, len(strings)))
        return _assemble(sections, machine, table)

    def _add_symbols(
        self, data: bytes, headers: list[tuple[int, ...]], new_index: Mapping[int, int]
    ) -> list[_Key]:
        """Map each symbol of an object: a local to its index, a global to its name."""
        keys: list[_Key] = []
        for header in headers:
            if header[1] != elf.SHT_SYMTAB:
                continue
            strings = _body(data, headers[header[6]])
            for row in np.frombuffer(_body(data, header), elf.SYM):
                name = (elf.cut_string(strings, int(row["name"])) or b"").decode()
                row = row.copy()
                section = int(row["section"])
                if section < elf.SHN_LORESERVE:
                    row["section"] = new_index.get(section, elf.SHN_UNDEF)
                if row["info"] >> 4 != elf.STB_LOCAL:
                    self._merge(name, row)
                    keys.append(name)
                elif section in new_index or section >= elf.SHN_LORESERVE:
                    keys.append(len(self.locals))
                    self.locals.append((name, row))
                else:  # the null symbol, and those of sections that are not loaded
                    keys.append(None)
        return keys

    def _merge(self, name: str, row: Any) -> None:
        """One global symbol for a definition and its uses, with the most restrictive visibility."""
        earlier = self.globals.get(name)
        if earlier is None:
            self.globals[name] = row
            return
        both = earlier["section"] != elf.SHN_UNDEF and row["section"] != elf.SHN_UNDEF
        if both:
            raise CodegenError(f"the symbol {name} is defined twice")
        chosen = row if row["section"] != elf.SHN_UNDEF else earlier
        chosen["other"] = max(
            int(earlier["other"]), int(row["other"]), key=lambda v: (v & 3 > 0, v)
        )
        self.globals[name] = chosen

    def _define(self, name: str, value: int, symbol_type: int, visibility: int) -> None:
        row = np.zeros((), elf.SYM)
        row["info"] = elf.STB_GLOBAL << 4 | symbol_type
        row["other"] = visibility
        row["section"] = len(self.sections)
        row["value"] = value
        self._merge(name, row)

    def _symbol_table(self) -> tuple[bytes, dict[_Key, int], bytes]:
        """The records, their indices, and the strings."""
        strings = bytearray(b"\0")
        records = [np.zeros((), elf.SYM)]
        numbers: dict[_Key, int] = {None: 0}
        rows: list[tuple[_Key, str, Any]] = [(i, *pair) for i, pair in enumerate(self.locals)]
        rows += [(name, name, row) for name, row in self.globals.items()]
        for key, name, row in rows:
            if key == name and row["section"] != elf.SHN_UNDEF and not row["other"] & 3:
                # Exported but protected: two such libraries can be in one process.
                row["other"] |= _STV_PROTECTED
            row["name"] = len(strings) if name else 0
            strings += name.encode() + b"\0" if name else b""
            numbers[key] = len(records)
            records.append(row)
        return b"".join(record.tobytes() for record in records), numbers, bytes(strings)


def _assemble(sections: list[_Section], machine: int, symtab: int) -> bytes:
    """Header, contents and the section header table; `symtab` is the index of the symbol table."""
    names = bytearray(b"\0")
    out = bytearray(elf.EHDR.size)
    rows = [elf.SHDR.pack(*(0,) * 10)]
    strings = _Section(".shstrtab", elf.SHT_STRTAB, 0, 1, b"", 0)
    for section in (*sections, strings):
        name = len(names)
        names += section.name.encode() + b"\0"
        if section is strings:
            section.data, section.size = bytes(names), len(names)
        out += bytes(round_up(len(out), max(1, section.align)) - len(out))
        link = {elf.SHT_RELA: symtab, elf.SHT_SYMTAB: symtab + 1}.get(section.section_type, 0)
        rows.append(
            elf.SHDR.pack(
                name, section.section_type, section.flags, 0, len(out), section.size, link,
                section.info, max(1, section.align), section.entry,
            )
        )  # fmt: skip
        out += section.data
    out += bytes(round_up(len(out), 8) - len(out))
    elf.EHDR.pack_into(
        out, 0, elf.IDENT, elf.ET_REL, machine, 1, 0, 0, len(out), 0,
        elf.EHDR.size, 0, 0, elf.SHDR.size, len(rows), len(rows) - 1,
    )  # fmt: skip
    return bytes(out + b"".join(rows))


def _header(data: bytes, label: str) -> tuple[int, int, int]:
    """Offset, count and name index of the section header table."""
    fields = elf.EHDR.unpack_from(data)
    if fields[0][:6] != elf.IDENT[:6] or fields[1] != elf.ET_REL or fields[11] != elf.SHDR.size:
        raise CodegenError(f"{label} is not a relocatable object")
    return int(fields[6]), int(fields[12]), int(fields[13])


def _body(data: bytes, header: tuple[int, ...]) -> bytes:
    return b"" if header[1] == elf.SHT_NOBITS else data[header[4] : header[4] + header[5]]


def _kernels(artifact: Any) -> dict[str, int]:
    """The addresses of the kernels of all variants, by symbol."""
    tables = artifact.section(".nova.tables")
    addresses: dict[str, int] = {}
    for variant in artifact.manifest.variants:
        offset, size = variant.tables
        addresses |= kernel_addresses(tables[offset : offset + size])
    return addresses
