"""The smallest `.nova` file, written by hand from docs/nova-format.md, for tests that damage one.

`build` gives the bytes and where everything in them lies, so that a test can change a field;
`seal` puts the hashes behind the changed bytes again. Knows nothing of Nova's own writer: the
reader is tested against the specification.
"""

from __future__ import annotations

import copy
import hashlib
import json
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

PAGE = 4096
R, RX, RW = 4, 5, 6
PROGBITS, STRTAB, RELA, HASH, DYNAMIC, NOBITS, DYNSYM = 1, 3, 4, 5, 6, 8, 11
WRITE, ALLOC, EXEC = 1, 2, 4
X86_64, AARCH64 = 62, 183

MANIFEST: dict[str, Any] = {
    "format_version": 2,
    "producer": "tiny_file",
    "arch": "x86_64",
    "args": [
        {
            "name": "x\u00fc\U0001f600",
            "shape": [2, 4],
            "dtype": "f32",
            "role": "input",
            "donated": False,
            "alias": -1,
        },
        {
            "name": "w",
            "shape": [8],
            "dtype": "f32",
            "role": "param",
            "donated": True,
            "alias": -1,
        },
    ],
    "outputs": [
        {
            "name": "y",
            "shape": [2, 4],
            "dtype": "f32",
            "role": "output",
            "donated": False,
            "alias": -1,
        },
        {
            "name": "w",
            "shape": [8],
            "dtype": "f32",
            "role": "output",
            "donated": False,
            "alias": 1,
        },
    ],
    "variants": [
        {
            "target": "x86_64",
            "cpu": "x86-64",
            "features": [],
            "tables": [0, 0],
            "constants": [0, 64],
            "options": {"fast_math": "False"},
        }
    ],
    "weights": {
        "kind": "embedded",
        "sha256": "",
        "tensors": [{"arg": 1, "offset": 0, "nbytes": 32}],
    },
    "devices": [{"kind": "ptx", "arch": "sm_90a", "offset": 0, "size": 10}],
    "source": "plan",
    "key": {"text": "abc"},
}


@dataclass
class Block:
    """A block of tables, row by row; `build` fills in a `code` of 0."""

    buffers: list[tuple[int, ...]] = field(
        default_factory=lambda: [
            (0, 0, 0, 32),
            (1, 0, 0, 32),
            (2, 0, 64, 64),
            (3, 0, 0, 64),
        ]
    )
    kernels: list[tuple[int, ...]] = field(
        default_factory=lambda: [(0, 4, 8, 64, 1, 1, 1, 4), (0, 2, 8, 64, 0, 1, 1, 0)]
    )
    launches: list[tuple[int, ...]] = field(default_factory=lambda: [(0, 0, 2, 0), (1, 2, 3, 0)])
    operands: list[int] = field(default_factory=lambda: [0, 2, 2, 3, 1])
    tasks: list[tuple[int, ...]] = field(
        default_factory=lambda: [(0, 0, 0, 2, 0, 1), (0, 0, 2, 4, 1, 1), (1, 2, 0, 2, 2, 0)]
    )
    successors: list[int] = field(default_factory=lambda: [2, 2])
    strings: bytes = b"\0k0\0model.py:3\0"
    workspace: int = 128
    magic: bytes = b"NOVATBL1"
    scratch: int = 0

    def pack(self, code: int = 0) -> bytes:
        kernels = [(code, *row[1:]) if row[0] == 0 else row for row in self.kernels]
        body = bytearray(64)
        for layout, rows in (
            ("<IIQQ", self.buffers),
            ("<QqQQIIII", kernels),
            ("<IIII", self.launches),
            ("<I", [(n,) for n in self.operands]),
            ("<IIqqII", self.tasks),
            ("<I", [(n,) for n in self.successors]),
        ):
            body += b"".join(struct.pack(layout, *row) for row in rows)
            body += bytes(-len(body) % 8)
        body += self.strings
        counts = [
            len(part)
            for part in (
                self.buffers,
                self.kernels,
                self.launches,
                self.operands,
                self.tasks,
                self.successors,
                self.strings,
            )
        ]
        body[:64] = struct.pack(
            "<8sQQQ8I", self.magic, len(body), self.workspace, 77, *counts, self.scratch
        )
        return bytes(body)


