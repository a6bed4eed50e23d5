"""Arguments and results of a program: names, types and roles, from the manifest of its file.

Creates `Model.signature`; `print(model.signature)` shows it as a table.
"""

from __future__ import annotations

from nova.artifact.manifest import Manifest, TensorSpec
from nova.core.dtypes import TensorType, array_dtype
from nova.core.records import record


@record
class Argument:
    """An input, param or output. `donated`: a run changes the array of the caller."""

    name: str
    type: TensorType
    role: str  # "input", "param" or "output"
    donated: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype.name


@record
class Signature:
    """The arguments of a run, in order, and its results."""

    inputs: tuple[Argument, ...]
    params: tuple[Argument, ...]
    outputs: tuple[Argument, ...]

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.inputs + self.params

    def __str__(self) -> str:
        every = self.arguments + self.outputs
        names = [a.name if a.name.isprintable() else repr(a.name) for a in every]
        width = max(map(len, names), default=0)
        return "\n".join(
            f"{a.role:<6}  {name:<{width}}  {a.type}{'  updated in place' if a.donated else ''}"
            for a, name in zip(every, names, strict=True)
        )


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
