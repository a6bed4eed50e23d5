"""The C runtime inside of files: imports, the linker's own symbols, the entry point, both machines.

A small runtime, compiled here by gcc, has every kind of reference that a compiler makes; the real
one is linked too. Code for the other architecture runs in an emulator where there is one.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elf_samples import link, relocations, section

from nova import knobs
from nova.artifact.elf import cross_compile
from nova.artifact.elf import defs as elf
from nova.artifact.elf import runtime_object as elf_runtime
from nova.artifact.elf.imports import IMPORTS, MARKERS
from nova.artifact.elf.reader import read_object
from nova.artifact.elf.shared_object import Part, link_shared
from nova.compiler.cpu.entry import ENTRY, compile_entry, entry_text
from nova.errors import CodegenError

ROOT = Path(__file__).parents[2]

SMALL = r"""
#include <stdlib.h>
#include <string.h>
#define API __attribute__((visibility("default")))
extern const char nova_image_start[] __attribute__((visibility("hidden")));
extern const char nova_section_const_begin[] __attribute__((visibility("hidden")));
extern const char nova_section_const_end[] __attribute__((visibility("hidden")));
extern const char nova_section_weights_begin[], nova_section_weights_end[];
extern const char nova_section_device_begin[], nova_section_device_end[];

static long zeros[100];
static long filled[3] = {1, 2, 3};
static size_t (*const function)(const char *) = strlen;
static const char *const words[] = {"zero", "one", "two"};
static const void *const ends[] = {nova_section_weights_begin, nova_section_weights_end};

