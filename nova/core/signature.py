"""The signature of a program: names, types and roles of its arguments and results.

A plan has one without results (`nova/plan/plan.py`). `Model.signature` is read from the manifest of
a file (`nova/runtime/signature.py`); `print(model.signature)` shows it as a table.
"""

from __future__ import annotations

from nova.core.dtypes import TensorType
from nova.core.records import record
from nova.core.sizes import Dim, Shape, symbols_of
from nova.core.sizes.text import print_dim


@record
class Argument:
    """An input, param or output. `donated`: a run changes the array of the caller."""

    name: str
    type: TensorType
    role: str = "input"  # or "param", "output"
    donated: bool = False

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype.name


@record
class Signature:
    """The arguments of a run, in order, and its results."""

    inputs: tuple[Argument, ...]
    params: tuple[Argument, ...]
    outputs: tuple[Argument, ...] = ()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.inputs + self.params

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The symbols of the sizes, sorted by name; empty if all sizes are static."""
        return symbols_of(n for a in self.arguments for n in a.type.shape)

    def __str__(self) -> str:
        every = self.arguments + self.outputs
        names = [a.name if a.name.isprintable() else repr(a.name) for a in every]
        width = max(map(len, names), default=0)
        dims = [f"dim     {print_dim(dim)}" for dim in self.dims]
        lines = [
            f"{a.role:<6}  {name:<{width}}  {a.type}{'  updated in place' if a.donated else ''}"
            for a, name in zip(every, names, strict=True)
        ]
        return "\n".join(dims + lines)
