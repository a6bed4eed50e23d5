"""The manifest: the description of a program in a file besides the tables, as canonical JSON.

`write_artifact` builds a `Manifest`, `to_json` gives the bytes of section `.nova.manifest`, and
`from_json` reads them back. The native reader has checked every field before Python sees the bytes,
so reading here is short; docs/nova-format.md documents the fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from nova.artifact.check import fail, storable
from nova.core.records import record

FORMAT_VERSION = 5
DEVICE_PREFIX = "cuda:"
"""The prefix of the targets of device variants."""


@record
class TensorSpec:
    """An argument or a result. `alias` of an output is the argument it is written into, or -1."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str  # "input", "param" or "output"
    donated: bool = False
    alias: int = -1


@record
class VariantSpec:
    """The code for one kind of CPU; `tables` and `constants` are (offset, size) in their section.

    The code needs all of `features` (LLVM's names, sorted). A target `cuda:...` is for a device:
    its code is in the images whose `arch` is the variant's `cpu`.
    """

    target: str
    cpu: str
    features: tuple[str, ...]
    tables: tuple[int, int]
    constants: tuple[int, int]
    options: Mapping[str, str]

    @property
    def is_device(self) -> bool:
        return self.target.startswith(DEVICE_PREFIX)


@record
class WeightSpec:
    """The value of one param: `arg` is its index, `offset` is in the section or external file."""

    arg: int
    offset: int
    nbytes: int


@record
class WeightsSpec:
    """The location of the values of params; `sha256` is that of the external file."""

    kind: str = "none"  # or "embedded", "external"
    sha256: str = ""
    tensors: tuple[WeightSpec, ...] = ()


@record
class DeviceSpec:
    """A device image; `offset` is in section `.nova.device`."""

    kind: str  # "ptx" or "cubin"
    arch: str
    offset: int
    size: int


@record
class Manifest:
    """One file. `variants` are best first; `source` names the stage to re-compile from, or ""."""

    format_version: int
    producer: str
    arch: str
    args: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    variants: tuple[VariantSpec, ...]
    weights: WeightsSpec
    devices: tuple[DeviceSpec, ...]
    source: str
    key: Mapping[str, str]

    def to_json(self) -> bytes:
        """Canonical JSON: equal manifests give equal bytes."""
        return canonical_json(_plain(self))


def canonical_json(value: object) -> bytes:
    """JSON with sorted keys, no spaces and ASCII only; NaN is refused."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {storable(name): _plain(item) for name, item in value.items()}
    return storable(value) if isinstance(value, str) else value


def from_json(data: bytes) -> Manifest:
    """Parse a manifest that the native reader has accepted; ArtifactError if it is invalid."""
    try:
        document = json.loads(data)
        weights = document.pop("weights")
        return Manifest(
            args=_tensors(document.pop("args")),
            outputs=_tensors(document.pop("outputs")),
            variants=tuple([_variant(**row) for row in document.pop("variants")]),
            weights=WeightsSpec(
                weights["kind"],
                weights["sha256"],
                tuple([WeightSpec(**row) for row in weights["tensors"]]),
            ),
            devices=tuple([DeviceSpec(**row) for row in document.pop("devices")]),
            **document,
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        fail("manifest-json", f"{type(error).__name__}: {error}")


def _tensors(rows: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple([TensorSpec(shape=tuple(row.pop("shape")), **row) for row in rows])


def _variant(
    features: list[str], tables: list[int], constants: list[int], **more: Any
) -> VariantSpec:
    return VariantSpec(
        features=tuple(features),
        tables=(tables[0], tables[1]),
        constants=(constants[0], constants[1]),
        **more,
    )
