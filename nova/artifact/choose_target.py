"""Selects the code of a file that runs on this machine, and explains the selection.

In: an opened artifact. Out: the index of a variant, or one line for a person. Called by the
executor, by `nova.load` if no variant fits, and by `nova inspect`. Maps no code.
"""

from __future__ import annotations

from nova import _native
from nova.artifact.device_image import choose_image
from nova.artifact.format import Artifact
from nova.core.records import record
from nova.errors import ArtifactError, DeviceArchitectureError


@record
class DeviceChoice:
    """The indices of the variant and the image that a device runs."""

    variant: int
    image: int


def choose_variant(artifact: Artifact) -> int:
    """The best variant that this CPU can run; ArtifactError lists what each variant needs."""
    try:
        return artifact.file.choose()
    except _native.FileError as error:
        raise ArtifactError(
            f"check '{error.check}' failed: {error.text}",
            hint="compile it for this machine, or for a smaller target such as x86_64",
        ) from None


def find_variant(artifact: Artifact) -> int | None:
    """The best variant that this CPU can run, or None."""
    every = range(len(artifact.manifest.variants))
    return next((number for number in every if not artifact.file.missing(number)), None)


def explain_variant(artifact: Artifact, number: int | None) -> str:
    """The selected variant, and why better ones are not used; all of them for None."""
    variants = artifact.manifest.variants
    lacks = [
        f"{variant.target} needs {artifact.file.missing(n)}"
        for n, variant in enumerate(variants[:number])
    ]
    if number is None:
        return "; ".join(lacks)
    targets = ", ".join(variant.target for variant in variants)
    return "; ".join([f"{variants[number].target} of {targets}", *lacks])


def find_device(artifact: Artifact, major: int, minor: int) -> DeviceChoice | None:
    """The choice for a device of compute capability major.minor, or None."""
    manifest = artifact.manifest
    variants = {spec.cpu: n for n, spec in enumerate(manifest.variants) if spec.is_device}
    usable = [n for n, image in enumerate(manifest.devices) if image.arch in variants]
    chosen = choose_image([manifest.devices[n] for n in usable], major, minor)
    if chosen is None:
        return None
    image = usable[chosen]
    return DeviceChoice(variants[manifest.devices[image].arch], image)


def choose_device(artifact: Artifact, major: int, minor: int) -> DeviceChoice:
    """The same; DeviceArchitectureError lists the code in the file."""
    choice = find_device(artifact, major, minor)
    if choice is not None:
        return choice
    raise DeviceArchitectureError(
        f"the GPU has compute capability {major}.{minor}, and the file has {_images(artifact)}",
        hint=f"compile it for cuda:sm_{major}{minor}, or for an older one such as cuda:sm_80",
    )


def explain_device(artifact: Artifact, choice: DeviceChoice) -> str:
    """The code of a file that a device runs: one line."""
    image = artifact.manifest.devices[choice.image]
    target = artifact.manifest.variants[choice.variant].target
    return f"{target} by {image.kind} for {image.arch}, of {_images(artifact)}"


def _images(artifact: Artifact) -> str:
    devices = artifact.manifest.devices
    return ", ".join(f"{image.kind} for {image.arch}" for image in devices) or "no device code"
