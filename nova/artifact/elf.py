"""ELF in two functions: `link_shared` makes a shared object, `read_shared` checks and opens one.

The linker (`elf_object`, `elf_link`, `elf_layout`) is only imported when something is linked, so
that loading a finished file stays quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova.artifact.elf_shared import Segment, SharedObject, read_shared

__all__ = ["Segment", "SharedObject", "link_shared", "read_shared"]


def link_shared(
    objects: Sequence[bytes], exports: Sequence[str], notes: Mapping[str, bytes]
) -> bytes:
    """Link relocatable x86-64 objects; see `elf_link.link_shared`."""
    from nova.artifact.elf_link import link_shared as link

    return link(objects, exports, notes)
