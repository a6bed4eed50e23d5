"""The manifest: everything about a compiled program but its machine code, as canonical JSON.

The compiler builds a `Manifest`, `to_json` gives the bytes of section `.nova.manifest`, `from_json`
reads them back with every field's type checked, and `check_tables` checks that each index and size
stays inside of what it points into. Called by `artifact.format`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from nova.artifact.elf_shared import SharedObject, fail

FORMAT_VERSION = 1
_INT64 = 1 << 63

T = TypeVar("T")


@dataclass(frozen=True)
class TensorSpec:
    """An argument or a result. `alias` of an output is the argument it is written into, or -1."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str  # "input", "param" or "output"
    donated: bool = False
    alias: int = -1


@dataclass(frozen=True)
class BufferSpec:
    """Memory that kernels see: `value` is an index (arg, output) or a byte offset (the others)."""

    kind: str  # "arg", "output", "workspace" or "constant"
    value: int
    nbytes: int


@dataclass(frozen=True)
class KernelSpec:
    """One function of the code: `grid` counts its tiles; `flops` and `bytes` are of the whole."""

    name: str
    symbol: str
    grid: int
    core: str  # "matrix", "vector" or "host"
    flops: int
    bytes: int
    location: str


@dataclass(frozen=True)
class LaunchSpec:
    """One call of a kernel, in program order; both fields index the manifest's tables."""

    kernel: int
    buffers: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """The description of one compiled program; `key` holds the parts of its cache key."""

    format_version: int
    producer: str
    target: str
    cpu: str
    features: tuple[str, ...]
    args: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    buffers: tuple[BufferSpec, ...]
    kernels: tuple[KernelSpec, ...]
    launches: tuple[LaunchSpec, ...]
    workspace_size: int
    options: Mapping[str, Any]
    key: Mapping[str, str]

    def to_json(self) -> bytes:
        """Canonical JSON: equal manifests give equal bytes."""
        return canonical_json(_plain(self))


def canonical_json(value: object) -> bytes:
    """JSON with sorted keys, no spaces and ASCII only; NaN is refused."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return dict(value) if isinstance(value, Mapping) else value


# --- reading ------------------------------------------------------------------------------------

Reader = Callable[[Any, str], Any]


def _text(value: Any, where: str) -> str:
    if type(value) is not str:
        fail("manifest-type", f"{where} is not a string")
    return value


def _flag(value: Any, where: str) -> bool:
    if type(value) is not bool:
        fail("manifest-type", f"{where} is not true or false")
    return value


def _integer(value: Any, where: str) -> int:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        fail("manifest-type", f"{where} is not a 64-bit integer")
    return value


def _count(value: Any, where: str) -> int:
    number = _integer(value, where)
    if number < 0:
        fail("manifest-range", f"{where} is {number}, below zero")
    return number


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if type(value) is not dict:
        fail("manifest-type", f"{where} is not an object")
    return value


def _texts(value: Any, where: str) -> dict[str, str]:
    return {name: _text(item, f"{where}.{name}") for name, item in _mapping(value, where).items()}


def _one_of(*words: str) -> Reader:
    def read(value: Any, where: str) -> str:
        word = _text(value, where)
        if word not in words:
            fail("manifest-word", f"{where} is {word!r}, not one of {', '.join(words)}")
        return word

    return read


def _list(item: Reader) -> Reader:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if type(value) is not list:
            fail("manifest-type", f"{where} is not a list")
        return tuple([item(entry, f"{where}[{i}]") for i, entry in enumerate(value)])

    return read


def _record(cls: type[T], readers: Mapping[str, Reader]) -> Callable[[Any, str], T]:
    def read(value: Any, where: str) -> T:
        found = _mapping(value, where)
        if found.keys() != readers.keys():
            odd = sorted(found.keys() ^ readers.keys())
            fail("manifest-fields", f"{where} lacks or does not know: {', '.join(odd)}")
        return cls(**{name: read(found[name], f"{where}.{name}") for name, read in readers.items()})

    return read


_TENSOR = _record(
    TensorSpec,
    {
        "name": _text,
        "shape": _list(_count),
        "dtype": _text,
        "role": _one_of("input", "param", "output"),
        "donated": _flag,
        "alias": _integer,
    },
)
_BUFFER = _record(
    BufferSpec,
    {
        "kind": _one_of("arg", "output", "workspace", "constant"),
        "value": _count,
        "nbytes": _count,
    },
)
_KERNEL = _record(
    KernelSpec,
    {
        "name": _text,
        "symbol": _text,
        "grid": _count,
        "core": _one_of("matrix", "vector", "host"),
        "flops": _count,
        "bytes": _count,
        "location": _text,
    },
)
_LAUNCH = _record(LaunchSpec, {"kernel": _count, "buffers": _list(_count)})
_MANIFEST = _record(
    Manifest,
    {
        "format_version": _integer,
        "producer": _text,
        "target": _text,
        "cpu": _text,
        "features": _list(_text),
        "args": _list(_TENSOR),
        "outputs": _list(_TENSOR),
        "buffers": _list(_BUFFER),
        "kernels": _list(_KERNEL),
        "launches": _list(_LAUNCH),
        "workspace_size": _count,
        "options": _mapping,
        "key": _texts,
    },
)


def from_json(data: bytes) -> Manifest:
    """Read a manifest; a wrong type, a missing or an unknown field is an `ArtifactError`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        fail("manifest-json", str(error))
    version = _integer(_mapping(value, "manifest").get("format_version"), "format_version")
    # Before the fields: another version may well have others.
    if version != FORMAT_VERSION:
        fail("format-version", f"the file has version {version}, this Nova reads {FORMAT_VERSION}")
    return _MANIFEST(value, "manifest")


