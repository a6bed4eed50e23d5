"""The symbol table for `nm` and `objdump`; it is not loaded.

`linker.py` requests it sized (`listing`), and `fill_listing` writes the addresses after the layout.
It has every function and every table of the objects, the stubs of imports, and the exports.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nova.artifact.elf import defs as elf
from nova.artifact.elf.dynamic import Names, pack_strings, store, symbol_row
from nova.artifact.elf.layout import Layout, OutputSection
from nova.artifact.elf.object_file import Array, ObjectFile
from nova.artifact.elf.relocate import Homes, Linkage, Slots
from nova.core.records import record


@record
class Listing:
    """The rows of each object, and offsets of the names of stubs and exports."""

    rows: list[Array]
    stubs: list[int]
    exports: list[int]
    sections: list[OutputSection]


def listing(files: Sequence[ObjectFile], names: Names, plan: Slots) -> Listing:
    """The two sections, without addresses."""
    exported = [set[int]() for _ in files]
    for number, index in names.exports.values():
        exported[number].add(index)
    texts, offsets = pack_strings([*(f"{name}@plt" for name in plan.stubs), *names.exports])
    strings = OutputSection(".strtab", elf.SHT_STRTAB, 0, 1)
    strings.append(texts)
    rows = []
    for file, hidden in zip(files, exported, strict=True):
        visible = file.rows[~np.isin(file.listed, list(hidden))]
        visible["name"] += strings.append(file.strings)
        visible["info"] &= 15  # local in the file, independent of its binding in the object
        visible["other"] = 0
        rows.append(visible)
    first_global = 1 + sum(map(len, rows)) + len(plan.stubs)
    size = elf.SYM.itemsize * (first_global + len(names.exports))
    table = OutputSection(
        ".symtab", elf.SHT_SYMTAB, 0, 8, "", ".strtab", first_global, elf.SYM.itemsize
    )
    table.append(bytes(size))
    stubs = len(plan.stubs)
    return Listing(rows, offsets[:stubs], offsets[stubs:], [table, strings])


def fill_listing(
    out: bytearray,
    layout: Layout,
    table: Listing,
    names: Names,
    files: Sequence[ObjectFile],
    homes: Homes,
    linkage: Linkage,
    stubs_at: int,
) -> None:
    """Write the table into the file."""
    indices = layout.indices
    parts = [np.zeros(1, elf.SYM)]
    for rows, home, bases in zip(table.rows, homes, linkage.bases, strict=True):
        if len(rows):
            where = np.zeros((2, max(home) + 1), np.uint64)
            for index, (name, _) in home.items():
                where[:, index] = indices[name], bases[index]
            rows["value"] += where[1][rows["section"]]
            rows["section"] = where[0][rows["section"]]
            parts.append(rows)
    size = layout.machine.stub_size
    stubs = [
        (name, elf.STT_FUNC, 0, indices[".text"], stubs_at + number * size, size)
        for number, name in enumerate(table.stubs)
    ]
    exports = [
        symbol_row(name, definition, layout, files, homes, linkage)
        for name, definition in zip(table.exports, names.exports.values(), strict=True)
    ]
    parts.append(np.array(stubs + exports, elf.SYM))
    offset = next(s.offset for s in layout.sections if s.name == ".symtab")
    store(out, offset, np.concatenate(parts))
