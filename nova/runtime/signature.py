"""Reads the signature of a program from the manifest of its file, for `Model.signature`."""

from __future__ import annotations

from nova.artifact.manifest import Manifest, TensorSpec
from nova.core.dtypes import TensorType, array_dtype
from nova.core.signature import Argument, Signature


def read_signature(manifest: Manifest) -> Signature:
    """The signature of the program in a file."""
    arguments = [_argument(spec) for spec in manifest.args]
    return Signature(
        tuple(a for a in arguments if a.role == "input"),
        tuple(a for a in arguments if a.role == "param"),
        tuple(_argument(spec) for spec in manifest.outputs),
    )


def _argument(spec: TensorSpec) -> Argument:
    return Argument(
        spec.name, TensorType(tuple(spec.shape), array_dtype(spec.dtype)), spec.role, spec.donated
    )
