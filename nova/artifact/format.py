"""Opens a `.nova` file: the native reader checks it, this module describes its contents.

The loader, the cache and the tools call `load_artifact` and `read_artifact`; `write.py` creates the
files. Every failed check is an `ArtifactError` that names it. Imports neither MLIR nor LLVM, and
maps no code: `Artifact.file.load` does that for the executor.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from nova import _native
from nova.artifact.check import Buffer
from nova.artifact.files import check_path, write_atomically
from nova.artifact.manifest import Manifest, TensorSpec, from_json
from nova.artifact.tables import Tables, unpack_tables
from nova.artifact.texts import PackedTexts, unpack_texts
from nova.core.records import record
from nova.errors import ArtifactError, unreadable

__all__ = [
    "Artifact",
    "Manifest",
    "TensorSpec",
    "load_artifact",
    "read_artifact",
    "save_artifact",
]

_HINTS = {
    "elf-magic": "this is not a .nova file: programs are saved with save(), and weights of a "
    "model, in a safetensors file, are read with model.load(path) or "
    "nova.load(program, weights=path)",
    "format-version": "use the Nova that wrote it, or a newer one",
    "seal": "the file was changed or cut short: copy it again, or write it anew",
}


@record
class Artifact:
    """An opened and checked file; views of its parts keep it alive."""

    file: _native.File

    @cached_property
    def manifest(self) -> Manifest:
        """The file's description of itself."""
        return from_json(self.file.manifest)

    @property
    def data(self) -> memoryview:
        """All bytes of the file."""
        return self.file.data

    def tables(self, variant: int) -> Tables:
        """The tables of a variant, parsed at each call; programs run from the block itself."""
        return unpack_tables(self.file.tables(variant))

    def stages(self) -> PackedTexts:
        """The text of every stage by name, decompressed at each call."""
        return unpack_texts(self.section(".nova.stages"), self.section(".nova.const"))

    def weights(self) -> dict[int, memoryview]:
        """The embedded values of params, by the index of the argument."""
        spec = self.manifest.weights
        if spec.kind != "embedded":
            return {}
        section = self.section(".nova.weights")
        return {w.arg: section[w.offset : w.offset + w.nbytes] for w in spec.tensors}

    def section(self, name: str) -> memoryview:
        """A section's bytes; empty if the file has no such section."""
        return self.file.section(name) if name in self.file.sections else memoryview(b"")


def read_artifact(data: Buffer) -> Artifact:
    """Check and open a file in memory; `data` must not change while it is used."""
    try:
        return Artifact(_native.File.from_bytes(data))
    except _native.FileError as error:
        raise _artifact_error(error, None) from None


def load_artifact(path: str | Path) -> Artifact:
    """Check and open a private copy of a file; errors name it."""
    path = check_path(path)
    try:
        return Artifact(_native.File(os.fspath(path)))
    except _native.FileError as error:
        raise _artifact_error(error, str(path)) from None
    except OSError as error:
        raise unreadable(ArtifactError, error, "cannot read the file", str(path)) from None


def _artifact_error(error: _native.FileError, where: str | None) -> ArtifactError:
    check = error.check
    hint = _HINTS.get(check) or _HINTS.get(check.partition("-")[0])
    return ArtifactError(f"check '{check}' failed: {error.text}", where=where, hint=hint)


def save_artifact(path: str | os.PathLike[str], data: Buffer) -> None:
    """Write an artifact to a file, atomically."""
    path = check_path(path)
    try:
        write_atomically(path, data)
    except BrokenPipeError:
        raise  # the reader of a pipe closed it, which is not an error of the path
    except OSError as error:
        why = error.strerror or error
        raise ArtifactError(f"cannot write the file: {why}", where=str(path)) from error
