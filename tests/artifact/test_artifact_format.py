"""The `.nova` file: round trip, variants, weights, determinism, other tools, and damage."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.artifact import seal, texts
from nova.artifact.elf.shared_object import Part, link_shared
from nova.artifact.format import load_artifact, read_artifact, save_artifact
from nova.artifact.manifest import WeightSpec, WeightsSpec, canonical_json, from_json
from nova.artifact.tables import kernel_addresses, pack_tables
from nova.artifact.write import DeviceImage, write_artifact
from nova.core.targets import parse_target
from nova.errors import ArtifactError, CodegenError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def variants(contents):
    """The same code as if it was compiled for three targets; one has other constants."""
    (single,) = contents.variants
    return {
        name: dataclasses.replace(single, target=parse_target(name), constants=constants)
        for name, constants in {
            "x86_64": single.constants,
            "x86_64-v3": single.constants,
            "x86_64-v4": bytes(100),
        }.items()
    }


def reseal(data, change):
    """The file with `change` made to its bytes, and a seal that fits again."""
    body = bytearray(data[: seal.sealed_size(data)])
    change(body)
    positions = read_artifact(data).file.sections
    starts = [at for name, (_, at, _) in positions.items() if name.startswith(".nova")]
    ends = [at + n for name, (_, at, n) in positions.items() if name.startswith(".nova")]
    return seal.add_seal(bytes(body), starts + ends)


def test_round_trip(artifact_bytes, contents, tmp_path, call):
    artifact = read_artifact(artifact_bytes)
    manifest = artifact.manifest
    (variant,) = contents.variants
    assert (manifest.format_version, manifest.arch) == (5, "x86_64")
    assert (manifest.args, manifest.outputs) == (contents.args, contents.outputs)
    assert (manifest.source, manifest.key) == ("plan", contents.key)
    assert manifest.variants[0].options == variant.options
    assert artifact.tables(0) == variant.tables
    assert bytes(artifact.section(".nova.const")) == variant.constants
    assert artifact.file.constants_vaddr(0) % 64 == 0
    assert artifact.stages() == contents.stages
    assert list(artifact.stages()) == list(contents.stages)
    symbols = artifact.file.symbols
    assert set(symbols) == {"add_ramp", "choose"}
    assert kernel_addresses(artifact.file.tables(0)) == symbols
    assert bytes(artifact.data) == artifact_bytes

    path = tmp_path / "model.nova"
    save_artifact(path, artifact_bytes)
    assert [p.name for p in tmp_path.iterdir()] == ["model.nova"]
    loaded = load_artifact(path)
    assert loaded.manifest == manifest
    assert bytes(loaded.data) == artifact_bytes
    library = ctypes.CDLL(str(path))
    address = ctypes.cast(library.choose, ctypes.c_void_p).value
    assert call(address, bytes(8), 4) == struct.pack("d", 2.5)


def test_views_are_enough(artifact_bytes, contents):
    shifted = memoryview(b"x" + artifact_bytes)[1:]
    assert read_artifact(shifted).tables(0) == contents.variants[0].tables


def test_views_outlive_the_artifact(artifact_bytes):
    constants = read_artifact(bytes(bytearray(artifact_bytes))).section(".nova.const")
    assert bytes(constants) == bytes(range(100))


def test_manifest_is_canonical(artifact_bytes):
    data = bytes(read_artifact(artifact_bytes).section(".nova.manifest"))
    assert from_json(data).to_json() == data == canonical_json(json.loads(data))


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"weights": 1}', b"[" * 100_000, b"\xff"])
def test_manifest_that_is_none(data):
    with pytest.raises(ArtifactError, match="check 'manifest-json' failed"):
        from_json(data)


def test_without_constants_and_stages(contents):
    (variant,) = contents.variants
    buffers = tuple(b for b in variant.tables.buffers[:3] if b.kind != "output")
    tables = dataclasses.replace(variant.tables, buffers=buffers, launches=())
    bare = dataclasses.replace(variant, tables=tables, constants=b"")
    artifact = read_artifact(
        write_artifact(dataclasses.replace(contents, variants=(bare,), stages={}, source=""))
    )
    assert artifact.manifest.variants[0].constants == (0, 0)
    assert artifact.stages() == {}
    assert not {".nova.const", ".nova.stages", ".nova.weights"} & set(artifact.file.sections)


def test_program_without_kernels(contents):
    (variant,) = contents.variants
    tables = dataclasses.replace(
        variant.tables, kernels=(), launches=(), buffers=(), workspace_size=0
    )
    empty = dataclasses.replace(variant, tables=tables, objects=(), constants=b"")
    artifact = read_artifact(write_artifact(dataclasses.replace(contents, variants=(empty,))))
    assert artifact.tables(0) == tables
    assert artifact.file.symbols == {}


# --- variants -----------------------------------------------------------------------------------


def test_variants_are_best_first(contents, variants, call, tmp_path):
    mixed = tuple(variants[name] for name in ("x86_64-v3", "x86_64", "x86_64-v4"))
    data = write_artifact(dataclasses.replace(contents, variants=mixed))
    artifact = read_artifact(data)
    specs = artifact.manifest.variants
    assert [spec.target for spec in specs] == ["x86_64-v4", "x86_64-v3", "x86_64"]
    assert [spec.features for spec in specs] == [
        parse_target(spec.target).features for spec in specs
    ]
    # Equal constants are stored once.
    assert specs[1].constants == specs[2].constants != specs[0].constants
    assert len(artifact.section(".nova.const")) == 228
    for number, spec in enumerate(specs):
        assert spec.tables[0] % 64 == 0
        symbols = [kernel.symbol for kernel in artifact.tables(number).kernels]
        assert symbols == [f"add_ramp.{spec.target}", f"choose.{spec.target}"]
        names = [kernel.name for kernel in artifact.tables(number).kernels]
        assert names == ["add_ramp", "choose"]
    positions = [kernel_addresses(artifact.file.tables(i)) for i in range(3)]
    assert artifact.file.symbols == positions[0] | positions[1] | positions[2]
    assert len(set(artifact.file.symbols.values())) == 6

    (tmp_path / "three.so").write_bytes(data)
    library = ctypes.CDLL(str(tmp_path / "three.so"))
    address = ctypes.cast(library["choose.x86_64-v3"], ctypes.c_void_p).value
    assert call(address, bytes(8), 1) == struct.pack("q", 7)


def test_order_of_variants_does_not_matter(contents, variants):
    single = dataclasses.replace(contents, variants=tuple(variants.values()))
    second = dataclasses.replace(contents, variants=tuple(reversed(variants.values())))
    assert write_artifact(single) == write_artifact(second)


def test_wrong_variants(contents, variants):
    (single,) = contents.variants
    arm = dataclasses.replace(single, target=parse_target("aarch64"))
    for wrong, message in (
        ((), "different targets, not none"),
        ((single, single), "different targets, not x86_64, x86_64"),
        ((single, arm), "one architecture, not x86_64, aarch64"),
    ):
        with pytest.raises(CodegenError, match=message):
            write_artifact(dataclasses.replace(contents, variants=wrong))


# --- weights and device images ------------------------------------------------------------------


def test_embedded_weights(contents):
    value = bytes(range(32))
    artifact = read_artifact(write_artifact(dataclasses.replace(contents, weights={1: value})))
    assert artifact.manifest.weights == WeightsSpec("embedded", "", (WeightSpec(1, 0, 32),))
    assert {arg: bytes(data) for arg, data in artifact.weights().items()} == {1: value}
    address, offset, size = artifact.file.sections[".nova.weights"]
    assert address == offset and address % 64 == 0 and size == 32


def test_weights_are_aligned_and_not_sorted_by_chance(contents):
    args = tuple(
        dataclasses.replace(contents.args[1], name=f"W{i}", donated=False, shape=(i,))
        for i in (5, 0, 3)
    )
    (variant,) = contents.variants
    tables = dataclasses.replace(variant.tables, buffers=(), launches=())
    created = dataclasses.replace(
        contents,
        variants=(dataclasses.replace(variant, tables=tables),),
        args=args,
        outputs=(),
        weights={2: b"c" * 12, 0: b"a" * 20, 1: b""},
    )
    artifact = read_artifact(write_artifact(created))
    assert [w.arg for w in artifact.manifest.weights.tensors] == [0, 1, 2]
    assert all(w.offset % 64 == 0 for w in artifact.manifest.weights.tensors)
    values = {arg: bytes(data) for arg, data in artifact.weights().items()}
    assert values == {0: b"a" * 20, 1: b"", 2: b"c" * 12}


def test_external_weights(contents):
    spec = WeightsSpec("external", "ab" * 32, (WeightSpec(1, 64, 32),))
    artifact = read_artifact(write_artifact(dataclasses.replace(contents, weights=spec)))
    assert artifact.manifest.weights == spec
    assert artifact.weights() == {}
    assert ".nova.weights" not in artifact.file.sections


def test_device_images(contents):
    images = (DeviceImage("ptx", "sm_90a", b"//ptx" * 20), DeviceImage("cubin", "sm_80", b"bin"))
    artifact = read_artifact(write_artifact(dataclasses.replace(contents, devices=images)))
    section = artifact.section(".nova.device")
    for spec, image in zip(artifact.manifest.devices, images, strict=True):
        assert (spec.kind, spec.arch) == (image.kind, image.arch)
        assert spec.offset % 64 == 0
        assert bytes(section[spec.offset : spec.offset + spec.size]) == image.data


# --- the same bytes, and other tools ------------------------------------------------------------

COMPILE = """
import hashlib, numpy as np, nova
X = nova.tensor(np.ones((4, 3), "f4"), name="X")
W = nova.tensor(np.linspace(0, 1, 6, dtype="f4").reshape(3, 2), name="W")
y = nova.softmax(X @ W) + np.linspace(0, 1, 8, dtype="f4").reshape(4, 2)
program = nova.compile([y, y.sum()], inputs=[X], params=[W], target="x86_64")
print(hashlib.sha256(program._executable.artifact.data).hexdigest())
"""


def test_same_inputs_same_bytes(artifact_bytes, contents):
    assert write_artifact(contents) == artifact_bytes


def test_same_bytes_in_every_process():
    """Neither the hash seed of Python nor the process has a part in a file."""
    environment = {**os.environ, "NOVA_CACHE": "0"}
    digests = {
        subprocess.run(
            [sys.executable, "-c", COMPILE],
            env={**environment, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for seed in (1, 2)
    }
    assert len(digests) == 1 and len(digests.pop().strip()) == 64


@pytest.fixture(scope="module")
def compiled_bytes():
    """A file as the compiler makes it: with the C runtime and its entry points."""
    X = nova.tensor(np.ones((4, 3), "f4"), name="X")
    program = nova.compile(nova.softmax(X) + np.arange(3, dtype="f4"), inputs=[X], target="x86_64")
    return bytes(program._executable.artifact.data)


@pytest.mark.parametrize("tool", ["readelf -a -W", "nm -D", "objdump -d", "objdump -x"])
@pytest.mark.parametrize("mode", ["artifact_bytes", "compiled_bytes"])
def test_tools_accept_it(tool, mode, tmp_path, request):
    command, *options = tool.split()
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    path = tmp_path / "model.nova"
    path.write_bytes(request.getfixturevalue(mode))
    completed = subprocess.run([command, *options, path], capture_output=True, text=True)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert ("add_ramp" if mode == "artifact_bytes" else "_mlir_ciface_main") in completed.stdout
    assert "Warning" not in completed.stdout


def test_dlopen_accepts_a_compiled_file(compiled_bytes, tmp_path):
    """Without Nova: opened by the system's loader, run through the descriptors of MLIR."""
    (tmp_path / "model.nova").write_bytes(compiled_bytes)
    library = ctypes.CDLL(str(tmp_path / "model.nova"))
    x = np.arange(12, dtype="f4").reshape(4, 3)
    # allocated, aligned, offset, two sizes, two strides
    argument = (ctypes.c_int64 * 7)(x.ctypes.data, x.ctypes.data, 0, 4, 3, 3, 1)
    result = (ctypes.c_int64 * 7)()
    library["_mlir_ciface_main"](result, argument)
    assert list(result[2:]) == [0, 4, 3, 3, 1]
    actual = np.frombuffer(ctypes.string_at(result[1], 48), "f4").reshape(4, 3)
    assert actual.tobytes() == nova.load(tmp_path / "model.nova").run([x]).tobytes()
    ctypes.CDLL(None).free(ctypes.c_void_p(result[0]))


