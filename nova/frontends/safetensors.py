"""Safetensors files: named arrays with a JSON header, read and written without the package.

The file is the length of the header (8 bytes, little endian), the header, and the arrays one after
the other without gaps. Nothing in a file is trusted: inconsistent data is an ArtifactError. Called
by `Module.save`, `Module.load`, checkpoints, programs with external weights and
`nova.frontends.weights`, which maps the files of a model folder.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Mapping
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from nova.artifact.files import open_regular, write_atomically
from nova.core.dlpack import as_numpy
from nova.core.records import record
from nova.errors import ArtifactError, DTypeError, NovaError, unreadable

_TYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {t: name for name, t in _TYPES.items()}
_METADATA = "__metadata__"
# The limit of the format's own reader.
_LONGEST_HEADER = 100_000_000
# The limit of numpy.
_MOST_AXES = 64


@record
class _Entry:
    """One array of a file: its begin and end offsets after the header."""

    name: str
    type: np.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def read_safetensors(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, in the order of their data; each has its own memory."""
    try:
        with open_regular(path) as file:
            entries, _ = _read_header(file)
            return {e.name: _read_array(file, e) for e in entries}
    except OSError as error:
        raise _cannot("read", path, error) from error
    except ArtifactError as error:
        raise error.located(str(path)) from None


