"""`_native.File`: what it tells about a file, what it refuses, and what it keeps alive."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import platform
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_files import cases
from tiny_file import AARCH64, Block, build, canonical, manifest

from nova import _native, knobs
from nova.artifact.tables import unpack_tables
from nova.core.cpu_features import FLAGS
from nova.core.targets import parse_target
from nova.errors import KnobError

READER = (
    "sealed_copy",
    "elf",
    "elf_dynamic",
    "file",
    "../base/json",
    "manifest",
    "seal",
    "../exec/symbolic",
    "tables",
)
QUOTED = re.compile(
    r'"((?:open|elf|segment|section|manifest|format|seal|dynamic|symbol|symbolic|relocation|cpu|tables)-[a-z-]+)"'
)


@pytest.fixture
def tiny() -> bytes:
    return build().seal()


def check_of(data: bytes) -> str:
    """The check that refuses the bytes."""
    with pytest.raises(_native.FileError) as caught:
        _native.File.from_bytes(data)
    assert caught.value.args == (caught.value.check, caught.value.text)
    assert caught.value.text.isprintable()
    return caught.value.check


def test_attributes(tiny: bytes, tmp_path: Path) -> None:
    layout = build()
    (tmp_path / "tiny.nova").write_bytes(tiny)
    for file in (_native.File.from_bytes(tiny), _native.File(tmp_path / "tiny.nova")):
        assert file.nbytes == len(tiny)
        assert bytes(file.data) == bytes(file) == tiny
        assert json.loads(file.manifest)["args"][0]["name"] == "x\u00fc\U0001f600"
        assert file.symbols == {"k0": layout.at[".text"]}
        assert file.imports == ("memcpy",)
        for name, (vaddr, offset, size) in file.sections.items():
            assert (offset, size) == (layout.at[name], layout.sizes[name])
            assert vaddr == (0 if name in (".nova.stages", ".shstrtab") else offset)
            assert bytes(file.section(name)) == tiny[offset : offset + size]
        assert file.sections.keys() == layout.sizes.keys()
        assert file.signature is None
        records = tiny[len(layout.data) : -56]
        assert file.digest == hashlib.sha256(records).digest()
        assert file.constants_vaddr(0) == layout.at[".nova.const"]
        assert file.missing(0) == ""
        assert file.choose() == 0
        assert unpack_tables(file.tables(0)).work == 77


def test_signature() -> None:
    signature = bytes(range(96))
    assert _native.File.from_bytes(build().seal(signature)).signature == signature


def test_hostile_file_is_refused_by_the_right_check() -> None:
    names = set()
    for name, check, data in cases():
        assert (name, check_of(data)) == (name, check)
        names.add(name)
    assert len(names) >= 240


def test_hostile_files_cover_every_check() -> None:
    """A check without a hostile file may be a check that never fires."""
    sources = Path(__file__).parents[2] / "native/src/loader"
    text = "".join((sources / f"{name}.c").read_text() for name in READER)
    missing = set(QUOTED.findall(text)) - {check for _, check, _ in cases()}
    # Of paths, of a size that no test can have, of a CPU, and of device code, which no file here
    # has: tested below or elsewhere.
    assert missing == {
        "open-failed",
        "open-kind",
        "open-link",
        "open-size",
        "manifest-size",
        "cpu-features",
        "tables-control",  # in tests/artifact/test_container.py
        "tables-copy",
        "tables-loop",
    }


@pytest.mark.parametrize("step", [1, 7])
def test_truncated_at_every_place(tiny: bytes, step: int) -> None:
    for size in range(0, len(tiny), 97 // step):
        check_of(tiny[:size])


def test_every_flipped_byte_is_found(tiny: bytes) -> None:
    data = bytearray(tiny)
    for place in range(0, len(tiny), 13):
        data[place] ^= 0x10
        check_of(bytes(data))
        data[place] ^= 0x10


def test_misaligned_bytes(tiny: bytes) -> None:
    for shift in range(1, 9):
        view = memoryview(bytes(shift) + tiny)[shift:]
        file = _native.File.from_bytes(view)
        assert bytes(file.section(".nova.const")) == bytes(range(64))
        assert unpack_tables(file.tables(0)).workspace_size == 128


def test_writable_bytes_are_copied(tiny: bytes) -> None:
    data = bytearray(tiny)
    file = _native.File.from_bytes(data)
    data[:] = bytes(len(data))
    assert bytes(file) == tiny


@pytest.mark.parametrize("size", [0, 3 << 20])
def test_load_maps_relocates_and_protects(tmp_path: Path, size: int) -> None:
    """With large weights the file is in a memfd, and the image shares its pages."""
    weights = os.urandom(size) if size else bytes(range(32))
    args = manifest()["args"]
    args[1]["shape"] = [len(weights) // 4]
    outputs = manifest()["outputs"][:1]
    rows = [{"arg": 1, "offset": 0, "nbytes": len(weights)}]
    description = manifest(
        args=args, outputs=outputs, weights={"kind": "embedded", "sha256": "", "tensors": rows}
    )
    layout = build(description, weights=weights)
    path = tmp_path / "large.nova"
    path.write_bytes(layout.seal())
    file = _native.File(path)
    path.write_bytes(b"changed")  # it was copied
    image = file.load(file.choose())
    at = layout.at
    assert (
        ctypes.c_uint64.from_address(image.base + at[".got"]).value == image.base + at[".text"] + 8
    )
    assert protection(image.base + at[".got"]) == "r--"
    assert protection(image.base + at[".text"]) == "r-x"
    assert protection(image.base + at[".nova.weights"]) == "r--"
    assert ctypes.string_at(image.base + at[".nova.weights"], len(weights)) == weights
    assert bytes(file.section(".nova.weights")) == weights
    shared = [
        line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:nova" in line
    ]
    assert bool(shared) == bool(size)
    assert not any("x" in line.split()[1] for line in shared)
    del file  # images outlive their file
    gc.collect()
    ctypes.CFUNCTYPE(None)(image.base + at[".text"])()
    assert ctypes.string_at(image.base + at[".nova.weights"], len(weights)) == weights


def protection(address: int) -> str:
    """The permission letters that the kernel lists for the mapping of an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, letters = line.split()[:2]
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= address < high:
            return letters[:3]
    return "unmapped"


