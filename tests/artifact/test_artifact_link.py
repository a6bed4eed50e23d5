"""The in-process linker: its files are called, read by binutils, or refused by name."""

from __future__ import annotations

import ctypes
import random
import shutil
import struct
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from elf_samples import link, make_object, relocations, section, segments

from nova.artifact.elf import defs as elf
from nova.artifact.elf.shared_object import Part, link_shared
from nova.errors import CodegenError

EXPORTS = ["add_ramp", "choose", "shared"]
NOTES = {
    ".nova.manifest": b"{}",
    ".nova.tables": bytes(70),
    ".nova.const": bytes(range(200)),
    ".nova.weights": [b"abc", memoryview(bytes(range(50)))],
    ".nova.device": b"ptx",
    ".nova.stages": b"text",
}


@pytest.fixture(scope="module")
def linked(objects):
    return link(objects, EXPORTS, NOTES)


def dlopen(linked, folder):
    path = folder / "linked.so"
    path.write_bytes(linked.data)
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
    check_behaviour(dlopen(link(objects, EXPORTS), tmp_path), call)


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    "command", [["readelf", "-aW"], ["nm", "-D"], ["nm"], ["objdump", "-x"], ["objdump", "-d"]]
)
def test_binutils(emit, sources, tmp_path, arch, command):
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    if arch == "aarch64" and command[0] == "objdump":
        command = ["aarch64-linux-gnu-objdump", command[1]]
        if not shutil.which(command[0]):
            pytest.skip("the disassembler of another architecture is not installed")
    objects = [emit(text, f"{arch}-linux-gnu") for text in sources]
    path = tmp_path / "linked.so"
    path.write_bytes(link(objects, EXPORTS, NOTES, arch).data)
    completed = subprocess.run([*command, path], capture_output=True, text=True, check=True)
    assert completed.stderr == ""
    assert "arning" not in completed.stdout
    assert "add_ramp" in completed.stdout


@pytest.mark.parametrize(("arch", "page"), [("x86_64", 4096), ("aarch64", 65536)])
def test_layout(emit, sources, arch, page):
    objects = [emit(text, f"{arch}-linux-gnu") for text in sources]
    linked = link(objects, EXPORTS, NOTES, arch)
    rows = segments(linked)
    assert [flags for flags, _, _ in rows] == [4, 5, 6, 4, 4, 4]
    assert all(start % page == 0 for _, start, _ in rows)
    assert list(linked.symbols) == EXPORTS
    starts = {start for _, start, _ in rows}
    for name in (".nova.const", ".nova.weights", ".nova.device"):
        assert linked.sections[name][0] in starts
    for name in (".nova.manifest", ".nova.tables"):
        assert linked.sections[name][0] % 64 == 0
        assert linked.sections[name][0] < rows[0][2]
    assert linked.sections[".nova.stages"][0] >= sum(rows[-1][1:])
    assert section(linked, ".nova.weights") == b"abc" + bytes(range(50))
    for name in (".nova.manifest", ".nova.tables", ".nova.const", ".nova.device", ".nova.stages"):
        assert section(linked, name) == NOTES[name]


def test_empty_notes_are_left_out(objects):
    linked = link(objects, EXPORTS, {".nova.const": b"", ".nova.weights": [], ".nova.x": [b""]})
    assert not [name for name in linked.sections if name.startswith(".nova")]


def test_notes_are_copied_once(objects):
    weights = bytes(32 << 20)
    tracemalloc.start()
    try:
        linked = link(objects, EXPORTS, {".nova.weights": [memoryview(weights)]})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(linked.data) > len(weights)
    assert peak < 1.1 * len(weights)
    linked.data.extend(b"the caller may append: nothing holds on to the bytes")


def test_same_inputs_same_bytes(objects, linked):
    assert link(objects, EXPORTS, NOTES) == linked


def test_nothing_to_link():
    linked = link([], [])
    assert linked.symbols == {}
    assert [flags for flags, _, _ in segments(linked)] == [4, 6]


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
    address = dlopen(link([emit(text)], ["k"]), tmp_path)("k")
    assert call(address, bytes(8), 2) == struct.pack("q", 6)
    assert call(address, bytes(8), 2) == struct.pack("q", 107)


