"""Safetensors files: round trips, exchange with the safetensors package, damage, safe writing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nova
from nova.errors import ArgumentTypeError, ArtifactError, DTypeError
from nova.frontends.safetensors import read_metadata, read_safetensors, write_safetensors

PLAIN = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
EXTRA = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


def sample(dtypes=(*PLAIN, *EXTRA)) -> dict[str, np.ndarray]:
    """Arrays of every type and of odd shapes."""
    rng, result = np.random.default_rng(0), {}
    for i, dtype in enumerate(map(np.dtype, dtypes)):
        for shape in [(), (3,), (0, 4), (2, 3, i % 3 + 1)]:
            values = rng.integers(0, 2 if dtype.kind == "b" else 100, shape)
            result[f"{dtype}/{shape} é"] = np.asarray(values).astype(dtype)
    return result


def assert_same(actual: dict, wanted: dict) -> None:
    assert sorted(actual) == sorted(wanted)
    for name, array in wanted.items():
        assert actual[name].dtype == array.dtype and actual[name].shape == array.shape, name
        assert actual[name].tobytes() == array.tobytes(), name


def test_round_trip(tmp_path: Path):
    path, arrays = tmp_path / "a.safetensors", sample()
    metadata = {"text": 'with "quotes"\n', "ключ": "✓"}
    write_safetensors(path, arrays, metadata)
    actual = read_safetensors(path)
    assert_same(actual, arrays)
    assert read_metadata(path) == metadata
    for array in actual.values():
        assert array.flags.writeable and array.flags.c_contiguous and array.flags.aligned
    first = path.read_bytes()
    write_safetensors(path, dict(reversed(arrays.items())), metadata)
    assert path.read_bytes() == first, "the order of the dict does not matter"
    write_safetensors(path, {})
    assert read_safetensors(path) == {} and read_metadata(path) == {}


def test_read_by_the_package(tmp_path: Path):
    path, arrays = tmp_path / "a.safetensors", sample()
    write_safetensors(path, arrays, {"k": "v"})
    plain = sample(PLAIN)
    write_safetensors(tmp_path / "plain", plain)
    assert_same(safetensors.numpy.load_file(tmp_path / "plain"), plain)
    with safetensors.safe_open(str(path), "pt") as file:
        assert file.metadata() == {"k": "v"}
        for name, array in arrays.items():
            tensor = file.get_tensor(name)
            assert tuple(tensor.shape) == array.shape
            bits = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
            assert bits.tobytes() == array.tobytes(), name


def test_written_by_the_package(tmp_path: Path):
    path, arrays = tmp_path / "a.safetensors", sample(PLAIN)
    safetensors.numpy.save_file(arrays, path, {"k": "v"})
    assert_same(read_safetensors(path), arrays)
    assert read_metadata(path) == {"k": "v"}
    tensors = {
        str(d): torch.arange(6).reshape(2, 3).to(d)
        for d in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool)
    }
    safetensors.torch.save_file(tensors, path)
    for name, array in read_safetensors(path).items():
        assert array.shape == (2, 3)
        assert array.astype("f4").tolist() == tensors[name].float().tolist()


def test_what_may_be_written(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    base = np.arange(24, dtype="f4").reshape(4, 6)
    write_safetensors(
        path,
        {
            "strided": base[::2, ::-1],
            "fortran": np.asfortranarray(base),
            "big endian": base.astype(">f4"),
            "torch": torch.ones(2, dtype=torch.bfloat16),
            "number": np.float64(3),
        },
    )
    actual = read_safetensors(path)
    np.testing.assert_array_equal(actual["strided"], base[::2, ::-1])
    np.testing.assert_array_equal(actual["fortran"], base)
    np.testing.assert_array_equal(actual["big endian"], base)
    assert actual["torch"].dtype == nova.bf16.numpy and actual["number"].shape == ()
    before = path.read_bytes()
    for tensors, metadata, error, message in [
        ({"x": np.ones(2, "c8")}, None, DTypeError, "'x' has type complex64"),
        ({"x": "text"}, None, ArgumentTypeError, "'x' is a str"),
        ({"__metadata__": base}, None, ArtifactError, "not a name"),
        ({3: base}, None, ArtifactError, "not a name"),
        ({"\ud800": base}, None, ArtifactError, "not a name"),
        ({"x": base}, {"k": 3}, ArtifactError, "not a text"),
        ({"x": base}, {"k": "\udfff"}, ArtifactError, "not a text"),
    ]:
        with pytest.raises(error, match=message):
            write_safetensors(path, tensors, metadata)
    assert path.read_bytes() == before


# --- safe writing ---------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"x": np.ones(3)})
    before = path.read_bytes()

    def fail(*args):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(ArtifactError, match="No space left") as caught:
                write_safetensors(path, {"x": np.zeros(3)})
        assert caught.value.where == str(path)
        assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]


def test_a_write_never_shows_half_a_file(tmp_path: Path, monkeypatch):
    """At the moment of the rename the new file is complete, and the old one still there."""
    path, observed, replace = tmp_path / "a.safetensors", [], os.replace
    write_safetensors(path, {"x": np.ones(3)})

    def look(source, target):
        observed.append((read_safetensors(source)["x"][0], read_safetensors(target)["x"][0]))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    write_safetensors(path, {"x": np.zeros(3)})
    assert observed == [(0, 1)] and read_safetensors(path)["x"][0] == 0


def test_files_that_cannot_be_opened(tmp_path: Path):
    for read in (read_safetensors, read_metadata):
        with pytest.raises(ArtifactError, match=r"No such file[\s\S]*missing"):
            read(tmp_path / "missing")
        with pytest.raises(ArtifactError, match="not a regular file but a folder"):
            read(tmp_path)
    with pytest.raises(ArtifactError, match=r"cannot write the file: No such file"):
        write_safetensors(tmp_path / "no" / "folder", {})


# --- damage ---------------------------------------------------------------------------------------


def packed(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: object = "F32", shape: object = (2,), at: object = (0, 8)) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": at}


EIGHT = bytes(8)
DAMAGED = {
    "empty": b"",
    "no header": bytes(7),
    "header beyond the end": (100).to_bytes(8, "little") + b"{}",
    "header of 2**64 - 1": b"\xff" * 8 + b"{}",
    "no JSON": packed(b"{"),
    "nested JSON": packed(b'{"x":' + b"[" * 100_000),
    "no UTF-8": packed(b'{"\xff": 1}'),
    "a list": packed([]),
    "a long number": packed(b'{"x": ' + b"9" * 5000 + b"}"),
    "name twice": packed(b'{"x": {}, "x": {}}'),
    "metadata a list": packed({"__metadata__": []}),
    "metadata of numbers": packed({"__metadata__": {"a": 1}}),
    "entry a number": packed({"x": 3}, EIGHT),
    "entry a text": packed({"x": "abc"}, EIGHT),
    "no dtype": packed({"x": {"shape": [2], "data_offsets": [0, 8]}}, EIGHT),
    "unknown dtype": packed({"x": entry("F31")}, EIGHT),
    "dtype a list": packed({"x": entry([])}, EIGHT),
    "shape a number": packed({"x": entry(shape=2)}, EIGHT),
    "shape a text": packed({"x": entry("U8", "", (0, 1))}, b"1"),
    "negative shape": packed({"x": entry(shape=(-1, -2))}, EIGHT),
    "float shape": packed({"x": entry(shape=(2.0,))}, EIGHT),
    "bool shape": packed({"x": entry(shape=(True, 2))}, EIGHT),
    "huge shape": packed({"x": entry(shape=(2**62, 2**62))}, EIGHT),
    "huge shape of nothing": packed({"x": entry(shape=(2**62, 2**62, 0), at=(0, 0))}),
    "too many axes": packed({"x": entry(shape=(1,) * 65, at=(0, 4))}, bytes(4)),
    "three offsets": packed({"x": entry(at=(0, 8, 8))}, EIGHT),
    "offsets a number": packed({"x": entry(at=8)}, EIGHT),
    "offsets reversed": packed({"x": entry(at=(8, 0))}, EIGHT),
    "offsets negative": packed({"x": entry(at=(-8, 0))}, EIGHT),
    "offsets beyond the end": packed({"x": entry(at=(8, 16))}, EIGHT),
    "size of another shape": packed({"x": entry(shape=(3,))}, EIGHT),
    "data missing": packed({"x": entry()}, bytes(7)),
    "data left over": packed({"x": entry()}, bytes(9)),
    "overlap": packed({"x": entry(), "y": entry(at=(4, 12))}, bytes(12)),
    "gap": packed({"x": entry(), "y": entry(at=(9, 17))}, bytes(17)),
    "bools of 2": packed({"x": entry("BOOL", at=(0, 2))}, b"\x01\x02"),
}


@pytest.mark.parametrize("label", DAMAGED)
def test_damaged(label: str, tmp_path: Path):
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(DAMAGED[label])
    with pytest.raises(ArtifactError) as caught:
        read_safetensors(path)
    assert caught.value.where == str(path) and len(str(caught.value)) < 1000


def test_cut_anywhere(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"x": np.ones(3, "f4"), "y": np.zeros(2, bool)}, {"k": "v"})
    full = path.read_bytes()
    for n in range(len(full)):
        path.write_bytes(full[:n])
        with pytest.raises(ArtifactError):
            read_safetensors(path)


def test_any_changed_byte_is_refused_or_read(tmp_path: Path):
    """Never another exception, and never an array of another size than its bytes."""
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"x": np.ones(3, "f4"), "y": np.zeros(2, bool)}, {"k": "v"})
    full = path.read_bytes()
    for at in range(len(full)):
        for bit in (0x01, 0x10, 0x80):
            damaged = bytearray(full)
            damaged[at] ^= bit
            path.write_bytes(damaged)
            check_or_refuse(path)


@settings(max_examples=100, deadline=None)
@given(
    header=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["x", "__metadata__", "dtype", "shape", "data_offsets"]), inner
            )
        ),
    ),
    data=st.binary(max_size=16),
)
def test_any_header_is_refused_or_read(header, data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(packed(header, data))
    check_or_refuse(path)


def check_or_refuse(path: Path) -> None:
    try:
        arrays = read_safetensors(path)
    except ArtifactError:
        return
    assert sum(a.nbytes for a in arrays.values()) < path.stat().st_size
