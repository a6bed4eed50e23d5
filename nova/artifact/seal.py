"""The seal at the end of an artifact: a SHA-256 for every section and for all between them.

`add_seal` appends it to a finished shared object; `check_seal` proves a file unchanged before
anything in it is parsed. ELF tools ignore what follows the section headers.

    record of each region: offset, size, SHA-256    regions cover the file without gaps
    SHA-256 of the records
    size of the records, b"NOVAEND1"
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import pairwise
from struct import Struct

from nova.artifact.elf_shared import Buffer, fail

MAGIC = b"NOVAEND1"
_RECORD = Struct("<QQ32s")
_END = Struct("<32sQ8s")


def add_seal(data: bytes, starts: Iterable[int]) -> bytes:
    """`data` with a seal; `starts` are the file offsets where regions begin."""
    bounds = sorted({0, len(data), *starts})
    records = b"".join(
        _RECORD.pack(low, high - low, sha256(memoryview(data)[low:high]).digest())
        for low, high in pairwise(bounds)
    )
    return data + records + _END.pack(sha256(records).digest(), len(records), MAGIC)


def check_seal(data: Buffer) -> int:
    """Check every hash; returns how many bytes at the start are the shared object itself."""
    view = memoryview(data)
    if len(view) < _END.size:
        fail("seal-magic", "the file is too short to be an artifact")
    digest, size, magic = _END.unpack_from(view, len(view) - _END.size)
    if magic != MAGIC:
        fail("seal-magic", "no Nova artifact, or one that was cut short")
    end: int = len(view) - _END.size - size
    if end < 0 or size % _RECORD.size:
        fail("seal-size", f"{size} bytes of hashes in a file of {len(view)}")
    records = view[end : end + size]
    if sha256(records).digest() != digest:
        fail("seal-hash", "the table of hashes is damaged")
    position = 0
    for offset, length, expected in _RECORD.iter_unpack(records):
        if offset != position or length > end - offset:
            fail("seal-cover", f"the hashes leave out bytes from {position}")
        position += length
        if sha256(view[offset:position]).digest() != expected:
            fail("section-hash", f"bytes {offset} to {position} are damaged")
    if position != end:
        fail("seal-cover", f"the hashes leave out bytes from {position}")
    return end
