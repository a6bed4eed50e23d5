"""Places output sections in a shared object and writes its bytes.

`elf_link` gives the sections (contents sized, addresses still open); `place` gives every section
its address and file offset, and `write` puts headers and contents together. Addresses equal file
offsets, so a loader may map the whole file in one piece and then set the protections.
"""

from __future__ import annotations

from dataclasses import dataclass

from nova.artifact import elf_defs as elf
from nova.artifact.elf_defs import align_up

# Order in the file: code and the data it reaches by 32-bit distances first, bulk constants last.
_GROUPS = {
    "headers+rodata": elf.PF_R,
    "text": elf.PF_R | elf.PF_X,
    "relro": elf.PF_R | elf.PF_W,
    "data": elf.PF_R | elf.PF_W,
    "constants": elf.PF_R,
}


@dataclass
class OutputSection:
    """One section of the output; `group` is its segment, or "" when it is not loaded."""

    name: str
    kind: int
    flags: int
    align: int
    data: bytearray
    group: str = ""
    link: str = ""
    info: int = 0
    entry_size: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Layout:
    """The sections in file order and the program header table."""

    sections: tuple[OutputSection, ...]
    program_headers: tuple[bytes, ...]

    def index(self, name: str) -> int:
        """The section header index of a section (0 is the null section)."""
        return 1 + [section.name for section in self.sections].index(name)


def place(sections: list[OutputSection]) -> Layout:
    """Give every section its offset (= address), in the order of `_GROUPS`."""
    groups = {name: [s for s in sections if s.group == name] for name in _GROUPS}
    groups = {name: members for name, members in groups.items() if members}
    header_count = len(groups) + 3  # and PT_DYNAMIC, PT_GNU_RELRO, PT_GNU_STACK
    position = elf.EHDR.size + header_count * elf.PHDR.size
    headers, ordered = [], []
    for name, members in groups.items():
        start = 0 if name == "headers+rodata" else align_up(position, elf.PAGE)
        position = max(position, start)
        for section in members:
            section.offset = position = align_up(position, section.align)
            position += len(section.data)
            ordered.append(section)
        size = position - start
        # The dynamic linker write-protects whole pages, so this segment must own its last one.
        memory = align_up(size, elf.PAGE) if name == "relro" else size
        headers.append(_header(elf.PT_LOAD, _GROUPS[name], start, size, memory, elf.PAGE))
        if name == "relro":
            relro = _header(elf.PT_GNU_RELRO, elf.PF_R, start, size, memory, 1)
    dynamic = next(s for s in sections if s.kind == elf.SHT_DYNAMIC)
    size = len(dynamic.data)
    flags = elf.PF_R | elf.PF_W
    headers.append(_header(elf.PT_DYNAMIC, flags, dynamic.offset, size, size, dynamic.align))
    headers.append(relro)
    headers.append(_header(elf.PT_GNU_STACK, flags, 0, 0, 0, 16))
    for section in sections:
        if not section.group:
            section.offset = position = align_up(position, section.align)
            position += len(section.data)
            ordered.append(section)
    return Layout(tuple(ordered), tuple(headers))


def _header(kind: int, flags: int, start: int, size: int, memory: int, align: int) -> bytes:
    return elf.PHDR.pack(kind, flags, start, start, start, size, memory, align)


def write(layout: Layout) -> bytes:
    """The whole file; the last section must be `.shstrtab`, which is filled here."""
    names = layout.sections[-1]
    name_offsets = []
    for section in layout.sections:
        name_offsets.append(len(names.data))
        names.data += section.name.encode() + b"\0"
    table = [bytes(elf.SHDR.size)]
    out = bytearray()
    for section, name in zip(layout.sections, name_offsets, strict=True):
        out += bytes(section.offset - len(out))
        out += section.data
        table.append(
            elf.SHDR.pack(
                name,
                section.kind,
                section.flags,
                section.offset if section.group else 0,
                section.offset,
                len(section.data),
                layout.index(section.link) if section.link else 0,
                section.info,
                section.align,
                section.entry_size,
            )
        )
    out += bytes(align_up(len(out), 8) - len(out))
    section_headers = len(out)
    out += b"".join(table)
    headers = b"".join(layout.program_headers)
    out[: elf.EHDR.size] = elf.EHDR.pack(
        elf.IDENT,
        elf.ET_DYN,
        elf.EM_X86_64,
        1,
        0,
        elf.EHDR.size,
        section_headers,
        0,
        elf.EHDR.size,
        elf.PHDR.size,
        len(layout.program_headers),
        elf.SHDR.size,
        len(table),
        len(table) - 1,
    )
    out[elf.EHDR.size : elf.EHDR.size + len(headers)] = headers
    return bytes(out)
