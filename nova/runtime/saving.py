"""Saves a program as a file, with or without the values of its params.

In: the file of a program, its values, and the options. Out: the file, and a weights file next to it
if they are external. Called by `Model.save` and `Translation.save`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nova.artifact.files import check_path
from nova.artifact.format import Artifact, save_artifact
from nova.artifact.manifest import WeightsSpec
from nova.artifact.seal import PrivateKey, add_signature
from nova.artifact.sign import read_private_key
from nova.errors import ArtifactError, AttributeValueError, TrustError, WeightsError
from nova.frontends.safetensors import write_layout
from nova.runtime.weights import (
    SUFFIX,
    ParamValues,
    bytes_of,
    choose_values,
    find_sibling_file,
    lay_out_values,
    name_sibling_file,
)

_WEIGHT_MODES = {"embedded": "embed", "external": "external"}

Weights = Mapping[int, memoryview] | WeightsSpec


@dataclass(frozen=True)
class Saver:
    """A program and its values; `relink` creates its file again, with weights in it."""

    artifact: Artifact
    values: ParamValues
    relink: Callable[[Weights], bytes]
    signer: PrivateKey | None = None  # the signing key of the file, if available

    def save(
        self,
        path: str | Path,
        weights: str | None,
        params: Mapping[str, Any] | Sequence[Any] | None,
        key: str | Path | None,
        drop_signature: bool = False,
    ) -> None:
        """Write the file, as documented in `Model.save`."""
        target = check_path(path)
        if target.is_dir():
            raise ArtifactError("cannot write the file: it is a folder", where=str(target))
        # Searched before anything is written: a kill leaves the old pair or the new one.
        previous = find_sibling_file(target)
        signer = self.signer if key is None else read_private_key(key)
        keeps = self._keeps_content(weights, params)
        is_signed = self.artifact.file.signature is not None
        if is_signed and signer is None and not keeps and not drop_signature:
            raise TrustError(
                "the file is signed, and with other weights its signature does not hold",
                hint="key= signs the new file; drop_signature=True saves it without a signature",
            )
        data, weights_file = self._file(target, weights, params, previous)
        if key is not None or (signer is not None and not keeps and not drop_signature):
            assert signer is not None
            data = add_signature(data, signer)
        save_artifact(target, data)
        if previous not in (None, weights_file):
            with suppress(OSError):  # the new pair is complete; this is cleanup
                previous.unlink()

    def _file(
        self, path: Path, weights: str | None, params: Any, previous: Path | None
    ) -> tuple[bytes | memoryview, Path | None]:
        """The bytes of the file, and the external weights file, which is written here."""
        if weights not in (None, "embed", "external"):
            raise AttributeValueError(
                f"weights is {weights!r}", hint="it is 'embed', 'external' or None"
            )
        mode = weights or _WEIGHT_MODES.get(self.values.kind)
        if mode is None:
            if params is not None:
                raise WeightsError(
                    "values of params are given, but not where to put them",
                    hint="pass weights='embed' or weights='external' as well",
                )
            return self.artifact.data, None
        if self._keeps_content(weights, params):
            return self.artifact.data, None  # unchanged, with its signature
        values = choose_values(self.values.params, params, self.values.host())
        if mode == "embed":
            return self._embed(values), None
        return self._save_sibling_file(path, values, previous)

    def _keeps_content(self, weights: str | None, params: Any) -> bool:
        """Whether the saved content is the unchanged file."""
        if weights is not None or params is not None:
            return False
        if _WEIGHT_MODES.get(self.values.kind) is None:
            return True
        embedded = self.artifact.manifest.weights.kind == "embedded"
        return embedded and not any(spec.donated for spec in self.values.params)

    def _embed(self, values: Sequence[np.ndarray]) -> bytes | memoryview:
        from nova.artifact.patch import replace_embedded  # imports the linker

        artifact = self.artifact
        old = artifact.manifest.weights
        if old.kind == "embedded" and len(old.tensors) == len(values):
            return memoryview(replace_embedded(artifact, list(map(bytes_of, values))))
        args = artifact.manifest.args
        indices = [i for i, spec in enumerate(args) if spec.role == "param"]
        return self.relink(dict(zip(indices, map(bytes_of, values), strict=True)))

    def _save_sibling_file(
        self, path: Path, values: Sequence[np.ndarray], previous: Path | None
    ) -> tuple[bytes | memoryview, Path]:
        from nova.artifact.patch import replace_external

        if path.suffix == SUFFIX:
            raise WeightsError(
                f"{SUFFIX} is the file of the weights; the program needs another name",
                where=str(path),
            )
        artifact = self.artifact
        layout, spec = lay_out_values(artifact.manifest, values)
        patched = replace_external(artifact, spec)
        data = self.relink(spec) if patched is None else memoryview(patched)
        # The weights first: a program without them would be useless. Private permissions are kept.
        weights_file = name_sibling_file(path, spec.sha256)
        write_layout(weights_file, layout, like=previous or path)
        return data, weights_file