API long small_count(long i) { return ++zeros[i] + filled[i % 3]; }
API long small_word(long i) { return (long)function(words[i % 3]); }
API const char *small_image(void) { return nova_image_start; }
API long small_const(void) { return nova_section_const_end - nova_section_const_begin; }
API const char *small_weights(void) { return nova_section_weights_begin; }
API long small_weights_size(void) { return (const char *)ends[1] - (const char *)ends[0]; }
API int small_no_device(void) { return nova_section_device_begin == nova_section_device_end; }
API long small_sum(long n)
{
    char *p = malloc(n);
    memset(p, 3, n);
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += p[i];
    free(p);
    return sum;
}
__attribute__((visibility("hidden"))) long small_hidden(void) { return 1; }
API void *small_malloc(void) { return (void *)malloc; }
__attribute__((visibility("hidden")))
void nova_ciface(void *result, void *const *descriptors, size_t count)
{
    long *out = result ? result : descriptors[0];
    for (long i = 0; i < 8; i++)
        filled[0] += out[i] != 0;
    for (size_t i = 0; i < count; i++)
        out[i] = *(long *)descriptors[i] * 10;
    out[count] = filled[0];
}
"""
VISIBLE = sorted(re.findall(r"^API .*?(small_\w+)\(", SMALL, re.MULTILINE))
NOTES = {".nova.const": bytes(range(200)), ".nova.weights": [b"weights", bytes(9)]}
GCC = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}
KERNEL = "define void @k(ptr %p, i64 %b, i64 %e) { store i64 7, ptr %p\n ret void }"


def find_compiler(arch: str) -> str:
    name = GCC[arch] if arch != os.uname().machine else "gcc"
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def find_emulator() -> str:
    path = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if path is None:
        pytest.skip("qemu-aarch64 is not installed")
    return path


def compile_small(arch: str, folder: Path, *flags: str) -> bytes:
    (folder / "small.c").write_text(SMALL)
    command = [find_compiler(arch), *cross_compile.FLAGS, *cross_compile.ARCH_FLAGS[arch], *flags]
    out = folder / "small.o"
    subprocess.run([*command, "-c", "-o", out, folder / "small.c"], check=True)
    return out.read_bytes()


@pytest.fixture(scope="module", params=["-O0", "-O2", "-O2 -fno-plt"])
def small(request, tmp_path_factory):
    return compile_small("x86_64", tmp_path_factory.mktemp("small"), *request.param.split())


def open_library(data: bytes, folder: Path):
    path = folder / "linked.so"
    path.write_bytes(data)
    return ctypes.CDLL(str(path))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="runs x86-64 code")
def test_small_runtime_runs(small, emit, tmp_path):
    linked = link([emit(KERNEL)], ["k"], NOTES, runtime=small)
    assert list(linked.symbols) == ["k", *VISIBLE]
    library = open_library(linked.data, tmp_path)
    for name in VISIBLE:
        getattr(library, name).restype = ctypes.c_long
    assert [library.small_count(50) for _ in range(3)] == [4, 5, 6]
    assert [library.small_word(i) for i in range(3)] == [4, 3, 3]
    assert library.small_sum(1000) == 3000
    assert ctypes.string_at(library.small_image(), 4) == b"\x7fELF"
    assert library.small_const() == 200
    assert ctypes.string_at(library.small_weights(), 7) == b"weights"
    assert library.small_weights_size() == 16
    assert library.small_no_device() == 1
    assert library.small_malloc() != 0


def test_imports_are_bound_at_once(small, tmp_path):
    linked = link([], [], NOTES, runtime=small)
    rows = relocations(linked)
    relative, bound = rows[rows["kind"] == 8], rows[rows["kind"] == 6]
    assert len(relative) + len(bound) == len(rows)
    assert (rows["kind"][: len(relative)] == 8).all()
    start, size = linked.sections[".got"]
    assert ((bound["offset"] >= start) & (bound["offset"] < start + size)).all()
    dynamic = list(elf.DYN.iter_unpack(section(linked, ".dynamic")))
    assert (elf.DT_RELACOUNT, len(relative)) in dynamic
    assert (elf.DT_FLAGS, elf.DF_BIND_NOW) in dynamic
    strings = section(linked, ".dynstr")
    needed = [elf.cut_string(strings, value) for tag, value in dynamic if tag == elf.DT_NEEDED]
    assert needed == [b"libc.so.6"]
    symbols = np.frombuffer(section(linked, ".dynsym"), elf.SYM)
    undefined = {
        elf.cut_string(strings, int(row["name"])).decode()
        for row in symbols[1:]
        if row["section"] == elf.SHN_UNDEF
    }
    assert {"malloc", "free", "strlen"} <= undefined <= IMPORTS
    if shutil.which("readelf"):
        path = tmp_path / "linked.so"
        path.write_bytes(linked.data)
        text = subprocess.run(
            ["readelf", "-aW", path], capture_output=True, text=True, check=True
        ).stdout
        assert "arning" not in text
        assert "malloc@plt" in text or "GLOB_DAT" in text


def test_no_imports_without_a_runtime(objects):
    linked = link(objects, ["add_ramp"])
    tags = {tag for tag, _ in elf.DYN.iter_unpack(section(linked, ".dynamic"))}
    assert elf.DT_NEEDED not in tags


def test_runtime_may_not_name_anything_else(tmp_path):
    source = tmp_path / "wrong.c"
    source.write_text(
        "int system(const char *); extern char nova_section_other_begin[];\n"
        'char *f(void) { system(""); return nova_section_other_begin; }\n'
    )
    command = [find_compiler("x86_64"), "-O2", "-fPIC", "-c", "-o", tmp_path / "wrong.o", source]
    subprocess.run(command, check=True)
    with pytest.raises(CodegenError, match="undefined symbols: nova_section_other_begin, system"):
        link([], [], runtime=(tmp_path / "wrong.o").read_bytes())


def test_same_inputs_same_bytes(small, objects):
    first = link(objects, ["add_ramp"], NOTES, runtime=small)
    assert link(objects, ["add_ramp"], NOTES, runtime=bytes(bytearray(small))) == first


def test_imports_and_markers_have_no_name_in_common():
    assert IMPORTS and not IMPORTS & MARKERS


def test_flags_are_those_of_the_build():
    text = (ROOT / "native/CMakeLists.txt").read_text()
    flags = re.search(r"set\(EMBEDDED_FLAGS\s(.*?)\)", text, re.DOTALL)[1].split()
    assert set(flags) <= set(cross_compile.FLAGS)
    for arch, more in re.findall(r'STREQUAL "(\w+)"\)\s+list\(APPEND EMBEDDED_FLAGS (.*?)\)', text):
        assert tuple(more.split()) == cross_compile.ARCH_FLAGS[arch]


# --- the entry point ------------------------------------------------------------------------------


def test_entry_text():
    text = entry_text(2, (2, 0))
    assert "@_mlir_ciface_main(ptr %result, ptr %a0, ptr %a1)" in text
    assert "ult i64 %word, 10" in text  # 3 + 2 * 2, and 3
    assert "@_mlir_ciface_main(ptr %a0)" in entry_text(1, ())
    assert compile_entry("x86_64", 2, (2, 0)) is compile_entry("x86_64", 2, (2, 0))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="runs x86-64 code")
@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [(1, ()), (5, ()), (40, ()), (0, (1,)), (1, (0, 3)), (6, (1,)), (7, (2,) * 30), (40, (4,))],
)
def test_entry_runs(small, arguments, ranks, tmp_path):
    entry = Part(compile_entry("x86_64", arguments, ranks))
    linked = link_shared([entry], [ENTRY], NOTES, runtime=small)
    library = open_library(linked.data, tmp_path)
    words = sum(3 + 2 * rank for rank in ranks)
    values = [ctypes.c_long(i + 1) for i in range(arguments)]
    result = (ctypes.c_long * max(words + 1, 50))(*[99] * max(words + 1, 50))
    pointers = [ctypes.byref(v) for v in values]
    if ranks:
        getattr(library, ENTRY)(ctypes.byref(result), *pointers)
        # The runtime found zeros in all words of the descriptors, and old bytes behind them.
        observed = max(0, 8 - words)
        assert result[:arguments] == [10 * (i + 1) for i in range(arguments)]
        assert result[arguments] == 1 + observed
        trailing = max(words, arguments + 1)
        assert set(result[trailing:]) == {99}
    else:
        block = (ctypes.c_long * 50)(1)
        getattr(library, ENTRY)(ctypes.byref(block), *pointers[1:])
        assert block[:arguments] == [10, *(10 * (i + 1) for i in range(1, arguments))]


def test_entry_calls_only_the_runtime():
    """Also with many results: LLVM must not make the zeros a call of memset."""
    for arch in ("x86_64", "aarch64"):
        data = compile_entry(arch, 3, (4,) * 100)
        with pytest.raises(CodegenError, match=r"undefined symbols: nova_ciface\n"):
            link([data], [ENTRY], arch=arch)


# --- other architectures --------------------------------------------------------------------------


def test_small_runtime_on_aarch64(emit, tmp_path):
    """gcc's code and LLVM's, linked here, run by an emulated processor."""
    runtime = compile_small("aarch64", tmp_path, "-O2")
    parts = [
        Part(emit(KERNEL, "aarch64-linux-gnu")),
        Part(compile_entry("aarch64", 2, (2, 0))),
    ]
    linked = link_shared(parts, ["k", ENTRY], NOTES, arch="aarch64", runtime=runtime)
    assert list(linked.symbols) == ["k", ENTRY, *VISIBLE]
    (tmp_path / "linked.so").write_bytes(linked.data)
    (tmp_path / "main.c").write_text(
        r"""
        #include <dlfcn.h>
        #include <stdio.h>
        #include <string.h>
        int main(int count, char **words)
        {
            void *file = dlopen(words[1], RTLD_NOW);
            if (!file)
                return puts(dlerror()), 1;
            long value = 0, a = 4, b = 5, result[20] = {0};
            ((void (*)(void *, long, long))dlsym(file, "k"))(&value, 0, 1);
            ((void (*)(void *, void *, void *))dlsym(file, "_mlir_ciface_main"))(result, &a, &b);
            long (*sum)(long) = dlsym(file, "small_sum"), (*word)(long) = dlsym(file, "small_word");
            long (*more)(long) = dlsym(file, "small_count");
            long (*size)(void) = dlsym(file, "small_const");
            const char *(*weights)(void) = dlsym(file, "small_weights");
            long (*bytes)(void) = dlsym(file, "small_weights_size");
            const char *(*image)(void) = dlsym(file, "small_image");
            printf("%ld %ld %ld | %ld %ld %ld %ld | %.7s %ld %d\n", value, result[0], result[1],
                   sum(1000), word(0), more(50) + more(50), size(), weights(), bytes(),
                   memcmp(image(), "\177ELF", 4));
            return 0;
        }
        """
    )
    assert run_on_aarch64(tmp_path) == "7 40 50 | 3000 4 9 200 | weights 16 0\n"


def run_on_aarch64(folder: Path, *words: str) -> str:
    emulator = find_emulator()
    program = folder / "main"
    command = [find_compiler("aarch64"), "-O1", "-o", program, folder / "main.c", "-ldl"]
    subprocess.run(command, check=True)
    completed = subprocess.run(
        [emulator, "-L", "/usr/aarch64-linux-gnu", program, folder / "linked.so", *words],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """The search for a runtime, without what this process found before."""
    elf_runtime._find.cache_clear()
    monkeypatch.setattr(cross_compile, "_cache_folder", lambda: tmp_path / "cache")
    yield tmp_path
    elf_runtime._find.cache_clear()


def test_runtime_of_this_machine():
    data = elf_runtime.runtime_object(os.uname().machine)
    assert data is not None
    assert elf_runtime.why_no_runtime(os.uname().machine) == ""
    linked = link([], [], {".nova.manifest": b"{}"}, os.uname().machine, data)
    assert {"nova_open", "nova_run", "nova_close", "nova_last_error"} <= set(linked.symbols)
    # Weights may lie further away than an instruction can reach: their addresses are in a table.
    runtime = read_object(data, "the runtime")
    far = {"nova_section_weights_begin", "nova_section_weights_end"}
    assert far <= {runtime.names.get(index) for index in runtime.by_slot}
    assert not far & {runtime.names[index] for index in runtime.direct}


def test_cross_compiled_runtime_is_kept(fresh, monkeypatch):
    find_compiler("aarch64")
    sources = fresh / "embedded" / "src"
    sources.mkdir(parents=True)
    (sources / cross_compile.SOURCE_LIST).write_text("small.c\n")
    (sources / "small.c").write_text(SMALL)
    # A file of an older install, that was moved since, is not compiled.
    (sources / "older").mkdir()
    (sources / "older" / "small.c").write_text(SMALL)
    monkeypatch.setattr(elf_runtime, "_folder", lambda: fresh / "embedded")
    first = elf_runtime.runtime_object("aarch64")
    (retained,) = (fresh / "cache").iterdir()
    assert elf_runtime.why_no_runtime("aarch64") == ""
    assert set(link([], [], NOTES, "aarch64", first).symbols) == set(VISIBLE)
    calls = []
    run = cross_compile._run
    monkeypatch.setattr(
        cross_compile, "_run", lambda command: calls.append(command) or run(command)
    )
    elf_runtime._find.cache_clear()
    assert elf_runtime.runtime_object("aarch64") == first
    assert [command[-1] for command in calls] == ["--version"]
    # A damaged one, or one in a folder that others can write to, is made again.
    retained.write_bytes(retained.read_bytes()[:-1])
    elf_runtime._find.cache_clear()
    assert elf_runtime.runtime_object("aarch64") == first
    assert len(calls) == 3
    retained.parent.chmod(0o777)
    elf_runtime._find.cache_clear()
    assert elf_runtime.runtime_object("aarch64") == first
    assert len(calls) == 5
    (sources / "small.c").write_text(SMALL + "int another;")
    elf_runtime._find.cache_clear()
    assert elf_runtime.runtime_object("aarch64") is not None
    assert len(list((fresh / "cache").iterdir())) == 2


def test_no_runtime_is_told(fresh, monkeypatch, capsys):
    monkeypatch.setattr(elf_runtime, "_folder", lambda: fresh / "embedded")
    with knobs.override(log="compile"):
        assert elf_runtime.runtime_object("aarch64") is None
        assert "the package came without a runtime" in capsys.readouterr().err
        sources = fresh / "embedded" / "src"
        sources.mkdir(parents=True)
        (sources / cross_compile.SOURCE_LIST).write_text("small.c\n")
        (sources / "small.c").write_text("this is no C")
        monkeypatch.setattr(shutil, "which", lambda name: None)
        elf_runtime._find.cache_clear()
        assert elf_runtime.runtime_object("aarch64") is None
    reason = elf_runtime.why_no_runtime("aarch64")
    assert reason.startswith("files for aarch64 have no C entry points: no cross compiler")
    assert "aarch64-linux-gnu-gcc" in reason
    assert reason in capsys.readouterr().err


def test_compiler_that_fails_is_named(fresh, monkeypatch):
    compiler = find_compiler("x86_64")
    sources = fresh / "embedded" / "src"
    sources.mkdir(parents=True)
    (sources / cross_compile.SOURCE_LIST).write_text("small.c\n")
    (sources / "small.c").write_text("this is no C")
    monkeypatch.setattr(elf_runtime, "_folder", lambda: fresh / "embedded")
    monkeypatch.setattr(cross_compile, "_COMPILERS", ((compiler,),))
    assert elf_runtime.runtime_object("x86_64") is None
    assert re.search(r"gcc: .*error", elf_runtime.why_no_runtime("x86_64"))
    # One whose code needs a library of its own is no better.
    (sources / "small.c").write_text("void other(void); void f(void) { other(); }")
    elf_runtime._find.cache_clear()
    assert elf_runtime.runtime_object("x86_64") is None
    assert "gcc: undefined symbols: other" in elf_runtime.why_no_runtime("x86_64")
    assert not (fresh / "cache").exists()


def test_the_package_lists_its_sources():
    sources = elf_runtime._folder() / "src"
    listed = cross_compile.listed_sources(sources)
    names = {str(path.relative_to(sources)) for path in listed}
    assert {"api/model.c", "api/ciface.c", "loader/file.c"} <= names
    assert all(path.is_file() for path in listed)
    assert len({path.name for path in listed}) == len(listed)


def test_clang_is_used_with_its_linker(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/clang" if name == "clang" else None)
    assert list(cross_compile._compilers("aarch64")) == []
    monkeypatch.setattr(
        shutil, "which", lambda name: f"/bin/{name}" if name in ("clang", "ld.lld") else None
    )
    (command,) = cross_compile._compilers("aarch64")
    assert command[0] == "/bin/clang"
