"""The result of a compile: the code of each target, and the finished file.

`driver.py` and `module.py` create a `CompileResult` from the `TargetCode` of the backends.
"""

from __future__ import annotations

from dataclasses import replace

from nova.artifact.device_image import DeviceImage
from nova.artifact.format import Artifact
from nova.artifact.write import FileSpec, Variant
from nova.compiler.recorder import Recorder
from nova.core.constants import LEAST, find_bytes
from nova.core.records import record


@record
class TargetCode:
    """The code for one target: device code is in images."""

    variant: Variant
    images: tuple[DeviceImage, ...] = ()


@record
class CompileResult:
    """A finished compile: the bytes of the file, statistics of the stages, and the file's contents.

    `contents` is kept for `Compiled.save`, which may put weights into the file.
    """

    data: bytes
    recorder: Recorder
    contents: FileSpec


def share_bytes(result: CompileResult, artifact: Artifact) -> CompileResult:
    """The same result, with constants that are views of the file instead of copies."""
    section = artifact.section(".nova.const")
    result.recorder.constants.move_into(section)
    specs = {spec.target: spec for spec in artifact.manifest.variants}
    variants = []
    for variant in result.contents.variants:
        offset, size = specs[variant.target.name].constants
        constants, unpacked = section[offset : offset + size], variant.unpacked
        if len(unpacked) >= LEAST and (start := find_bytes(section, memoryview(unpacked))) >= 0:
            unpacked = section[start : start + len(unpacked)]
        variants.append(replace(variant, constants=constants, unpacked=unpacked))
    return replace(result, contents=replace(result.contents, variants=tuple(variants)))
