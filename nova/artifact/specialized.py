"""Specialized tables: symbolic tables, and tables of code for certain sizes, as one block.

In: the block of a program for all sizes (`symbolic.py`), and for each combination of sizes the
tables of the program that was compiled for them. Out: one block, in the layout of
native/include/nova/specialized.h; and back. docs/nova-format.md documents the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from struct import Struct

from nova.artifact.check import Buffer
from nova.artifact.symbolic import tables_of
from nova.artifact.tables import ALIGN, Tables
from nova.core.records import record

MAGIC = b"NOVASPC1"
HEADER = Struct("<8sQQQIIQ")
BLOCK = Struct("<QQ")
SIZE = Struct("<q")


@record
class Specialized:
    """The code of a program for one combination of sizes, in the order of its dims.

    Its constants are those of the variant that has it.
    """

    sizes: tuple[int, ...]
    tables: Tables
    objects: tuple[bytes, ...]

    @property
    def suffix(self) -> str:
        """What the symbols of its kernels end in."""
        return f".{'_'.join(map(str, self.sizes))}"

    @property
    def device_suffix(self) -> str:
        """What the symbols of its kernels for a device end in; names of PTX have no dots."""
        return f"${'_'.join(map(str, self.sizes))}"

    def renamed(self, suffix: str) -> Specialized:
        """The same with `suffix` appended to the symbols of its kernels for the host."""
        return replace(self, tables=self.tables.renamed(suffix))


def shift_constants(tables: Tables, offset: int) -> Tables:
    """The tables with constants that begin `offset` bytes later."""
    buffers = tuple(
        replace(b, value=b.value + offset) if b.kind == "constant" else b for b in tables.buffers
    )
    regions = tuple(shift_constants(region, offset) for region in tables.regions)
    return replace(tables, buffers=buffers, regions=regions)


def pack_specialized(
    symbolic: bytes, combinations: Sequence[tuple[tuple[int, ...], bytes]]
) -> bytes:
    """The block of symbolic tables and of the tables of each combination of sizes."""
    dims = len(combinations[0][0])
    start = HEADER.size + len(combinations) * (BLOCK.size + dims * SIZE.size)
    body, spans = bytearray(), []
    for data in (symbolic, *(tables for _, tables in combinations)):
        body += bytes(-(start + len(body)) % ALIGN)
        spans.append((start + len(body), len(data)))
        body += data
    header = HEADER.pack(MAGIC, start + len(body), *spans[0], len(combinations), dims, 0)
    blocks = b"".join(BLOCK.pack(*span) for span in spans[1:])
    sizes = b"".join(SIZE.pack(size) for numbers, _ in combinations for size in numbers)
    return header + blocks + sizes + bytes(body)


def tables_in(block: Buffer) -> list[memoryview]:
    """The blocks of tables in a block of any type: those for all sizes, then those for some."""
    view = memoryview(block)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        return [tables_of(view)]
    _, _, offset, size, count, _, _ = HEADER.unpack_from(view)
    rows = BLOCK.iter_unpack(view[HEADER.size : HEADER.size + count * BLOCK.size])
    return [tables_of(view[offset : offset + size]), *(view[at : at + n] for at, n in rows)]