def check_tables(manifest: Manifest, shared: SharedObject, constants_size: int) -> None:
    """Check that every index and every size of the tables stays inside of its bounds."""
    limits = {
        "arg": len(manifest.args),
        "output": len(manifest.outputs),
        "workspace": manifest.workspace_size,
        "constant": constants_size,
    }
    for i, tensor in enumerate(manifest.args):
        if tensor.role == "output" or tensor.alias != -1:
            fail("tensor-role", f"args[{i}] has role {tensor.role} and alias {tensor.alias}")
    for i, tensor in enumerate(manifest.outputs):
        if tensor.role != "output" or tensor.donated:
            fail("tensor-role", f"outputs[{i}] has role {tensor.role}, donated {tensor.donated}")
        if not -1 <= tensor.alias < len(manifest.args):
            fail("alias-index", f"outputs[{i}] aliases argument {tensor.alias}")
    for i, buffer in enumerate(manifest.buffers):
        # An index takes one place of its table; an offset takes all its bytes.
        size = 1 if buffer.kind in ("arg", "output") else buffer.nbytes
        if buffer.value + size > limits[buffer.kind]:
            fail(
                "buffer-bounds",
                f"buffers[{i}] ({buffer.kind}) ends at {buffer.value + size} "
                f"of {limits[buffer.kind]}",
            )
    code = [(s.vaddr, s.vaddr + s.file_size) for s in shared.segments if s.flags & 1]
    for i, kernel in enumerate(manifest.kernels):
        address = shared.symbols.get(kernel.symbol)
        if address is None or not any(low <= address < high for low, high in code):
            fail("kernel-symbol", f"kernels[{i}] names '{kernel.symbol}', which is no function")
    for i, launch in enumerate(manifest.launches):
        if launch.kernel >= len(manifest.kernels):
            fail("launch-kernel", f"launches[{i}] calls kernel {launch.kernel}")
        if launch.buffers and max(launch.buffers) >= len(manifest.buffers):
            fail("launch-buffer", f"launches[{i}] takes buffer {max(launch.buffers)}")
