"""The signature of a program: names, types and roles of its arguments and results.

A plan has one without results (`nova/plan/plan.py`). `Model.signature` is read from the manifest of
a file (`nova/runtime/signature.py`); `print(model.signature)` shows it as a table.
"""

from __future__ import annotations

from nova.core.dtypes import TensorType
from nova.core.records import record


@record
class Argument:
    """An input, param or output. `donated`: a run changes the array of the caller."""

    name: str
    type: TensorType
    role: str = "input"  # or "param", "output"
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
    outputs: tuple[Argument, ...] = ()

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
