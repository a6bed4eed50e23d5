"""The GOT, the stubs of imports, and the relocations of all objects, by the ELF psABI.

`linker.py` calls `plan_slots` before the layout, because the table and the stubs need a size, and
`relocate` after it, with the whole file in memory. It returns the work of the loader: offsets where
it adds its base, and slots for functions of the C library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nova.artifact.elf import defs as elf
from nova.artifact.elf.imports import IMPORTS
from nova.artifact.elf.layout import Layout
from nova.artifact.elf.machine import Goal, Ints, RelocationType
from nova.artifact.elf.object_file import Array, InputSection, ObjectFile
from nova.artifact.elf.symbols import SymbolTable, Target
from nova.core.records import record
from nova.errors import CodegenError

Homes = Sequence[Mapping[int, tuple[str, int]]]
"""For each object: the locations of its sections, as (output section, offset in it)."""


@record
class Slots:
    """Offsets in `.got` by contents, and offsets of stubs in their block by import."""

    slots: dict[Target, int]
    stubs: dict[str, int]


@record
class Linkage:
    """The addresses of a finished link.

    `addresses` are those of every symbol of every object, `bases` those of their sections;
    `relative` has (offset, addend) pairs and `slots` the offsets of imports by name.
    """

    bases: list[dict[int, int]]
    addresses: list[Ints]
    relative: list[tuple[int, int]]
    slots: dict[str, int]


def plan_slots(files: Sequence[ObjectFile], symbols: SymbolTable, stub_size: int) -> Slots:
    """A slot for everything that is reached through the GOT, a stub for other imports."""
    slots: dict[Target, int] = {}
    stubs: dict[str, int] = {}
    for file, targets in zip(files, symbols.targets, strict=True):
        for index in file.by_slot:
            slots.setdefault(targets[index], 8 * len(slots))
        for index in file.direct:
            target = targets[index]
            if isinstance(target, str) and target in IMPORTS:
                slots.setdefault(target, 8 * len(slots))
                stubs.setdefault(target, stub_size * len(stubs))
    return Slots(slots, stubs)


def relocate(
    out: bytearray,
    layout: Layout,
    files: Sequence[ObjectFile],
    symbols: SymbolTable,
    homes: Homes,
    plan: Slots,
    markers: Mapping[str, int],
    stubs_at: int,
) -> Linkage:
    """Patch the file; `markers` are the linker's own symbols, the stubs start at `stubs_at`."""
    offsets = {section.name: section.offset for section in layout.sections}
    bases = [{i: offsets[name] + start for i, (name, start) in home.items()} for home in homes]
    addresses = [_symbol_addresses(file, base) for file, base in zip(files, bases, strict=True)]
    got_offset = offsets.get(".got", 0)
    stubs = {name: stubs_at + offset for name, offset in plan.stubs.items()}
    for name, stub_offset in stubs.items():
        code = layout.machine.stub(stub_offset, got_offset + plan.slots[name])
        out[stub_offset : stub_offset + len(code)] = code

    def address(target: Target) -> int:
        if isinstance(target, str):
            return stubs[target] if target in IMPORTS else markers[target]
        return int(addresses[target[0]][target[1]])

    relative, imports = [], {}
    for target, offset in plan.slots.items():
        if isinstance(target, str) and target in IMPORTS:
            imports[target] = got_offset + offset
        else:
            relative.append((got_offset + offset, address(target)))
    data = np.frombuffer(out, np.uint8)
    for file, base, file_addresses, targets in zip(
        files, bases, addresses, symbols.targets, strict=True
    ):
        goals = {Goal.SYMBOL: file_addresses.copy(), Goal.SLOT: np.zeros_like(file_addresses)}
        for index in file.direct:
            goals[Goal.SYMBOL][index] = address(targets[index])
        for index in file.by_slot:
            goals[Goal.SLOT][index] = got_offset + plan.slots[targets[index]]
        goals[Goal.POINTER] = goals[Goal.SYMBOL]
        for index, section in file.sections.items():
            relative += _patch(data, layout, section, base[index], file, goals)
    return Linkage(bases, addresses, sorted(relative), imports)


def _symbol_addresses(file: ObjectFile, base: Mapping[int, int]) -> Ints:
    """The address of every symbol that is defined in the object."""
    table: Ints = np.zeros(max(base, default=0) + 2, np.int64)
    for index, start in base.items():
        table[index] = start
    homes = np.minimum(file.symbols["section"], len(table) - 1)
    addresses: Ints = table[homes] + file.symbols["value"].astype(np.int64)
    return addresses


def _patch(
    data: Array,
    layout: Layout,
    section: InputSection,
    base: int,
    file: ObjectFile,
    goals: Mapping[Goal, Ints],
) -> list[tuple[int, int]]:
    """Apply the relocations of one section; returns those that remain for the loader."""
    relative: list[tuple[int, int]] = []
    for number, rows in section.relocations.items():
        relocation = layout.machine.relocation_types[number]
        positions = base + rows["offset"].astype(np.int64)
        goal = goals[relocation.goal][rows["symbol"]] + rows["addend"]
        if relocation.goal is Goal.POINTER:
            _check_pointers(section, file, rows, (goal < 0) | (goal > layout.loaded_end))
            relative += zip(positions.tolist(), goal.tolist(), strict=True)
        else:
            value = relocation.number(goal, positions)
            _check_reach(relocation, section, file, rows, value)
            spots = positions[:, None] + np.arange(relocation.width)
            record = np.dtype(f"<i{relocation.width}")
            words = data[spots].view(record)[:, 0].astype(np.int64)
            data[spots] = _bytes(relocation.insert(words, value), record)
    return relative


def _bytes(words: Ints, record: np.dtype[np.signedinteger]) -> Array:
    return words.astype(record)[:, None].view(np.uint8)


def _check_pointers(section: InputSection, file: ObjectFile, rows: Array, outside: Array) -> None:
    if not section.flags & elf.SHF_WRITE:
        raise CodegenError(
            f"an absolute address at {_where(section, file, rows[0])} would have to be written "
            "into read-only memory at load time",
            hint="emit with reloc='pic', so that tables of addresses go to .data.rel.ro",
        )
    if outside.any():
        where = _where(section, file, rows[outside][0])
        raise CodegenError(f"the address at {where} is outside of the program")


def _check_reach(
    relocation: RelocationType, section: InputSection, file: ObjectFile, rows: Array, value: Ints
) -> None:
    far = (value < relocation.low) | (value >= relocation.high)
    if far.any():
        raise CodegenError(
            f"relocation {relocation.name} at {_where(section, file, rows[far][0])} does not reach "
            f"its goal, which is {int(value[far][0])} bytes away",
            hint="code and the data it uses must lie close together: make the program smaller",
        )
    odd = value % relocation.step != 0
    if odd.any():
        raise CodegenError(
            f"relocation {relocation.name} at {_where(section, file, rows[odd][0])} needs a goal "
            f"at a multiple of {relocation.step} bytes"
        )


def _where(section: InputSection, file: ObjectFile, row: Array) -> str:
    return f"{section.name}+{int(row['offset']):#x} of {file.label}"
