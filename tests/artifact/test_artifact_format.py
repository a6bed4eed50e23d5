"""The artifact container: round trip, every check by name, and damage anywhere in the file."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import random
import struct
import zlib

import pytest

from nova.artifact import seal, texts
from nova.artifact.elf import link_shared, read_shared
from nova.artifact.format import (
    BufferSpec,
    LaunchSpec,
    load_artifact,
    read_artifact,
    save_artifact,
    write_artifact,
)
from nova.artifact.manifest import canonical_json, from_json
from nova.errors import ArtifactError


def forge(objects, manifest_bytes, notes=None, exports=("add_ramp", "choose")):
    """A well sealed file around any manifest."""
    sections = {".nova.const": bytes(100), ".nova.manifest": manifest_bytes, **(notes or {})}
    linked = link_shared(objects, list(exports), sections)
    return seal.add_seal(linked, [at for at, _ in read_shared(linked).sections.values()])


def test_round_trip(artifact_bytes, manifest, tmp_path, call):
    artifact = read_artifact(artifact_bytes)
    assert artifact.manifest == manifest
    assert bytes(artifact.constants) == bytes(range(100))
    assert artifact.constant_vaddr % 64 == 0
    assert artifact.stages()["plan"] == "input X\n"
    assert set(artifact.symbols) == {"add_ramp", "choose"}
    path = tmp_path / "model.nova"
    save_artifact(path, artifact_bytes)
    assert [p.name for p in tmp_path.iterdir()] == ["model.nova"]
    loaded = load_artifact(path)
    assert loaded.manifest == manifest
    assert loaded.segments == artifact.segments

    library = ctypes.CDLL(str(path))
    address = ctypes.cast(library.choose, ctypes.c_void_p).value
    assert call(address, bytes(8), 4) == struct.pack("d", 2.5)


def test_views_are_enough(artifact_bytes, manifest):
    assert read_artifact(memoryview(artifact_bytes)).manifest == manifest


def test_same_inputs_same_bytes(artifact_bytes, manifest, objects):
    artifact = read_artifact(artifact_bytes)
    again = write_artifact(manifest, objects, bytes(artifact.constants), artifact.stages())
    assert again == artifact_bytes


def test_manifest_is_canonical(manifest):
    data = manifest.to_json()
    assert from_json(data) == manifest
    assert data == canonical_json(json.loads(data))


def test_without_constants_and_stages(manifest, objects):
    bare = dataclasses.replace(manifest, buffers=manifest.buffers[:3], launches=())
    artifact = read_artifact(write_artifact(bare, objects, b"", {}))
    assert artifact.constant_vaddr == -1
    assert len(artifact.constants) == 0
    assert artifact.stages() == {}


def test_program_without_kernels(manifest):
    empty = dataclasses.replace(manifest, kernels=(), launches=(), buffers=(), workspace_size=0)
    artifact = read_artifact(write_artifact(empty, [], b"", {}))
    assert artifact.manifest == empty
    assert artifact.symbols == {}


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
    end = seal.check_seal(artifact_bytes)
    starts = [at for at, _ in read_shared(artifact_bytes).sections.values()]
    random.seed(2)
    for _ in range(2000):
        data = bytearray(artifact_bytes[:end])
        data[random.randrange(end)] ^= 1 << random.randrange(8)
        sealed = seal.add_seal(bytes(data), starts)
        try:
            read_artifact(sealed).stages()
        except ArtifactError as error:
            assert "check '" in str(error)


def test_appended_and_foreign_bytes(artifact_bytes):
    for data in (artifact_bytes + b"\0", b"", b"hello" * 50, artifact_bytes * 2):
        with pytest.raises(ArtifactError, match="check 'seal"):
            read_artifact(data)


def test_seal_must_cover_everything(artifact_bytes):
    end = seal.check_seal(artifact_bytes)
    partial = seal.add_seal(artifact_bytes[: end - 64], [])
    tail = partial[end - 64 :]
    with pytest.raises(ArtifactError, match="seal-cover"):
        seal.check_seal(artifact_bytes[:end] + tail)


# --- one test a check ---------------------------------------------------------------------------

WRONG_TABLES = {
    "buffer-bounds": [
        {"buffers": (BufferSpec("arg", 2, 32),) * 4},
        {"buffers": (BufferSpec("output", 2, 32),) * 4},
        {"buffers": (BufferSpec("workspace", 64, 193),) * 4},
        {"buffers": (BufferSpec("workspace", 257, 0),) * 4},
        {"buffers": (BufferSpec("constant", 100, 1),) * 4},
        {"buffers": (BufferSpec("workspace", 2**62, 2**62),) * 4},
    ],
    "launch-kernel": [{"launches": (LaunchSpec(2, (0,)),)}],
    "launch-buffer": [{"launches": (LaunchSpec(0, (0, 4)),)}],
    "manifest-range": [{"launches": (LaunchSpec(-1, ()),)}, {"workspace_size": -1}],
    "format-version": [{"format_version": 2}, {"format_version": 0}],
    "manifest-type": [
        {"workspace_size": 2**63},
        {"workspace_size": 1.0},
        {"workspace_size": True},
        {"features": (1,)},
        {"target": None},
        {"key": {"a": 1}},
    ],
}


@pytest.mark.parametrize(
    ("check", "change"),
    [(check, change) for check, rows in WRONG_TABLES.items() for change in rows],
)
def test_wrong_tables(check, change, manifest, objects):
    wrong = dataclasses.replace(manifest, **change)
    with pytest.raises(ArtifactError, match=f"check '{check}' failed"):
        read_artifact(forge(objects, wrong.to_json()))
    with pytest.raises(ArtifactError, match=f"check '{check}' failed"):
        write_artifact(wrong, objects, bytes(100), {})


@pytest.mark.parametrize(
    ("check", "table", "field", "value"),
    [
        ("alias-index", "outputs", "alias", 2),
        ("alias-index", "outputs", "alias", -2),
        ("tensor-role", "outputs", "role", "input"),
        ("tensor-role", "outputs", "donated", True),
        ("tensor-role", "args", "role", "output"),
        ("tensor-role", "args", "alias", 0),
        ("manifest-word", "args", "role", "guest"),
        ("manifest-word", "kernels", "core", "gpu"),
        ("manifest-word", "buffers", "kind", "stack"),
        ("kernel-symbol", "kernels", "symbol", "missing"),
        ("manifest-type", "args", "shape", 3),
        ("manifest-range", "args", "shape", [-1]),
        ("manifest-fields", "launches", "extra", 1),
        ("manifest-type", "kernels", None, 5),
    ],
)
def test_wrong_entries(check, table, field, value, manifest, objects):
    plain = json.loads(manifest.to_json())
    if field is None:
        plain[table][0] = value
    else:
        plain[table][0][field] = value
    with pytest.raises(ArtifactError, match=f"check '{check}' failed: .*{table}"):
        read_artifact(forge(objects, canonical_json(plain)))


@pytest.mark.parametrize(
    "data", [b"{", b"\xff", b"[" * 100_000, b"9" * 10_000, b'{"format_version": 1e999}', b"[]"]
)
def test_manifest_that_is_no_manifest(data, objects):
    with pytest.raises(ArtifactError, match="check 'manifest"):
        read_artifact(forge(objects, data))


def test_kernel_must_be_code(manifest, objects):
    plain = json.loads(manifest.to_json())
    plain["kernels"][0]["symbol"] = "weights"
    data = forge(objects, canonical_json(plain), exports=["add_ramp", "choose", "weights"])
    with pytest.raises(ArtifactError, match="kernel-symbol"):
        read_artifact(data)


def test_missing_manifest(objects):
    linked = link_shared(objects, ["choose"], {})
    with pytest.raises(ArtifactError, match="manifest-missing"):
        read_artifact(seal.add_seal(linked, []))


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
def test_wrong_stages(packed, manifest, objects):
    artifact = read_artifact(forge(objects, manifest.to_json(), {".nova.stages": packed}))
    with pytest.raises(ArtifactError, match="check 'stages"):
        artifact.stages()


def test_stages_are_bounded(manifest, objects, monkeypatch):
    monkeypatch.setattr(texts, "_MOST_BYTES", 1000)
    packed = zlib.compress(canonical_json({"a": "b" * 2000}))
    artifact = read_artifact(forge(objects, manifest.to_json(), {".nova.stages": packed}))
    with pytest.raises(ArtifactError, match="check 'stages-size'"):
        artifact.stages()


def test_load_names_the_file(tmp_path):
    with pytest.raises(ArtifactError, match=r"No such file.*\n.*absent\.nova"):
        load_artifact(tmp_path / "absent.nova")
    (tmp_path / "bad.nova").write_bytes(b"junk")
    with pytest.raises(ArtifactError, match=r"seal-magic.*\n.*bad\.nova"):
        load_artifact(tmp_path / "bad.nova")


def test_failed_save_leaves_nothing(tmp_path, monkeypatch, artifact_bytes):
    path = tmp_path / "model.nova"
    path.write_bytes(b"before")

    def broken(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        save_artifact(path, artifact_bytes)
    assert path.read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 1
