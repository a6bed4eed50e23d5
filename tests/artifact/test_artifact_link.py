"""The in-process linker: its files are called, read by binutils, or refused by name."""

from __future__ import annotations

import ctypes
import mmap
import random
import shutil
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from nova.artifact import elf_defs as elf
from nova.artifact.elf import link_shared, read_shared
from nova.errors import ArtifactError, CodegenError

EXPORTS = ["add_ramp", "choose", "shared"]
NOTES = {".nova.manifest": b"{}", ".nova.const": bytes(range(200))}


@pytest.fixture(scope="module")
def linked(objects):
    return link_shared(objects, EXPORTS, NOTES)


def dlopen(data, folder):
    path = folder / "linked.so"
    path.write_bytes(data)
    library = ctypes.CDLL(str(path))
    return lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def check_behaviour(address, call):
    """Every way in which code can reach data and other code, through `address(name)`."""
    floats = struct.unpack("8f", call(address("add_ramp"), bytes(32)))
    assert floats == (40.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)  # (1 * 3 + 1) * 10: both twins ran

    def choose(begin, end=0):
        return call(address("choose"), bytes(8), begin, end)

    assert choose(0) == struct.pack("q", ord("e"))
    assert choose(1) == struct.pack("q", 7)
    assert choose(2, 1) == struct.pack("q", address("shared"))
    assert choose(3) == struct.pack("q", address("add_ramp"))
    assert choose(4) == struct.pack("d", 2.5)
    assert choose(5, 3) == struct.pack("d", 3.5)
    assert choose(99) == bytes(8)


def test_dlopen(linked, call, tmp_path):
    check_behaviour(dlopen(linked, tmp_path), call)


@pytest.mark.parametrize("opt", [0, 1, 3])
def test_dlopen_at_every_level(emit, sources, call, tmp_path, opt):
    objects = [emit(text, opt=opt) for text in reversed(sources)]
    check_behaviour(dlopen(link_shared(objects, EXPORTS, {}), tmp_path), call)


