"""The tables around the code: dynamic symbols, hash table, dynamic section, symbol table.

`elf_link` asks for them sized but without addresses (`dynamic_tables`, `symbol_tables`), lays the
file out, and has the addresses written by `fill_tables`.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.artifact import elf_defs as elf
from nova.artifact.elf_layout import Layout, OutputSection
from nova.artifact.elf_object import InputSymbol, ObjectFile
from nova.artifact.elf_relocate import Homes, Slots
from nova.artifact.elf_symbols import Target

Named = tuple[str, InputSymbol, str, int]  # name, symbol, output section, offset in it


def dynamic_tables(
    exports: Sequence[str],
    exported: list[tuple[Target, InputSymbol]],
    slots: Slots,
    pointers: int,
) -> list[OutputSection]:
    """The sections of the dynamic linker; contents that hold addresses are only sized."""
    names, offsets = _strings(exports)
    symbols = bytearray(elf.SYM.size)
    for offset, (_, symbol) in zip(offsets, exported, strict=True):
        info = elf.STB_GLOBAL << 4 | symbol.kind
        symbols += elf.SYM.pack(offset, info, 0, 0, 0, symbol.size)
    relocations = bytearray(elf.RELA.size * (pointers + len(slots)))
    dynamic = bytearray(elf.DYN.size * (10 if relocations else 6))
    read, writable, group = elf.SHF_ALLOC, elf.SHF_ALLOC | elf.SHF_WRITE, "headers+rodata"
    return [
        OutputSection(".hash", elf.SHT_HASH, read, 8, _hash(exports), group, ".dynsym", 0, 4),
        OutputSection(
            ".dynsym", elf.SHT_DYNSYM, read, 8, symbols, group, ".dynstr", 1, elf.SYM.size
        ),
        OutputSection(".dynstr", elf.SHT_STRTAB, read, 1, names, group),
        OutputSection(
            ".rela.dyn", elf.SHT_RELA, read, 8, relocations, group, ".dynsym", 0, elf.RELA.size
        ),
        OutputSection(
            ".got", elf.SHT_PROGBITS, writable, 8, bytearray(8 * len(slots)), "relro", "", 0, 8
        ),
        OutputSection(
            ".dynamic", elf.SHT_DYNAMIC, writable, 8, dynamic, "relro", ".dynstr", 0, elf.DYN.size
        ),
    ]


def _strings(names: Sequence[str]) -> tuple[bytearray, list[int]]:
    table, offsets = bytearray(b"\0"), []
    for name in names:
        offsets.append(len(table))
        table += name.encode() + b"\0"
    return table, offsets


def _hash(names: Sequence[str]) -> bytearray:
    """The System V hash table over the dynamic symbols, whose index 0 is the null symbol."""
    count = max(1, len(names))
    buckets, chains = [0] * count, [0] * (len(names) + 1)
    for index, name in enumerate(names, start=1):
        value = 0
        for byte in name.encode():
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
        chains[index] = buckets[value % count]
        buckets[value % count] = index
    words = [count, len(chains), *buckets, *chains]
    return bytearray(b"".join(word.to_bytes(4, "little") for word in words))


def local_symbols(files: list[ObjectFile], homes: Homes, exports: set[str]) -> list[Named]:
    """Functions and tables that are not exported, for the reader of a disassembly."""
    found = []
    for file in files:
        for symbol in file.symbols:
            named = symbol.name and symbol.kind in (elf.STT_FUNC, elf.STT_OBJECT)
            public = symbol.bind != elf.STB_LOCAL and symbol.name in exports
            if named and not public and (file.number, symbol.section) in homes:
                home, start = homes[file.number, symbol.section]
                found.append((symbol.name, symbol, home, start + symbol.value))
    return found


def symbol_tables(locals_: list[str], exports: Sequence[str]) -> list[OutputSection]:
    strings, _ = _strings([*locals_, *exports])
    size = elf.SYM.size * (1 + len(locals_) + len(exports))
    first_global = 1 + len(locals_)
    return [
        OutputSection(
            ".symtab", elf.SHT_SYMTAB, 0, 8, bytearray(size), "", ".strtab", first_global, 24
        ),
        OutputSection(".strtab", elf.SHT_STRTAB, 0, 1, strings),
        OutputSection(".shstrtab", elf.SHT_STRTAB, 0, 1, bytearray(1)),
    ]


def fill_tables(
    layout: Layout,
    sections: dict[str, OutputSection],
    homes: Homes,
    exported: list[tuple[Target, InputSymbol]],
    locals_: list[Named],
    relative: int,
) -> None:
    """Write the addresses into the dynamic section and both symbol tables."""
    values = []  # of the exports: section index, address
    for target, _ in exported:
        name, start = homes[target[:2]]
        values.append((layout.index(name), sections[name].offset + start + target[2]))

    dynsym = sections[".dynsym"].data
    for index, (section, address) in enumerate(values, start=1):
        name_at, info, other, _, _, size = elf.SYM.unpack_from(dynsym, index * elf.SYM.size)
        elf.SYM.pack_into(
            dynsym, index * elf.SYM.size, name_at, info, other, section, address, size
        )

    symtab, name_at = sections[".symtab"].data, 1
    rows = [(n, s, layout.index(home), sections[home].offset + at) for n, s, home, at in locals_]
    binds = [elf.STB_LOCAL] * len(rows) + [elf.STB_GLOBAL] * len(exported)
    rows += [(s.name, s, *value) for (_, s), value in zip(exported, values, strict=True)]
    for index, (bind, (name, symbol, section, address)) in enumerate(
        zip(binds, rows, strict=True), start=1
    ):
        info = bind << 4 | symbol.kind
        elf.SYM.pack_into(
            symtab, index * elf.SYM.size, name_at, info, 0, section, address, symbol.size
        )
        name_at += len(name.encode()) + 1

    entries = [
        (elf.DT_HASH, sections[".hash"].offset),
        (elf.DT_STRTAB, sections[".dynstr"].offset),
        (elf.DT_SYMTAB, sections[".dynsym"].offset),
        (elf.DT_STRSZ, len(sections[".dynstr"].data)),
        (elf.DT_SYMENT, elf.SYM.size),
    ]
    if relative:
        entries += [
            (elf.DT_RELA, sections[".rela.dyn"].offset),
            (elf.DT_RELASZ, relative * elf.RELA.size),
            (elf.DT_RELAENT, elf.RELA.size),
            (elf.DT_RELACOUNT, relative),
        ]
    entries.append((elf.DT_NULL, 0))
    sections[".dynamic"].data[:] = b"".join(elf.DYN.pack(*entry) for entry in entries)