def test_large_file_without_a_memfd(tmp_path: Path) -> None:
    """Where no file descriptor is left, the copy is in plain memory."""
    layout = build(weights=bytes(2 << 20))
    path = tmp_path / "large.nova"
    path.write_bytes(layout.seal())
    code = """
import os, resource, sys
from nova import _native
last = os.open("/dev/null", os.O_RDONLY)
os.close(last)
resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, last + 1))  # one, for the file itself
file = _native.File(sys.argv[1])
assert file.load(0).base and "memfd" not in open("/proc/self/maps").read()
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_views_keep_the_file_alive(tiny: bytes) -> None:
    view = _native.File.from_bytes(bytes(bytearray(tiny))).section(".nova.const")
    gc.collect()
    assert bytes(view) == bytes(range(64))
    assert view.readonly


def test_unknown_names_and_numbers(tiny: bytes) -> None:
    file = _native.File.from_bytes(tiny)
    with pytest.raises(KeyError, match="nothing"):
        file.section(".nova.nothing")
    for number in (1, -1, 2**70):
        for method in (file.tables, file.missing, file.load, file.constants_vaddr):
            with pytest.raises(IndexError, match="has 1 variants"):
                method(number)
    with pytest.raises(TypeError):
        file.load("0")
    with pytest.raises(TypeError):
        _native.File()
    with pytest.raises(TypeError):
        _native.File.from_bytes("text")


# --- opening ------------------------------------------------------------------------------------


def test_paths_that_are_no_files(tiny: bytes, tmp_path: Path) -> None:
    sound = tmp_path / "sound.nova"
    sound.write_bytes(tiny)
    (tmp_path / "link").symlink_to(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(2 << 40)
    checks = {
        "link": "open-link",
        "pipe": "open-kind",
        ".": "open-kind",
        "/dev/zero": "open-kind",
        "empty": "open-empty",
        "sparse": "open-size",
    }
    for name, check in checks.items():
        with pytest.raises(_native.FileError) as caught:
            _native.File(tmp_path / name)
        assert caught.value.check == check
    with pytest.raises(FileNotFoundError, match="missing"):
        _native.File(tmp_path / "missing")
    with pytest.raises(NotADirectoryError):
        _native.File(os.fsencode(sound / "below"))
    assert _native.File(sound).nbytes == len(tiny)


def test_foreign_file_of_many_gigabytes(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 39)
    with pytest.raises(_native.FileError) as caught:
        _native.File(tmp_path / "large")
    assert caught.value.check == "elf-magic"


def test_no_descriptor_stays_open(tiny: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tiny.nova"
    path.write_bytes(build(weights=bytes(2 << 20)).seal())
    (tmp_path / "bad.nova").write_bytes(tiny[:-1])
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        _native.File(path).load(0)
        with pytest.raises(_native.FileError):
            _native.File(tmp_path / "bad.nova")
    gc.collect()
    assert os.listdir("/proc/self/fd") == before


# --- CPUs ---------------------------------------------------------------------------------------


@pytest.fixture
def whole_cpu() -> Iterator[None]:
    """All of the processor, whatever level the tests are held to."""
    with knobs.override(cpu_level="all"):
        yield


def test_a_process_is_held_to_a_level() -> None:
    """By the knob, and by the variable in processes that are no Python."""
    arch = parse_target("cpu").arch
    levels = [name for name in knobs.CPU_LEVELS if parse_target(name).arch == arch]
    for level in levels:
        with knobs.override(cpu_level=level):
            found = set(_native.cpu_features())
            assert found <= set(parse_target(level).features)
            assert set(parse_target("cpu").features) == found
        code = "from nova import _native; print(*_native.cpu_features())"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "NOVA_CPU_LEVEL": level},
            capture_output=True,
            text=True,
            check=True,
        )
        assert set(done.stdout.split()) == found
    with pytest.raises(KnobError, match="cpu_level"):
        knobs.cpu_level = "x86-64-v3"


@pytest.mark.usefixtures("whole_cpu")
def test_cpu_features_are_those_of_the_target() -> None:
    found = _native.cpu_features()
    target = parse_target("cpu")
    assert set(found) == set(target.features)
    table = FLAGS[target.arch]
    assert [name for name in table if name in found] == list(found)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next(line for line in lines if line.startswith(("flags", "Features"))).split()
    # The system may refuse AMX to a process.
    unused = {name for name, flag in table.items() if flag in flags} - set(found)
    assert unused <= {"amx-tile", "amx-int8", "amx-bf16"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX is of x86-64")
def test_amx_is_there_exactly_with_the_permission() -> None:
    """A process that may not use tiles has none of their features."""
    script = """