def test_plain_mapping(linked, call):
    """The segments and relocations are all that a loader needs."""
    shared = read_shared(linked)
    assert shared.relocations, "the sample has a table of pointers"
    end = shared.segments[-1].vaddr + shared.segments[-1].mem_size
    memory = mmap.mmap(-1, end, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    for offset, size, vaddr, _, _ in shared.segments:
        memory[vaddr : vaddr + size] = linked[offset : offset + size]
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    shared.relocate(base)
    check_behaviour(lambda name: base + shared.symbols[name], call)


def test_native_image(linked, call):
    native = pytest.importorskip("nova.runtime._native")
    shared = read_shared(linked)
    image = native.Image(linked, shared.segments)
    shared.relocate(image.base)
    check_behaviour(lambda name: image.address(shared.symbols[name]), call)
    constants = image.address(shared.addresses[".nova.const"])
    assert constants % 64 == 0
    assert ctypes.string_at(constants, 200) == NOTES[".nova.const"]


@pytest.mark.parametrize(
    "command", [["readelf", "-aW"], ["nm", "-D"], ["nm"], ["objdump", "-d"], ["objdump", "-x"]]
)
def test_binutils(linked, artifact_bytes, tmp_path, command):
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    for name, data in {"linked.so": linked, "whole.nova": artifact_bytes}.items():
        path = tmp_path / name
        path.write_bytes(data)
        done = subprocess.run([*command, path], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert "arning" not in done.stdout
        assert "add_ramp" in done.stdout


def test_layout(linked):
    shared = read_shared(linked)
    assert [s.flags for s in shared.segments] == [4, 5, 6, 4]
    assert all(s.vaddr % 4096 == s.file_offset % 4096 == 0 for s in shared.segments)
    assert set(shared.symbols) == set(EXPORTS)
    offset, size = shared.sections[".nova.const"]
    assert linked[offset : offset + size] == NOTES[".nova.const"]
    assert ".nova.manifest" not in shared.addresses
    text, _ = shared.sections[".text"]
    assert shared.addresses[".text"] == text


def test_same_inputs_same_bytes(objects, linked):
    assert link_shared(objects, EXPORTS, NOTES) == linked


def test_nothing_to_link():
    shared = read_shared(link_shared([], [], {".nova.const": b""}))
    assert shared.symbols == {}
    assert [s.flags for s in shared.segments] == [4, 6]


def test_writable_data(emit, call, tmp_path):
    text = """
    @count = internal global i64 5
    @zero = internal global [10 x i64] zeroinitializer
    define void @k(ptr %buf, i64 %b, i64 %e) {
      %p = load ptr, ptr %buf
      %c = load i64, ptr @count
      %d = add i64 %c, 1
      store i64 %d, ptr @count
      %z = getelementptr [10 x i64], ptr @zero, i64 0, i64 %b
      %y = load i64, ptr %z
      %x = add i64 %d, %y
      store i64 %x, ptr %p
      store i64 100, ptr %z
      ret void }
    """
    address = dlopen(link_shared([emit(text)], ["k"], {}), tmp_path)("k")
    assert call(address, bytes(8), 2) == struct.pack("q", 6)
    assert call(address, bytes(8), 2) == struct.pack("q", 107)


# --- relocations that the compiler seldom makes: objects written by hand --------------------------


def make_object(code, relocations, names=("target",), kind=elf.ET_REL, section=".text", flags=6):
    """An object with one section at 16-byte alignment; `names` are symbols of its offset 0."""
    strings = b"\0" + b"".join(n.encode() + b"\0" for n in names)
    symbols, at = bytes(24), 1
    for name in names:
        symbols += elf.SYM.pack(at, 0x12, 0, 1, 0, len(code))
        at += len(name) + 1
    rela = b"".join(elf.RELA.pack(o, 1 << 32 | k, a) for o, k, a in relocations)
    shstr = b"\0" + section.encode() + b"\0.rela\0.symtab\0.strtab\0"
    bodies = [code, rela, symbols, strings, shstr]
    offsets, position = [], 64
    for body in bodies:
        position = (position + 15) & -16
        offsets.append(position)
        position += len(body)
    rows = [
        (1, 1, flags, 0, 0, 16, 0),
        (shstr.index(b".rela"), 4, 0, 3, 1, 8, 24),
        (shstr.index(b".symtab"), 2, 0, 4, 1, 8, 24),
        (shstr.index(b".strtab"), 3, 0, 0, 0, 1, 0),
        (shstr.index(b".strtab"), 3, 0, 0, 0, 1, 0),
    ]
    out = bytearray(position)
    table = bytes(64)
    for body, offset, (name, type_, flag, link, info, align, entry) in zip(
        bodies, offsets, rows, strict=True
    ):
        out[offset : offset + len(body)] = body
        table += elf.SHDR.pack(name, type_, flag, 0, offset, len(body), link, info, align, entry)
    out[:64] = elf.EHDR.pack(
        elf.IDENT, kind, elf.EM_X86_64, 1, 0, 0, len(out), 0, 64, 0, 0, 64, 6, 5
    )
    return bytes(out) + table


RETURN_42 = bytes.fromhex("b82a000000c3")  # mov eax, 42; ret
INDIRECT = {
    "mov, relaxed": ("488b0500000000ffd0c3", 3, elf.R_REX_GOTPCRELX),
    "mov, by table": ("488b0500000000ffd0c3", 3, elf.R_GOTPCREL),
    "call, relaxed": ("ff1500000000c3", 2, elf.R_GOTPCRELX),
    "call, by table": ("ff1500000000c3", 2, elf.R_GOTPCREL),
    "jmp, relaxed": ("ff2500000000", 2, elf.R_GOTPCRELX),
    "add, by table": ("31c048030500000000ffd0c3", 5, elf.R_REX_GOTPCRELX),
    "direct call": ("e800000000c3", 1, elf.R_PLT32),
}


@pytest.mark.parametrize("form", INDIRECT)
def test_indirect_forms(form, tmp_path):
    text, offset, kind = INDIRECT[form]
    # The stack is 16-byte aligned by nobody here: the callee does not use it.
    code = RETURN_42 + bytes(10) + bytes.fromhex(text)
    data = make_object(code, [(16 + offset, kind, -4)])
    linked = link_shared([data], ["target"], {})
    shared = read_shared(linked)
    assert len(shared.relocations) == (1 if "by table" in form else 0)
    address = dlopen(linked, tmp_path)("target") + 16
    assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 42


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (elf.R_32S, "R_X86_64_32S of 'target'.*\n.*reloc='pic'"),
        (elf.R_32, "R_X86_64_32 of 'target'"),
        (19, "R_X86_64_TLSGD"),
        (99, "number 99"),
        (elf.R_64, "read-only memory"),
    ],
)
def test_refused_relocations(kind, text):
    with pytest.raises(CodegenError, match=text):
        link_shared([make_object(bytes(32), [(4, kind, 0)])], ["target"], {})