# --- the seal -----------------------------------------------------------------------------------


def test_seal_is_as_specified(artifact_bytes):
    """Read here by hand from the words of docs/nova-format.md."""
    digest, size, signed, magic = struct.unpack("<32sQQ8s", artifact_bytes[-56:])
    assert (signed, magic) == (0, b"NOVAEND2")
    records = artifact_bytes[-56 - size : -56]
    assert hashlib.sha256(records).digest() == digest == read_artifact(artifact_bytes).file.digest
    position, starts = 0, []
    for at in range(0, size, 48):
        offset, length, expected = struct.unpack_from("<QQ32s", records, at)
        assert offset == position
        assert hashlib.sha256(artifact_bytes[offset : offset + length]).digest() == expected
        position, starts = offset + length, [*starts, (offset, length)]
    assert position == len(artifact_bytes) - 56 - size
    for name, (_, offset, length) in read_artifact(artifact_bytes).file.sections.items():
        if name.startswith(".nova"):
            assert (offset, length) in starts


def test_signature(artifact_bytes):
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    first, second = (ed25519.Ed25519PrivateKey.from_private_bytes(bytes([i] * 32)) for i in (1, 2))
    assert read_artifact(artifact_bytes).file.signature is None
    signed = seal.add_signature(artifact_bytes, first)
    again = seal.add_signature(signed, second)
    assert len(signed) == len(again) == len(artifact_bytes) + 96
    for data, key in ((signed, first), (again, second)):
        file = read_artifact(data).file
        assert file.digest == read_artifact(artifact_bytes).file.digest
        assert file.signature[:32] == key.public_key().public_bytes_raw()
        key.public_key().verify(file.signature[32:], file.digest)


