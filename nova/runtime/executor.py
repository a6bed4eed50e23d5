"""An artifact made runnable: mapped code, bound tables, one native program.

Needs neither MLIR nor LLVM. `Executable.program` is the native object; calling it is the hot path.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from nova.artifact.format import Artifact
from nova.dtypes import dtype
from nova.errors import ArtifactError
from nova.log import log
from nova.runtime import _native
from nova.runtime.arrays import make_converter
from nova.targets import parse_target

# Below this many scalar operations a run is shorter than giving the interpreter lock away.
_KEEP_GIL_WORK = 200_000
_KINDS = {
    "arg": _native.ARGUMENT,
    "output": _native.OUTPUT,
    "workspace": _native.WORKSPACE,
    "constant": _native.CONSTANT,
}


class Executable:
    """A loaded artifact."""

    def __init__(self, artifact: Artifact):
        manifest = artifact.manifest
        check_features(manifest.target, manifest.features)
        self.artifact = artifact
        self.manifest = manifest
        image = _native.Image(artifact.data, artifact.segments)
        artifact.shared.relocate(image.base)
        buffers = [
            (
                _KINDS[b.kind],
                b.value + artifact.constant_vaddr if b.kind == "constant" else b.value,
            )
            for b in manifest.buffers
        ]
        kernels = manifest.kernels
        launches = [
            (artifact.symbols[kernels[la.kernel].symbol], kernels[la.kernel].grid, la.buffers)
            for la in manifest.launches
        ]
        self.program = _native.Program(
            image,
            [(a.shape, dtype(a.dtype).numpy, a.donated) for a in manifest.args],
            [(o.shape, dtype(o.dtype).numpy, o.alias) for o in manifest.outputs],
            buffers,
            launches,
            manifest.workspace_size,
            make_converter(manifest.args, manifest.outputs),
            int(manifest.options.get("work", 0)) > _KEEP_GIL_WORK,
        )


class LoggedProgram:
    """A native program that prints a `[run]` line for every run.

    It takes the place of the native object when the topic is on, so that a run without it costs
    nothing more.
    """

    def __init__(self, executable: Executable, name: str):
        self._program = executable.program
        self._name = name
        launches = len(executable.manifest.launches)
        self._size = f"{launches} kernel{'s' if launches != 1 else ''}"

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        started = time.perf_counter()
        result = self._program(*arrays, out=out)
        self._log(started)
        return result

    def run(self, inputs: Sequence[Any], params: Sequence[Any] = (), out: Any = None) -> Any:
        started = time.perf_counter()
        result = self._program.run(inputs, params, out)
        self._log(started)
        return result

    def _log(self, started: float) -> None:
        seconds = time.perf_counter() - started
        log("run", f"{self._name}: {self._size}, {seconds * 1e6:.1f} us")


def check_features(target: str, features: tuple[str, ...]) -> None:
    """ArtifactError unless this CPU has every feature that the code was generated for."""
    host = parse_target("cpu")
    missing = sorted(set(features) - set(host.features))
    if missing:
        raise ArtifactError(
            f"the code is for {target} and needs CPU features that are not here: "
            f"{', '.join(missing)}",
            hint="compile it for this machine, or for a smaller target such as x86_64",
        )
