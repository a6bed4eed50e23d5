"""Every relocation kind of both machines, in objects written by hand.

The numbers in the linked bytes are taken apart again here by the manuals' definitions, not by the
linker's own functions; x86-64 code is also run.
"""

from __future__ import annotations

import ctypes

import pytest
from elf_samples import Symbol, link, make_object, relocations, section

from nova.artifact.elf.aarch64 import AARCH64
from nova.artifact.elf.machine import Goal
from nova.artifact.elf.reader import MACHINES
from nova.artifact.elf.x86_64 import X86_64
from nova.errors import CodegenError

TEXT = 6  # flags: loaded, executable
DATA = 3  # loaded, writable


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


# --- x86-64 ---------------------------------------------------------------------------------------

RETURN_42 = bytes.fromhex("b82a000000c3")  # mov eax, 42; ret
GOTPCREL, GOTPCRELX, REX_GOTPCRELX, CODE_4 = 9, 41, 42, 43
PC32, PLT32, PC64, POINTER = 2, 4, 24, 1
FORMS = {
    "mov, relaxed": ("488b0500000000ffd0c3", 3, REX_GOTPCRELX),
    "mov, by table": ("488b0500000000ffd0c3", 3, GOTPCREL),
    "mov, short, relaxed": ("8b0500000000b82a000000c3", 2, GOTPCRELX),
    "call, relaxed": ("ff1500000000c3", 2, GOTPCRELX),
    "call, by table": ("ff1500000000c3", 2, GOTPCREL),
    "jmp, relaxed": ("ff2500000000", 2, GOTPCRELX),
    "add, by table": ("31c048030500000000ffd0c3", 5, REX_GOTPCRELX),
    "add, long, by table": ("31c048030500000000ffd0c3", 5, CODE_4),
    "direct call": ("e800000000c3", 1, PLT32),
    "direct jump": ("e900000000", 1, PC32),
    # lea rax, [rip]; add rax, (goal - here); jmp rax
    "distance of 64 bits": ("488d050000000048b9000000000000000048 01c8ffe0", 9, PC64),
}


@pytest.mark.parametrize("form", FORMS)
def test_x86_64_code_runs(form, tmp_path):
    text, offset, kind = FORMS[form]
    # The stack is 16-byte aligned by nobody here: the callee does not use it.
    code = RETURN_42 + bytes(10) + bytes.fromhex(text)
    addend = 2 if kind == PC64 else -4  # rax is the address behind `lea`, 2 before the number
    linked = link([make_object(code, [(16 + offset, kind, addend)])], ["target"])
    assert len(relocations(linked)) == (1 if "by table" in form else 0)
    path = tmp_path / "linked.so"
    path.write_bytes(linked.data)
    library = ctypes.CDLL(str(path))
    address = ctypes.cast(library.target, ctypes.c_void_p).value + 16
    assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 42


def test_x86_64_pointer():
    data = make_object(bytes(16), [(8, POINTER, 3)], section=".data", flags=DATA)
    linked = link([data], ["target"])
    start, _ = linked.sections[".data"]
    assert [tuple(map(int, row)) for row in relocations(linked)] == [(start + 8, 8, 0, start + 3)]


# --- AArch64: instruction, relocation, and what address the instruction means --------------------


def page(address: int) -> int:
    return address & ~0xFFF


def adr(word: int, location: int) -> int:
    return location + signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)


def adrp(word: int, location: int) -> int:
    return page(location) + (signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21) << 12)


def imm12(scale: int):
    return lambda word, location: (word >> 10 & 0xFFF) * scale


def branch(start: int, bits: int):
    return lambda word, location: location + 4 * signed(word >> start, bits)


# number: (instruction, bits that the linker must not touch, its meaning, what it is compared with)
INSTRUCTIONS = {
    274: (0x10000000, 0x9F00001F, adr, lambda goal: goal),
    275: (0x90000001, 0x9F00001F, adrp, page),
    277: (0x91000021, 0xFFC003FF, imm12(1), lambda goal: goal & 0xFFF),
    278: (0x39400021, 0xFFC003FF, imm12(1), lambda goal: goal & 0xFFF),
    284: (0x79400021, 0xFFC003FF, imm12(2), lambda goal: goal & 0xFFF),
    285: (0xB9400021, 0xFFC003FF, imm12(4), lambda goal: goal & 0xFFF),
    286: (0xF9400021, 0xFFC003FF, imm12(8), lambda goal: goal & 0xFFF),
    299: (0x3DC00021, 0xFFC003FF, imm12(16), lambda goal: goal & 0xFFF),
    279: (0x36180002, 0xFFF8001F, branch(5, 14), lambda goal: goal),
    280: (0x54000001, 0xFF00001F, branch(5, 19), lambda goal: goal),
    282: (0x14000000, 0xFC000000, branch(0, 26), lambda goal: goal),
    283: (0x94000000, 0xFC000000, branch(0, 26), lambda goal: goal),
    311: (0x90000001, 0x9F00001F, adrp, page),
    312: (0xF9400021, 0xFFC003FF, imm12(8), lambda goal: goal & 0xFFF),
}


