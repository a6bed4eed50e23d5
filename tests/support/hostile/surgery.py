"""Takes a sealed `.nova` file apart, lets a test lie in one place, and makes its hashes right.

A file comes in as bytes; `Surgery` knows where its headers, records and sections lie, `put` changes
fields, `seal` gives a file whose seal covers the damage, so that later checks have to find it.
Knows the format from docs/nova-format.md and shares no code with the reader.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any

RECORD = struct.Struct("<QQ32s")
END = struct.Struct("<32sQQ8s")
MAGIC = b"NOVAEND2"

EHDR = "16s e_type:H e_machine:H e_version:I e_entry:Q e_phoff:Q e_shoff:Q e_flags:I e_ehsize:H"
EHDR += " e_phentsize:H e_phnum:H e_shentsize:H e_shnum:H e_shstrndx:H"
PHDR = "p_type:I p_flags:I p_offset:Q p_vaddr:Q p_paddr:Q p_filesz:Q p_memsz:Q p_align:Q"
SHDR = "sh_name:I sh_type:I sh_flags:Q sh_addr:Q sh_offset:Q sh_size:Q sh_link:I sh_info:I"
SHDR += " sh_addralign:Q sh_entsize:Q"
DYN = "d_tag:Q d_val:Q"
RELA = "r_offset:Q r_info:Q r_addend:Q"
SYM = "st_name:I st_info:B st_other:B st_shndx:H st_value:Q st_size:Q"
WORD = "word:I"
HEADER = "magic:Q size:Q workspace_size:Q work:Q buffer_count:I kernel_count:I launch_count:I"
HEADER += " operand_count:I task_count:I successor_count:I string_size:I scratch_size:I"
BUFFER = "kind:I reserved:I value:Q nbytes:Q"
KERNEL = "code:Q grid:Q flops:Q bytes:Q core:I name:I symbol:I location:I"
LAUNCH = "kernel:I first_operand:I operand_count:I reads:I"
TASK = "launch:I waits:I begin:Q end:Q first_successor:I successor_count:I"
DEVICE = "grid_x:I grid_y:I grid_z:I block_x:I block_y:I block_z:I shared:I reserved:I"
TILING = "first_word:I rank:I ranges:I task_ns:I"
TILING_WORD = "value:Q"
INTERFACE = "grid:Q symbol:I reads:I operand_count:I core:I"
SIZE = "nbytes:Q"
# The arrays of a block of tables, in their order; those of devices and interfaces follow.
ARRAYS = (
    ("buffer", BUFFER),
    ("kernel", KERNEL),
    ("launch", LAUNCH),
    ("operand", WORD),
    ("task", TASK),
    ("successor", WORD),
)


@dataclass(frozen=True)
class Field:
    """A number in the file."""

    group: str  # what kind of record it belongs to
    name: str
    at: int
    kind: str  # of struct: B, H, I or Q

    @property
    def bits(self) -> int:
        return 8 * struct.calcsize(self.kind)


@dataclass(frozen=True)
class Section:
    """A section as the file described it before anybody touched it."""

    header: int  # where its header lies
    offset: int
    size: int


class Surgery:
    """The bytes of a file before its seal, and where everything in them was."""

    def __init__(self, sealed: bytes):
        _, records, signed, magic = END.unpack_from(sealed, len(sealed) - END.size)
        assert magic == MAGIC
        self.data = bytearray(sealed[: len(sealed) - END.size - signed - records])
        self.sections = dict(self._read_sections())
        self.segments = [64 + 56 * i for i in range(self.get("H", 56))]

    # --- reading and writing --------------------------------------------------------------------

    def get(self, kind: str, at: int) -> int:
        return struct.unpack_from("<" + kind, self.data, at)[0]

    def put(self, modes: str, at: int, *values: Any) -> None:
        struct.pack_into("<" + modes, self.data, at, *values)

    def segment(self, kind: int, number: int = 0) -> int:
        """Where the program header lies that is the `number`-th of its kind."""
        return [at for at in self.segments if self.get("I", at) == kind][number]

    def tag(self, tag: int) -> int:
        """Where an entry of the dynamic section lies."""
        dynamic = self.sections[".dynamic"]
        rows = range(dynamic.offset, dynamic.offset + dynamic.size, 16)
        return next(at for at in rows if self.get("Q", at) == tag)

    def symbol(self, name: str) -> int:
        """Where a symbol of the dynamic table lies."""
        table, strings = self.sections[".dynsym"], self.sections[".dynstr"]
        for at in range(table.offset + 24, table.offset + table.size, 24):
            start = strings.offset + self.get("I", at)
            if self.data[start : self.data.index(0, start)] == name.encode():
                return at
        raise KeyError(name)

    def table(self, array: str, number: int = 0, variant: int = 0) -> int:
        """Where a record of a block of tables lies."""
        for name, layout, start, count in self._arrays(variant):
            if name == array and number < count:
                return start + number * record_size(layout)
        raise KeyError(array, number)

    # --- parts ----------------------------------------------------------------------------------

    @property
    def manifest(self) -> dict[str, Any]:
        section = self.sections[".nova.manifest"]
        result: dict[str, Any] = json.loads(
            self.data[section.offset : section.offset + section.size]
        )
        return result

    def set_manifest(self, text: bytes) -> None:
        """Put another manifest in the place of the old one, which has to be as long."""
        self._replace(".nova.manifest", text)

    def set_tables(self, block: bytes) -> None:
        """Put another section of tables in the place of the old one."""
        self._replace(".nova.tables", block)

    def set_stages(self, packed: bytes) -> None:
        self._replace(".nova.stages", packed)

    def _replace(self, name: str, contents: bytes) -> None:
        section = self.sections[name]
        if len(contents) > section.size:
            raise ValueError(f"{name} has {section.size} bytes, not {len(contents)}")
        padded = contents + bytes(section.size - len(contents))
        self.data[section.offset : section.offset + section.size] = padded
        self.put("Q", section.header + 32, len(contents))

    def fields(self) -> list[Field]:
        """Every number of the headers, of the dynamic linker's tables, and of Nova's tables."""
        result = [*_fields("ehdr", EHDR, 0, 1)]
        result += _fields("phdr", PHDR, 64, len(self.segments))
        result += _fields("shdr", SHDR, self.get("Q", 40) + 64, len(self.sections))
        for name, layout, group in (
            (".dynamic", DYN, "dynamic"),
            (".rela.dyn", RELA, "rela"),
            (".dynsym", SYM, "dynsym"),
            (".hash", WORD, "hash"),
            (".symtab", SYM, "symtab"),
        ):
            if name in self.sections:
                part = self.sections[name]
                result += _fields(group, layout, part.offset, part.size // record_size(layout))
        start = self.sections[".nova.tables"].offset
        for number, variant in enumerate(self.manifest["variants"]):
            result += _fields("tables", HEADER, start + variant["tables"][0], 1)
            for name, layout, at, count in self._arrays(number):
                result += _fields(name, layout, at, count)
        return result

    def _arrays(self, variant: int) -> list[tuple[str, str, int, int]]:
        """Name, layout, place and count of the arrays of a block."""
        block = self.sections[".nova.tables"].offset
        block += self.manifest["variants"][variant]["tables"][0]
        at, result = block + 64, []
        for number, (name, layout) in enumerate(ARRAYS):
            count = self.get("I", block + 32 + 4 * number)
            result.append((name, layout, at, count))
            at += count * record_size(layout)
            at += -(at - block) % 8
        kernels = self.get("I", block + 36)
        magic = bytes(self.data[block : block + 8])
        if magic in (b"NOVATBL4", b"NOVATBL6"):
            result.append(("device", DEVICE, at, kernels))
            at += kernels * record_size(DEVICE)
        if magic in (b"NOVATBL5", b"NOVATBL6"):
            result.append(("tiling", TILING, at, kernels))
            at += kernels * record_size(TILING)
            result.append(("words", SIZE, at, 1))
            words = self.get("Q", at)
            result.append(("word", TILING_WORD, at + 8, words))
            at += 8 + 8 * words
        rows = [at + i * record_size(INTERFACE) for i in range(kernels)]
        result.append(("interface", INTERFACE, at, kernels))
        sizes = sum(self.get("I", row + 16) for row in rows)
        result.append(("size", SIZE, at + kernels * record_size(INTERFACE), sizes))
        return result

    def _read_sections(self) -> list[tuple[str, Section]]:
        rows = section_rows(self.data)
        assert rows is not None
        return rows[1:]

    # --- sealing --------------------------------------------------------------------------------

    def seal(self, signature: bytes = b"") -> bytes:
        """The file, with the hashes of what is in it now."""
        return seal_again(bytes(self.data), self.sections, signature)


def record_size(layout: str) -> int:
    """Bytes of a record, from its list of fields."""
    return struct.calcsize("<" + "".join(word.rpartition(":")[2] for word in layout.split()))


def _fields(group: str, layout: str, start: int, count: int) -> list[Field]:
    result, at = [], start
    for number in range(count):
        for word in layout.split():
            name, _, mode = word.rpartition(":")
            if name:
                result.append(Field(group, f"{group}{number}.{name}", at, mode))
            at += struct.calcsize(mode)
    return result


def section_rows(data: bytes | bytearray) -> list[tuple[str, Section]] | None:
    """The section headers of a file that may be damaged; None when they make no sense."""
    try:
        (start,) = struct.unpack_from("<Q", data, 40)
        count, names = struct.unpack_from("<HH", data, 60)
        if start + 64 * count > len(data) or names >= count:
            return None
        (strings,) = struct.unpack_from("<Q", data, start + 64 * names + 24)
        rows = []
        for number in range(count):
            at = start + 64 * number
            name, offset, size = struct.unpack_from("<I20xQQ", data, at)
            text = data[strings + name : strings + name + 64].split(b"\0")[0]
            rows.append((text.decode("latin-1"), Section(at, offset, size)))
        return rows
    except struct.error:
        return None


def seal_again(body: bytes, registered: dict[str, Section], signature: bytes = b"") -> bytes:
    """`body` with a seal whose regions follow the sections of Nova that it shows.

    Where the section headers make no sense any more, they follow those that were `known` before.
    """
    rows = section_rows(body)
    sections = registered.items() if rows is None else rows
    bounds = {0, len(body)}
    for name, section in sections:
        end = section.offset + section.size
        if name.startswith(".nova.") and section.size and end <= len(body):
            bounds |= {section.offset, end}
    records = b"".join(
        RECORD.pack(low, high - low, sha256(body[low:high]).digest())
        for low, high in pairwise(sorted(bounds))
    )
    end = END.pack(sha256(records).digest(), len(records), len(signature), MAGIC)
    return body + records + signature + end


def canonical(value: object) -> bytes:
    """JSON as the format wants it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
