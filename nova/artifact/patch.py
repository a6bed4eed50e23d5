"""Patches bytes of a finished file without a link: other weights at the same offsets.

`Model.save` calls it for loaded programs, so that a training step that was loaded without a
compiler can be saved with its current weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nova.artifact.check import Buffer, fail
from nova.artifact.format import Artifact
from nova.artifact.manifest import WeightsSpec
from nova.artifact.seal import make_seal, region_starts, sealed_size
from nova.artifact.write import MANIFEST, WEIGHTS


def replace_embedded(artifact: Artifact, values: Sequence[Buffer]) -> bytearray:
    """The file with other values of its weights, in the order of the manifest; unsigned."""
    _, start, _ = artifact.file.sections.get(WEIGHTS, (0, 0, 0))  # missing if all are empty
    patches = {}
    for weight, value in zip(artifact.manifest.weights.tensors, values, strict=True):
        view = memoryview(value)
        if view.nbytes != weight.nbytes:
            fail("weights-size", f"{view.nbytes} bytes for a weight of {weight.nbytes}")
        if view.nbytes:  # memoryview.cast refuses zeros in a shape
            patches[start + weight.offset] = view.cast("B")
    return _patch(artifact, patches)


def replace_external(artifact: Artifact, spec: WeightsSpec) -> bytearray | None:
    """The file with the hash of another weights file; None if its arrays have other offsets."""
    old = artifact.manifest
    if replace(old.weights, sha256=spec.sha256) != spec:
        return None
    data = replace(old, weights=spec).to_json()
    _, start, size = artifact.file.sections[MANIFEST]
    if len(data) != size:
        fail("manifest-json", f"the manifest has {size} bytes, written again {len(data)}")
    return _patch(artifact, {start: data})


def _patch(artifact: Artifact, patches: Mapping[int, Buffer]) -> bytearray:
    """The file with other bytes at some offsets, and a new seal."""
    view = memoryview(artifact.data)
    data = bytearray(view[: sealed_size(view)])
    for offset, piece in patches.items():
        data[offset : offset + len(piece)] = piece
    data += make_seal(data, region_starts(view))
    return data