def test_only_sealed_files_are_signed(artifact_bytes):
    for data in (b"", b"hello", artifact_bytes[:-1], artifact_bytes[-60:]):
        with pytest.raises(ArtifactError, match="check 'seal-"):
            seal.add_signature(data, None)


# --- damage -------------------------------------------------------------------------------------


def test_truncations(artifact_bytes):
    for size in range(0, len(artifact_bytes), 64):
        with pytest.raises(ArtifactError, match="check '"):
            read_artifact(artifact_bytes[:size])


def test_bit_flips(artifact_bytes):
    random.seed(1)
    for _ in range(2000):
        data = bytearray(artifact_bytes)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        with pytest.raises(ArtifactError, match="check '"):
            read_artifact(bytes(data))


def test_flips_under_a_good_seal(artifact_bytes):
    """Somebody who can compute hashes still gets an ArtifactError or a file within bounds."""
    random.seed(2)
    end = seal.sealed_size(artifact_bytes)
    for _ in range(2000):
        where, bit = random.randrange(end), 1 << random.randrange(8)

        def flip(body, where=where, bit=bit):
            body[where] ^= bit

        try:
            artifact = read_artifact(reseal(artifact_bytes, flip))
            artifact.stages()
            artifact.tables(0)
        except ArtifactError as error:
            assert "check '" in str(error)


