"""The checkpoint of a training run: one safetensors file that a killed run resumes from.

In: the arrays of a step, the position in the data, the losses so far. `fit` saves and loads.
A file is written under a temporary name in the same folder, flushed to disk and renamed, and the
previous one is kept as `<name>.previous`: at every moment one of the two exists and is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from nova.errors import ArtifactError, CheckpointError
from nova.frontends.safetensors import pack_safetensors, read_metadata, read_safetensors
from nova.train.history import History

FORMAT = "nova-checkpoint"
VERSION = 1
_STATE, _LOSSES, _EPOCH_ENDS = "state.", "history.losses", "history.epoch_ends"
_VALIDATION = "history.validation"


@dataclass(frozen=True)
class Saved:
    """The contents of a checkpoint: everything that determines the rest of the run."""

    state: Mapping[str, np.ndarray]
    position: tuple[int, int]
    history: History
    data: Mapping[str, Any]


class CheckpointFile:
    """The path of a run's checkpoint."""

    def __init__(self, path: str | os.PathLike[str]):
        # Resolved against the current folder now, as the process may change it later.
        self.path = Path(os.path.abspath(path))
        self.previous = self.path.with_name(self.path.name + ".previous")
        self._temporary = f".{self.path.name}.tmp-"

    def prepare(self) -> None:
        """Test before the training, not after it, whether a file can be written here."""
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Remove files left by a killed run. A run that is still alive, and writes to the same
            # checkpoint, finds its file gone and raises an error.
            for entry in os.scandir(folder):
                if entry.name.startswith(self._temporary):
                    os.unlink(entry.path)
        except OSError as error:
            raise self._cannot_write(error) from error
        if self.path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise CheckpointError(
                "a checkpoint cannot be written here",
                where=str(self.path),
                hint="pass the path of a file in a folder that you may write to",
            )

    def save(self, saved: Saved) -> None:
        """Replace the checkpoint, so that a kill or a full disk at any moment leaves one intact."""
        packed = _pack(saved)
        temporary = self.path.with_name(f"{self._temporary}{os.getpid()}-{os.urandom(8).hex()}")
        try:
            with open(temporary, "xb") as file:
                file.write(packed)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                os.replace(self.path, self.previous)
            os.replace(temporary, self.path)
            _flush_folder(self.path.parent)
        except OSError as error:
            raise self._cannot_write(error) from error
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def load(self) -> Saved | None:
        """The newest checkpoint, or None if there is none."""
        for path in (self.path, self.previous):
            # A kill between the two renames leaves only the previous one.
            if path.exists():
                try:
                    return _unpack(read_safetensors(path), read_metadata(path))
                except (ArtifactError, CheckpointError) as error:
                    raise CheckpointError(
                        f"the checkpoint cannot be read: {error.what}",
                        where=str(path),
                        hint=self._way_out(path),
                    ) from error
        return None

    def _way_out(self, path: Path) -> str:
        if path == self.path and self.previous.exists():
            return (
                f"rename {self.previous.name} to {self.path.name} to go on from the one before, "
                "or pass resume=False to start anew"
            )
        return "pass another path, or resume=False to start anew"

    def _cannot_write(self, error: OSError) -> CheckpointError:
        is_missing = isinstance(error, FileNotFoundError)
        return CheckpointError(
            f"the checkpoint cannot be written: {error.strerror}",
            where=str(self.path),
            hint="does another run write to the same checkpoint?" if is_missing else None,
        )


def _pack(saved: Saved) -> bytes:
    tensors: dict[str, np.ndarray] = {}
    first: dict[int, str] = {}
    for name, array in saved.state.items():
        # A tied weight has several names and one array.
        if first.setdefault(id(array), name) == name:
            tensors[_STATE + name] = array
    tensors[_LOSSES] = saved.history.losses
    tensors[_EPOCH_ENDS] = np.array(saved.history.epoch_ends, np.int64)
    if len(saved.history.validation_losses):
        tensors[_VALIDATION] = saved.history.validation_losses
    training = json.dumps({"position": saved.position, "data": saved.data})
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "training": training,
        "sha256": _digest(tensors, training),
    }
    return pack_safetensors(tensors, metadata)


def _unpack(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Saved:
    if metadata.get("format") != FORMAT:
        raise CheckpointError("this safetensors file is not a checkpoint of nova.fit")
    if metadata.get("version") != str(VERSION):
        raise CheckpointError(
            f"it has version {metadata.get('version')} of the format, this Nova reads {VERSION}"
        )
    training = metadata.get("training", "")
    if metadata.get("sha256") != _digest(tensors, training):
        raise CheckpointError("it is damaged: its contents do not have the hash in its header")
    fields = json.loads(training)
    epoch, batch = fields["position"]
    history = History(tensors[_LOSSES], tensors[_EPOCH_ENDS], tensors.get(_VALIDATION, ()))
    state = {n.removeprefix(_STATE): a for n, a in tensors.items() if n.startswith(_STATE)}
    return Saved(state, (epoch, batch), history, fields["data"])


def _digest(tensors: Mapping[str, np.ndarray], training: str) -> str:
    digest = sha256(training.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\0{name}\0{array.dtype}{array.shape}\0".encode())
        digest.update(np.asarray(array, order="C").reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _flush_folder(folder: Path) -> None:
    """A rename is durable once its folder is flushed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
