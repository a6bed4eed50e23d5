"""The weights of a model folder as Hugging Face has it, mapped.

In: a folder with `model.safetensors`, or with several such files and
`model.safetensors.index.json`, which says where each tensor is. Out: arrays by name on the pages of
the files (`map_safetensors`). Called by `nova.from_pretrained` and by the Llama example. Nothing in
a folder is trusted: an index names files of its own folder only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from nova.artifact.files import open_regular
from nova.errors import ArtifactError, unreadable
from nova.frontends.safetensors import map_safetensors

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
# The index of a model with 100,000 tensors has about 10 MB.
_LONGEST_INDEX = 100_000_000


def map_folder(folder: str | Path) -> dict[str, np.ndarray]:
    """The weights of a folder by name. Nothing is copied; see `map_safetensors`."""
    folder = Path(folder)
    if (folder / SINGLE).exists():
        return map_safetensors(folder / SINGLE)
    index = folder / INDEX
    if not index.exists():
        raise ArtifactError(
            f"the folder has neither {SINGLE} nor {INDEX}",
            where=str(folder),
            hint=_absence_hint(folder),
        )
    weight_map = _read_index(index)
    weights: dict[str, np.ndarray] = {}
    for shard in sorted(set(weight_map.values())):
        tensors = map_safetensors(folder / shard)
        twice = sorted(weights.keys() & tensors.keys())
        if twice:
            raise _damaged(f"tensor {twice[0]!r} is in {shard} and in another file", index)
        absent = sorted(n for n, s in weight_map.items() if s == shard and n not in tensors)
        if absent:
            raise _damaged(f"tensor {absent[0]!r} is not in {shard}, where it should be", index)
        weights.update(tensors)
    return weights


def read_json(path: Path) -> dict[str, Any]:
    """The table in a JSON file; each of its keys occurs once."""
    try:
        with open_regular(path) as file:
            text = file.read(_LONGEST_INDEX + 1)
    except OSError as error:
        raise unreadable(ArtifactError, error, "cannot read the file", str(path)) from error
    if len(text) > _LONGEST_INDEX:
        raise ArtifactError(f"the file has more than {_LONGEST_INDEX} bytes", where=str(path))
    try:
        table = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"the file is not JSON: {error}", where=str(path)) from None
    if not isinstance(table, dict):
        raise ArtifactError("the file is JSON, but not a table", where=str(path))
    return table


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} occurs twice")
    return table


def _read_index(path: Path) -> dict[str, str]:
    """Tensor name -> file name, checked."""
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _damaged("it has no table weight_map", path)
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_plain_name(shard):
            raise _damaged(
                f"tensor {name!r} is in {shard!r}, which is not the name of a safetensors file in "
                "this folder",
                path,
            )
    return weight_map


def _is_plain_name(shard: str) -> bool:
    """Whether it names a file of the same folder: no separators, no parent folder."""
    return shard.endswith(".safetensors") and not set(shard) & set("/\\\0")


def _absence_hint(folder: Path) -> str:
    if any(folder.glob("pytorch_model*.bin")):
        return (
            "pytorch_model.bin is a pickle, which can run code when it is read: load the model "
            "with transformers and write it with save_pretrained"
        )
    return "give a folder as save_pretrained writes it"


def _damaged(why: str, index: Path) -> ArtifactError:
    return ArtifactError(f"the index of the weights is damaged: {why}", where=str(index))
