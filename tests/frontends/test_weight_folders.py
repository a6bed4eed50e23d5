"""Mapped safetensors files and model folders: against the package, without copies, hostile."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import nova
from nova import nn
from nova.errors import ArtifactError
from nova.frontends.safetensors import map_safetensors, write_safetensors
from nova.frontends.weights import INDEX, SINGLE, map_folder

ARRAYS = {
    "a": np.arange(6, dtype="f4").reshape(2, 3),
    "b": np.arange(4, dtype="f2"),
    "c": np.array(3, "i8"),
    "d": np.array([True, False]),
    "e": np.zeros((0, 5), "f4"),
}


def is_mapped(array: np.ndarray) -> bool:
    """Whether the memory of an array belongs to a mapped file."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return (isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap)) or (
        isinstance(owner, mmap.mmap)
    )


def write_shards(folder: Path, shards: dict[str, dict[str, np.ndarray]]) -> None:
    for shard, arrays in shards.items():
        safetensors.numpy.save_file(arrays, folder / shard)
    weight_map = {name: shard for shard, arrays in shards.items() for name in arrays}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_a_mapped_file_equals_the_packages(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file(ARRAYS, path)
    before = path.read_bytes()
    arrays = map_safetensors(path)
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype
    assert is_mapped(arrays["a"])
    # A write is private.
    arrays["a"][:] = -1
    assert path.read_bytes() == before
    assert map_safetensors(path)["a"][1, 2] == 5


def test_misaligned_arrays_are_copied(tmp_path: Path) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    header += b" " * ((1 - len(header)) % 4)
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + np.array([1, 2], "f4").tobytes())
    array = map_safetensors(path)["x"]
    assert array.flags.aligned and array.tolist() == [1, 2]
    assert array.tolist() == safetensors.numpy.load_file(path)["x"].tolist()


def test_a_parameter_uses_mapped_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    bf16 = np.arange(6, dtype="f4").reshape(2, 3).astype(ml_dtypes.bfloat16)
    write_safetensors(path, {"w": bf16})
    array = map_safetensors(path)["w"]
    shared = nn.Parameter(array, requires_grad=False, copy=False)
    assert shared.dtype is nova.bf16 and np.shares_memory(shared.data, array)
    assert not np.shares_memory(nn.Parameter(array).data, array)
    assert not np.shares_memory(nn.Parameter(array.T, copy=False).data, array)
    frozen = array.view()
    frozen.flags.writeable = False
    assert not np.shares_memory(nn.Parameter(frozen, copy=False).data, array)
    X = nova.input((1, 3), nova.bf16, name="X")
    program = nova.compile(X @ shared.T, inputs=[X], params=[shared])
    result = program.run([np.ones((1, 3), ml_dtypes.bfloat16)])
    assert result.astype("f4").tolist() == [[3, 12]]


def test_folders(tmp_path: Path) -> None:
    halves = {
        "model-1.safetensors": {name: ARRAYS[name] for name in "ab"},
        "model-2.safetensors": {name: ARRAYS[name] for name in "cde"},
    }
    write_shards(tmp_path, halves)
    sharded = map_folder(tmp_path)
    assert sharded.keys() == ARRAYS.keys()
    for name, array in sharded.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
    safetensors.numpy.save_file(ARRAYS, tmp_path / SINGLE)
    assert map_folder(tmp_path).keys() == ARRAYS.keys()


INDICES = {
    "no JSON": (b"{", "not JSON"),
    "not a table": (b"[1]", "not a table"),
    "deep": (b"[" * 100_000, "not JSON"),
    "no map": (b"{}", "no table weight_map"),
    "map a list": (b'{"weight_map": ["a"]}', "no table weight_map"),
    "name twice": (
        b'{"weight_map": {"a": "model-1.safetensors", "a": "model-2.safetensors"}}',
        "'a' occurs twice",
    ),
    "parent": (b'{"weight_map": {"a": "../model-1.safetensors"}}', "not the name"),
    "absolute": (b'{"weight_map": {"a": "/etc/x.safetensors"}}', "not the name"),
    "backslash": (b'{"weight_map": {"a": "..\\\\x.safetensors"}}', "not the name"),
    "NUL": (b'{"weight_map": {"a": "x\\u0000.safetensors"}}', "not the name"),
    "other file": (b'{"weight_map": {"a": "passwd"}}', "not the name"),
    "a number": (b'{"weight_map": {"a": 3}}', "not the name"),
    "missing file": (b'{"weight_map": {"a": "model-3.safetensors"}}', "No such file"),
    "missing tensor": (b'{"weight_map": {"z": "model-1.safetensors"}}', "'z' is not in"),
}


@pytest.mark.parametrize("label", INDICES)
def test_hostile_indices(label: str, tmp_path: Path) -> None:
    text, message = INDICES[label]
    safetensors.numpy.save_file({"a": ARRAYS["a"]}, tmp_path / "model-1.safetensors")
    safetensors.numpy.save_file({"a": ARRAYS["a"]}, tmp_path / "model-2.safetensors")
    (tmp_path / INDEX).write_bytes(text)
    with pytest.raises(ArtifactError, match=message) as caught:
        map_folder(tmp_path)
    assert str(tmp_path) in (caught.value.where or "")


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    write_shards(tmp_path, {"x.safetensors": {"a": ARRAYS["a"], "b": ARRAYS["b"]}})
    safetensors.numpy.save_file({"a": ARRAYS["a"]}, tmp_path / "y.safetensors")
    weight_map = {"a": "x.safetensors", "b": "y.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ArtifactError, match=r"'a' is in y\.safetensors and in another file"):
        map_folder(tmp_path)


def test_damaged_shards(tmp_path: Path) -> None:
    path = tmp_path / SINGLE
    safetensors.numpy.save_file(ARRAYS, path)
    full = path.read_bytes()
    for end in (0, 7, 20, len(full) - 1):
        path.write_bytes(full[:end])
        with pytest.raises(ArtifactError) as caught:
            map_folder(tmp_path)
        assert caught.value.where == str(path)


def test_folders_without_weights(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"neither model\.safetensors") as caught:
        map_folder(tmp_path)
    assert "save_pretrained" in (caught.value.hint or "")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ArtifactError, match="pickle"):
        map_folder(tmp_path)
