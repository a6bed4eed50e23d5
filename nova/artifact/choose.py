"""Which code of a file runs on this machine, and why.

An opened artifact comes in; the index of a variant, or one line for a person, goes out. Called by
the executor, by `nova.load` when nothing fits, and by `nova inspect`. Maps no code.
"""

from __future__ import annotations

from nova import _native
from nova.artifact.format import Artifact
from nova.errors import ArtifactError


def choose_variant(artifact: Artifact) -> int:
    """The best variant that this CPU runs; ArtifactError names what each of them lacks."""
    try:
        return artifact.file.choose()
    except _native.FileError as error:
        raise ArtifactError(
            f"check '{error.check}' failed: {error.text}",
            hint="compile it for this machine, or for a smaller target such as x86_64",
        ) from None


def find_variant(artifact: Artifact) -> int | None:
    """The best variant that this CPU runs, or None."""
    every = range(len(artifact.manifest.variants))
    return next((number for number in every if not artifact.file.missing(number)), None)


def explain_variant(artifact: Artifact, number: int | None) -> str:
    """Which variant is taken, and why those before it are not; all of them for None."""
    variants = artifact.manifest.variants
    lacks = [
        f"{variant.target} needs {artifact.file.missing(n)}"
        for n, variant in enumerate(variants[:number])
    ]
    if number is None:
        return "; ".join(lacks)
    targets = ", ".join(variant.target for variant in variants)
    return "; ".join([f"{variants[number].target} of {targets}", *lacks])
