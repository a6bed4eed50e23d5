"""The result of a translation: a file or the bytes of a stage, and the stages before it.

Created by `session.py`, returned by `nova.translate`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nova.artifact.format import Artifact, read_artifact, save_artifact
from nova.artifact.seal import PrivateKey, add_signature
from nova.artifact.sign import read_private_key
from nova.artifact.write import FileSpec, write_artifact
from nova.compiler.recorder import Recorder
from nova.compiler.signature import ProgramSignature
from nova.core.user_facing import user_facing
from nova.errors import PipelineError
from nova.runtime.devices import check_device_name
from nova.runtime.gpu_executor import load_anywhere, load_for
from nova.runtime.model import Model
from nova.runtime.saving import Saver, Weights
from nova.runtime.weights import ParamValues, read_values


@dataclass(frozen=True, repr=False)
class Translation:
    """The result of a translation.

    `data` is the file, or the bytes of the stage that `emit` named. `stages` has the text of every
    stage that ran, `metrics` its seconds and bytes. `values` are those of the params that a
    translated program carried and that are not in the file; `contents` is the FileSpec of the file,
    `signer` the key of `sign`.
    """

    data: bytes
    emit: str
    signature: ProgramSignature | None
    recorder: Recorder
    values: ParamValues | None = None
    contents: FileSpec | None = None
    signer: PrivateKey | None = None

    @property
    def stages(self) -> Mapping[str, str]:
        return self.recorder.texts

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        return self.recorder.metrics

    @user_facing
    def save(
        self,
        path: str | os.PathLike[str],
        weights: str | None = None,
        *,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        key: str | Path | None = None,
        drop_signature: bool = False,
    ) -> None:
        """Write `data` to a file atomically.

        `weights`, `params`, `key` and `drop_signature` are those of `Model.save`:
        `weights="embed"` embeds the values that the translated program carries, or
        `params`, by name or in order. After `sign` that file is signed with the same key.
        """
        if self.emit != "so":
            if weights is not None or params is not None or key is not None:
                self._require_file("to keep weights or a signature")
            save_artifact(path, self.data)
            return
        Saver(self._artifact, self._carried, self._relink, self.signer).save(
            Path(path), weights, params, key, drop_signature
        )

    def sign(self, key: str | os.PathLike[str]) -> Translation:
        """The same translation, its file signed with the private key in the file `key`."""
        self._require_file("to sign")
        signer = read_private_key(Path(key))
        return replace(self, data=add_signature(self.data, signer), signer=signer)

    def load(self, device: str | None = None) -> Model:
        """The program, loaded on this machine, with the weights it was given.

        `device` is that of `nova.load`: `sim` runs the code of a GPU on the CPU.
        """
        self._require_file("to run")
        if device is None:
            return self._model
        check_device_name(device)
        return Model(load_for(self._artifact, device), "compiled", values=self._carried)

    @cached_property
    def _artifact(self) -> Artifact:
        return read_artifact(self.data)

    @cached_property
    def _carried(self) -> ParamValues:
        return self.values or read_values(self._artifact, None, None)

    @cached_property
    def _model(self) -> Model:
        return Model(load_anywhere(self._artifact), "compiled", values=self._carried)

    def _relink(self, weights: Weights) -> bytes:
        assert self.contents is not None  # a file always has contents
        return write_artifact(replace(self.contents, weights=weights))

    def __repr__(self) -> str:
        """Format and size, in one line."""
        if self.emit != "so":
            return f"<Translation to {self.emit}, {len(self.data)} bytes>"
        manifest = self._artifact.manifest
        targets = ", ".join(variant.target for variant in manifest.variants)
        count = sum(spec.role == "param" for spec in manifest.args)
        params = f", {count} params" if count else ""
        return f"<Translation to a file for {targets}{params}, {len(self.data)} bytes>"

    def _require_file(self, purpose: str) -> None:
        if self.emit != "so":
            raise PipelineError(
                f"the translation stopped at {self.emit}: there is no program {purpose}",
                hint="translate without emit",
            )
