"""GGUF files: metadata and tensors of one model, mapped.

In: a file of version 2 or 3, little endian. Out: `GgufFile`; float tensors are arrays, quantized
ones are `PackedTensor`: bytes in one of the block formats of `nova/ops/loops/block_formats.py`.
Nothing is copied and nothing is trusted: inconsistent data is an ArtifactError. Called by
`nova.from_pretrained`.
"""

from __future__ import annotations

import mmap
import struct
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from nova.artifact.files import open_regular
from nova.core.records import record
from nova.errors import ArtifactError, unreadable
from nova.ops.loops.block_formats import FORMATS

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_AXES = 4
_MOST_NESTED = 4
_ALIGNMENT = 32

# Types of metadata values by number; 8 is a text, 9 an array.
_NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_TEXT, _ARRAY = 8, 9

# Types of tensors by number: an element type, or the name of a block format.
_TYPES: dict[int, np.dtype | str] = {
    0: np.dtype("<f4"),
    1: np.dtype("<f2"),
    2: "q4_0",
    8: "q8_0",
    12: "q4_k",
    14: "q6_k",
    24: np.dtype("i1"),
    25: np.dtype("<i2"),
    26: np.dtype("<i4"),
    27: np.dtype("<i8"),
    28: np.dtype("<f8"),
    30: np.dtype(ml_dtypes.bfloat16),
}
# Types that other programs write and Nova does not read, for the message.
_UNSUPPORTED = {
    3: "q4_1",
    6: "q5_0",
    7: "q5_1",
    9: "q8_1",
    10: "q2_k",
    11: "q3_k",
    13: "q5_k",
    15: "q8_k",
    16: "iq2_xxs",
    17: "iq2_xs",
    18: "iq3_xxs",
    20: "iq4_nl",
    23: "iq4_xs",
}


@record
class PackedTensor:
    """A quantized tensor of `shape`: bytes (..., row bytes) in a block format."""

    shape: tuple[int, ...]
    format: str
    blocks: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.blocks.nbytes


@record
class GgufFile:
    """The metadata of a file by key, and its tensors by name."""

    metadata: dict[str, Any]
    tensors: dict[str, np.ndarray | PackedTensor]


@record
class _Entry:
    """A tensor of the header: `offset` is from the begin of the data."""

    name: str
    shape: tuple[int, ...]
    type: np.dtype | str
    offset: int
    nbytes: int


def map_gguf(path: str | Path) -> GgufFile:
    """The metadata and tensors of a file; the arrays lie on its pages.

    They are writable and private (copy on write). The file must keep its length while one is used.
    """
    try:
        with open_regular(path) as file:
            if not file.seek(0, 2):
                raise _damaged("it is empty")
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise unreadable(ArtifactError, error, "cannot map the file", str(path)) from error
    except ArtifactError as error:
        raise error.located(str(path)) from None
    try:
        return _parse(np.frombuffer(pages, np.uint8))
    except ArtifactError as error:
        raise error.located(str(path)) from None


class _Reader:
    """Reads values at a position; every read is checked against the end."""

    def __init__(self, data: np.ndarray):
        self.view, self.position = data.data, 0

    def take(self, count: int) -> memoryview:
        end = self.position + count
        if end > len(self.view):
            raise _damaged(f"it ends at byte {len(self.view)}, inside of its header")
        self.position, start = end, self.position
        return self.view[start:end]

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def text(self) -> str:
        raw = bytes(self.take(self.number("<Q")))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            # Tokens of a vocabulary may be pieces of characters.
            return raw.decode("utf-8", "surrogateescape")

    def value(self, type_number: int, depth: int = 0) -> Any:
        if type_number in _NUMBERS:
            return self.number(_NUMBERS[type_number])
        if type_number == _TEXT:
            return self.text()
        if type_number != _ARRAY:
            raise _damaged(f"metadata of type {type_number}")
        if depth == _MOST_NESTED:
            raise _damaged(f"metadata is nested more than {_MOST_NESTED} times")
        inner, count = self.number("<I"), self.number("<Q")
        if inner in _NUMBERS:
            layout = _NUMBERS[inner]
            raw = self.take(count * struct.calcsize(layout))
            return np.frombuffer(raw, np.dtype(layout)).tolist()
        return [self.value(inner, depth + 1) for _ in range(count)]


