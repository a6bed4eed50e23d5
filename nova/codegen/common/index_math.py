"""Positions of accesses: their movement along a loop, and static distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.codegen.common.loop_nest import Loop
from nova.core.sizes import Size
from nova.ir.bindings import ir
from nova.ir.index import binary, index
from nova.ir.symbolic.size_table import is_number

Range = tuple[Any, Any]
"""The iterations of a loop that a tile runs: first, and one past the last."""


def advance(bases: Sequence[Any], iv: Any, loop: Loop) -> list[Any]:
    """The position of each operand's access in iteration `iv` of `loop`; None is position 0."""
    return [_moved(base, iv, stride) for base, stride in zip(bases, loop.strides, strict=True)]


def at(base: Any) -> Any:
    """A position as a value."""
    return index(0) if base is None else base


def shifted(base: Any, by: Size) -> Any:
    """A position, shifted by some elements."""
    if is_number(by, 0):
        return at(base)
    return index(by) if base is None else binary("arith.addi", base, by)


def _moved(base: Any, iv: Any, stride: Size) -> Any:
    if is_number(stride, 0):
        return base
    step = iv if is_number(stride, 1) else binary("arith.muli", iv, stride)
    return step if base is None else binary("arith.addi", base, step)


def distance(low: Any, high: Any) -> int | None:
    """high - low, where the range was built as `low + constant`."""
    op = high.owner if isinstance(high, ir.OpResult) else None
    if op is None or op.operation.name != "arith.addi" or op.operation.operands[0] != low:
        return None
    step = op.operation.operands[1]
    if not isinstance(step, ir.OpResult) or step.owner.operation.name != "arith.constant":
        return None
    return int(step.owner.operation.attributes["value"].value)