@dataclass
class Layout:
    """A file before its seal: `at` gives the offset of every header and section by name."""

    data: bytearray
    at: dict[str, int]
    sizes: dict[str, int]

    def put(self, layout: str, where: int, *values: Any) -> None:
        struct.pack_into("<" + layout, self.data, where, *values)

    def regions(self) -> list[int]:
        """Where the regions of the seal begin."""
        bounds = {0, len(self.data)}
        for name, size in self.sizes.items():
            if name.startswith(".nova."):
                bounds |= {self.at[name], self.at[name] + size}
        return sorted(bounds)

    def seal(self, signature: bytes = b"") -> bytes:
        return bytes(self.data) + make_seal(self.data, self.regions(), signature)


def make_seal(data: bytes | bytearray, bounds: list[int], signature: bytes = b"") -> bytes:
    records = b"".join(
        struct.pack("<QQ32s", low, high - low, hashlib.sha256(data[low:high]).digest())
        for low, high in pairwise(bounds)
    )
    end = struct.pack(
        "<32sQQ8s", hashlib.sha256(records).digest(), len(records), len(signature), b"NOVAEND2"
    )
    return records + signature + end


def manifest(**changes: Any) -> dict[str, Any]:
    """A manifest of its own to change, with other values of some fields."""
    return {**copy.deepcopy(MANIFEST), **changes}


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _strings(names: list[str]) -> tuple[bytes, list[int]]:
    table, offsets = b"\0", []
    for name in names:
        offsets.append(len(table))
        table += name.encode() + b"\0"
    return table, offsets


def _repeat(block: bytes, count: int) -> bytes:
    """The block so many times, each at a multiple of 64."""
    return (block + bytes(-len(block) % 64)) * (count - 1) + block