import ctypes, sys
prctl = lambda *a: ctypes.CDLL(None, use_errno=True).syscall(158, *a)
def permitted():
    mask = ctypes.c_uint64()
    return prctl(0x1022, ctypes.byref(mask)) == 0 and bool(mask.value >> 18 & 1)
if sys.argv[1] == "small":  # an alternate stack without room for the tiles in a signal's frame
    class Stack(ctypes.Structure):
        _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
    room = ctypes.create_string_buffer(8192)
    stack = Stack(ctypes.addressof(room), 0, 8192)
    assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
before = permitted()
from nova import _native
amx = [name for name in _native.cpu_features() if name.startswith("amx")]
assert not before and bool(amx) == permitted()
print(len(amx))
"""
    counts = {}
    for case in ("plain", "small"):
        command = [sys.executable, "-c", script, case]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        counts[case] = int(done.stdout)
    assert counts["small"] == 0


def test_variants_that_do_not_run_here() -> None:
    fancy = {**manifest()["variants"][0], "target": "future", "features": ["avx9000", "zz-top"]}
    plain = manifest()["variants"][0]
    file = _native.File.from_bytes(build(manifest(variants=[fancy, plain])).seal())
    assert file.missing(0) == "avx9000, zz-top"
    assert file.choose() == 1
    with pytest.raises(_native.FileError, match="future needs avx9000, zz-top") as caught:
        file.load(0)
    assert caught.value.check == "cpu-features"
    file = _native.File.from_bytes(build(manifest(variants=[fancy])).seal())
    with pytest.raises(_native.FileError, match="future needs avx9000, zz-top") as caught:
        file.choose()
    assert caught.value.check == "cpu-features"


def test_another_architecture() -> None:
    file = _native.File.from_bytes(build(manifest(arch="aarch64"), machine=AARCH64).seal())
    if parse_target("cpu").arch == "x86_64":
        assert file.missing(0) == "a CPU of aarch64"
        with pytest.raises(_native.FileError, match="x86_64 needs a CPU of aarch64"):
            file.choose()
    assert file.symbols.keys() == {"k0"}


def test_imports_are_sorted() -> None:
    names = _native.allowed_imports()
    assert "malloc" in names and list(names) == sorted(set(names))  # found by halving


# --- time ---------------------------------------------------------------------------------------


def test_large_tables_take_linear_time() -> None:
    """10^5 arguments, launches, tasks and symbols, all that quadratic loops would hang on."""
    count = 100_000
    row = manifest()["args"][0]
    block = Block(
        buffers=[(0, 0, i, 32) for i in range(count)],
        kernels=[(0, 1, 0, 0, 0, 1, 1, 1)] * count,
        launches=[(i, i, 1, 0) for i in range(count)],
        operands=list(range(count)),
        tasks=[(i, i and 1, 0, 1, i, int(i < count - 1)) for i in range(count)],
        successors=list(range(1, count)),
        strings=b"\0" + b"k" * 16000 + b"\0",
    )
    weights = {"kind": "none", "sha256": "", "tensors": []}
    description = manifest(args=[row] * count, outputs=[], weights=weights)
    data = build(description, block, imports=("memcpy",) * 1000).seal()
    started = time.process_time()
    _native.File.from_bytes(data)
    assert time.process_time() - started < 5


def test_long_names_of_many_symbols() -> None:
    layout = build(imports=("memcpy",) * 20_000, weights=bytes(32))
    # Every symbol but the first now points at the same name, which is all of the table.
    for i in range(2, layout.sizes[".dynsym"] // 24):
        struct.pack_into("<I", layout.data, layout.at[".dynsym"] + 24 * i, 1)
    names = layout.at[".dynstr"]
    layout.data[names + 1 : names + layout.sizes[".dynstr"] - 1] = b"k" * (
        layout.sizes[".dynstr"] - 2
    )
    started = time.process_time()
    assert check_of(layout.seal()) in ("symbol-name", "dynamic-needed")
    assert time.process_time() - started < 5


def test_threads_may_share_a_file(tiny: bytes) -> None:
    file = _native.File.from_bytes(tiny)
    failures = []

    def work() -> None:
        try:
            for _ in range(50):
                assert file.load(file.choose()).base
                assert file.digest
                assert bytes(_native.File.from_bytes(tiny)) == tiny
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_manifest_texts_are_any_unicode() -> None:
    names = ["", '\t\n"\\\b\f\r/', "\x7f", "\u0080\u07ff\u0800\uffff", "\U00010000\U0010ffff"]
    args = [{**manifest()["args"][0], "name": name} for name in names]
    none = {"kind": "none", "sha256": "", "tensors": []}
    block = Block(buffers=[(0, 0, 0, 32), (1, 0, 0, 32), (2, 0, 64, 64), (3, 0, 0, 64)])
    outputs = manifest()["outputs"][:1]
    description = manifest(args=args, outputs=outputs, weights=none)
    file = _native.File.from_bytes(build(description, block).seal())
    assert [arg["name"] for arg in json.loads(file.manifest)["args"]] == names
    assert canonical(json.loads(file.manifest)) == file.manifest
