"""The in-process linker: relocatable objects come in, one x86-64 ELF shared object goes out.

`link_shared` is called by `artifact.format.write_artifact` and by the JIT. The result is closed:
every symbol is resolved here, so loading needs no symbol lookup; only addresses stored in data
(`R_X86_64_RELATIVE`) are left to the loader. Debug sections are dropped. The bytes depend on the
inputs alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova.artifact import elf_defs as elf
from nova.artifact.elf_defs import align_up
from nova.artifact.elf_layout import OutputSection, place, write
from nova.artifact.elf_object import InputSection, ObjectFile, read_object
from nova.artifact.elf_relocate import Homes, Relocator, plan_slots
from nova.artifact.elf_symbols import SymbolTable, relocations_of
from nova.artifact.elf_tables import dynamic_tables, fill_tables, local_symbols, symbol_tables
from nova.errors import CodegenError

CONSTANTS = ".nova.const"

# name: flags, segment
_MERGED = {
    ".rodata": (elf.SHF_ALLOC, "headers+rodata"),
    ".eh_frame": (elf.SHF_ALLOC, "headers+rodata"),
    ".text": (elf.SHF_ALLOC | elf.SHF_EXECINSTR, "text"),
    ".data.rel.ro": (elf.SHF_ALLOC | elf.SHF_WRITE, "relro"),
    ".data": (elf.SHF_ALLOC | elf.SHF_WRITE, "data"),
}


def link_shared(
    objects: Sequence[bytes], exports: Sequence[str], notes: Mapping[str, bytes]
) -> bytes:
    """Link `objects`; `exports` become dynamic symbols and `notes` read-only sections by name.

    The note `.nova.const` is loaded (page aligned, read-only); the other notes are not loaded.
    """
    files = [read_object(data, number) for number, data in enumerate(objects)]
    symbols = SymbolTable(files)
    symbols.check_references()
    exported = [symbols.exported(name) for name in exports]
    if len(set(exports)) != len(exports):
        raise CodegenError("a symbol is exported twice")

    merged, homes = _merge(files)
    slots = plan_slots(files, symbols)
    pointers = sum(relocation.kind == elf.R_64 for *_, relocation in relocations_of(files))
    tables = dynamic_tables(exports, exported, slots, pointers)
    locals_ = local_symbols(files, homes, set(exports))
    sections = [*tables[:-2], *merged.values(), *tables[-2:]]
    sections += [_note(name, data) for name, data in notes.items() if data or name != CONSTANTS]
    sections += symbol_tables([name for name, *_ in locals_], exports)
    sections = [s for s in sections if s.data]
    layout = place(sections)

    by_name = {section.name: section for section in layout.sections}
    relative = Relocator(symbols, by_name, homes, slots).apply(files)
    if relative:
        by_name[".rela.dyn"].data[:] = b"".join(
            elf.RELA.pack(offset, elf.R_RELATIVE, addend) for offset, addend in sorted(relative)
        )
    fill_tables(layout, by_name, homes, exported, locals_, len(relative))
    return write(layout)


def _merge(
    files: list[ObjectFile],
) -> tuple[dict[str, OutputSection], Homes]:
    """Concatenate like with like; `homes` maps (object, section) to (output name, offset)."""
    merged: dict[str, OutputSection] = {}
    homes = {}
    for file in files:
        for index, section in file.sections.items():
            name = _output_name(section)
            flags, group = _MERGED[name]
            out = merged.setdefault(
                name, OutputSection(name, elf.SHT_PROGBITS, flags, 1, bytearray(), group)
            )
            start = align_up(len(out.data), section.align)
            # Int3 between functions: a stray jump stops at once instead of running on.
            fill = b"\xcc" if name == ".text" else b"\0"
            out.data += fill * (start - len(out.data)) + section.data
            out.align = max(out.align, section.align)
            homes[file.number, index] = (name, start)
    if ".eh_frame" in merged:
        merged[".eh_frame"].data += bytes(4)  # the terminator that crtend.o brings elsewhere
    return {name: merged[name] for name in _MERGED if name in merged}, homes


def _output_name(section: InputSection) -> str:
    if section.flags & elf.SHF_EXECINSTR:
        return ".text"
    if section.flags & elf.SHF_WRITE:
        return ".data.rel.ro" if section.name.startswith(".data.rel.ro") else ".data"
    return ".eh_frame" if section.name == ".eh_frame" else ".rodata"


def _note(name: str, data: bytes) -> OutputSection:
    if name == CONSTANTS:
        flags, group, align = elf.SHF_ALLOC, "constants", 64
    else:
        flags, group, align = 0, "", 8
    return OutputSection(name, elf.SHT_PROGBITS, flags, align, bytearray(data), group)