@pytest.mark.parametrize("number", INSTRUCTIONS, ids=lambda n: AARCH64.relocation_types[n].name)
@pytest.mark.parametrize("distance", [0x20, 0x1230, 0x6540])
@pytest.mark.parametrize("backwards", [False, True])
def test_aarch64_instruction(number, distance, backwards):
    instruction, mask, meaning, expected = INSTRUCTIONS[number]
    location, goal = (distance, 0) if backwards else (0, distance)
    code = bytearray(distance + 16)
    # Ones where the number goes: what was there must not shine through.
    code[location : location + 4] = (instruction | ~mask & 0xFFFFFFFF).to_bytes(4, "little")
    data = make_object(bytes(code), [(location, number, 0)], [Symbol("target", goal)], machine=183)
    linked = link([data], ["target"], arch="aarch64")
    start, _ = linked.sections[".text"]
    word = int.from_bytes(section(linked, ".text")[location : location + 4], "little")
    assert word & mask == instruction & mask
    aim = start + goal
    if AARCH64.relocation_types[number].goal is Goal.SLOT:
        slot = relocations(linked)[0]
        assert (int(slot["kind"]), int(slot["addend"])) == (1027, aim)
        aim = int(slot["offset"])
        assert linked.sections[".got"] == (aim, 8)
    assert meaning(word, start + location) == expected(aim)


@pytest.mark.parametrize(("number", "width"), [(260, 8), (261, 4), (314, 4)])
def test_aarch64_distance(number, width):
    data = make_object(bytes(32), [(16, number, 5)], machine=183)
    linked = link([data], ["target"], arch="aarch64")
    stored = section(linked, ".text")[16 : 16 + width]
    assert int.from_bytes(stored, "little", signed=True) == -16 + 5


def test_aarch64_pointer():
    data = make_object(bytes(16), [(8, 257, 3)], section=".data", flags=DATA, machine=183)
    linked = link([data], ["target"], arch="aarch64")
    start, _ = linked.sections[".data"]
    rows = [tuple(map(int, row)) for row in relocations(linked)]
    assert rows == [(start + 8, 1027, 0, start + 3)]


def test_every_kind_has_a_test():
    assert set(AARCH64.relocation_types) == {*INSTRUCTIONS, 257, 260, 261, 314}
    assert set(X86_64.relocation_types) == {kind for _, _, kind in FORMS.values()} | {POINTER}


# --- refused --------------------------------------------------------------------------------------

REACHES = [
    (machine.arch, number)
    for machine in MACHINES.values()
    for number, kind in machine.relocation_types.items()
    if kind.goal is not Goal.POINTER and kind.low < 0 and kind.width == 4
]


@pytest.mark.parametrize(("arch", "number"), REACHES)
@pytest.mark.parametrize("sign", [-1, 1])
def test_reach(arch, number, sign):
    """The last number that fits is stored, the next one refused."""
    machine = MACHINES[arch]
    kind = machine.relocation_types[number]
    step = 4096 if "PG" in kind.name or "PAGE" in kind.name else kind.step

    def attempt(addend):
        data = make_object(bytes(8192), [(4096, number, addend)], machine=machine.number)
        return link([data], ["target"], arch=arch)

    # Symbols lie 4096 before the place; the table of offsets has a place of its own.
    start = -4096
    if kind.goal is Goal.SLOT:
        near = attempt(0)
        start = near.sections[".got"][0] - near.sections[".text"][0] - 4096
    last = kind.low if sign < 0 else kind.high - step
    attempt(last - start)
    with pytest.raises(CodegenError, match=rf"{kind.name} at \.text\+0x1000 of object 0 does not"):
        attempt(last - start + sign * step)


@pytest.mark.parametrize(
    ("number", "multiple"), [(284, 2), (285, 4), (286, 8), (299, 16), (283, 4), (279, 4)]
)
def test_goals_at_odd_places(number, multiple):
    data = make_object(bytes(64), [(32, number, 1)], machine=183)
    with pytest.raises(CodegenError, match=f"needs a goal at a multiple of {multiple} bytes"):
        link([data], ["target"], arch="aarch64")


@pytest.mark.parametrize(
    ("machine", "number", "text"),
    [
        (62, 11, "R_X86_64_32S, .*of 'target' at .text\\+0x4 is not supported\n.*hint"),
        (62, 10, "R_X86_64_32, .*of 'target'"),
        (62, 19, "R_X86_64_TLSGD"),
        (62, 99, "number 99"),
        (62, POINTER, "read-only memory"),
        (183, 258, "R_AARCH64_ABS32"),
        (183, 313, "LD64_GOTPAGE_LO15"),
        (183, 999, "number 999"),
        (183, 257, "read-only memory"),
    ],
)
def test_refused_kinds(machine, number, text):
    arch = {62: "x86_64", 183: "aarch64"}[machine]
    data = make_object(bytes(32), [(4, number, 0)], machine=machine)
    with pytest.raises(CodegenError, match=text):
        link([data], ["target"], arch=arch)


@pytest.mark.parametrize("size", [0, 1, 3, 32])
def test_relocation_past_the_end(size):
    data = make_object(bytes(size) or b"\0", [(max(0, size - 2), PC32, 0)], [Symbol("target")])
    with pytest.raises(CodegenError, match="lies past its end"):
        link([data], ["target"])


def test_symbol_and_addend_out_of_range():
    with pytest.raises(CodegenError, match="names a symbol out of range"):
        link([make_object(bytes(32), [(4, PC32, 0)], symbol=7)], ["target"])
    for addend in (1 << 62, -(1 << 63), (1 << 63) - 1):
        with pytest.raises(CodegenError, match="addend out of range"):
            link([make_object(bytes(32), [(4, PC64, addend)])], ["target"])
    with pytest.raises(CodegenError, match="outside of the program"):
        data = make_object(bytes(32), [(8, POINTER, 1 << 40)], section=".data", flags=DATA)
        link([data], ["target"])
    with pytest.raises(CodegenError, match="past the end of its section"):
        link([make_object(bytes(32), [], [Symbol("target", 33)])], ["target"])
