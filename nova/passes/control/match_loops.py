"""Matches a `scf.for` on tensors: the slices that it reads and writes at its induction variable.

In: a loop with constant bounds. Out: a `Loop`, which says which iteration arguments are carried,
which operands are read slice by slice, and which results are written so. `outline-control-flow`
uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.records import record
from nova.ir.bindings import arith, ir
from nova.ir.clone import clone_into
from nova.ir.index import index
from nova.ir.walk import defining_op, every_op


@record
class Loop:
    """A loop of `length` iterations at positions 0 to `length` - 1, or in `reverse`."""

    block: Any
    lower: int
    step: int
    length: int
    reverse: bool
    carries: tuple[int, ...]
    """The iteration arguments that are carried; the others are stacked results."""
    initial: tuple[Any, ...]
    reads: tuple[Any, ...]
    """The `tensor.extract_slice` ops at the position, of values from outside."""
    writes: tuple[Any, ...]
    """The `tensor.insert_slice` op of each stacked result."""
    numbers: tuple[Any, ...]
    """The `tensor.from_elements` ops that hold the position as an i64."""
    positions: tuple[Any, ...]
    """The values inside that are the position."""
    result_types: list[Any]
    order: tuple[int, ...]
    """For each result of the op, the index of the result of the control function."""

    @property
    def slice_ops(self) -> tuple[Any, ...]:
        """The ops that the control function replaces."""
        return (*self.reads, *self.writes, *self.numbers)

    def induction(self, position: Any) -> Any:
        """The induction variable at a position."""
        if self.reverse:
            position = arith.subi(index(self.length - 1), position)
        if self.step != 1:
            position = arith.muli(position, index(self.step))
        return arith.addi(position, index(self.lower)) if self.lower else position

    def inline(self, inner: dict[Any, Any]) -> list[Any]:
        """Clone the body at the insertion point; return the carries and the slices of results."""
        replaced = set(self.slice_ops)
        *operations, ending = [op.operation for op in self.block.operations]
        for op in operations:
            if op not in replaced:
                clone_into(op, inner)
        carried = [inner.get(v, v) for v in (ending.operands[i] for i in self.carries)]
        rows = [inner.get(op.operands[0], op.operands[0]) for op in self.writes]
        return [*carried, *rows]


def match_loop(op: Any) -> Loop:
    """The parts of a `scf.for` with constant bounds."""
    lower, upper, step = (_bound(op.operands[i]) for i in range(3))
    length = max(0, -(-(upper - lower) // step))
    block = op.regions[0].blocks[0]
    induction, *arguments = block.arguments
    reverse, positions = False, [induction]
    is_plain = lower == 0 and step == 1
    if is_plain:
        backwards = _backwards(induction, length)
        forwards = _slices_at(block, [induction])
        if backwards and not forwards and _slices_at(block, backwards):
            reverse, positions = True, backwards
    slices = _slices_at(block, positions) if is_plain else []
    inside = {r for inner in every_op(op) if inner != op for r in inner.results}
    inside.update(block.arguments)
    reads = [
        s
        for s in slices
        if s.name == "tensor.extract_slice"
        and s.operands[0] not in inside
        and _is_row(s, s.operands[0], length)
    ]
    writes = [w for i in range(len(arguments)) if (w := _written(block, i, slices, length))]
    stacked = [list(arguments).index(w.operands[1]) for w in writes]
    carries = tuple(i for i in range(len(arguments)) if i not in stacked)
    order = [0] * len(arguments)
    for result, argument in enumerate([*carries, *stacked]):
        order[argument] = result
    types = [r.type for r in op.results]
    return Loop(
        block=block,
        lower=lower,
        step=step,
        length=length,
        reverse=reverse,
        carries=carries,
        initial=tuple(op.operands[3 + i] for i in carries),
        reads=tuple(reads),
        writes=tuple(writes),
        numbers=tuple(_numbers(positions)) if is_plain else (),
        positions=tuple(positions),
        result_types=[types[i] for i in (*carries, *stacked)],
        order=tuple(order),
    )


def constant_index(value: Any) -> int | None:
    """The value of an integer constant, or None."""
    op = defining_op(value, "arith.constant")
    return None if op is None else int(ir.IntegerAttr(op.attributes["value"]).value)


def _bound(value: Any) -> int:
    bound = constant_index(value)
    assert bound is not None, "loops with other bounds are not outlined"
    return bound


def _backwards(induction: Any, length: int) -> list[Any]:
    """The values that are `length - 1 - induction`."""
    users = [use.owner.operation for use in induction.uses]
    return [
        user.results[0]
        for user in users
        if user.name == "arith.subi"
        and user.operands[1] == induction
        and constant_index(user.operands[0]) == length - 1
    ]


def _slices_at(block: Any, positions: Sequence[Any]) -> list[Any]:
    """The slice ops directly in a block whose one dynamic offset is a position, on axis 0."""
    matches = []
    for op in block.operations:
        op = op.operation
        if op.name not in ("tensor.extract_slice", "tensor.insert_slice"):
            continue
        sources = 1 if op.name == "tensor.extract_slice" else 2
        if len(op.operands) == sources + 1 and op.operands[sources] in positions:
            matches.append(op)
    return matches


def _is_row(op: Any, stacked: Any, length: int) -> bool:
    """Whether a slice op is all of one position along axis 0 of a value with `length` of them."""
    shape = list(stacked.type.shape)
    offsets, sizes, strides = (
        list(op.attributes[f"static_{part}"]) for part in ("offsets", "sizes", "strides")
    )
    return (
        shape[:1] == [length]
        and offsets[1:] == [0] * (len(shape) - 1)
        and sizes == [1, *shape[1:]]
        and strides == [1] * len(shape)
    )


def _written(block: Any, number: int, slices: list[Any], length: int) -> Any | None:
    """The op that writes one row of an iteration argument in every iteration, and nothing else."""
    argument = list(block.arguments)[1 + number]
    uses = [use.owner.operation for use in argument.uses]
    ending = block.operations[len(block.operations) - 1].operation
    if len(uses) != 1 or uses[0] not in slices or uses[0].name != "tensor.insert_slice":
        return None
    op = uses[0]
    is_yielded = ending.operands[number] == op.results[0]
    once = sum(1 for _ in op.results[0].uses) == 1
    is_row = op.operands[1] == argument and _is_row(op, argument, length)
    return op if is_yielded and once and is_row else None


def _numbers(positions: Sequence[Any]) -> list[Any]:
    """The ops that make an i64 tensor of a position."""
    numbers = []
    for position in positions:
        for use in position.uses:
            cast = use.owner.operation
            if cast.name != "arith.index_cast" or str(cast.results[0].type) != "i64":
                continue
            for inner in cast.results[0].uses:
                op = inner.owner.operation
                if op.name == "tensor.from_elements" and not op.results[0].type.rank:
                    numbers.append(op)
    return numbers
