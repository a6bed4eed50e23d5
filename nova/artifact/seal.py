"""The seal at the end of a file: a SHA-256 for every region, and the optional signature.

`write_artifact` appends it with `add_seal`; `add_signature` puts a signature into a sealed file.
The native reader checks it. ELF tools ignore data after the section headers.

    record of each region: offset, size, SHA-256    regions cover the file without gaps
    public key, Ed25519 signature                   of a signed file
    SHA-256 of the records, size of the records, size of the signature, b"NOVAEND2"
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import pairwise
from struct import Struct
from typing import Protocol

from nova.artifact.check import Buffer, fail

MAGIC = b"NOVAEND2"
RECORD = Struct("<QQ32s")
END = Struct("<32sQQ8s")
SIGNATURE_SIZE = 96


class PublicKey(Protocol):
    """The part of `cryptography`'s Ed25519PublicKey that signing needs."""

    def public_bytes_raw(self) -> bytes: ...


class PrivateKey(Protocol):
    """The part of `cryptography`'s Ed25519PrivateKey that signing needs."""

    def sign(self, data: bytes, /) -> bytes: ...
    def public_key(self) -> PublicKey: ...


def make_seal(data: Buffer, starts: Iterable[int]) -> bytes:
    """The seal of `data`, unsigned; `starts` are the file offsets where regions begin."""
    view = memoryview(data)
    bounds = sorted({0, len(view), *starts})
    records = b"".join(
        RECORD.pack(low, high - low, sha256(view[low:high]).digest())
        for low, high in pairwise(bounds)
    )
    return records + END.pack(sha256(records).digest(), len(records), 0, MAGIC)


def add_seal(data: Buffer, starts: Iterable[int]) -> bytes:
    """`data` with its seal."""
    return b"".join((data, make_seal(data, starts)))


def add_signature(data: Buffer, private_key: PrivateKey) -> bytes:
    """A sealed file with the signature of `private_key`, which replaces an existing one."""
    view = memoryview(data)
    digest, records, signed, magic = _end(view)
    signature = private_key.public_key().public_bytes_raw() + private_key.sign(digest)
    if len(signature) != SIGNATURE_SIZE:
        fail("signature-size", f"{len(signature)} bytes of key and signature: no Ed25519 key")
    body = view[: len(view) - END.size - signed]
    return b"".join((body, signature, END.pack(digest, records, len(signature), magic)))


def sealed_size(data: Buffer) -> int:
    """The size of the shared object itself, at the start of a sealed file."""
    view = memoryview(data)
    _, records, signed, _ = _end(view)
    return len(view) - END.size - signed - records


def region_starts(data: Buffer) -> list[int]:
    """The offsets of the regions of a sealed file."""
    view = memoryview(data)
    _, records, _, _ = _end(view)
    end = sealed_size(data)
    return [offset for offset, _, _ in RECORD.iter_unpack(view[end : end + records])]


def _end(view: memoryview) -> tuple[bytes, int, int, bytes]:
    if len(view) < END.size or view[-len(MAGIC) :] != MAGIC:
        fail("seal-magic", "not a Nova file, or a truncated one")
    digest, records, signed, magic = END.unpack_from(view, len(view) - END.size)
    if signed not in (0, SIGNATURE_SIZE) or END.size + records + signed > len(view):
        fail("seal-size", f"{records} bytes of hashes in a file of {len(view)}")
    return digest, records, signed, magic
