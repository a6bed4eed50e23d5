"""The tables of the dynamic linker: dynamic symbols, hash table, relocations, dynamic section.

`linker.py` requests them sized but without addresses (`dynamic_tables`), lays out the file, and
`fill_dynamic` writes the addresses. `symtab.py` has the symbol table for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nova.artifact.elf import defs as elf
from nova.artifact.elf.layout import Layout, OutputSection
from nova.artifact.elf.object_file import Array, ObjectFile
from nova.artifact.elf.relocate import Homes, Linkage
from nova.core.records import record

NEEDED = "libc.so.6"


@record
class Names:
    """The symbols of the dynamic linker.

    `exports` are definitions by name, as (object, symbol); `imports` are functions of the C
    library.
    """

    exports: Mapping[str, tuple[int, int]]
    imports: Sequence[str]

    def in_order(self) -> list[str]:
        """The names after the null symbol; imports come first."""
        return [*self.imports, *self.exports]


def dynamic_tables(names: Names, relocations: int, slots: int) -> dict[str, OutputSection]:
    """The sections by name; contents with addresses are only sized."""
    strings, _ = pack_strings([*names.in_order(), NEEDED] if names.imports else names.in_order())
    entries = _entries(names, {}, len(strings), relocations, 0)
    read, writable, group = elf.SHF_ALLOC, elf.SHF_ALLOC | elf.SHF_WRITE, "headers"
    symbol, record, entry = elf.SYM.itemsize, elf.RELA.itemsize, elf.DYN.size
    rows: list[tuple[OutputSection, bytes]] = [
        (OutputSection(".hash", elf.SHT_HASH, read, 8, group, ".dynsym", 0, 4), _hash(names)),
        (
            OutputSection(".dynsym", elf.SHT_DYNSYM, read, 8, group, ".dynstr", 1, symbol),
            bytes(symbol * (1 + len(names.in_order()))),
        ),
        (OutputSection(".dynstr", elf.SHT_STRTAB, read, 1, group), strings),
        (
            OutputSection(".rela.dyn", elf.SHT_RELA, read, 8, group, ".dynsym", 0, record),
            bytes(record * relocations),
        ),
        (
            OutputSection(".got", elf.SHT_PROGBITS, writable, 8, "relro", "", 0, 8),
            bytes(8 * slots),
        ),
        (
            OutputSection(".dynamic", elf.SHT_DYNAMIC, writable, 8, "relro", ".dynstr", 0, entry),
            bytes(entry * len(entries)),
        ),
    ]
    for section, contents in rows:
        section.append(contents)
    return {section.name: section for section, _ in rows}


def pack_strings(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """A string table, and the offset of each name in it."""
    table, offsets = bytearray(b"\0"), []
    for name in names:
        offsets.append(len(table))
        table += name.encode() + b"\0"
    return bytes(table), offsets


def _hash(names: Names) -> bytes:
    """The System V hash table; imports have an entry in the chains, but are never looked up."""
    count = max(1, len(names.exports))
    buckets, chains = [0] * count, [0] * (1 + len(names.in_order()))
    for index, name in enumerate(names.exports, start=1 + len(names.imports)):
        value = 0
        for byte in name.encode():
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
        chains[index] = buckets[value % count]
        buckets[value % count] = index
    words = [count, len(chains), *buckets, *chains]
    return np.array(words, "<u4").tobytes()


def _entries(
    names: Names, offsets: Mapping[str, int], strings: int, relocations: int, relative: int
) -> list[tuple[int, int]]:
    entries = []
    if names.imports:
        needed = strings - len(NEEDED) - 1
        entries = [
            (elf.DT_NEEDED, needed),
            (elf.DT_FLAGS, elf.DF_BIND_NOW),
            # Its threads may be asleep in the code when it is closed.
            (elf.DT_FLAGS_1, elf.DF_1_NOW | elf.DF_1_NODELETE),
        ]
    entries += [
        (elf.DT_HASH, offsets.get(".hash", 0)),
        (elf.DT_STRTAB, offsets.get(".dynstr", 0)),
        (elf.DT_SYMTAB, offsets.get(".dynsym", 0)),
        (elf.DT_STRSZ, strings),
        (elf.DT_SYMENT, elf.SYM.itemsize),
    ]
    if relocations:
        entries += [
            (elf.DT_RELA, offsets.get(".rela.dyn", 0)),
            (elf.DT_RELASZ, relocations * elf.RELA.itemsize),
            (elf.DT_RELAENT, elf.RELA.itemsize),
            (elf.DT_RELACOUNT, relative),
        ]
    return [*entries, (elf.DT_NULL, 0)]


def fill_dynamic(
    out: bytearray,
    layout: Layout,
    names: Names,
    files: Sequence[ObjectFile],
    homes: Homes,
    linkage: Linkage,
) -> dict[str, int]:
    """Write the addresses into all tables; returns those of the exported names."""
    section_offsets = {section.name: section.offset for section in layout.sections}
    _, offsets = pack_strings(names.in_order())
    symbols = np.zeros(1 + len(offsets), elf.SYM)
    symbols["name"][1:] = offsets
    first = 1 + len(names.imports)
    symbols["info"][1:first] = elf.STB_GLOBAL << 4 | elf.STT_FUNC
    addresses = {}
    for row, (name, definition) in enumerate(names.exports.items(), start=first):
        symbols[row] = symbol_row(offsets[row - 1], definition, layout, files, homes, linkage)
        addresses[name] = int(symbols["value"][row])
    store(out, section_offsets[".dynsym"], symbols)

    rows = [(offset, layout.machine.relative, 0, addend) for offset, addend in linkage.relative]
    rows += [
        (linkage.slots[name], layout.machine.glob_dat, index, 0)
        for index, name in enumerate(names.imports, start=1)
    ]
    if rows:
        store(out, section_offsets[".rela.dyn"], np.array(rows, elf.RELA))
    strings = next(s.size for s in layout.sections if s.name == ".dynstr")
    entries = _entries(names, section_offsets, strings, len(rows), len(linkage.relative))
    packed = b"".join(elf.DYN.pack(*entry) for entry in entries)
    out[section_offsets[".dynamic"] : section_offsets[".dynamic"] + len(packed)] = packed
    return addresses


def symbol_row(
    name: int,
    definition: tuple[int, int],
    layout: Layout,
    files: Sequence[ObjectFile],
    homes: Homes,
    linkage: Linkage,
) -> tuple[int, ...]:
    """The record of a definition as a global symbol of the output."""
    number, index = definition
    row = files[number].symbols[index]
    home, _ = homes[number][int(row["section"])]
    info = elf.STB_GLOBAL << 4 | (int(row["info"]) & 15)
    address = int(linkage.addresses[number][index])
    return name, info, 0, layout.indices[home], address, int(row["size"])


def store(out: bytearray, offset: int, rows: Array) -> None:
    """Write an array of records into the file."""
    out[offset : offset + rows.nbytes] = rows.tobytes()
