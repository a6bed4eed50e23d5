"""Arg-reductions (argmax, argmin): how lanes that each scanned a part agree on a position.

Input: a reduction to a value and its position, whose body takes the next element when it is better
than the best so far. Output: code that compares two such results. `generic.py` calls this: a warp
scans the elements, each lane every 32nd, and ends with 32 results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import WARP, butterfly
from nova.ir.bindings import arith, ir
from nova.ir.clone import clone_into
from nova.ir.walk import defining_op

Best = tuple[Any, Any]
"""A value and its position."""


@dataclass(frozen=True)
class ArgReduce:
    """The parts of the body: the element, its position, whether it is taken, and the condition."""

    element: Any
    position: Any
    replaces: Any
    best: Any
    judges: tuple[Any, ...]

    def empty(self) -> list[Any]:
        """An initial best that the very first element replaces."""
        return [splat(self.best.type, 0), splat(self.position.type, 0)]

    def better(self, new: Any, old: Any, captured: Mapping[Any, Any]) -> Any:
        """Whether an element is better than another; equal ones are not."""
        mapping = dict(captured) | {self.element: new, self.best: old}
        # Only the very first element is taken unconditionally.
        index_type = self.position.type
        mapping[self.position] = arith.ConstantOp(
            index_type, ir.IntegerAttr.get(index_type, 1)
        ).result
        for op in self.judges:
            clone_into(op, mapping)
        return mapping[self.replaces]

    def merge(self, first: Best, second: Best, captured: Mapping[Any, Any]) -> Best:
        """The better of two; of equal ones, the first."""
        wins = self.better(second[0], first[0], captured)
        loses = self.better(first[0], second[0], captured)
        earlier = arith.cmpi(arith.CmpIPredicate.slt, second[1], first[1])
        true = arith.ConstantOp(wins.type, ir.IntegerAttr.get(wins.type, 1)).result
        equal = arith.xori(arith.ori(wins, loses), true)
        chosen = arith.ori(wins, arith.andi(equal, earlier))
        return (
            arith.select(chosen, second[0], first[0]),
            arith.select(chosen, second[1], first[1]),
        )

    def merge_warp(self, lane: Best, captured: Mapping[Any, Any]) -> Best:
        """The best of all lanes, in each of them."""
        value, position = butterfly(
            lane, lambda a, b: list(self.merge((a[0], a[1]), (b[0], b[1]), captured)), WARP
        )
        return value, position


def find_extreme(nest: LoopNest) -> ArgReduce | None:
    """Match a body that computes a position along its single reduction; else None."""
    generic = nest.generic
    reductions = [loop for loop in nest.loops if not loop.parallel]
    if generic.num_outputs != 2 or len(reductions) != 1:
        return None
    *body, last = [op.operation for op in generic.block.operations]
    best, where = list(generic.block.arguments)[generic.num_inputs :]
    chosen = [defining_op(value, "arith.select") for value in last.operands]
    if chosen[0] is None or chosen[1] is None:
        return None
    (replaces, element, old), (also_replaces, position, old_position) = (
        list(op.operands) for op in chosen if op
    )
    cast = defining_op(position, "arith.index_cast")
    counter = defining_op(cast.operands[0], "linalg.index") if cast is not None else None
    if replaces != also_replaces or old != best or old_position != where or counter is None:
        return None
    if (int(counter.attributes["dim"].value),) != reductions[0].dims:
        return None
    needed, judges = {replaces}, []
    for op in reversed(body):
        results = list(op.results)
        if any(r in needed for r in results) and element not in results and position not in results:
            judges.append(op)
            needed.update(op.operands)
    if not any(_is_first(op, position) for op in judges):
        return None
    matched = {element, position, best}
    inside = {r for op in judges for r in op.results} | matched
    arguments = set(generic.block.arguments) - matched
    if needed & arguments or where in needed or any(len(op.regions) for op in judges):
        return None
    outside = {r for op in body for r in op.results} - inside
    return (
        None
        if needed & outside
        else ArgReduce(element, position, replaces, best, tuple(judges[::-1]))
    )


def _is_first(op: Any, position: Any) -> bool:
    """Whether an op tests for position 0."""
    if op.name != "arith.cmpi" or int(op.attributes["predicate"].value) != arith.CmpIPredicate.eq:
        return False
    constant = defining_op(op.operands[1], "arith.constant")
    return (
        op.operands[0] == position
        and constant is not None
        and int(constant.attributes["value"].value) == 0
    )
