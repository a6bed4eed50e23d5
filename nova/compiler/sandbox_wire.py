"""The wire format of `sandbox.py` and `sandbox_child.py`: length-prefixed encoded values.

A value is None, a bool, a number, a string, bytes, a list, tuple, dict, set or frozenset of values,
or a dataclass of Nova, which is created from its fields without calling its code. The child
processes hostile input, so decoding its messages must not run code, as unpickling could.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

from nova.errors import SandboxError

FRAME = struct.Struct("<Q")
_MALFORMED = (
    *(ValueError, KeyError, TypeError, RecursionError, ImportError, AttributeError),
    struct.error,
)
_CONSTANTS = {b"n": None, b"t": True, b"f": False}
_FLOAT = struct.Struct("<d")
_TAGGED_WORD = struct.Struct("<cq")
_WORD = 1 << 63
_GROUPS: dict[bytes, Callable[[Iterable[Any]], Any]] = {
    b"l": list,
    b"u": tuple,
    b"e": set,
    b"z": frozenset,
}


def dump(value: Any) -> bytes:
    """Encode `value`."""
    parts: list[bytes] = []
    _encode(value, parts)
    return b"".join(parts)


def _encode(value: Any, parts: list[bytes]) -> None:
    """Append the encoding of `value`; the most frequent types of tables come first."""
    value_type: type = type(value)
    if value_type is int:
        if -_WORD <= value < _WORD:
            parts.append(_TAGGED_WORD.pack(b"q", value))
        else:
            _put_bytes(b"i", b"%d" % value, parts)
    elif value_type is str:
        _put_bytes(b"s", value.encode(errors="surrogatepass"), parts)
    elif value_type is tuple or value_type is list:
        parts.append(b"u" if value_type is tuple else b"l")
        _encode_group(value, parts)
    elif value is None or value is True or value is False:
        parts.append(b"n" if value is None else b"t" if value else b"f")
    elif (header := _header(value_type)) is not None:
        head, names = header
        parts.append(head)
        _encode_group([getattr(value, name) for name in names], parts)
    else:
        _encode_rare(value, parts)


def _encode_rare(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, bytes | bytearray | memoryview):
        _put_bytes(b"b", bytes(value), parts)
    elif isinstance(value, str):
        _put_bytes(b"s", str(value).encode(errors="surrogatepass"), parts)
    elif isinstance(value, int):
        _put_bytes(b"i", b"%d" % int(value), parts)
    elif isinstance(value, float):
        parts += (b"d", _FLOAT.pack(value))
    elif isinstance(value, list | tuple | set | frozenset):
        tag = next(t for t, group in _GROUPS.items() if isinstance(value, group))  # type: ignore
        parts.append(tag)
        _encode_group(value, parts)
    elif hasattr(value, "items"):
        parts.append(b"m")
        _encode_group([part for pair in value.items() for part in pair], parts)
    else:
        raise TypeError(f"{type(value).__name__} does not go to another process")


@cache
def _header(value_type: type) -> tuple[bytes, tuple[str, ...]] | None:
    """The encoded name of a dataclass, and the names of its fields; None for another type."""
    if not is_dataclass(value_type):
        return None
    parts: list[bytes] = []
    _put_bytes(b"r", f"{value_type.__module__}:{value_type.__qualname__}".encode(), parts)
    return b"".join(parts), tuple(field.name for field in fields(value_type))


def _put_bytes(tag: bytes, data: bytes, parts: list[bytes]) -> None:
    parts += (tag, FRAME.pack(len(data)), data)


def _encode_group(values: Collection[Any], parts: list[bytes]) -> None:
    parts.append(FRAME.pack(len(values)))
    for value in values:
        _encode(value, parts)


def load(data: bytes) -> Any:
    """Decode `data`; SandboxError if it is malformed."""
    reader = _Reader(data)
    try:
        return reader.value()
    except _MALFORMED as error:
        raise SandboxError(f"the child process gave what cannot be read: {error}") from None


class _Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0
        self._records: dict[str, tuple[type, tuple[str, ...]]] = {}

    def value(self) -> Any:
        at = self.at
        tag = self.data[at : at + 1]
        self.at = at + 1
        if tag == b"q":
            self.at = at + _TAGGED_WORD.size
            return _TAGGED_WORD.unpack_from(self.data, at)[1]
        if tag == b"s":
            return self._text()
        if tag == b"u":
            return tuple(self._group())
        if tag == b"r":
            return self._record(self._text())
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag == b"b":
            return self._take(self._size())
        if tag == b"i":
            return int(self._take(self._size()))
        if tag == b"d":
            return _FLOAT.unpack(self._take(_FLOAT.size))[0]
        if tag == b"m":
            flat = self._group()
            return dict(zip(flat[::2], flat[1::2], strict=True))
        return _GROUPS[tag](self._group())

    def _take(self, size: int) -> bytes:
        start = self.at
        end = self.at = start + size
        if end > len(self.data):
            raise ValueError("it ends too early")
        return self.data[start:end]

    def _size(self) -> int:
        at = self.at
        self.at = at + FRAME.size
        return int(FRAME.unpack_from(self.data, at)[0])

    def _text(self) -> str:
        return self._take(self._size()).decode(errors="surrogatepass")

    def _group(self) -> list[Any]:
        return [self.value() for _ in range(self._size())]

    def _record(self, name: str) -> Any:
        known = self._records.get(name)
        if known is None:
            known = self._records[name] = _record_class(name)
        record_class, names = known
        values = self._group()
        if len(values) != len(names):
            raise ValueError(f"{name} has {len(names)} fields, and not {len(values)}")
        instance: object = object.__new__(record_class)
        instance.__dict__.update(zip(names, values, strict=True))  # also if it is frozen
        return instance


def _record_class(name: str) -> tuple[type, tuple[str, ...]]:
    """A record class of Nova, and the names of its fields."""
    module, _, class_name = name.partition(":")
    if module.partition(".")[0] != "nova":
        raise ValueError(f"{name} is not a record of Nova")
    record_class = getattr(sys.modules.get(module) or import_module(module), class_name)
    if not (isinstance(record_class, type) and is_dataclass(record_class)):
        raise ValueError(f"{name} is not a record of Nova")
    return record_class, tuple(field.name for field in fields(record_class))