def test_variants_have_names_of_their_own(emit, tmp_path):
    """Two objects of one suffix see each other; the same names with another suffix are others."""
    main = "declare i32 @part()\ndefine i32 @k() { %x = call i32 @part()\n ret i32 %x }"
    parts = []
    for suffix, value in ((".v3", 3), (".v4", 4)):
        parts.append(Part(emit(main), suffix))
        parts.append(Part(emit(f"define i32 @part() noinline {{ ret i32 {value} }}"), suffix))
    linked = link_shared(parts, ["k.v4", "k.v3"], {})
    assert list(linked.symbols) == ["k.v4", "k.v3"]
    address = dlopen(linked, tmp_path)
    assert [ctypes.CFUNCTYPE(ctypes.c_int)(address(f"k.v{i}"))() for i in (3, 4)] == [3, 4]
    with pytest.raises(CodegenError, match="undefined symbols: part"):
        link_shared([parts[0], parts[3]], ["k.v3"], {})


def test_undefined_symbols(emit):
    """Also those that the runtime may import: a kernel calls no library."""
    text = """
    declare float @expf(float)
    declare ptr @memcpy(ptr, ptr, i64)
    define float @k(float %x) { %a = call float @expf(float %x)
      %b = call ptr @memcpy(ptr null, ptr null, i64 8)
      ret float %a }
    """
    with pytest.raises(CodegenError, match=r"undefined symbols: expf, memcpy\n.*hint"):
        link([emit(text)], ["k"])
    marker = "@nova_image_start = external global i8\ndefine ptr @k() { ret ptr @nova_image_start }"
    with pytest.raises(CodegenError, match="undefined symbols: nova_image_start"):
        link([emit(marker)], ["k"])


def test_duplicate_and_missing_symbols(emit):
    strong = emit("define void @k() { ret void }")
    weak = emit("define weak void @k() { ret void }")
    with pytest.raises(CodegenError, match="'k' is defined in object 0 and in object 1"):
        link([strong, strong], ["k"])
    linked = link([weak, strong, weak], ["k"])
    assert linked.symbols["k"] == linked.sections[".text"][0] + 16
    with pytest.raises(CodegenError, match="'nothing' is defined in no object"):
        link([strong], ["nothing"])
    with pytest.raises(CodegenError, match="exported twice: k"):
        link([strong], ["k", "k"])


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
        ("@z = global [20000000 x i8] zeroinitializer", "20000000 zeroed bytes"),
    ],
)
def test_refused_contents(emit, text, message):
    with pytest.raises(CodegenError, match=message):
        link([emit(text)], [])


def test_refused_machines_and_files(emit):
    text = "define void @k() { ret void }"
    with pytest.raises(CodegenError, match="object 1 is aarch64 code in a link for x86_64"):
        link([make_object(b"", []), emit(text, "aarch64-linux-gnu")], ["k"])
    with pytest.raises(CodegenError, match=r"243; known are x86_64 \(62\), aarch64 \(183\)"):
        link([emit(text, "riscv64-linux-gnu")], ["k"])
    with pytest.raises(CodegenError, match="not a relocatable object"):
        link([bytes(link([], []).data)], [])
    with pytest.raises(CodegenError, match="not an ELF file"):
        link([b"MZ"], [])


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_damaged_objects(emit, sources, arch):
    """A damaged object gives a CodegenError or some file, never another exception."""
    objects = [emit(text, f"{arch}-linux-gnu") for text in sources]
    random.seed(7)
    for cut in range(0, len(objects[0]), 64):
        with pytest.raises(CodegenError):
            link([objects[0][:cut], objects[1]], EXPORTS, arch=arch)
    for _ in range(1000):
        data = bytearray(objects[0])
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        with suppress(CodegenError):
            link([bytes(data), objects[1]], EXPORTS, arch=arch)


def test_addresses_in_data(linked):
    """What the loader adds its base to: sorted, in the order that RELACOUNT promises."""
    rows = relocations(linked)
    assert len(rows) == 2
    assert set(rows["kind"]) == {8}
    start, size = linked.sections[".data.rel.ro"]
    assert [int(row["offset"]) for row in rows] == [start, start + 8]
    assert size == 16
    assert int(rows["addend"][1]) == linked.symbols["shared"]


def test_no_page_is_writable_and_executable(linked):
    assert not any(flags & elf.PF_W and flags & elf.PF_X for flags, _, _ in segments(linked))


def test_import_is_light():
    """Reading must not pull in the linker, MLIR or LLVM."""
    script = (
        "import sys, nova.artifact.format, nova.artifact.cache.disk\n"
        "heavy = {'torch_mlir', 'llvmlite', 'platformdirs', 'nova.artifact.elf.linker'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root
    )
    assert completed.stdout.strip() == "[]"
