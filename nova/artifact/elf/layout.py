"""Assigns addresses to the output sections of a shared object and writes its bytes.

`linker.py` provides the sections (sized, without addresses); `lay_out` assigns every section its
address and file offset, and `write` combines headers and contents. Addresses equal file offsets, so
a loader may map the whole file in one piece and then set the protections. The file size of a
segment equals its memory size: there is no zero fill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nova.artifact.elf import defs as elf
from nova.artifact.elf.machine import Machine
from nova.artifact.elf.shared_object import Buffer
from nova.core.records import record
from nova.core.rounding import round_up

# Segments in file order: code and the data within reach of 32-bit offsets first, bulk data last.
# Those of "relro" become read-only after the loader has relocated them.
_GROUPS = {
    "headers": elf.PF_R,
    "text": elf.PF_R | elf.PF_X,
    "relro": elf.PF_R | elf.PF_W,
    "data": elf.PF_R | elf.PF_W,
    "const": elf.PF_R,
    "weights": elf.PF_R,
    "device": elf.PF_R,
}


@dataclass
class OutputSection:
    """One section of the output; `group` is its segment, or "" if it is not loaded.

    The contents are pieces, which `write` copies once; parts with addresses are zeros until then.
    """

    name: str
    section_type: int
    flags: int
    align: int
    group: str = ""
    link: str = ""
    info: int = 0
    entry_size: int = 0
    size: int = 0
    offset: int = 0
    pieces: list[Buffer] = field(default_factory=list)

    def append(self, piece: Buffer, align: int = 1, fill: bytes = b"\0") -> int:
        """Append a piece at a multiple of `align`; returns its offset in the section."""
        gap = round_up(self.size, align) - self.size
        if gap:
            self.pieces.append(fill * gap)
        self.pieces.append(piece)
        start = self.size + gap
        self.size = start + len(piece)
        self.align = max(self.align, align)
        return start


@record
class Layout:
    """The sections in file order, the program header table, and the end of the last section."""

    machine: Machine
    sections: tuple[OutputSection, ...]
    program_headers: tuple[bytes, ...]
    end: int
    loaded_end: int

    @cached_property
    def indices(self) -> dict[str, int]:
        """The section header index of each section (0 is the null section)."""
        return {section.name: index for index, section in enumerate(self.sections, start=1)}


def lay_out(machine: Machine, sections: Sequence[OutputSection]) -> Layout:
    """Assign every section its offset (= address), in the order of `_GROUPS`."""
    page = machine.page
    groups = {name: [s for s in sections if s.group == name] for name in _GROUPS}
    groups = {name: members for name, members in groups.items() if members}
    header_count = len(groups) + 3  # and PT_DYNAMIC, PT_GNU_RELRO, PT_GNU_STACK
    position = elf.EHDR.size + header_count * elf.PHDR.size
    headers, ordered = [], []
    for name, members in groups.items():
        start = 0 if name == "headers" else round_up(position, page)
        position = max(position, start)
        for section in members:
            section.offset = position = round_up(position, section.align)
            position += section.size
            ordered.append(section)
        if name == "relro":
            # The dynamic linker write-protects whole pages, so this segment owns its last page.
            position = round_up(position, page)
            relro = _header(elf.PT_GNU_RELRO, elf.PF_R, start, position - start, 1)
        headers.append(_header(elf.PT_LOAD, _GROUPS[name], start, position - start, page))
    loaded_end = position
    dynamic = next(s for s in sections if s.section_type == elf.SHT_DYNAMIC)
    flags = elf.PF_R | elf.PF_W
    headers.append(_header(elf.PT_DYNAMIC, flags, dynamic.offset, dynamic.size, dynamic.align))
    headers.append(relro)
    headers.append(_header(elf.PT_GNU_STACK, flags, 0, 0, 16))
    for section in sections:
        if not section.group:
            section.offset = position = round_up(position, section.align)
            position += section.size
            ordered.append(section)
    return Layout(machine, tuple(ordered), tuple(headers), position, loaded_end)


def _header(segment_type: int, flags: int, start: int, size: int, align: int) -> bytes:
    return elf.PHDR.pack(segment_type, flags, start, start, start, size, size, align)


def write(layout: Layout) -> bytearray:
    """The whole file, except for addresses that are filled in later."""
    indices = layout.indices
    names = b"\0" + b"".join(s.name.encode() + b"\0" for s in layout.sections)
    names_at = layout.end
    table_at = round_up(names_at + len(names) + len(b".shstrtab\0"), 8)
    count = len(layout.sections) + 2  # the null section, and the section name table
    out = bytearray(table_at + count * elf.SHDR.size)
    view = memoryview(out)  # a bytearray would make a second copy of the stored data
    table = [bytes(elf.SHDR.size)]
    name_at = 1
    for section in layout.sections:
        position = section.offset
        for piece in section.pieces:
            view[position : position + len(piece)] = piece
            position += len(piece)
        table.append(
            elf.SHDR.pack(
                name_at,
                section.section_type,
                section.flags,
                section.offset if section.group else 0,
                section.offset,
                section.size,
                indices[section.link] if section.link else 0,
                section.info,
                section.align,
                section.entry_size,
            )
        )
        name_at += len(section.name.encode()) + 1
    names += b".shstrtab\0"
    out[names_at : names_at + len(names)] = names
    table.append(elf.SHDR.pack(name_at, elf.SHT_STRTAB, 0, 0, names_at, len(names), 0, 0, 1, 0))
    out[table_at:] = b"".join(table)
    headers = b"".join(layout.program_headers)
    out[: elf.EHDR.size] = elf.EHDR.pack(
        elf.IDENT,
        elf.ET_DYN,
        layout.machine.number,
        1,
        0,
        elf.EHDR.size,
        table_at,
        0,
        elf.EHDR.size,
        elf.PHDR.size,
        len(layout.program_headers),
        elf.SHDR.size,
        count,
        count - 1,
    )
    out[elf.EHDR.size : elf.EHDR.size + len(headers)] = headers
    return out
