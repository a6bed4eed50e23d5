"""The in-process linker: links relocatable objects to one ELF shared object.

`shared_object.link_shared` calls `link`. The result is closed except for the functions of the C
library that the runtime uses: every other symbol is resolved here. Debug sections are dropped. The
bytes depend on the inputs alone, and bulk data is copied once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from nova.artifact.elf import defs as elf
from nova.artifact.elf.dynamic import Names, dynamic_tables, fill_dynamic
from nova.artifact.elf.imports import IMAGE_START, MARKED_SECTIONS
from nova.artifact.elf.layout import OutputSection, lay_out, write
from nova.artifact.elf.machine import Machine
from nova.artifact.elf.object_file import InputSection, ObjectFile
from nova.artifact.elf.reader import MACHINES, read_object
from nova.artifact.elf.relocate import plan_slots, relocate
from nova.artifact.elf.shared_object import Buffer, Linked, Note, Part
from nova.artifact.elf.symbols import SymbolTable
from nova.artifact.elf.symtab import fill_listing, listing
from nova.errors import CodegenError

# name: flags, segment; in file order
_MERGED = {
    ".rodata": (elf.SHF_ALLOC, "headers"),
    ".eh_frame": (elf.SHF_ALLOC, "headers"),
    ".text": (elf.SHF_ALLOC | elf.SHF_EXECINSTR, "text"),
    ".data.rel.ro": (elf.SHF_ALLOC | elf.SHF_WRITE, "relro"),
    ".data": (elf.SHF_ALLOC | elf.SHF_WRITE, "data"),
}
# Segments of loaded notes. Bulk data has a separate one, to be mapped and not read.
_LOADED = {
    ".nova.manifest": "headers",
    ".nova.tables": "headers",
    ".nova.const": "const",
    ".nova.weights": "weights",
    ".nova.device": "device",
}
_NOTE_ALIGN = 64
_STUB_ALIGN = 16


def link(
    parts: Sequence[Part],
    exports: Sequence[str],
    notes: Mapping[str, Note],
    arch: str,
    runtime: bytes | None,
) -> Linked:
    """Link; see `shared_object.link_shared`."""
    machine = MACHINES[arch]
    files = [read_object(part.data, f"object {i}") for i, part in enumerate(parts)]
    suffixes = [part.suffix for part in parts]
    if runtime is not None:
        files.append(read_runtime(runtime))
        suffixes.append("")
        exports = [*exports, *files[-1].visible_functions]
    _check(machine, files, exports)
    symbols = SymbolTable(files, suffixes, len(parts) if runtime is not None else None)
    plan = plan_slots(files, symbols, machine.stub_size)
    names = Names({name: symbols.exported(name) for name in exports}, symbols.imports())
    relocations = sum(file.pointers for file in files) + len(plan.slots)

    merged, homes = _merge(machine, files)
    stubs = 0
    if plan.stubs:
        room = bytes(machine.stub_size * len(plan.stubs))
        stubs = merged[".text"].append(room, _STUB_ALIGN, machine.trap)
    dynamic = dynamic_tables(names, relocations, len(plan.slots))
    loaded, unloaded = _notes(notes)
    table = listing(files, names, plan)
    layout = lay_out(
        machine,
        [
            section
            for section in (
                *(dynamic[name] for name in (".hash", ".dynsym", ".dynstr", ".rela.dyn")),
                *loaded,
                *(merged[name] for name in _MERGED if name in merged),
                *(dynamic[name] for name in (".got", ".dynamic")),
                *unloaded,
                *table.sections,
            )
            if section.size
        ],
    )

    out = write(layout)
    stubs_at = merged[".text"].offset + stubs if plan.stubs else 0
    markers = _markers({section.name: section for section in loaded})
    linkage = relocate(out, layout, files, symbols, homes, plan, markers, stubs_at)
    addresses = fill_dynamic(out, layout, names, files, homes, linkage)
    fill_listing(out, layout, table, names, files, homes, linkage, stubs_at)
    return Linked(out, addresses, {s.name: (s.offset, s.size) for s in layout.sections})


@lru_cache(maxsize=4)
def read_runtime(data: bytes) -> ObjectFile:
    """The parsed runtime, cached: every compile of a process links the same runtime."""
    return read_object(data, "the runtime")


def _check(machine: Machine, files: Sequence[ObjectFile], exports: Sequence[str]) -> None:
    for file in files:
        if file.machine is not machine:
            raise CodegenError(
                f"{file.label} is {file.machine.arch} code in a link for {machine.arch}"
            )
    if len(set(exports)) != len(exports):
        twice = sorted({name for name in exports if exports.count(name) > 1})
        raise CodegenError(f"a symbol is exported twice: {', '.join(twice)}")


def _merge(
    machine: Machine, files: Sequence[ObjectFile]
) -> tuple[dict[str, OutputSection], list[dict[int, tuple[str, int]]]]:
    """Merge sections by output name; `homes` maps sections of objects to (output name, offset)."""
    merged: dict[str, OutputSection] = {}
    homes: list[dict[int, tuple[str, int]]] = []
    for file in files:
        home = {}
        for index, section in file.sections.items():
            name = _output_name(section)
            flags, group = _MERGED[name]
            out = merged.setdefault(name, OutputSection(name, elf.SHT_PROGBITS, flags, 1, group))
            # Traps between functions: a stray jump stops at once instead of running on.
            fill = machine.trap if name == ".text" else b"\0"
            home[index] = name, out.append(section.data, section.align, fill)
        homes.append(home)
    if ".eh_frame" in merged:
        merged[".eh_frame"].append(bytes(4))  # the terminator, elsewhere from crtend.o
    return merged, homes


def _output_name(section: InputSection) -> str:
    if section.flags & elf.SHF_EXECINSTR:
        return ".text"
    if section.flags & elf.SHF_WRITE:
        return ".data.rel.ro" if section.name.startswith(".data.rel.ro") else ".data"
    return ".eh_frame" if section.name == ".eh_frame" else ".rodata"


def _notes(notes: Mapping[str, Note]) -> tuple[list[OutputSection], list[OutputSection]]:
    """The loaded sections in the order of the format, and the others in that of the caller."""
    sections = {}
    for name, note in notes.items():
        group = _LOADED.get(name, "")
        flags, align = (elf.SHF_ALLOC, _NOTE_ALIGN) if group else (0, 8)
        section = OutputSection(name, elf.SHT_PROGBITS, flags, align, group)
        for piece in [note] if isinstance(note, Buffer) else note:
            section.append(piece)
        if section.size:
            sections[name] = section
    loaded = [sections[name] for name in _LOADED if name in sections]
    return loaded, [section for name, section in sections.items() if name not in _LOADED]


def _markers(loaded: Mapping[str, OutputSection]) -> dict[str, int]:
    """The addresses of the linker's own symbols."""
    markers = {IMAGE_START: 0}
    for name in MARKED_SECTIONS:
        section = loaded.get(f".nova.{name}")
        start, size = (section.offset, section.size) if section else (0, 0)
        markers[f"nova_section_{name}_begin"] = start
        markers[f"nova_section_{name}_end"] = start + size
    return markers
