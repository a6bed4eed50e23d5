"""Writes a `.nova` file: objects, tables, constants, weights and texts become one sealed file.

The compile driver describes a file as `FileSpec`; `write_artifact` lays out the sections, links,
fills the kernels' addresses into the tables and adds the seal. The bytes depend on the contents
alone. Imports neither MLIR nor LLVM.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from nova import __version__
from nova.artifact.check import Buffer
from nova.artifact.device_image import DeviceImage, arch_number, check_image
from nova.artifact.elf.shared_object import Linked, Note, Part, link_shared
from nova.artifact.manifest import (
    DEVICE_PREFIX,
    FORMAT_VERSION,
    DeviceSpec,
    Manifest,
    TensorSpec,
    VariantSpec,
    WeightSpec,
    WeightsSpec,
)
from nova.artifact.seal import add_seal
from nova.artifact.specialized import Specialized, pack_specialized, tables_in
from nova.artifact.symbolic import SymbolicSizes, pack_symbolic
from nova.artifact.tables import ALIGN, Tables, pack_tables, patch_code
from nova.artifact.texts import pack_texts
from nova.core.records import record
from nova.core.targets import Target
from nova.errors import CodegenError

MANIFEST, TABLES, CONSTANTS = ".nova.manifest", ".nova.tables", ".nova.const"
WEIGHTS, DEVICE, STAGES = ".nova.weights", ".nova.device", ".nova.stages"
ENTRY = "_mlir_ciface_main"


@record
class Variant:
    """The program compiled for one target; `cpu` is LLVM's name, `options` are for people.

    The code of a device variant is in the images whose `arch` is its `cpu`; it has objects if
    kernels are host-pinned.

    `unpacked` are values that the constants contain in another order: the program does not read
    them, but its texts contain them, and texts store large values as references to the file.
    `sizes` are those of a program with symbolic sizes, whose tables have placeholders;
    `specialized` is its code for some of them.
    """

    target: Target
    cpu: str
    objects: tuple[bytes, ...]
    tables: Tables
    constants: bytes | memoryview
    options: Mapping[str, str]
    unpacked: bytes | memoryview = b""
    sizes: SymbolicSizes | None = None
    specialized: tuple[Specialized, ...] = ()

    @property
    def is_device(self) -> bool:
        return self.target.name.startswith(DEVICE_PREFIX)


@record
class FileSpec:
    """The contents of a file.

    `weights` are values by the index of their param, to be embedded; or the contents of an external
    file. `entry` is the object that defines `_mlir_ciface_main`, and `runtime` the object of the C
    runtime it calls; a file without them has no C entry points. `source` names the stage that a
    re-compile starts from. `host` is the architecture of a file without CPU code; if empty, that of
    this machine. Other files have the architecture of their code.
    """

    variants: tuple[Variant, ...]
    args: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    stages: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    weights: Mapping[int, Buffer] | WeightsSpec = field(default_factory=WeightsSpec)
    devices: tuple[DeviceImage, ...] = ()
    key: Mapping[str, str] = field(default_factory=dict)
    entry: bytes | None = None
    runtime: bytes | None = None
    host: str = ""


def write_artifact(contents: FileSpec, packed_stages: bytes | None = None) -> bytes:
    """Link and seal one file; the same contents give the same bytes.

    `packed_stages` are the stages of a file without constants, if a `TextPacker` has packed them.
    """
    variants = _ordered(contents.variants)
    arch = _architecture(contents, variants)
    check_devices(variants, contents.devices)
    tables, constants = _Pieces(), _Pieces()
    specs = [
        VariantSpec(
            variant.target.name,
            variant.cpu,
            variant.target.features,
            tables.append(_pack_variant(variant, contents)),
            constants.add(variant.constants),
            variant.options,
        )
        for variant in variants
    ]
    for variant in variants:
        constants.add(variant.unpacked)
    weights, weight_pieces = _weights(contents.weights)
    images = _Pieces()
    devices = tuple(DeviceSpec(d.kind, d.arch, *images.add(d.data)) for d in contents.devices)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        producer=f"nova {__version__}",
        arch=arch,
        args=contents.args,
        outputs=contents.outputs,
        variants=tuple(specs),
        weights=weights,
        devices=devices,
        source=contents.source,
        key=dict(contents.key),
    )
    notes: dict[str, Note] = {
        MANIFEST: manifest.to_json(),
        TABLES: tables.pieces,
        CONSTANTS: constants.pieces,
        WEIGHTS: weight_pieces.pieces,
        DEVICE: images.pieces,
    }
    if contents.stages:
        # Not sorted: the stages are read back in the order of the compile.
        data = b"".join(constants.pieces)
        packed = None if data else packed_stages
        notes[STAGES] = pack_texts(contents.stages, data) if packed is None else packed
    linked = _link(contents, variants, notes, arch)
    start, _ = linked.sections[TABLES]
    for spec in specs:
        at = start + spec.tables[0]
        for block in tables_in(memoryview(linked.data)[at : at + spec.tables[1]]):
            patch_code(block, linked.symbols)
    regions = _regions(linked.sections[name] for name in notes if name in linked.sections)
    return add_seal(linked.data, regions)


def _pack_variant(variant: Variant, contents: FileSpec) -> bytes:
    """The tables of a variant, for all sizes if it has symbolic ones."""
    tables = pack_tables(variant.tables)
    if variant.sizes is None:
        return tables
    symbolic = pack_symbolic(tables, variant.sizes, (*contents.args, *contents.outputs))
    if not variant.specialized:
        return symbolic
    return pack_specialized(
        symbolic, [(code.sizes, pack_tables(code.tables)) for code in variant.specialized]
    )


def _ordered(variants: tuple[Variant, ...]) -> list[Variant]:
    """CPU variants, best first: the widest vectors, then the most features; then device variants.

    If there are several, their kernel symbols have a suffix for the variant.
    """
    names = [variant.target.name for variant in variants]
    if not names or len(set(names)) < len(names):
        listed = ", ".join(names) or "none"
        raise CodegenError(f"a file needs variants for different targets, not {listed}")
    if len({variant.target.arch for variant in variants if not variant.is_device}) > 1:
        raise CodegenError(
            f"one file holds code for one architecture, not {', '.join(names)}",
            hint="write one file for each",
        )

    def rank(variant: Variant) -> tuple[object, ...]:
        target = variant.target
        if variant.is_device:
            return True, -arch_number(variant.cpu), variant.cpu
        return False, -target.vector_bits, -len(target.features), target.name

    ordered = sorted(variants, key=rank)
    if len(ordered) == 1:
        return ordered
    return [
        replace(
            v,
            tables=v.tables.renamed(_suffix(v)),
            specialized=tuple(code.renamed(_suffix(v)) for code in v.specialized),
        )
        for v in ordered
    ]


def _architecture(contents: FileSpec, variants: list[Variant]) -> str:
    """The ELF architecture: that of the code, or of the host if there is no code."""
    first = variants[0]
    return first.target.arch if not first.is_device else contents.host or os.uname().machine


def _link(
    contents: FileSpec, variants: list[Variant], notes: Mapping[str, Note], arch: str
) -> Linked:
    parts, exports = [], []
    for variant in variants:
        suffix = _suffix(variant) if len(variants) > 1 else ""
        parts += [Part(data, suffix) for data in variant.objects]
        exports += variant.tables.linked_symbols
        for code in variant.specialized:
            parts += [Part(data, code.suffix + suffix) for data in code.objects]
            exports += code.tables.linked_symbols
    if contents.entry is not None and contents.runtime is not None:
        parts.append(Part(contents.entry))
        exports.append(ENTRY)
    return link_shared(
        parts,
        list(dict.fromkeys(exports)),
        notes,
        arch=arch,
        runtime=contents.runtime,
    )


def check_devices(variants: Iterable[Variant], images: Iterable[DeviceImage]) -> None:
    """Refuse a device variant without code, and code that lacks a kernel of its variant."""
    images = list(images)
    for variant in variants:
        if not variant.is_device:
            continue
        target_images = [image for image in images if image.arch == variant.cpu]
        if not target_images:
            raise CodegenError(f"no device image is for {variant.cpu}, the target of a variant")
        tables = (variant.tables, *(code.tables for code in variant.specialized))
        symbols = [symbol for part in tables for symbol in part.device_symbols]
        for image in target_images:
            check_image(image, symbols)


def _suffix(variant: Variant) -> str:
    return f".{variant.target.name}"


def _weights(weights: Mapping[int, Buffer] | WeightsSpec) -> tuple[WeightsSpec, _Pieces]:
    pieces = _Pieces()
    if isinstance(weights, WeightsSpec):
        return weights, pieces
    tensors = [WeightSpec(arg, *pieces.append(weights[arg])) for arg in sorted(weights)]
    return WeightsSpec("embedded", "", tuple(tensors)), pieces


def _regions(regions: Iterable[tuple[int, int]]) -> list[int]:
    """The region bounds of the seal: both ends of each section."""
    return [bound for offset, size in regions for bound in (offset, offset + size)]


class _Pieces:
    """The contents of a section in several pieces, each aligned to 64 bytes."""

    def __init__(self) -> None:
        self.pieces: list[Buffer] = []
        self._size = 0
        self._offsets: dict[bytes | memoryview, tuple[int, int]] = {}

    def add(self, data: bytes | memoryview) -> tuple[int, int]:
        """Offset and size of `data`; equal bytes are stored once, and empty data is at (0, 0)."""
        if not data:
            return 0, 0
        if data not in self._offsets:
            self._offsets[data] = self.append(data)
        return self._offsets[data]

    def append(self, data: Buffer) -> tuple[int, int]:
        """Offset and size of `data`, which is not copied."""
        view = memoryview(data)
        view = view.cast("B") if view.nbytes else memoryview(b"")  # cast refuses zeros in a shape
        padding = -self._size % ALIGN
        if padding:
            self.pieces.append(bytes(padding))
        offset = self._size + padding
        self.pieces.append(view)
        self._size = offset + len(view)
        return offset, len(view)
