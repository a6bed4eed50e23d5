"""What a translation gave: a file or the bytes of a stage, and what there was on the way.

Made by `road.py`, given to whoever called `nova.translate`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from nova.artifact.format import read_artifact, save_artifact
from nova.artifact.trust import sign_artifact
from nova.codegen.signature import ProgramSignature
from nova.codegen.stages import Recorder
from nova.errors import PipelineError
from nova.runtime.device_executor import load_anywhere
from nova.runtime.model import Model
from nova.runtime.weights import read_values


@dataclass(frozen=True)
class Translation:
    """What a translation gave.

    `data` is the file, or the bytes of what `emit` asked for. `stages` has the text of every stage
    that was gone through, `metrics` its seconds and bytes.
    """

    data: bytes
    emit: str
    signature: ProgramSignature | None
    recorder: Recorder

    @property
    def stages(self) -> dict[str, str]:
        return dict(self.recorder.texts)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        return self.recorder.metrics

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `data` to a file, which appears whole or not at all."""
        save_artifact(path, self.data)

    def sign(self, key: str | os.PathLike[str]) -> Translation:
        """The same translation, its file signed with the private key in the file `key`."""
        self._require_file("to sign")
        return replace(self, data=sign_artifact(self.data, Path(key)))

    def load(self) -> Model:
        """The program, ready to be run on this machine, with the weights it was given."""
        self._require_file("to run")
        return self._model

    @cached_property
    def _model(self) -> Model:
        artifact = read_artifact(self.data)
        return Model(load_anywhere(artifact), "compiled", values=read_values(artifact, None, None))

    def _require_file(self, what: str) -> None:
        if self.emit != "so":
            raise PipelineError(
                f"the translation stopped at {self.emit}: there is no program {what}",
                hint="translate without emit",
            )
