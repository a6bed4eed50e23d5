"""The Plan: a frozen linear program.

A graph is compiled to a plan: a `Signature` (names, shapes and types of inputs and params), `Step`s
in an executable order (forward, then backward, then updates), each writing one slot, the slots to
return, and the params to update in place. It prints as text and parses back (`nova.plan.text`), and
every later stage depends only on the plan.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from nova.core.constants import digest_of
from nova.core.dtypes import TensorType
from nova.core.location import Location
from nova.core.records import record
from nova.core.signature import Signature
from nova.core.sizes import Dim


@record
class Input:
    """Argument `index` of the inputs."""

    index: int

    def __str__(self) -> str:
        return f"input[{self.index}]"


@record
class Param:
    """Argument `index` of the params."""

    index: int

    def __str__(self) -> str:
        return f"param[{self.index}]"


@record
class Slot:
    """The result of the step that writes slot `index`."""

    index: int

    def __str__(self) -> str:
        return f"slot[{self.index}]"


@record
class Literal:
    """A constant inside the program."""

    array: np.ndarray
    type: TensorType

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal) and self.type == other.type and self.digest == other.digest
        )

    def __hash__(self) -> int:
        return hash((self.type, self.digest))

    @cached_property
    def digest(self) -> str:
        """The digest of the constant's bytes."""
        return digest_of(np.ascontiguousarray(self.array).reshape(-1).view(np.uint8).data)


Arg = Input | Param | Slot | Literal


@record
class Step:
    """`out_slot = op(args, **attrs)`; `location` is the user's line.

    `device` is `cpu` for a host-pinned step, and empty for a step on the program's target. A step
    with `regions`, or a call (nova/ops/loops/control.py), has `results`: steps of the op `result`
    select one of them, and `out_type` is the type of the first.
    """

    op: str
    args: tuple[Arg, ...]
    attrs: dict[str, Any]
    out_type: TensorType
    out_slot: int
    location: Location | None = field(default=None, compare=False)
    device: str = ""
    regions: tuple[Plan, ...] = ()
    results: tuple[TensorType, ...] = ()


@record
class Derivation:
    """Under NOVA_CHECK=1: a vjp column whose result is in the plan, and its arguments.

    An argument that the program does not compute is None; the gradient does not depend on it.
    """

    op: str
    attrs: dict[str, Any]
    args: tuple[Arg | None, ...]
    types: tuple[TensorType, ...]
    operand: int
    out_slot: int | None
    location: Location | None


@record
class Plan:
    """The whole program."""

    signature: Signature
    steps: tuple[Step, ...]
    results: tuple[Arg, ...]
    updates: tuple[tuple[int, Arg], ...] = ()
    derivations: tuple[Derivation, ...] = field(default=(), compare=False)

    @property
    def out_slots(self) -> tuple[int, ...]:
        """The slots that are returned (seed: results that are steps)."""
        return tuple(r.index for r in self.results if isinstance(r, Slot))

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        """The symbols of the sizes, sorted by name; empty for a program with static sizes."""
        return self.signature.dims

    @property
    def num_slots(self) -> int:
        return len(self.steps)

    def type_of(self, arg: Arg) -> TensorType:
        """The type of any argument of a step or of a result."""
        match arg:
            case Input(index):
                return self.signature.inputs[index].type
            case Param(index):
                return self.signature.params[index].type
            case Slot(index):
                return self.steps[index].out_type
            case Literal(type=type_):
                return type_

    def __str__(self) -> str:
        from nova.plan.text import print_plan

        return print_plan(self)
