"""Reads the shared objects that `elf_link` writes, without executing or trusting anything.

Bytes come in (a `bytes` object, a memory map), a `SharedObject` goes out: what the native loader
maps, and where the named sections are. Called by `artifact.format.read_artifact`. Every failure is
an `ArtifactError` that names the check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from nova.artifact import elf_defs as elf
from nova.errors import ArtifactError

Buffer = bytes | memoryview

_MOST_HEADERS = 64
_MOST_MEMORY = 1 << 46  # above any real span, below where address sums could wrap


class Segment(NamedTuple):
    """One piece of memory in the form the native loader takes; `flags` are PF_R, PF_W, PF_X."""

    file_offset: int
    file_size: int
    vaddr: int
    mem_size: int
    flags: int


@dataclass(frozen=True)
class SharedObject:
    """The loadable view of a shared object.

    `symbols` are the exported names; `sections` give (file offset, size); `addresses` the virtual
    address of each loaded section; `relocations` are (vaddr, addend) pairs where the loader stores
    its base plus addend before it makes the segments read-only.
    """

    segments: tuple[Segment, ...]
    symbols: dict[str, int]
    sections: dict[str, tuple[int, int]]
    addresses: dict[str, int]
    relocations: tuple[tuple[int, int], ...]

    def relocate(self, base: int) -> None:
        """Store the addresses that data holds, in a copy mapped at `base` and still writable."""
        if self.relocations:
            from ctypes import c_uint64

            for vaddr, addend in self.relocations:
                c_uint64.from_address(base + vaddr).value = base + addend


def fail(check: str, detail: str) -> NoReturn:
    """Raise the one form of message that damaged files get."""
    raise ArtifactError(f"check '{check}' failed: {detail}")


def read_shared(data: Buffer) -> SharedObject:
    """Parse and check a shared object; the contents of its sections are not looked at."""
    header = _elf_header(data)
    _, _, _, _, _, headers_at, sections_at, _, _, _, headers, _, sections, names = header
    segments = _segments(data, headers_at, headers)
    rows = _sections(data, sections_at, sections, names)
    places = {name: (row[4], row[5]) for name, row in rows.items() if row[1] != elf.SHT_NOBITS}
    addresses = {name: row[3] for name, row in rows.items() if row[2] & elf.SHF_ALLOC}
    for name, row in rows.items():
        if row[2] & elf.SHF_ALLOC and not any(_holds(s, row[4], row[3], row[5]) for s in segments):
            fail("section-in-segment", f"section {name} is in no loaded segment")
    symbols = _symbols(data, places, segments)
    return SharedObject(segments, symbols, places, addresses, _relocations(data, places, segments))


def _elf_header(data: Buffer) -> tuple[Any, ...]:
    if len(data) < elf.EHDR.size:
        fail("elf-header", f"the file has {len(data)} bytes, fewer than an ELF header")
    header = elf.EHDR.unpack_from(data)
    if header[0] != elf.IDENT:
        fail("elf-magic", "not a 64-bit little-endian ELF file")
    if header[1] != elf.ET_DYN:
        fail("elf-type", f"ELF type {header[1]} is not a shared object (3)")
    if header[2] != elf.EM_X86_64:
        fail("elf-machine", f"machine number {header[2]} is not x86-64 (62)")
    if header[9] != elf.PHDR.size or header[11] != elf.SHDR.size or header[8] != elf.EHDR.size:
        fail("elf-header", "a header size is not that of ELF-64")
    if header[10] > _MOST_HEADERS:
        fail("program-headers", f"{header[10]} program headers; at most {_MOST_HEADERS}")
    return header


def _table(data: Buffer, check: str, offset: int, size: int) -> Buffer:
    if offset > len(data) or size > len(data) - offset:
        fail(check, f"bytes {offset} to {offset + size} of a file of {len(data)}")
    return data[offset : offset + size]


def _segments(data: Buffer, offset: int, count: int) -> tuple[Segment, ...]:
    table = _table(data, "program-headers", offset, count * elf.PHDR.size)
    segments: list[Segment] = []
    end = 0  # the first address after the last segment's pages
    for kind, flags, start, vaddr, _, size, memory, _ in elf.PHDR.iter_unpack(table):
        if kind != elf.PT_LOAD:
            continue
        which = f"segment {len(segments)}"
        _table(data, "segment-bounds", start, size)
        if size > memory:
            fail("segment-size", f"{which} has {size} bytes in the file, {memory} in memory")
        if memory > _MOST_MEMORY or vaddr > _MOST_MEMORY:
            fail("segment-memory", f"{which} reaches address {vaddr + memory:#x}")
        if memory - size > elf.PAGE:
            fail("segment-zeros", f"{which} asks for {memory - size} bytes that no file gives")
        if start % elf.PAGE or vaddr % elf.PAGE:
            fail("segment-alignment", f"{which} starts inside of a page")
        if vaddr < end or (not segments and vaddr != 0):
            fail("segment-order", f"{which} at {vaddr:#x} overlaps or leaves address 0 empty")
        if (flags & elf.PF_W and flags & elf.PF_X) or flags & ~7 or not flags & elf.PF_R:
            fail("segment-flags", f"{which} has protection flags {flags:#x}")
        segments.append(Segment(start, size, vaddr, memory, flags))
        end = elf.align_up(vaddr + memory, elf.PAGE)
    if not segments:
        fail("program-headers", "the file has no segment to load")
    if end > elf.align_up(len(data), elf.PAGE) + elf.PAGE * len(segments):
        fail("segment-memory", f"the segments span {end} bytes, the file has {len(data)}")
    return tuple(segments)


def _sections(data: Buffer, offset: int, count: int, names: int) -> dict[str, tuple[int, ...]]:
    table = _table(data, "section-headers", offset, count * elf.SHDR.size)
    rows = list(elf.SHDR.iter_unpack(table))
    if names >= len(rows):
        fail("section-names", f"name table {names} of {len(rows)} sections")
    strings = bytes(_table(data, "section-names", *rows[names][4:6]))
    found: dict[str, tuple[int, ...]] = {}
    for row in rows[1:]:
        name = elf.cut_string(strings, row[0])
        if name is None:
            fail("section-names", f"a name at {row[0]} of {len(strings)} bytes")
        text = name.decode("utf-8", "replace")
        if text in found:
            fail("section-names", f"two sections are called {text}")
        if row[1] != elf.SHT_NOBITS:
            _table(data, f"section-bounds {text}", row[4], row[5])
        found[text] = row
    return found


def _holds(segment: Segment, offset: int, vaddr: int, size: int) -> bool:
    """Whether a section lies in the segment, at the address its file offset maps to."""
    start = vaddr - segment.vaddr
    return 0 <= start <= segment.file_size - size and offset - segment.file_offset == start


def _symbols(
    data: Buffer, places: dict[str, tuple[int, int]], segments: tuple[Segment, ...]
) -> dict[str, int]:
    if ".dynsym" not in places or ".dynstr" not in places:
        fail("symbols", "the file has no dynamic symbol table")
    offset, size = places[".dynsym"]
    if size % elf.SYM.size:
        fail("symbols", "the dynamic symbol table holds a partial record")
    start, length = places[".dynstr"]
    strings = bytes(data[start : start + length])
    found: dict[str, int] = {}
    for name_at, _, _, section, value, length in elf.SYM.iter_unpack(data[offset : offset + size]):
        if section == elf.SHN_UNDEF:
            continue
        name = elf.cut_string(strings, name_at)
        if name is None:
            fail("symbols", f"a symbol name at {name_at} of {len(strings)} bytes")
        text = name.decode("utf-8", "replace")
        if not any(s.vaddr <= value and value + length <= s.vaddr + s.mem_size for s in segments):
            fail("symbols", f"symbol {text} at {value:#x} is in no loaded segment")
        found[text] = value
    return found


def _relocations(
    data: Buffer, places: dict[str, tuple[int, int]], segments: tuple[Segment, ...]
) -> tuple[tuple[int, int], ...]:
    offset, size = places.get(".rela.dyn", (0, 0))
    if size % elf.RELA.size:
        fail("relocations", "the relocation table holds a partial record")
    writable = [(s.vaddr, s.vaddr + s.file_size - 8) for s in segments if s.flags & elf.PF_W]
    end = segments[-1].vaddr + segments[-1].mem_size
    found: list[tuple[int, int]] = []
    for place, info, addend in elf.RELA.iter_unpack(data[offset : offset + size]):
        if info != elf.R_RELATIVE:
            fail("relocations", f"record {len(found)} is of kind {info:#x}, not relative")
        if not any(low <= place <= high for low, high in writable) or not 0 <= addend <= end:
            fail("relocations", f"record {len(found)} points outside of the segments")
        found.append((place, addend))
    return tuple(found)
