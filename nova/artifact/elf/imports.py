"""The names that the runtime inside of a file may use without defining them.

`elf_read` and `elf_symbols` ask here. Everything else that is undefined is a `CodegenError`.
"""

from __future__ import annotations

from nova import _native

IMPORTS = frozenset(_native.allowed_imports())
"""Functions of the C library: the list of the reader (native/src/imports.c), which refuses a file
that names another."""

MARKED_SECTIONS = ("manifest", "tables", "const", "weights", "device")

IMAGE_START = "nova_image_start"

MARKERS = frozenset(
    (
        IMAGE_START,
        *(f"nova_section_{name}_{end}" for name in MARKED_SECTIONS for end in ("begin", "end")),
    )
)
"""What the linker itself defines: the ELF header, and both ends of the sections `.nova.*`, which
are equal (and at the header) when the file has no such section."""
