"""Reads one x86-64 ELF relocatable object: bytes from LLVM come in, an `ObjectFile` goes out.

Called by `elf_link` only. Every offset is checked before it is followed; what a kernel object may
not hold (constructors, thread-local data, common symbols) is refused here with its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from nova.artifact import elf_defs as elf
from nova.errors import CodegenError

_NOBITS_LIMIT = 1 << 28  # zeroed data is written out, so a slip must not become a giant file


@dataclass(frozen=True)
class Relocation:
    """One `Elf64_Rela` record: patch `offset` of its section with `symbol + addend`."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class InputSection:
    """A section that will be part of the output, with the relocations that apply to it."""

    name: str
    flags: int
    align: int
    data: bytes
    relocations: tuple[Relocation, ...]


@dataclass(frozen=True)
class InputSymbol:
    """One symbol; `section` is an index of `ObjectFile.sections`, or a reserved SHN_ number."""

    name: str
    bind: int
    kind: int
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class ObjectFile:
    """What the linker needs of one object: kept sections by index, and all symbols."""

    number: int
    sections: dict[int, InputSection]
    symbols: tuple[InputSymbol, ...]


def _refuse(number: int, what: str, hint: str | None = None) -> NoReturn:
    raise CodegenError(f"object {number} cannot be linked: {what}", hint=hint)


def read_object(data: bytes, number: int = 0) -> ObjectFile:
    """Parse and check one ET_REL object; `number` names it in messages."""
    headers, sections_end = _section_headers(data, number)
    names = _names(data, headers, sections_end, number)
    symbols, strings = b"", b""
    relocations: dict[int, tuple[Relocation, ...]] = {}
    for index, header in enumerate(headers):
        kind, body = header[1], _body(data, header, number, names[index])
        if kind == elf.SHT_SYMTAB:
            if header[6] >= len(headers):
                _refuse(number, "the symbol table names a string table that does not exist")
            symbols = body
            strings = _body(data, headers[header[6]], number, names[header[6]])
        elif kind == elf.SHT_RELA:
            records = _records(body, elf.RELA.size, number, names[index])
            relocations[header[7]] = relocations.get(header[7], ()) + tuple(
                Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)
                for offset, info, addend in elf.RELA.iter_unpack(records)
            )
        elif kind == elf.SHT_REL:
            _refuse(number, f"section {names[index]} holds REL records; x86-64 uses RELA")

    kept = {}
    for index, header in enumerate(headers):
        if header[2] & elf.SHF_ALLOC:
            _check_section(header, names[index], number)
            body = bytes(_body(data, header, number, names[index]))
            if body:
                kept[index] = InputSection(
                    names[index], header[2], max(1, header[8]), body, relocations.get(index, ())
                )
    records = _records(symbols, elf.SYM.size, number, "the symbol table")
    table = tuple(_symbol(entry, strings, number) for entry in elf.SYM.iter_unpack(records))
    for symbol in table:
        if symbol.section in kept and symbol.value > len(kept[symbol.section].data):
            _refuse(number, f"symbol {symbol.name} lies past the end of its section")
    for section in kept.values():
        for relocation in section.relocations:
            if relocation.symbol >= len(table):
                _refuse(number, f"a relocation of {section.name} names a symbol out of range")
    return ObjectFile(number, kept, table)


def _section_headers(data: bytes, number: int) -> tuple[list[tuple[int, ...]], int]:
    if len(data) < elf.EHDR.size or data[:4] != elf.MAGIC:
        _refuse(number, "it is no ELF file")
    ident, kind, machine, _, _, _, start, _, _, _, _, entry, count, strings = elf.EHDR.unpack_from(
        data
    )
    if ident[4:6] != b"\x02\x01":
        _refuse(number, "it is not 64-bit little-endian ELF")
    if machine == elf.EM_AARCH64:
        _refuse(
            number,
            "it is aarch64 code, and this linker has no aarch64 relocations yet (CALL26, JUMP26, "
            "ADR_PREL_PG_HI21, ADD_ABS_LO12_NC, LDST*_ABS_LO12_NC, PREL32) nor branch veneers",
            "compile for an x86_64 target",
        )
    if machine != elf.EM_X86_64:
        _refuse(number, f"its machine number is {machine}; only x86-64 (62) can be linked")
    if kind != elf.ET_REL:
        _refuse(number, f"its ELF type is {kind}, not a relocatable object (1)")
    if entry != elf.SHDR.size or count == 0 or start + count * entry > len(data):
        _refuse(number, "its section header table lies outside of the file")
    if strings >= count:
        _refuse(number, "its section name table is out of range")
    table = data[start : start + count * entry]
    return list(elf.SHDR.iter_unpack(table)), strings


def _names(data: bytes, headers: list[tuple[int, ...]], strings: int, number: int) -> list[str]:
    table = _body(data, headers[strings], number, "the section names")
    names = []
    for header in headers:
        name = elf.cut_string(table, header[0])
        if name is None:
            _refuse(number, "a section name lies outside of its string table")
        names.append(name.decode("utf-8", "replace"))
    return names


def _body(data: bytes, header: tuple[int, ...], number: int, name: str) -> bytes:
    _, kind, _, _, offset, size, _, _, _, _ = header
    if kind == 0:
        return b""
    if kind == elf.SHT_NOBITS:
        if size > _NOBITS_LIMIT:
            _refuse(number, f"section {name} asks for {size} zeroed bytes")
        return bytes(size)
    if offset + size > len(data):
        _refuse(number, f"section {name} ends at byte {offset + size} of {len(data)}")
    return data[offset : offset + size]


def _records(body: bytes, size: int, number: int, name: str) -> bytes:
    if len(body) % size:
        _refuse(number, f"{name} holds a partial record")
    return body


def _check_section(header: tuple[int, ...], name: str, number: int) -> None:
    _, kind, flags, _, _, _, _, _, align, _ = header
    if flags & elf.SHF_TLS:
        _refuse(number, f"section {name} is thread-local data")
    if kind in (elf.SHT_INIT_ARRAY, elf.SHT_FINI_ARRAY, elf.SHT_PREINIT_ARRAY) or name.startswith(
        (".ctors", ".dtors", ".init", ".fini")
    ):
        _refuse(number, f"section {name} holds constructors, which the loader never runs")
    if flags & elf.SHF_WRITE and flags & elf.SHF_EXECINSTR:
        _refuse(number, f"section {name} is both writable and executable")
    if align & (align - 1) or align > elf.PAGE:
        _refuse(number, f"section {name} asks for alignment {align} (at most a page, {elf.PAGE})")


def _symbol(entry: tuple[int, ...], strings: bytes, number: int) -> InputSymbol:
    offset, info, _, section, value, size = entry
    name = elf.cut_string(strings, offset) if offset else b""
    if name is None:
        _refuse(number, "a symbol name lies outside of its string table")
    text = name.decode("utf-8", "replace")
    bind, kind = info >> 4, info & 15
    if kind in (elf.STT_TLS, elf.STT_GNU_IFUNC):
        _refuse(number, f"symbol {text} is thread-local or chosen at load time (ifunc)")
    if section == elf.SHN_COMMON:
        _refuse(number, f"symbol {text} is a common block; kernels own no global data")
    if section >= elf.SHN_LORESERVE and section != elf.SHN_ABS:
        _refuse(number, f"symbol {text} sits in reserved section {section:#x}")
    return InputSymbol(text, bind, kind, section, value, size)