def test_appended_and_foreign_bytes(artifact_bytes):
    for data in (artifact_bytes + b"\0", b"", b"hello" * 50, artifact_bytes * 2):
        with pytest.raises(ArtifactError, match="check '"):
            read_artifact(data)


@pytest.mark.parametrize(
    "packed",
    [
        b"no zlib",
        zlib.compress(b"{"),
        zlib.compress(b"[1]"),
        zlib.compress(b'{"a":1}'),
        zlib.compress(b'{"a":"b"}' * 9)[:-8],
    ],
)
def test_wrong_stages(packed):
    with pytest.raises(ArtifactError, match="check 'stages"):
        texts.unpack_texts(packed, memoryview(b""))


def test_stages_are_bounded(monkeypatch):
    monkeypatch.setattr(texts, "_MOST_BYTES", 1000)
    packed = zlib.compress(canonical_json({"a": "b" * 2000}))
    with pytest.raises(ArtifactError, match="check 'stages-size'"):
        texts.unpack_texts(packed, memoryview(b""))


def test_every_check_is_in_the_spec():
    """A check is named where it fails; the spec lists the first words of all names."""
    call = re.compile(r'(?:REFUSE|refuse|bad|fail)\([^;]*?"([a-z]+)-[a-z-]+"')
    files = [*ROOT.glob("native/src/loader/*.c"), *ROOT.glob("nova/artifact/*.py")]
    names = {name for path in files for name in call.findall(path.read_text())}
    spec = (ROOT / "docs/nova-format.md").read_text()
    listed = set(re.findall(r"`([a-z]+)-(?:\*|features|version)`", spec))
    assert {"open", "elf", "manifest", "seal", "tables", "stages"} <= names <= listed


