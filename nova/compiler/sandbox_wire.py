"""The wire format of `sandbox.py` and `sandbox_child.py`: length-prefixed encoded values.

A value is None, a bool, a number, a string, bytes, a list, tuple, dict, set or frozenset of values,
or a dataclass of Nova, which is created from its fields without calling its code. The child
processes hostile input, so decoding its messages must not run code, as unpickling could.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

from nova.errors import SandboxError

FRAME = struct.Struct("<Q")
_CONSTANTS = {b"n": None, b"t": True, b"f": False}
_FLOAT = struct.Struct("<d")
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
    if value is None or value is True or value is False:
        parts.append(b"n" if value is None else b"t" if value else b"f")
    elif isinstance(value, str):
        _put_bytes(b"s", value.encode(errors="surrogatepass"), parts)
    elif isinstance(value, bytes | bytearray | memoryview):
        _put_bytes(b"b", bytes(value), parts)
    elif isinstance(value, int):
        _put_bytes(b"i", str(int(value)).encode(), parts)
    elif isinstance(value, float):
        parts += (b"d", _FLOAT.pack(value))
    elif is_dataclass(value) and not isinstance(value, type):
        value_type = type(value)
        _put_bytes(b"r", f"{value_type.__module__}:{value_type.__qualname__}".encode(), parts)
        values = [getattr(value, field.name) for field in fields(value)]
        _encode_group(values, parts)
    elif isinstance(value, list | tuple | set | frozenset):
        tag = next(t for t, group in _GROUPS.items() if isinstance(value, group))  # type: ignore
        parts.append(tag)
        _encode_group(value, parts)
    elif hasattr(value, "items"):
        parts.append(b"m")
        _encode_group([part for pair in value.items() for part in pair], parts)
    else:
        raise TypeError(f"{type(value).__name__} does not go to another process")


def _put_bytes(tag: bytes, data: bytes, parts: list[bytes]) -> None:
    parts += (tag, FRAME.pack(len(data)), data)


def _encode_group(values: Iterable[Any], parts: list[bytes]) -> None:
    items = list(values)
    parts.append(FRAME.pack(len(items)))
    for value in items:
        _encode(value, parts)


def load(data: bytes) -> Any:
    """Decode `data`; SandboxError if it is malformed."""
    reader = _Reader(data)
    try:
        return reader.value()
    except (ValueError, KeyError, TypeError, RecursionError, ImportError, AttributeError) as error:
        raise SandboxError(f"the child process gave what cannot be read: {error}") from None


class _Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def value(self) -> Any:
        tag = self._take(1)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag == b"s":
            return self._text()
        if tag == b"b":
            return self._take(self._size())
        if tag == b"i":
            return int(self._text())
        if tag == b"d":
            return _FLOAT.unpack(self._take(_FLOAT.size))[0]
        if tag == b"m":
            flat = self._group()
            return dict(zip(flat[::2], flat[1::2], strict=True))
        if tag == b"r":
            return self._record(self._text())
        return _GROUPS[tag](self._group())

    def _take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise ValueError("it ends too early")
        piece, self.at = self.data[self.at : end], end
        return piece

    def _size(self) -> int:
        (size,) = FRAME.unpack(self._take(FRAME.size))
        return int(size)

    def _text(self) -> str:
        return self._take(self._size()).decode(errors="surrogatepass")

    def _group(self) -> list[Any]:
        return [self.value() for _ in range(self._size())]

    def _record(self, name: str) -> Any:
        values = self._group()
        module, _, class_name = name.partition(":")
        if module.partition(".")[0] != "nova":
            raise ValueError(f"{name} is not a record of Nova")
        record_class = getattr(sys.modules.get(module) or import_module(module), class_name)
        if not (isinstance(record_class, type) and is_dataclass(record_class)):
            raise ValueError(f"{name} is not a record of Nova")
        instance = object.__new__(record_class)
        for field, value in zip(fields(record_class), values, strict=True):
            object.__setattr__(instance, field.name, value)
        return instance
