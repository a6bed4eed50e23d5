"""Device code in files: images of PTX or cubin for one architecture each.

The compile driver creates `DeviceImage`s; `write_artifact` checks each before it is embedded, and
`choose_image` selects one for a device. Needs no GPU and no CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from nova import _native
from nova.artifact.cubins.bundle import MAGIC
from nova.core.records import record
from nova.errors import CodegenError

_ARCH = re.compile(r"sm_([0-9]{2,3})[af]?")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)
_EXTERN = re.compile(r"\.extern\s+\.func[^;]*?([\w$.]+)\s*\(")
_ENTRY = re.compile(r"\.entry\s+([\w$.]+)")
_CUBINS = (b"\x7fELF", MAGIC)


@record
class DeviceImage:
    """Code for a device: `kind` is "ptx" or "cubin", `arch` such as "sm_90a"."""

    kind: str
    arch: str
    data: bytes


class Image(Protocol):
    """The fields that a selection reads: of a `DeviceImage`, or a row of a manifest."""

    @property
    def kind(self) -> str: ...
    @property
    def arch(self) -> str: ...


def arch_number(arch: str) -> int:
    """90 for "sm_90a"; CodegenError if it is not an architecture."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise CodegenError(
            f"{arch!r} is not a device architecture", hint="they are written sm_80, sm_90a, ..."
        )
    return int(match[1])


def choose_image(images: Sequence[Image], major: int, minor: int) -> int | None:
    """The image that a device of compute capability major.minor runs; None if there is none.

    A cubin for exactly this device, else the PTX of the newest architecture that it can translate:
    code for `sm_90a` runs on 9.0 alone, code for `sm_80` on 8.0 and everything newer.
    """
    rows = [(image.kind, image.arch) for image in images]
    return _native.choose_image(rows, major, minor)


def check_calls(ptx: str, arch: str) -> None:
    """Refuse PTX with undefined calls.

    A function that LLVM does not know becomes `.extern .func`, which no driver can resolve.
    """
    if extern := _EXTERN.search(_COMMENTS.sub(" ", ptx)):
        raise CodegenError(
            f"the PTX for {arch} calls {extern[1]}, which nothing defines",
            hint="an intrinsic that LLVM does not know becomes such a call",
        )


def check_image(image: DeviceImage, symbols: Iterable[str]) -> None:
    """Refuse code that cannot be loaded: for another architecture, incomplete, or not code."""
    arch_number(image.arch)
    if image.kind == "cubin":
        if not image.data.startswith(_CUBINS):
            raise CodegenError(f"the cubin for {image.arch} is not an ELF file or a bundle of them")
        return
    text = _COMMENTS.sub(" ", image.data.decode("ascii", "replace"))
    target = _TARGET.search(text)
    if target is None or target[1] != image.arch:
        arch = "none" if target is None else target[1]
        raise CodegenError(f"the PTX for {image.arch} names the target {arch}")
    check_calls(text, image.arch)
    missing = sorted(set(symbols) - set(_ENTRY.findall(text)))
    if missing:
        raise CodegenError(f"the PTX for {image.arch} has no entry {', '.join(missing)}")