@pytest.mark.parametrize("version", [1, 6, 1 << 40])
def test_other_versions(version, objects, contents, artifact_bytes):
    """Another version is named before its fields are looked at."""
    plain = {"format_version": version, "producer": "nova 9.9", "surprise": 1}
    block = pack_tables(contents.variants[0].tables)
    notes = {".nova.manifest": canonical_json(plain), ".nova.tables": block}
    linked = link_shared([Part(data) for data in objects], [], notes)
    data = seal.add_seal(linked.data, [at for at, _ in linked.sections.values()])
    with pytest.raises(ArtifactError, match=f"(?s)'format-version'.*{version}.*hint"):
        read_artifact(data)


def test_load_names_the_file(tmp_path):
    with pytest.raises(
        ArtifactError, match=r"(?s)cannot read the file: No such file.*absent\.nova"
    ):
        load_artifact(tmp_path / "absent.nova")
    (tmp_path / "bad.nova").write_bytes(b"junk")
    with pytest.raises(ArtifactError, match=r"(?s)check '.*bad\.nova"):
        load_artifact(tmp_path / "bad.nova")


def test_failed_save_leaves_nothing(tmp_path, monkeypatch, artifact_bytes):
    path = tmp_path / "model.nova"
    path.write_bytes(b"before")

    def broken(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(ArtifactError, match="cannot write the file: disk full"):
        save_artifact(path, artifact_bytes)
    assert path.read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 1


def test_odd_names(contents):
    """Names come from the user: what C or UTF-8 cannot hold is replaced, the rest is kept."""
    names = {"größe 😀\n\t\"'\\": None, "a\0b": "a\ufffdb", "x\udcff": "x\ufffd", "": None}
    for name, stored in names.items():
        arg = dataclasses.replace(contents.args[0], name=name)
        created = dataclasses.replace(contents, args=(arg, contents.args[1]), key={name: name})
        manifest = read_artifact(write_artifact(created)).manifest
        assert manifest.args[0].name == (name if stored is None else stored)
        assert list(manifest.key.items()) == [(manifest.args[0].name,) * 2]