def _parse(data: np.ndarray) -> GgufFile:
    reader = _Reader(data)
    if bytes(reader.take(4)) != _MAGIC:
        raise _damaged("it does not begin with GGUF")
    version = reader.number("<I")
    if version not in _VERSIONS:
        order = " (big endian)" if version & 0xFFFF == 0 else ""
        raise ArtifactError(
            f"a GGUF file of version {version}{order}",
            hint="Nova reads versions 2 and 3, little endian",
        )
    tensor_count, key_count = reader.number("<Q"), reader.number("<Q")
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = reader.text()
        if key in metadata:
            raise _damaged(f"key {key!r} occurs twice")
        metadata[key] = reader.value(reader.number("<I"))
    entries: dict[str, _Entry] = {}
    for _ in range(tensor_count):
        entry = _read_entry(reader)
        if entry.name in entries:
            raise _damaged(f"tensor {entry.name!r} occurs twice")
        entries[entry.name] = entry
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or alignment < 8 or alignment % 8:
        raise _damaged(f"general.alignment is {alignment!r}")
    start = -(-reader.position // alignment) * alignment
    _check_layout(entries, alignment, len(data) - start)
    return GgufFile(metadata, {n: _tensor(e, data, start) for n, e in entries.items()})


def _read_entry(reader: _Reader) -> _Entry:
    name, rank = reader.text(), reader.number("<I")
    if rank > _MOST_AXES:
        raise _damaged(f"tensor {name!r} has {rank} axes")
    # The first size in the file is that of the innermost axis.
    shape = tuple(reversed([reader.number("<Q") for _ in range(rank)]))
    type_number, offset = reader.number("<I"), reader.number("<Q")
    if type_number not in _TYPES:
        label = _UNSUPPORTED.get(type_number, f"number {type_number}")
        names = ", ".join(str(t) for t in _TYPES.values())
        raise ArtifactError(
            f"tensor {name!r} has type {label}, which Nova does not read", hint=f"it reads {names}"
        )
    type_ = _TYPES[type_number]
    if isinstance(type_, np.dtype):
        return _Entry(name, shape, type_, offset, prod(shape) * type_.itemsize)
    layout = FORMATS[type_]
    if not shape or shape[-1] % layout.size:
        raise _damaged(f"tensor {name!r} of {type_} has shape {shape}: no number of whole blocks")
    return _Entry(name, shape, type_, offset, prod(shape) // layout.size * layout.nbytes)


def _check_layout(entries: dict[str, _Entry], alignment: int, size: int) -> None:
    """Tensors are aligned, do not overlap, and end before the file does."""
    end = 0
    for entry in sorted(entries.values(), key=lambda e: (e.offset, e.nbytes)):
        if entry.offset % alignment:
            raise _damaged(f"tensor {entry.name!r} at {entry.offset} is not aligned to {alignment}")
        if entry.offset < end:
            raise _damaged(f"tensor {entry.name!r} at {entry.offset} overlaps another one")
        end = entry.offset + entry.nbytes
        if end > size:
            raise _damaged(f"tensor {entry.name!r} ends {end - size} bytes after the file")


def _tensor(entry: _Entry, data: np.ndarray, start: int) -> np.ndarray | PackedTensor:
    raw = data[start + entry.offset : start + entry.offset + entry.nbytes]
    if isinstance(entry.type, np.dtype):
        return raw.view(entry.type).reshape(entry.shape)
    layout = FORMATS[entry.type]
    row = entry.shape[-1] // layout.size * layout.nbytes
    return PackedTensor(entry.shape, entry.type, raw.reshape(*entry.shape[:-1], row))


def _damaged(why: str) -> ArtifactError:
    return ArtifactError(f"this is not a GGUF file, or it is damaged: {why}")