def test_relocation_out_of_range():
    with pytest.raises(CodegenError, match="lies past its end"):
        link_shared([make_object(bytes(32), [(30, elf.R_PC32, 0)])], ["target"], {})


def test_distance_overflow():
    with pytest.raises(CodegenError, match="does not fit 4 bytes"):
        link_shared([make_object(bytes(32), [(4, elf.R_PC32, 1 << 40)])], ["target"], {})


def test_undefined_symbols(emit):
    text = """
    declare float @expf(float)
    declare float @another(float)
    define float @k(float %x) { %a = call float @expf(float %x)
      %b = call float @another(float %a)
      ret float %b }
    """
    with pytest.raises(CodegenError, match=r"undefined symbols: another, expf\n.*hint"):
        link_shared([emit(text)], ["k"], {})


def test_duplicate_and_missing_symbols(emit):
    strong = emit("define void @k() { ret void }")
    weak = emit("define weak void @k() { ret void }")
    with pytest.raises(CodegenError, match="'k' is defined in object 0 and in object 1"):
        link_shared([strong, strong], ["k"], {})
    shared = read_shared(link_shared([weak, strong, weak], ["k"], {}))
    assert shared.symbols["k"] == shared.addresses[".text"] + 16
    with pytest.raises(CodegenError, match="'nothing' is defined in no object"):
        link_shared([strong], ["nothing"], {})
    with pytest.raises(CodegenError, match="exported twice"):
        link_shared([strong], ["k", "k"], {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@t = thread_local global i32 1", "thread-local"),
        ("@c = common global i32 0", "common block"),
        (
            "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
            "[{ i32, ptr, ptr } { i32 1, ptr @k, ptr null }]\ndefine void @k() { ret void }",
            "constructors",
        ),
        ("@a = global i32 1, align 8192", "alignment 8192"),
    ],
)
def test_refused_contents(emit, text, message):
    with pytest.raises(CodegenError, match=message):
        link_shared([emit(text)], [], {})


def test_other_machines(emit):
    with pytest.raises(CodegenError, match=r"aarch64 relocations yet \(CALL26"):
        link_shared([emit("define void @k() { ret void }", "aarch64-linux-gnu")], ["k"], {})
    with pytest.raises(CodegenError, match="only x86-64"):
        link_shared([emit("define void @k() { ret void }", "riscv64-linux-gnu")], ["k"], {})
    with pytest.raises(CodegenError, match="not a relocatable object"):
        link_shared([link_shared([], [], {})], [], {})
    with pytest.raises(CodegenError, match="no ELF file"):
        link_shared([b"MZ"], [], {})


def test_damaged_objects(objects):
    """A damaged object gives a CodegenError or some file, never another exception."""
    random.seed(7)
    for cut in range(0, len(objects[0]), 64):
        with pytest.raises(CodegenError):
            link_shared([objects[0][:cut], objects[1]], EXPORTS, {})
    for _ in range(1000):
        data = bytearray(objects[0])
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        with suppress(CodegenError):
            link_shared([bytes(data), objects[1]], EXPORTS, {})


def test_damaged_shared_objects(linked):
    """The reader underneath the hashes keeps to its bounds by itself."""
    random.seed(8)
    for cut in range(0, len(linked), 64):
        with pytest.raises(ArtifactError, match="check '"):
            read_shared(linked[:cut])
    for _ in range(4000):
        data = bytearray(linked)
        where = random.choice([64 + 56 * 8, len(data)])  # headers get half of the flips
        data[random.randrange(where)] ^= 1 << random.randrange(8)
        try:
            shared = read_shared(bytes(data))
        except ArtifactError:
            continue
        for segment in shared.segments:
            assert segment.file_offset + segment.file_size <= len(data)
            assert segment.file_size <= segment.mem_size
        for offset, size in shared.sections.values():
            assert offset + size <= len(data)


def test_import_is_light():
    """Reading must not pull in the linker, MLIR or LLVM."""
    script = (
        "import sys, nova.artifact.format, nova.artifact.cache\n"
        "heavy = {'torch_mlir', 'llvmlite', 'platformdirs', 'nova.artifact.elf_link'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.strip() == "[]"
