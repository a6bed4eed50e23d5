"""The `.nova` file: objects, manifest, constants and stage texts in one sealed shared object.

`write_artifact` is called by the compile driver, `read_artifact` by the loader and by the cache.
Reading checks every hash before it parses, then every table; each failure is an `ArtifactError`
that names the check. Imports neither MLIR nor LLVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nova.artifact.elf import Segment, SharedObject, link_shared, read_shared
from nova.artifact.elf_shared import Buffer, fail
from nova.artifact.files import write_atomically
from nova.artifact.manifest import (
    FORMAT_VERSION,
    BufferSpec,
    KernelSpec,
    LaunchSpec,
    Manifest,
    TensorSpec,
    check_tables,
    from_json,
)
from nova.artifact.seal import add_seal, check_seal
from nova.artifact.texts import pack_texts, unpack_texts
from nova.errors import ArtifactError

__all__ = [
    "FORMAT_VERSION",
    "Artifact",
    "BufferSpec",
    "KernelSpec",
    "LaunchSpec",
    "Manifest",
    "Segment",
    "TensorSpec",
    "load_artifact",
    "read_artifact",
    "save_artifact",
    "write_artifact",
]

MANIFEST, CONSTANTS, STAGES = ".nova.manifest", ".nova.const", ".nova.stages"


@dataclass(frozen=True)
class Artifact:
    """An opened `.nova` file: `data` must stay alive for as long as the parts are looked at."""

    data: Buffer
    manifest: Manifest
    shared: SharedObject

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What the native loader maps."""
        return self.shared.segments

    @property
    def symbols(self) -> dict[str, int]:
        """The exported functions and their virtual addresses."""
        return self.shared.symbols

    @property
    def relocations(self) -> tuple[tuple[int, int], ...]:
        """(vaddr, addend) pairs for `shared.relocate`; empty for nearly all programs."""
        return self.shared.relocations

    @property
    def constant_vaddr(self) -> int:
        """Where the constants are in the mapped image; -1 when the program has none."""
        return self.shared.addresses.get(CONSTANTS, -1)

    @cached_property
    def constants(self) -> memoryview:
        """The constants in the file."""
        return self._section(CONSTANTS)

    def stages(self) -> dict[str, str]:
        """The text of every stage by name, decompressed at each call."""
        return unpack_texts(self._section(STAGES), self.constants)

    def _section(self, name: str) -> memoryview:
        offset, size = self.shared.sections.get(name, (0, 0))
        return memoryview(self.data)[offset : offset + size]


def write_artifact(
    manifest: Manifest, objects: Sequence[bytes], constants: bytes, stages: Mapping[str, str]
) -> bytes:
    """Link and seal one file; the same inputs give the same bytes."""
    exports = list(dict.fromkeys(kernel.symbol for kernel in manifest.kernels))
    notes = {CONSTANTS: constants, MANIFEST: manifest.to_json()}
    if stages:
        # Not sorted: the stages are read back in the order of the compile.
        notes[STAGES] = pack_texts(stages, constants)
    linked = link_shared(objects, exports, notes)
    shared = read_shared(linked)
    # A wrong table is the compiler's mistake: it is found here, not by whoever loads the file.
    check_tables(from_json(notes[MANIFEST]), shared, len(constants))
    return add_seal(linked, [offset for offset, _ in shared.sections.values()])


def read_artifact(data: Buffer) -> Artifact:
    """Check and open an artifact that is in memory (bytes, or a view of a memory map)."""
    end = check_seal(data)
    shared = read_shared(data if type(data) is memoryview else memoryview(data))
    for name, (offset, size) in shared.sections.items():
        if offset + size > end:
            fail("section-bounds", f"section {name} reaches into the seal")
    if MANIFEST not in shared.sections:
        fail("manifest-missing", f"the file has no section {MANIFEST}")
    offset, size = shared.sections[MANIFEST]
    manifest = from_json(bytes(memoryview(data)[offset : offset + size]))
    check_tables(manifest, shared, shared.sections.get(CONSTANTS, (0, 0))[1])
    if CONSTANTS in shared.sections and shared.addresses.get(CONSTANTS, 1) % 64:
        fail("constants-alignment", "the constants are not loaded at a multiple of 64")
    return Artifact(data, manifest, shared)


def save_artifact(path: str | Path, data: Buffer) -> None:
    """Write an artifact to a file, which appears whole or not at all."""
    write_atomically(Path(path), data)


def load_artifact(path: str | Path) -> Artifact:
    """Read and check a file; the error names it."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ArtifactError(
            f"cannot read the artifact: {error.strerror}", where=str(path)
        ) from error
    try:
        return read_artifact(data)
    except ArtifactError as error:
        raise ArtifactError(error.what, where=str(path), hint=error.hint) from None
