"""Reads the signature of a program from the manifest of its file, for `Model.signature`."""

from __future__ import annotations

from collections.abc import Sequence

from nova.artifact.manifest import Manifest, TensorSpec
from nova.core.dtypes import TensorType, array_dtype
from nova.core.signature import Argument, Signature
from nova.core.sizes import Shape


def read_signature(manifest: Manifest, shapes: Sequence[Shape] | None = None) -> Signature:
    """The signature of the program in a file; `shapes` are those of a symbolic program."""
    specs = (*manifest.args, *manifest.outputs)
    if shapes is None:
        shapes = [tuple(spec.shape) for spec in specs]
    tensors = [_argument(spec, shape) for spec, shape in zip(specs, shapes, strict=True)]
    arguments = tensors[: len(manifest.args)]
    return Signature(
        tuple(a for a in arguments if a.role == "input"),
        tuple(a for a in arguments if a.role == "param"),
        tuple(tensors[len(arguments) :]),
    )


def _argument(spec: TensorSpec, shape: Shape) -> Argument:
    return Argument(spec.name, TensorType(shape, array_dtype(spec.dtype)), spec.role, spec.donated)
