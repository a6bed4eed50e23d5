"""The names that the runtime in a file may use without defining them.

Used by `reader.py` and `symbols.py`. Any other undefined name is a `CodegenError`.
"""

from __future__ import annotations

from nova import _native

IMPORTS = frozenset(_native.allowed_imports())
"""Functions of the C library: the list of the file reader (native/src/loader/elf_imports.c),
which refuses a file with any other import."""

MARKED_SECTIONS = ("manifest", "tables", "const", "weights", "device")

IMAGE_START = "nova_image_start"

MARKERS = frozenset(
    (
        IMAGE_START,
        *(f"nova_section_{name}_{end}" for name in MARKED_SECTIONS for end in ("begin", "end")),
    )
)
"""Symbols that the linker itself defines: the ELF header, and begin and end of the sections
`.nova.*`, which are equal (and at the header) if the file has no such section."""