def map_safetensors(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, on the pages of the file: nothing is read or copied yet.

    They are writable and private (copy on write): a write never reaches the file. An array whose
    offset is not a multiple of its element size is copied. The file must keep its length while an
    array is in use; replace it by a rename, as every writer of Nova does.
    """
    try:
        with open_regular(path) as file:
            entries, _ = _read_header(file)
            start = file.tell()
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise _cannot("map", path, error) from error
    except ArtifactError as error:
        raise error.located(str(path)) from None
    data = np.frombuffer(pages, np.uint8)
    try:
        return {e.name: _typed(e, data[start + e.start : start + e.end]) for e in entries}
    except ArtifactError as error:
        raise error.located(str(path)) from None


def read_metadata(path: str | Path) -> dict[str, str]:
    """The string metadata of a file."""
    try:
        with open_regular(path) as file:
            return _read_header(file)[1]
    except OSError as error:
        raise _cannot("read", path, error) from error
    except ArtifactError as error:
        raise error.located(str(path)) from None


@record
class Layout:
    """A file to be written: its header, and the arrays in the order of their data.

    `offsets` are the offsets of the arrays after the header.
    """

    header: bytes
    arrays: dict[str, np.ndarray]
    offsets: dict[str, int]

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The bytes of the file, one array after the other; nothing is copied."""
        yield self.header
        for array in self.arrays.values():
            yield array.reshape(-1).view(np.uint8).data


def write_safetensors(
    path: str | Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays by name and string metadata by key, atomically."""
    write_layout(path, lay_out(tensors, metadata))


def write_layout(path: str | Path, layout: Layout, like: Path | None = None) -> None:
    """Write a laid out file atomically.

    It gets the permission bits of `like` or of the old file.
    """
    try:
        write_atomically(Path(path), layout.pieces(), like=like)
    except OSError as error:
        raise _cannot("write", path, error) from error


def pack_safetensors(
    tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The bytes of a file with these arrays and texts."""
    return b"".join(lay_out(tensors, metadata).pieces())


def lay_out(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> Layout:
    """The file with these arrays and texts."""
    arrays = {name: _storable(name, value) for name, value in tensors.items()}
    # Wide dtypes first, as in the format's own writer: every array is aligned for its dtype.
    order = sorted(arrays, key=lambda n: (-arrays[n].itemsize, n))
    header: dict[str, Any] = {_METADATA: _checked_metadata(metadata)} if metadata else {}
    offsets, end = {}, 0
    for name in order:
        array = arrays[name]
        offsets[name], end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offsets[name], end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return Layout(
        len(text).to_bytes(8, "little") + text, {name: arrays[name] for name in order}, offsets
    )


def _storable(name: Any, value: Any) -> np.ndarray:
    if not isinstance(name, str) or name == _METADATA or not _is_text(name):
        raise ArtifactError(f"{name!r} is not a name for a tensor in a safetensors file")
    array = as_numpy(value, f"tensor {name!r}")
    little = array.dtype.newbyteorder("<")
    if little not in _NAMES:
        raise DTypeError(
            f"tensor {name!r} has type {array.dtype}, which safetensors files do not have",
            hint=f"they have {', '.join(_TYPES)}",
        )
    # asarray keeps a 0-d array 0-d, which ascontiguousarray does not.
    return np.asarray(array, dtype=little, order="C")


def _checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    for key, value in metadata.items():
        if not (isinstance(key, str) and isinstance(value, str) and _is_text(key + value)):
            raise ArtifactError(f"metadata {key!r}: {value!r} is not a text under a text")
    return dict(metadata)


def _is_text(value: str) -> bool:
    """Whether it can be encoded as UTF-8: a lone surrogate cannot."""
    return not any("\ud800" <= c <= "\udfff" for c in value)


# --- reading --------------------------------------------------------------------------------------


def _read_header(file: BufferedReader) -> tuple[list[_Entry], dict[str, str]]:
    """The entries in the order of their data, and the metadata; checked against the file's size."""
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _LONGEST_HEADER):
        raise _damaged(f"a header of {length} bytes in a file of {size}")
    header = _parse(file.read(length))
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _damaged("its metadata is not a table of texts")
    entries = sorted((_entry(n, v) for n, v in header.items()), key=lambda e: (e.start, e.end))
    end = 0
    for entry in entries:
        if entry.start != end:
            raise _damaged(f"tensor {entry.name!r} begins at {entry.start}, not at {end}")
        end = entry.end
    if 8 + length + end != size:
        raise _damaged(f"its tensors end at byte {8 + length + end} of {size}")
    file.seek(8 + length)
    return entries, metadata


def _parse(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise _damaged("its header is not a table")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise _damaged("a name is there twice")
    return table


def _entry(name: str, value: Any) -> _Entry:
    try:
        kind, shape, (start, end) = value["dtype"], value["shape"], value["data_offsets"]
        numbers = [*shape, start, end]
    except (KeyError, TypeError, ValueError):
        raise _damaged(f"tensor {name!r} is not described by dtype, shape, data_offsets") from None
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ArtifactError(f"tensor {name!r} has type {kind!r}, which Nova does not read")
    if any(type(n) is not int or n < 0 for n in numbers) or not isinstance(shape, list):
        raise _damaged(f"tensor {name!r} has shape {shape} at {start}..{end}")
    if len(shape) > _MOST_AXES:
        raise _damaged(f"tensor {name!r} has {len(shape)} axes")
    if prod(shape) * _TYPES[kind].itemsize != end - start:
        raise _damaged(f"tensor {name!r} is {kind}{shape} in {end - start} bytes")
    return _Entry(name, _TYPES[kind], tuple(shape), start, end)


def _read_array(file: BufferedReader, entry: _Entry) -> np.ndarray:
    data = np.empty(entry.end - entry.start, np.uint8)
    if file.readinto(data.data) != data.size:
        raise _damaged(f"it ends inside of tensor {entry.name!r}")
    return _typed(entry, data)


def _typed(entry: _Entry, data: np.ndarray) -> np.ndarray:
    """The array of an entry on its bytes."""
    if entry.type == np.bool_ and data.size and data.max() > 1:
        raise _damaged(f"tensor {entry.name!r} holds bools that are neither 0 nor 1")
    try:
        array = data.view(entry.type).reshape(entry.shape)
        return array if array.flags.aligned else array.copy()
    except ValueError as error:
        raise _damaged(f"tensor {entry.name!r}: {error}") from None


def _damaged(why: str) -> ArtifactError:
    return ArtifactError(f"this is not a safetensors file, or it is damaged: {why}")


def _cannot(verb: str, path: str | Path, error: OSError) -> NovaError:
    return unreadable(ArtifactError, error, f"cannot {verb} the file", str(path))