def build(
    description: dict[str, Any] | bytes | None = None,
    block: Block | bytes | None = None,
    *,
    machine: int = X86_64,
    weights: bytes = bytes(range(32)),
    imports: tuple[str, ...] = ("memcpy",),
    text: bytes = b"\xc3" * 16,
) -> Layout:
    """A whole file without its seal; a dict gets the size of the tables, bytes stay as they are."""
    block = Block() if block is None else block
    tables = block if isinstance(block, bytes) else block.pack()
    description = manifest() if description is None else description
    if isinstance(description, dict):
        variants = [dict(variant) for variant in description["variants"]]
        step = len(tables) + -len(tables) % 64  # every variant has a block of its own
        for number, variant in enumerate(variants):
            if variant["tables"] == [0, 0]:
                variant["tables"] = [step * number, len(tables)]
        description = canonical({**description, "variants": variants})
        tables = _repeat(tables, len(variants))

    names = ["k0", *imports, "libc.so.6"]
    dynstr, name_at = _strings(names)
    symbol_count = 1 + len(names) - 1
    slots = len(imports)
    parts = [  # name, kind, flags, segment, alignment, contents
        (".hash", HASH, ALLOC, 0, 8, bytes(4 * (2 + 1 + symbol_count))),
        (".dynsym", DYNSYM, ALLOC, 0, 8, bytes(24 * symbol_count)),
        (".dynstr", STRTAB, ALLOC, 0, 1, dynstr),
        (".rela.dyn", RELA, ALLOC, 0, 8, bytes(24 * (1 + slots))),
        (".nova.manifest", PROGBITS, ALLOC, 0, 64, description),
        (".nova.tables", PROGBITS, ALLOC, 0, 64, tables),
        (".text", PROGBITS, ALLOC | EXEC, 1, 16, text),
        (".got", PROGBITS, ALLOC | WRITE, 2, 8, bytes(8 * (1 + slots))),
        (".dynamic", DYNAMIC, ALLOC | WRITE, 2, 8, bytes(16 * 11)),
        (".nova.const", PROGBITS, ALLOC, 3, 64, bytes(range(64))),
        (".nova.weights", PROGBITS, ALLOC, 3, 64, weights),
        (".nova.device", PROGBITS, ALLOC, 3, 64, b".version 8"),
        (".nova.stages", PROGBITS, 0, None, 8, b"stages"),
        (".shstrtab", STRTAB, 0, None, 1, b""),
    ]
    shstrtab, section_names = _strings([part[0] for part in parts])
    parts[-1] = (*parts[-1][:5], shstrtab)

    segments = [R, RX, RW, R]
    headers = len(segments) + 3
    data = bytearray(64 + 56 * headers)
    at = {"ehdr": 0, "phdr": 64}
    sizes: dict[str, int] = {}
    starts, ends, current = [0, 0, 0, 0], [0, 0, 0, 0], 0
    for name, _, _, segment, alignment, contents in parts:
        if segment is not None and segment != current:
            data += bytes(-len(data) % PAGE)
            starts[segment], current = len(data), segment
        data += bytes(-len(data) % alignment)
        at[name], sizes[name] = len(data), len(contents)
        data += contents
        if segment is not None:
            ends[segment] = len(data)
    data += bytes(-len(data) % 8)
    at["shdr"] = len(data)
    data += bytes(64)
    for (name, kind, flags, _, alignment, _), name_offset in zip(parts, section_names, strict=True):
        at["shdr" + name] = len(data)
        vaddr = at[name] if flags & ALLOC else 0
        data += struct.pack(
            "<IIQQQQIIQQ",
            name_offset,
            kind,
            flags,
            vaddr,
            at[name],
            sizes[name],
            0,
            0,
            alignment,
            0,
        )
    file = Layout(data, at, sizes)
    file.put(
        "16sHHIQQQIHHHHHH",
        0,
        b"\x7fELF\2\1\1",
        *(3, machine, 1, 0, 64, at["shdr"], 0, 64, 56, headers, 64, len(parts) + 1, len(parts)),
    )
    relro = at[".dynamic"] + sizes[".dynamic"] - starts[2]
    rows = [
        (1, flags, low, low, low, high - low, high - low, PAGE)
        for flags, low, high in zip(segments, starts, ends, strict=True)
    ]
    whole = -(-relro // PAGE) * PAGE
    rows[2] = (*rows[2][:6], whole, PAGE)  # the relro segment owns its last page
    rows += [
        (2, RW, *[at[".dynamic"]] * 3, *[sizes[".dynamic"]] * 2, 8),
        (0x6474E552, R, *[starts[2]] * 3, relro, whole, 1),
        (0x6474E551, RW, 0, 0, 0, 0, 0, 16),
    ]
    for i, row in enumerate(rows):
        at[f"phdr{i}"] = 64 + 56 * i
        file.put("IIQQQQQQ", 64 + 56 * i, *row)
    _fill_dynamic(file, name_at, machine, slots)
    if not isinstance(block, bytes):
        count = -(-len(tables) // (len(block.pack()) + 63 & ~63))
        filled = _repeat(block.pack(at[".text"]), count)
        data[at[".nova.tables"] : at[".nova.tables"] + len(tables)] = filled
    return file


def _fill_dynamic(file: Layout, name_at: list[int], machine: int, slots: int) -> None:
    at, sizes = file.at, file.sizes
    count = sizes[".dynsym"] // 24
    # One bucket, a chain through all symbols.
    file.put(f"{3 + count}I", at[".hash"], 1, count, 1, 0, *[*range(2, count), 0][: count - 1])
    file.put("IBBHQQ", at[".dynsym"] + 24, name_at[0], 0x12, 0, 7, at[".text"], 16)
    for i in range(slots):
        file.put("IBBHQQ", at[".dynsym"] + 24 * (2 + i), name_at[1 + i], 0x12, 0, 0, 0, 0)
    relative, slot = (8, 6) if machine == X86_64 else (1027, 1025)
    file.put("QQq", at[".rela.dyn"], at[".got"], relative, at[".text"] + 8)
    for i in range(slots):
        file.put(
            "QQq", at[".rela.dyn"] + 24 * (1 + i), at[".got"] + 8 * (1 + i), (2 + i) << 32 | slot, 0
        )
    tags = [
        (1, name_at[-1]),
        (4, at[".hash"]),
        (5, at[".dynstr"]),
        (6, at[".dynsym"]),
        (10, sizes[".dynstr"]),
        (11, 24),
        (7, at[".rela.dyn"]),
        (8, sizes[".rela.dyn"]),
        (9, 24),
        (0x6FFFFFF9, 1),
    ]
    for i, (tag, value) in enumerate(tags):
        at[f"tag{tag}"] = at[".dynamic"] + 16 * i
        file.put("qQ", at[".dynamic"] + 16 * i, tag, value)
