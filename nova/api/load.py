"""`nova.load`: a program from a file, on a machine that may have no compiler.

In: a path, the device to run on, and the path of the weights if they are not embedded. Out: a
`Compiled`. The file is checked first, then its signature if `NOVA_TRUSTED_KEYS` requires one; only
then is code mapped, or loaded on a device. A file without code for this CPU is compiled again from
its own text, if the compiler is installed.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

from nova.api.compile import compile_settings, compile_text
from nova.api.compiled import Compiled
from nova.artifact.check import fail
from nova.artifact.choose_target import explain_variant, find_variant
from nova.artifact.files import check_path
from nova.artifact.format import Artifact, load_artifact
from nova.artifact.manifest import Manifest
from nova.artifact.sign import check_trust
from nova.core.log import log
from nova.core.packages import install_command, missing_packages
from nova.core.settings import Settings
from nova.core.user_facing import user_facing
from nova.errors import ArtifactError, NovaError, RecompileWarning
from nova.plan import parse_plan
from nova.runtime.devices import check_device_name
from nova.runtime.executor import Executable
from nova.runtime.gpu_executor import load_for
from nova.runtime.signature import read_signature
from nova.runtime.weights import read_values


@user_facing
def load(
    path: str | Path, device: str | None = None, weights: str | Path | None = None
) -> Compiled:
    """A program from a file that `save` or `nova-translate` wrote. Needs no compiler.

    `device` is `cpu`, `cuda` or `cuda:1` for a GPU of this machine, or `sim`, which runs GPU code
    on the CPU and reports its errors. Without it a file runs on the CPU if it has code for any CPU,
    else on the first GPU.

    `weights` is the safetensors file with the values of the params: of a program saved with
    `weights="external"` if it is not next to the file, or, by name, of one saved without weights.
    """
    check_device_name(device)
    path = check_path(path)
    try:
        artifact = load_artifact(path)
        check_trust(artifact.file.digest, artifact.file.signature)
        values = read_values(artifact, path, weights)
        device = device or _usual_device(artifact)
        if device != "cpu":
            executable = load_for(artifact, device)
            return Compiled(executable, None, "file", name=path.name, values=values)
        if find_variant(artifact) is not None:
            return Compiled(Executable(artifact), None, "file", name=path.name, values=values)
        return _recompile(artifact, path).with_values(values)
    except NovaError as error:
        raise error.located(str(path)) from None


def _usual_device(artifact: Artifact) -> str:
    """The device that a file runs on by default."""
    return "cuda" if all(spec.is_device for spec in artifact.manifest.variants) else "cpu"


def _recompile(artifact: Artifact, path: Path) -> Compiled:
    """The program of the file, compiled for this machine through the caches."""
    manifest = artifact.manifest
    why = explain_variant(artifact, None)
    problem = f"check 'cpu-features' failed: no code in the file runs here: {why}"
    absent = missing_packages()
    if absent:
        raise ArtifactError(
            problem,
            hint=f"{install_command(absent)}, and it is compiled again from its text; or "
            "compile it for a target that this machine has, such as x86_64",
        )
    text = artifact.stages().get(manifest.source)
    if text is None:
        raise ArtifactError(
            problem, hint="it holds no text to compile again from: compile it for this machine"
        )
    settings = _settings(manifest)
    source = f"its {manifest.source}"
    log("load", f"{path.name}: {why}; compiling it again from {source}")
    warnings.warn(
        f"{path} has no code for this CPU ({why}); it is compiled again from {source}",
        RecompileWarning,
        stacklevel=3,
    )
    if manifest.source == "plan":
        program = compile_settings(parse_plan(text, str(path)), settings, path.name, foreign=True)
    else:
        program = compile_text(text, manifest.source, settings, path.name)
    if program.signature != read_signature(manifest):
        fail("stages-text", "the text in the file has another signature than the program")
    return program


def _settings(manifest: Manifest) -> Settings:
    """The settings that the file was compiled with, adapted to this machine."""
    try:
        settings = Settings.of(manifest.variants[0].options)
        # Schedules were chosen on, and for, another machine.
        return replace(settings, target="cpu", schedules=(), tune=0.0)
    except (KeyError, ValueError):
        raise ArtifactError(
            f"the file was written by {manifest.producer}, with settings that this Nova does not "
            "know, and none of its code runs here",
            hint="compile the program again with this Nova",
        ) from None
