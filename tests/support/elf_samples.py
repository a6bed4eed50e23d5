"""Objects written by hand, and a look into linked files, for the tests of the linker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nova.artifact.elf import defs as elf
from nova.artifact.elf.shared_object import Linked, Part, link_shared


@dataclass(frozen=True)
class Symbol:
    """A global function at an offset of the section, or one that is defined elsewhere."""

    name: str
    value: int = 0
    defined: bool = True
    visibility: int = 0


def make_object(
    code: bytes,
    relocations: Sequence[tuple[int, int, int]],
    symbols: Sequence[Symbol] = (Symbol("target"),),
    *,
    machine: int = 62,
    symbol: int = 1,
    kind: int = elf.ET_REL,
    section: str = ".text",
    flags: int = 6,
    align: int = 16,
) -> bytes:
    """An object with one section; relocations are (offset, kind, addend), all of one symbol."""
    strings = b"\0" + b"".join(s.name.encode() + b"\0" for s in symbols)
    table = np.zeros(1 + len(symbols), elf.SYM)
    for index, s in enumerate(symbols, start=1):
        at = strings.index(b"\0" + s.name.encode() + b"\0") + 1
        info = 0x12 if s.defined else 0x10
        table[index] = at, info, s.visibility, int(s.defined), s.value, len(code) * s.defined
    rela = np.array([(o, k, symbol, a) for o, k, a in relocations], elf.RELA)
    names = b"\0" + section.encode() + b"\0.rela\0.symtab\0.strtab\0"
    bodies = [code, rela.tobytes(), table.tobytes(), strings, names]
    rows = [
        (1, elf.SHT_PROGBITS, flags, 0, 0, align, 0),
        (names.index(b".rela"), elf.SHT_RELA, 0, 3, 1, 8, 24),
        (names.index(b".symtab"), elf.SHT_SYMTAB, 0, 4, 1, 8, 24),
        (names.index(b".strtab"), elf.SHT_STRTAB, 0, 0, 0, 1, 0),
        (names.index(b".strtab"), elf.SHT_STRTAB, 0, 0, 0, 1, 0),
    ]
    out, headers = bytearray(elf.EHDR.size), bytes(elf.SHDR.size)
    for body, (name, type_, flag, link, info, alignment, entry) in zip(bodies, rows, strict=True):
        out += bytes(-len(out) % 16)
        location = len(out), len(body)
        headers += elf.SHDR.pack(name, type_, flag, 0, *location, link, info, alignment, entry)
        out += body
    out[: elf.EHDR.size] = elf.EHDR.pack(
        elf.IDENT, kind, machine, 1, 0, 0, len(out), 0, 64, 0, 0, 64, 6, 5
    )
    return bytes(out) + headers


def link(
    objects: Sequence[bytes],
    exports: Sequence[str],
    notes: dict | None = None,
    arch: str = "x86_64",
    runtime: bytes | None = None,
) -> Linked:
    """`link_shared` of plain objects."""
    parts = [Part(data) for data in objects]
    return link_shared(parts, exports, notes or {}, arch=arch, runtime=runtime)


def segments(linked: Linked) -> list[tuple[int, int, int]]:
    """The loaded segments as (flags, start, size), after a check that all is where it should be."""
    header = elf.EHDR.unpack_from(linked.data)
    rows = []
    for row in elf.PHDR.iter_unpack(linked.data[header[5] : header[5] + header[10] * 56]):
        mode, flags, offset, vaddr, paddr, file_size, memory, align = row
        if mode == elf.PT_LOAD:
            assert offset == vaddr == paddr
            assert file_size == memory
            assert offset % align == 0
            assert offset + file_size <= len(linked.data)
            rows.append((flags, offset, file_size))
    return rows


def relocations(linked: Linked) -> np.ndarray:
    """The records that the loader has to act on."""
    return np.frombuffer(section(linked, ".rela.dyn"), elf.RELA)


def section(linked: Linked, name: str) -> bytes:
    """The bytes of a section; none when there is no such section."""
    offset, size = linked.sections.get(name, (0, 0))
    return bytes(linked.data[offset : offset + size])
