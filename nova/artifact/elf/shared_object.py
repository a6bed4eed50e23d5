"""Linking in one function: `link_shared` creates the shared object of a `.nova` file.

Called by `write_artifact` (`nova/artifact/write.py`). The linker (`linker.py`) is imported only
when something is linked, so that loading a finished file stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova.core.records import record

Buffer = bytes | bytearray | memoryview
Note = Buffer | Sequence[Buffer]
"""The bytes of a section, whole or in pieces; each byte is copied once, into the result."""


@record
class Part:
    """One relocatable object of a link.

    `suffix` is appended to every global name that it defines ("k0" becomes "k0.x86_64-v4"); objects
    with the same suffix see each other's names without it.
    """

    data: bytes
    suffix: str = ""


@record
class Linked:
    """A shared object; `data` belongs to the caller, who fills in the tables and adds the seal.

    `symbols` are the exported names and their virtual addresses, `sections` the (file offset, size)
    of every section. The address of a loaded section equals its file offset.
    """

    data: bytearray
    symbols: dict[str, int]
    sections: dict[str, tuple[int, int]]


def prepare_link(runtime: bytes | None) -> None:
    """Load the linker and read the runtime in advance, before the objects are available."""
    from nova.artifact.elf.linker import read_runtime

    if runtime is not None:
        read_runtime(runtime)


def link_shared(
    parts: Sequence[Part],
    exports: Sequence[str],
    notes: Mapping[str, Note],
    *,
    arch: str = "x86_64",
    runtime: bytes | None = None,
) -> Linked:
    """Link `parts` for `arch` into a shared object; the same inputs give the same bytes.

    `exports` (with their suffixes) become dynamic symbols. `notes` become sections: those of
    docs/nova-format.md that a program reads are loaded, the others are not; empty ones are omitted.
    `runtime` is the object of `runtime_object`: it alone may import functions of the C library, and
    its visible functions are exported too.
    """
    from nova.artifact.elf.linker import link

    return link(parts, exports, notes, arch, runtime)
